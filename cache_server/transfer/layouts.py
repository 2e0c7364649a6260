"""Which file of which cache a path is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from cache_server.store import LAYOUT
from cache_server.transfer.source import Member

MANIFEST_NAME = "BUNDLE.json"


class Layout(StrEnum):
    """How a cache lies in its directory: our own store, TorchNeuron's cache, or that of libneuronxla."""

    BUNDLE = "bundle"
    TORCH_NEURONX = "torch-neuronx"
    NEURONXLA = "neuronxla"


_NAMESPACE = r"(?P<namespace>[a-z0-9][a-z0-9._-]{0,63})"
_ENTRY = re.compile(rf"entries/{_NAMESPACE}/(?P<shard>[0-9a-f]{{2}})/(?P<key>[0-9a-f]{{64}})\.json")
_BLOB = re.compile(r"blobs/sha256/[0-9a-f]{2}/(?P<sha256>[0-9a-f]{64})")
_JOB = re.compile(
    rf"jobs/{_NAMESPACE}/(?P<job>[A-Za-z0-9][A-Za-z0-9._-]{{0,127}})/(?P<part>[A-Za-z0-9][\w.-]{{0,199}})\.json"
)
_TORCH = re.compile(
    r"(?:.*/)?(?P<a>[0-9a-f]{2})/(?P<b>[0-9a-f]{2})/(?P<k>[0-9a-f]{32})\.neff(?P<ending>\.json|\.sha256|\.origin|\.outputs)?"
)
_MODULE = re.compile(
    r"(?:.*/)?(?P<home>neuronxcc-(?P<version>[\w.+-]{1,100}))/(?P<module>MODULE_[\w.+-]{1,200})/(?P<file>[\w.+-]{1,100})"
)


@dataclass
class Found:
    """The members of a source by what they are."""

    bundle: Member | None = None
    entries: dict[tuple[str, str], Member] = field(default_factory=dict)  # by namespace and key
    blobs: dict[str, Member] = field(default_factory=dict)  # by SHA-256
    jobs: dict[tuple[str, str, str], Member] = field(default_factory=dict)  # by namespace, job and part
    neffs: dict[str, dict[str, Member]] = field(default_factory=dict)  # by short key, then by ending
    modules: dict[tuple[str, str], dict[str, Member]] = field(default_factory=dict)  # by version and module, by name
    refused: list[Member] = field(default_factory=list)
    other: list[Member] = field(default_factory=list)  # no part of any of these

    @property
    def layouts(self) -> list[Layout]:
        """Those of which there is anything."""
        there = {
            Layout.BUNDLE: self.entries or self.bundle,
            Layout.TORCH_NEURONX: self.neffs,
            Layout.NEURONXLA: self.modules,
        }
        return [layout for layout, found in there.items() if found]


def sort_members(members: Iterable[Member]) -> Found:
    """Tells the members of a source apart by their names."""
    found = Found()
    for member in members:
        if member.refused:
            found.refused.append(member)
        elif not (_in_store(found, member) or _in_torch_cache(found, member) or _in_module(found, member)):
            found.other.append(member)
    return found


def _in_store(found: Found, member: Member) -> bool:
    before, inside, path = member.name.rpartition(LAYOUT + "/")
    if not inside:
        if member.name.rpartition("/")[2] == MANIFEST_NAME and member.name.count("/") <= 1:
            found.bundle = member
            return True
        return False
    if before and not before.endswith("/"):
        return False
    if match := _ENTRY.fullmatch(path):
        if match["shard"] == match["key"][:2]:
            found.entries[match["namespace"], match["key"]] = member
    elif match := _BLOB.fullmatch(path):
        found.blobs[match["sha256"]] = member
    elif match := _JOB.fullmatch(path):
        found.jobs[match["namespace"], match["job"], match["part"]] = member
    return True  # leases, pins and the like stay with their store


def _in_torch_cache(found: Found, member: Member) -> bool:
    match = _TORCH.fullmatch(member.name)
    if match is None or match["k"][:4] != match["a"] + match["b"]:
        return False
    found.neffs.setdefault(match["k"], {})[match["ending"] or ""] = member
    return True


def _in_module(found: Found, member: Member) -> bool:
    match = _MODULE.fullmatch(member.name)
    if match is None:
        return False
    found.modules.setdefault((match["version"], match["module"]), {})[match["file"]] = member
    return True
