"""Runs a program in a process of its own, within a time limit, and turns what the device saw into findings."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from .finding import Finding, Level, Rule

RUN_S = 600.0
FAILED = Rule("run-failed", Level.ERROR, "the program fails on this device")
FALLBACK = Rule(
    "run-fallback", Level.WARNING, "the operator has no compiled form: it runs on the host, with copies there and back"
)
UNUSED = Rule("run-unused", Level.WARNING, "no operator ran on the device: the program computes on the CPU")
RULES = {rule.id: rule for rule in (FAILED, FALLBACK, UNUSED)}


def run(
    target: str, path: str, arguments: Sequence[str] = (), *, timeout: float = RUN_S, ignored: Collection[str] = ()
) -> list[Finding]:
    """Findings of one run of `target`, a script or MODULE:FACTORY, in the file `path`.

    The program's own output goes to our stderr. It ends, with what it started, after `timeout` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="neuron-env-preflight-") as directory:
        answer = Path(directory) / "answer.json"
        ended = _start(target, arguments, answer, timeout)
        try:
            found: dict[str, Any] = json.loads(answer.read_text())
        except (OSError, ValueError):
            found = {"error": ended or "it ended without a word"}
    return [it for it in _findings(found, path) if it.rule.id not in ignored]


def _findings(found: dict[str, Any], path: str) -> list[Finding]:
    findings = []
    if found.get("error"):
        findings.append(_at(FAILED, path, int(found.get("line") or 1), str(found["error"]), None))
    for name, count in sorted(found.get("fallback", {}).items()):
        times = "once" if count == 1 else f"{count} times"
        findings.append(_at(FALLBACK, path, 1, f"`{name}` ran on the host {times}", "see docs/operators.md"))
    if not found.get("error") and not found.get("executed") and not found.get("fallback"):
        findings.append(_at(UNUSED, path, 1, "nothing ran on the device", 'move model and data to "neuron"'))
    return findings


def _start(target: str, arguments: Sequence[str], answer: Path, timeout: float) -> str | None:
    """How it ended, where that was not by itself."""
    program = str(Path(__file__).with_name("run_program.py"))
    environ = dict(os.environ)
    if not any(environ.get(name) for name in ("NEURON_RT_NUM_CORES", "NEURON_RT_VISIBLE_CORES")):
        # A process takes all cores otherwise.
        environ["NEURON_RT_NUM_CORES"] = "1"
    process = subprocess.Popen(
        [sys.executable, program, str(answer), target, *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        start_new_session=True,
    )
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        return f"it was still running after {timeout:g} s, and was ended"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"it was ended by signal {-status}" if status < 0 else None


def _at(rule: Rule, path: str, line: int, what: str, instead: str | None) -> Finding:
    return Finding(rule, path, line, 1, line, 1, what, instead, rule.level)
