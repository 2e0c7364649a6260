"""Everything that is known about a host, in one document."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from neuron_runtime.host.caches import probe_caches
from neuron_runtime.host.devices import family_of, probe_devices
from neuron_runtime.host.driver import probe_driver
from neuron_runtime.host.host import Host
from neuron_runtime.host.metadata import probe_metadata
from neuron_runtime.host.missing import Facts
from neuron_runtime.host.packages import read_packages
from neuron_runtime.host.probes import Answer, run_probes
from neuron_runtime.host.proof import PROOF_S, prove_device
from neuron_runtime.host.pythons import find_python
from neuron_runtime.host.running import Programs
from neuron_runtime.host.runtime import probe_runtime
from neuron_runtime.host.surroundings import probe_surroundings
from neuron_runtime.host.system import probe_system
from neuron_runtime.host.variables import probe_variables

PROBE_S = 2.0
_METADATA_S = 4.0


@dataclass(frozen=True, slots=True)
class HostReport:
    """What the probes found, section by section in a fixed order; a section is None where there is nothing.

    image: whether an unpacked image was looked into, which has neither driver nor devices
    not_found: the reasons, by section or `section.fact`
    seconds, failed: by section
    """

    sections: dict[str, dict[str, Any] | None]
    not_found: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    image: bool = False

    @property
    def usable(self) -> bool:
        """Whether a computation on the device was seen to be right."""
        return self.sections.get("proof") is not None

    @property
    def simulated(self) -> bool | None:
        """Whether the device is one of ours; None where nothing tells."""
        proof, packages = self.sections.get("proof"), self.sections.get("packages") or {}
        if proof is not None:
            return bool(proof["simulated"])
        if self.sections.get("driver") and self.sections.get("devices"):
            return False
        return True if "torch-neuronx-sim" in packages and "torch-neuronx" not in packages else None

    @property
    def family(self) -> str | None:
        """`trn2` and the like, from the driver or else from the machine's firmware; None where neither tells."""
        family = (self.sections.get("devices") or {}).get("family")
        machine = (self.sections.get("system") or {}).get("instance_type")
        return family or (family_of(machine) if machine else None)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.usable:
            proof = self.sections["proof"] or {}
            kind = "SIMULATED device" if self.simulated else "device"
            return f"usable: torch {proof.get('torch')} computed on the {kind} {proof.get('device')}"
        reason = self.not_found.get("proof", "the proof was not asked for")
        others = [f"{name}: {self.not_found[name]}" for name in ("driver", "devices") if name in self.not_found]
        text = f"not usable: {reason}" if "proof" in self.not_found else f"not proved: {reason}"
        return text if self.simulated or self.image else "; ".join([text, *others])

    def to_json(self) -> dict[str, Any]:
        return {
            "usable": self.usable,
            "simulated": self.simulated,
            "verdict": self.verdict,
            "sections": self.sections,
            "not_found": self.not_found,
            "probes": {
                name: {"seconds": round(seconds, 3), "failed": self.failed.get(name)}
                for name, seconds in self.seconds.items()
            },
        }


def collect_host(
    host: Host,
    *,
    python: str | None = None,
    proof: bool = True,
    proof_timeout: float = PROOF_S,
    metadata: bool = False,
    probe_timeout: float | None = None,
) -> HostReport:
    """Asks all probes at once. Within `probe_timeout` (PROBE_S) seconds, and `proof_timeout` where a proof is wanted.

    No program of the host's outlives the call.
    """
    probe_timeout = PROBE_S if probe_timeout is None else probe_timeout
    # A program ends a little before its probe, and its probe can say which one it was.
    host = replace(host, time_limit=0.9 * probe_timeout, programs=Programs())
    probes: dict[str, Callable[[], Facts]] = {
        "system": lambda: probe_system(host),
        "python": lambda: _python(host, python),
        "packages": lambda: _packages(host, python),
        "driver": lambda: probe_driver(host),
        "devices": lambda: probe_devices(host),
        "runtime": lambda: probe_runtime(host),
        "surroundings": lambda: probe_surroundings(host),
        "variables": lambda: probe_variables(host),
        "caches": lambda: probe_caches(host),
    }
    limits = {"metadata": max(probe_timeout, _METADATA_S), "proof": proof_timeout + 2.0}
    if metadata:
        probes["metadata"] = lambda: probe_metadata(host)
    if proof:
        probes["proof"] = lambda: _proof(host, python, proof_timeout)
    try:
        return _report(run_probes(probes, limits, probe_timeout), image=not host.executes)
    finally:
        host.programs.end()


def _report(answers: dict[str, Answer], *, image: bool) -> HostReport:
    not_found: dict[str, str] = {}
    for name, answer in answers.items():
        if answer.reason is not None:
            not_found[name] = answer.reason
        not_found.update({f"{name}.{fact}": reason for fact, reason in answer.reasons.items()})
    return HostReport(
        sections={name: answer.facts for name, answer in answers.items()},
        not_found=not_found,
        seconds={name: answer.seconds for name, answer in answers.items()},
        failed={name: answer.failed for name, answer in answers.items() if answer.failed},
        image=image,
    )


def _python(host: Host, chosen: str | None) -> Facts:
    facts, found = Facts(), find_python(host, chosen)
    facts.put("version", found.version)
    facts.put("executable", found.executable)
    facts.put("prefix", found.prefix)
    return facts


def _packages(host: Host, chosen: str | None) -> Facts:
    facts = Facts()
    for name, package in read_packages(host, find_python(host, chosen)).items():
        facts.put(name, package)
    return facts


def _proof(host: Host, chosen: str | None, timeout: float) -> Facts:
    facts = Facts()
    for name, value in prove_device(host, chosen, timeout).items():
        facts.put(name, value)
    return facts
