"""Compares what there is with a set: the one asked for, or the one that comes nearest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neuron_runtime.pins.catalog import Catalog
from neuron_runtime.pins.compare import compare_versions, compared
from neuron_runtime.pins.finding import Finding, Severity
from neuron_runtime.pins.observed import Observed
from neuron_runtime.pins.pinset import PinSet
from neuron_runtime.pins.traps import find_traps
from neuron_runtime.pins.versions import series

# A trap says more than the bare difference that it shows up in.
_EXPLAINED_BY = {
    "placeholder-package": ("version:torch-neuronx",),
    "xla-build": ("version:torch-neuronx",),
    "torch-does-not-fit": ("version:torch",),
    "torch-for-gpus": ("version:torch",),
    "driver-too-old": ("version:aws-neuronx-dkms",),
    "runtime-too-old": ("version:aws-neuronx-runtime-lib",),
}


@dataclass(frozen=True, slots=True)
class Check:
    """`reason` says how the set was chosen; `rows` are (component, pinned, found, agrees)."""

    observed: Observed
    pins: PinSet
    reason: str
    rows: tuple[tuple[str, str, str | None, bool], ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is no problem; warnings and notes are none."""
        return not any(finding.severity is Severity.PROBLEM for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "source": self.observed.source,
            "sdk": self.pins.release.sdk,
            "torch": self.pins.build.torch,
            "build": self.pins.build.kind,
            "chosen": self.reason,
            "components": [
                {"name": name, "pinned": pin, "found": found, "agrees": agrees}
                for name, pin, found, agrees in self.rows
            ],
            "findings": [finding.to_json() for finding in self.findings],
        }


def check_pins(observed: Observed, pins: PinSet, reason: str, catalog: Catalog) -> Check:
    """Problems first, in the order in which they should be mended."""
    traps = find_traps(observed, pins, catalog)
    explained = {other for trap in traps for other in _EXPLAINED_BY.get(trap.id, ())}
    findings = [finding for finding in compare_versions(observed, pins, catalog) if finding.id not in explained]
    ranked = sorted([*traps, *findings], key=lambda finding: list(Severity).index(finding.severity))
    return Check(observed, pins, reason, tuple(compared(observed, pins)), tuple(ranked))


def nearest_set(observed: Observed, catalog: Catalog) -> tuple[PinSet, str]:
    """The set that most of what is installed belongs to, the newest of equals, and why it is that one."""
    candidates = catalog.pin_sets()
    if observed.build in ("native", "xla"):
        same = [pins for pins in candidates if pins.build.kind == observed.build]
        wanted = series(observed.python_packages["torch-neuronx"])
        exact = [pins for pins in same if series(pins.build.torch) == wanted]
        candidates = exact or same
    elif torch := observed.python_packages.get("torch"):
        candidates = [pins for pins in candidates if series(pins.build.torch) == series(torch)] or candidates

    def agreement(pins: PinSet) -> int:
        return sum(agrees for *_, agrees in compared(observed, pins))

    best = max(candidates, key=agreement)  # max keeps the first of equals: the newest
    rows = compared(observed, best)
    return best, f"the nearest set: {agreement(best)} of {len(rows)} components agree"
