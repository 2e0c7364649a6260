"""A check: one question about a host, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from neuron_runtime.errors import NeuronEnvError
from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import Facts
from neuron_runtime.host.probes import run_probes
from neuron_runtime.host.report import HostReport

CHECK_S = 10.0


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """`found` beside `expected`, and what to type. `mend` says that `--fix` has something safe to do about it."""

    id: str
    status: Status
    found: str
    expected: str = ""
    remedy: str = ""
    mend: Callable[[], str] | None = None

    def to_json(self) -> dict[str, Any]:
        return {**{k: str(v) for k, v in asdict(self).items() if k != "mend"}, "can_be_mended": self.mend is not None}


@dataclass(frozen=True, slots=True)
class Subject:
    """A host, and what its probes found."""

    host: Host
    report: HostReport

    def section(self, name: str) -> Mapping[str, Any]:
        """Empty where nothing was found."""
        return self.report.sections.get(name) or {}

    @property
    def container(self) -> bool:
        return bool(self.section("surroundings").get("container"))


@dataclass(frozen=True, slots=True)
class Check:
    """`look` gives a Result, or a text where all is well. It raises SkippedError where the question has no sense.

    limit: seconds
    """

    id: str
    about: str
    look: Callable[[Subject], Result | str]
    limit: float = CHECK_S


class SkippedError(NeuronEnvError):
    """The question has no sense on this host."""


def run_checks(checks: Sequence[Check], subject: Subject) -> list[Result]:
    """All at once, in order; one that crashes or does not end is a problem of its own."""

    def probe(check: Check) -> Callable[[], Facts]:
        def ask() -> Facts:
            facts = Facts()
            try:
                facts.put("result", check.look(subject))
            except SkippedError as why:
                facts.put("result", Result(check.id, Status.SKIPPED, why.message))
            return facts

        return ask

    limits = {check.id: check.limit for check in checks}
    answers = run_probes({check.id: probe(check) for check in checks}, limits, CHECK_S)
    results = []
    for check in checks:
        answer = answers[check.id]
        found = answer.facts["result"] if answer.facts else answer.reason
        if isinstance(found, Result):
            results.append(found)
        elif answer.facts:
            results.append(Result(check.id, Status.OK, str(found)))
        else:
            results.append(Result(check.id, Status.PROBLEM, f"the check itself failed: {found}", "an answer"))
    return results
