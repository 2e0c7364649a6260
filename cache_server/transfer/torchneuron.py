"""TorchNeuron's persistent cache: `<k[0:2]>/<k[2:4]>/<k>.neff`, nothing else, and no word of what k is made of."""

from __future__ import annotations

from collections.abc import Mapping

from cache_server.errors import CacheError
from cache_server.local import described_by
from cache_server.manifest import MANIFEST_LIMIT, Manifest
from cache_server.transfer.report import Fate, Item
from cache_server.transfer.source import Member, Source
from cache_server.transfer.tree import Tree


def description(source: Source, short_key: str, files: Mapping[str, Member]) -> Manifest | None:
    """The manifest beside a NEFF that a local tier of ours left there; None for TorchNeuron's own NEFFs."""
    beside = files.get(".json")
    if beside is None or beside.size > MANIFEST_LIMIT or "" not in files:
        return None
    return described_by(source.read(beside), short_key)


def adopt(source: Source, short_key: str, files: Mapping[str, Member], tree: Tree, *, dry_run: bool) -> Item:
    """Puts a NEFF of TorchNeuron's where TorchNeuron finds it, if it is whole. Raises StoreError."""
    name = f"{short_key}.neff"
    path = f"{short_key[0:2]}/{short_key[2:4]}/{name}"
    member = files.get("")
    if member is None:
        return Item(name, Fate.SKIPPED, "there is a note beside it, but no NEFF")
    if tree.has(path):
        return Item(name, Fate.PRESENT, place=tree.name, size=member.size)
    if (why := fault(source, member)) is not None:
        return Item(name, Fate.SKIPPED, why)
    if not dry_run:
        tree.add(path, member, source.read)
    return Item(name, Fate.MOVED, "its key is TorchNeuron's own", place=tree.name, size=member.size)


def fault(source: Source, member: Member) -> str | None:
    """Why a NEFF that nothing vouches for is not whole; None if its own digest says that it is."""
    from neuron_runtime.neff import NeffError, read_neff

    if member.size == 0:
        return "it is empty"
    try:
        read_neff(source.read(member))
    except NeffError as error:
        return f"it is not a whole NEFF: {error.problem}"
    except CacheError as error:
        return error.message
    return None
