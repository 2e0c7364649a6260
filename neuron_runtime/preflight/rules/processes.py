"""Several devices and several processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..finding import Finding, Level, Rule
from ..source import Source, argument, literal
from .base import found, replacing
from .strings import BACKEND

FORK = Rule("fork", Level.WARNING, "a forked child may not use the device that its parent has opened: RuntimeError")
ONE_DEVICE = Rule("data-parallel", Level.ERROR, "a process has one device: DataParallel wants several")
POINT_TO_POINT = Rule(
    "point-to-point",
    Level.NOTE,
    "sends, receives and uneven all-to-all raised NotImplementedError in April 2026; 2.14 is not known",
)
BARRIER = Rule(
    "group-barrier", Level.NOTE, "a barrier of part of the processes raised NotImplementedError in April 2026"
)

RULES = (BACKEND, FORK, ONE_DEVICE, POINT_TO_POINT, BARRIER)

_P2P = {"send", "recv", "isend", "irecv", "batch_isend_irecv", "P2POp", "send_object_list", "recv_object_list"}


def check(source: Source) -> Iterator[Finding]:
    for call, name in source.calls():
        last = (name or "").rpartition(".")[2]
        method = call.func.attr if isinstance(call.func, ast.Attribute) else last
        if name == "os.fork":
            yield found(source, call, FORK, "`os.fork`", "start another process with `subprocess`, or spawn")
        elif method in ("set_start_method", "get_context", "start_processes"):
            start = argument(call, "method", 0) if method != "start_processes" else argument(call, "start_method")
            if literal(start) == "fork":
                assert start is not None
                yield found(source, start, FORK, '"fork"', 'write "spawn"', replacing(start, '"spawn"'))
        elif name == "torch.nn.DataParallel":
            yield found(source, call, ONE_DEVICE, "`DataParallel`", "use DistributedDataParallel under torchrun")
        elif name and name.startswith("torch.distributed."):
            if last in _P2P:
                yield found(source, call, POINT_TO_POINT, f"`{name}`", "try it with `--run`; broadcast and gather work")
            elif last == "all_to_all_single" and (
                argument(call, "output_split_sizes", 2) or argument(call, "input_split_sizes", 3)
            ):
                yield found(source, call, POINT_TO_POINT, f"`{name}` with sizes", "use equal splits")
            elif last == "barrier" and argument(call, "group", 0):
                yield found(
                    source, call, BARRIER, f"`{name}` of a group", "use a barrier of all, or a small all_reduce"
                )
