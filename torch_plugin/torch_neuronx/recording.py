"""What PyTorch and this package compile in a process, written down as it happens, for `neuron-env recompiles`."""

from __future__ import annotations

import atexit
import dataclasses
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

_BREAK = re.compile(r"Graph break in user code at (?P<place>.+:\d+)")
_REASON = re.compile(
    r"^Graph Break Reason: (?P<reason>.*?)(?:^  Explanation: (?P<why>.*?)$|\Z)", re.MULTILINE | re.DOTALL
)
_FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+)', re.MULTILINE)


class Recorder(logging.Handler):
    """Takes Dynamo's structured trace, the one that TORCH_TRACE writes to files; adds graphs and fallbacks.

    In `directory`, which `NEURON_ENV_RECOMPILES_DIR` names, each process has a file of JSON lines, named by its pid.
    """

    def __init__(self, directory: str) -> None:
        super().__init__(logging.DEBUG)
        self._directory = Path(directory)

    def attach(self) -> None:
        from torch_neuronx.device.after_import import after_import

        logging.getLogger("torch.__trace").addHandler(self)
        after_import("torch_neuronx.dynamo.metrics", lambda metrics: metrics.observe(self._graph, self._fallback))
        atexit.register(self._end)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = trace_event(getattr(record, "metadata", {}), getattr(record, "payload", None))
        except Exception:  # noqa: BLE001 - a report must not end the program that it is about
            self.handleError(record)
        else:
            if event is not None:
                self._write(event)

    def _graph(self, metrics: Any) -> None:
        self._write({"event": "graph", **dataclasses.asdict(metrics)})

    def _fallback(self, graph: str, where: str, reason: str) -> None:
        self._write({"event": "fallback", "graph": graph, "where": where, "reason": reason})

    def _end(self) -> None:
        from torch_neuronx.tracking import get_executed_ops, get_fallback_ops

        self._write({"event": "operators", "device": get_executed_ops(), "host": get_fallback_ops()})

    def _write(self, event: dict[str, Any]) -> None:
        # Opened for each line: nothing is lost when the process is killed, and a forked child has its own file.
        line = json.dumps({"pid": os.getpid(), "rank": os.environ.get("RANK"), **event}, default=str)
        try:
            with (self._directory / f"{os.getpid()}.jsonl").open("a") as file:
                file.write(line + "\n")
        except OSError as error:
            logging.getLogger("torch_neuronx").warning("cannot record for `neuron-env recompiles`: %s", error)


def trace_event(metadata: dict[str, Any], payload: str | None) -> dict[str, Any] | None:
    """What a record of Dynamo's trace says about frames and graph breaks; None for all the rest."""
    if "compilation_metrics" in metadata:
        found = metadata["compilation_metrics"]
        return {
            "event": "frame",
            "compile_id": found.get("compile_id"),
            "function": found.get("co_name"),
            "place": f"{found.get('co_filename')}:{found.get('co_firstlineno')}",
            "nodes": found.get("graph_node_count"),
            "seconds": found.get("entire_frame_compile_time_s"),
            "recompile_reason": found.get("recompile_reason"),
            "failure": found.get("fail_reason"),
        }
    artifact = metadata.get("artifact")
    if isinstance(artifact, dict) and artifact.get("name") == "dynamo_graph_break_reason":
        return {"event": "graph_break", **break_of(payload or "")}
    return None


def break_of(text: str) -> dict[str, str | None]:
    """Place, reason and the whole of what Dynamo says of a graph break; the place is None where it names none."""
    user, _, _ = text.partition("\nTraceback (most recent call last)")
    named, frames, reason = _BREAK.search(user), list(_FRAME.finditer(user)), _REASON.search(user)
    place = named["place"] if named else f"{frames[-1]['file']}:{frames[-1]['line']}" if frames else None
    first = next((line.strip() for line in user.splitlines() if line.strip()), "")
    if reason:
        # Dynamo's own step comes first, then what it met.
        met = [line.strip() for line in reason["reason"].splitlines() if line.strip()] or [first]
        first = f"{met[-1]}: {reason['why']}" if reason["why"] else met[0]
    return {"place": place, "reason": first, "detail": user}
