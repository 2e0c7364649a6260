"""How a process says which NeuronCores it wants: `NEURON_RT_VISIBLE_CORES`, `NEURON_RT_NUM_CORES`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from neuron_runtime.status import NrtError, NrtStatus

_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MAX_LISTED = 4096


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """Either named cores, or a count of any; both None asks for every core, as the real runtime does."""

    visible: tuple[int, ...] | None = None
    count: int | None = None


def parse_visible_cores(text: str) -> tuple[int, ...]:
    """`"3"`, `"0-3"` or `"0,2,4-5"` as core numbers, in order. Raises NrtError(NRT_INVALID)."""
    cores: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise _invalid("NEURON_RT_VISIBLE_CORES", text, "a core, a range or a list such as `0`, `0-3` or `0,2`")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MAX_LISTED:
            raise _invalid("NEURON_RT_VISIBLE_CORES", text, f"ranges that ascend over at most {_MAX_LISTED} cores")
        cores.extend(range(first, last + 1))
    if len(set(cores)) != len(cores):
        raise _invalid("NEURON_RT_VISIBLE_CORES", text, "each core once")
    return tuple(cores)


def request_from_environment(environ: Mapping[str, str]) -> CoreRequest:
    """`NEURON_RT_VISIBLE_CORES` wins over `NEURON_RT_NUM_CORES`; 0 or neither asks for all cores."""
    visible = environ.get("NEURON_RT_VISIBLE_CORES", "").strip()
    if visible:
        return CoreRequest(visible=parse_visible_cores(visible))
    count = environ.get("NEURON_RT_NUM_CORES", "").strip()
    if not count:
        return CoreRequest()
    if not count.isdecimal():
        raise _invalid("NEURON_RT_NUM_CORES", count, "a natural number; 0 means all cores")
    return CoreRequest(count=int(count) or None)


def describe_cores(cores: Iterable[int]) -> str:
    """Core numbers in short: `0-3,6`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def _invalid(variable: str, text: str, wanted: str) -> NrtError:
    return NrtError(NrtStatus.INVALID, f"{variable}={text!r} is not valid", hint=f"give {wanted}")
