"""Runs probes side by side, each on its own clock: one that hangs is reported and left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from neuron_runtime.errors import NeuronEnvError
from neuron_runtime.host.missing import Facts

Probe = Callable[[], Facts]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a probe: `facts` is None where it found nothing at all, and `reason` says why.

    seconds: how long it took
    failed: `None`, `timed out` or `crashed`
    reasons: for single facts that are None
    """

    facts: dict[str, Any] | None
    seconds: float
    reason: str | None = None
    failed: str | None = None
    reasons: dict[str, str] = field(default_factory=dict)


def run_probes(probes: Mapping[str, Probe], limits: Mapping[str, float], default_limit: float) -> dict[str, Answer]:
    """One answer a probe, in the order of `probes`, within the longest limit (seconds).

    A probe that hangs keeps its thread, which does not keep the process alive.
    """
    answers: dict[str, Answer] = {}
    changed = threading.Condition()
    started = time.monotonic()

    def work(name: str, probe: Probe) -> None:
        answer = _ask(probe)
        with changed:
            answers.setdefault(name, answer)
            changed.notify()

    for name, probe in probes.items():
        threading.Thread(target=work, args=(name, probe), name=f"probe {name}", daemon=True).start()
    with changed:
        for name in sorted(probes, key=lambda name: limits.get(name, default_limit)):
            limit = limits.get(name, default_limit)
            left = max(0.0, started + limit - time.monotonic())
            if not changed.wait_for(lambda name=name: name in answers, left):  # type: ignore[misc]
                reason = f"timed out after {limit:g} s"
                answers[name] = Answer(None, limit, reason, failed="timed out")
        return {name: answers[name] for name in probes}


def _ask(probe: Probe) -> Answer:
    started = time.monotonic()
    try:
        facts = probe()
    except NeuronEnvError as missing:
        return Answer(None, time.monotonic() - started, missing.message)
    except Exception as error:  # noqa: BLE001 - a probe that crashes is a finding, the others go on
        return Answer(None, time.monotonic() - started, f"crashed: {type(error).__name__}: {error}", failed="crashed")
    return Answer(facts.values, time.monotonic() - started, reasons=facts.reasons)
