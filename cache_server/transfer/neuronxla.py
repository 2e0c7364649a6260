"""The cache of libneuronxla: `neuronxcc-<version>/MODULE_<hash>+<flags>/`, one directory a compile."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cache_server.errors import CacheError
from cache_server.flags import canonical_flags, without_option
from cache_server.keys import KeyParts
from cache_server.manifest import NEFF_FILE, Manifest
from cache_server.transfer.report import Fate, Item
from cache_server.transfer.source import Member, Source
from cache_server.transfer.torchneuron import fault
from cache_server.transfer.tree import Tree

COMPILER = "neuronx-cc"
NEFF, DONE, LOG, HLO, FLAGS = "model.neff", "model.done", "model.log", "model.hlo_module.pb", "compile_flags.json"
LOCK_ENDING = ".lock"
# The vendor's own heuristic is whether a compiler runs on this host, which says nothing of a tree from elsewhere.
STALE_AFTER = 2 * 3600.0
_HLO_LIMIT = 4 << 30  # bytes; a protobuf cannot be longer than 2 GiB
_FLAGS_LIMIT = 1 << 20
_LOG_LIMIT = 64 << 20
_LOG_TAIL = 4096
_MODULE = re.compile(r"MODULE_[\w.-]{1,150}\+[\w.-]{1,40}")
_VERSION = re.compile(r"[\w.+-]{1,100}")
# Their cores cannot be joined, so there is one LNC, which nobody writes down.
_LNC_ONE = frozenset({"trn1", "trn1n", "inf2"})


class State(StrEnum):
    """What the files of a module say became of its compile."""

    SUCCESS = "success"
    FAILED = "failed"
    LOCKED = "locked"
    STALE_LOCK = "stale lock"
    UNFINISHED = "unfinished"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Module:
    """One directory: the compiler's version and the module's name from its path, and its files by name."""

    version: str
    name: str
    files: Mapping[str, Member]

    @property
    def path(self) -> str:
        return f"neuronxcc-{self.version}/{self.name}"

    def state(self, now: float) -> State:
        """`now` is wall time, in seconds since 1970. A lock beside a finished compile means nothing any more."""
        if DONE in self.files and NEFF in self.files:
            return State.SUCCESS
        locks = [member for name, member in self.files.items() if name.endswith(LOCK_ENDING)]
        if locks:
            age = now - max(lock.modified_at for lock in locks)
            return State.LOCKED if age < STALE_AFTER else State.STALE_LOCK
        if NEFF in self.files or DONE in self.files:
            return State.UNFINISHED
        return State.FAILED if LOG in self.files else State.EMPTY


def why_not(source: Source, module: Module, now: float) -> str | None:
    """Why a module has nothing to import; None if it succeeded. Failures are never imported: see docs/transfer.md."""
    state = module.state(now)
    if state is State.SUCCESS:
        return None
    if state is State.FAILED:
        return f"failed: {_last_line(source, module.files[LOG])}"
    if state in (State.LOCKED, State.STALE_LOCK):
        ages = [now - member.modified_at for name, member in module.files.items() if name.endswith(LOCK_ENDING)]
        return f"{state.value}: not compiled, and its lock is {max(0.0, min(ages)) / 60:.0f} min old"
    if state is State.UNFINISHED:
        missing = DONE if NEFF in module.files else NEFF
        return f"unfinished: there is no {missing}"
    return "empty: its graph was never compiled"


def parts_of(source: Source, module: Module) -> KeyParts | str:
    """The parts of the key, if the module has all of them; otherwise what is missing. Nothing is guessed."""
    hlo, flags_file = module.files.get(HLO), module.files.get(FLAGS)
    if hlo is None or not 0 < hlo.size <= _HLO_LIMIT:
        return f"there is no {HLO}"
    if flags_file is None or flags_file.size > _FLAGS_LIMIT:
        return f"there is no {FLAGS}"
    try:
        flags = json.loads(source.read(flags_file))
        if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
            return f"{FLAGS} is not a list of flags"
        rest, targets = without_option(canonical_flags(flags), "--target")
        _, sizes = without_option(rest, "--lnc")
        if not targets:
            return f"{FLAGS} names no target"
        if not sizes and targets[-1] not in _LNC_ONE:
            return f"{FLAGS} does not say how many cores a logical NeuronCore has"
        return KeyParts.of(
            ir=source.read(hlo),
            compiler=COMPILER,
            compiler_version=module.version,
            flags=flags,
            target=targets[-1],
            lnc=int(sizes[-1]) if sizes else 1,
        )
    except (ValueError, RecursionError):
        return f"{FLAGS} cannot be read"
    except CacheError as error:
        return error.message


def adopt(source: Source, module: Module, tree: Tree, why: str, *, dry_run: bool) -> Item:
    """Puts a finished module where libneuronxla finds it, the done mark last. Raises StoreError."""
    neff = module.files[NEFF]
    if tree.has(f"{module.path}/{NEFF}"):
        return Item(module.path, Fate.PRESENT, place=tree.name, size=neff.size)
    if (wrong := fault(source, neff)) is not None:
        return Item(module.path, Fate.SKIPPED, wrong)
    if not dry_run:
        names = [name for name in (HLO, FLAGS, LOG, NEFF, DONE) if name in module.files]
        for name in names:
            tree.add(f"{module.path}/{name}", module.files[name], source.read)
    return Item(module.path, Fate.MOVED, f"its key cannot be known: {why}", place=tree.name, size=neff.size)


def export_path(manifest: Manifest) -> str:
    """The directory for an entry: under its own name if it was imported, else under one made of its key.

    Raises ValueError for an entry that does not belong into such a cache.
    """
    parts = manifest.parts
    if parts.compiler != COMPILER:
        raise ValueError(f"{parts.compiler} made it, and this layout is for NEFFs of {COMPILER}")
    if _VERSION.fullmatch(parts.compiler_version) is None:
        raise ValueError(f"its compiler's version cannot be a directory's name: {parts.compiler_version[:60]!r}")
    name = manifest.label
    if _MODULE.fullmatch(name) is None or HLO not in manifest.files:
        name = f"MODULE_{parts.short_key}+{hashlib.sha256(_flags_text(parts)).hexdigest()[:8]}"
    return f"neuronxcc-{parts.compiler_version}/{name}"


def export_files(manifest: Manifest, contents: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """The files of an entry by name, the done mark last. `contents` are those of the manifest."""
    yield FLAGS, contents.get(FLAGS, _flags_text(manifest.parts))
    if manifest.failure is not None:
        yield LOG, manifest.failure.text.encode()
        return
    if HLO in contents:
        yield HLO, contents[HLO]
    yield NEFF, contents[NEFF_FILE]
    yield DONE, b""


def _flags_text(parts: KeyParts) -> bytes:
    return json.dumps([*parts.flags, f"--target={parts.target}", f"--lnc={parts.lnc}"]).encode()


def _last_line(source: Source, log: Member) -> str:
    if log.size > _LOG_LIMIT:
        return f"its log is {log.size} bytes long"
    try:
        text = source.read(log)[-_LOG_TAIL:].decode("utf-8", "replace")
    except CacheError as error:
        return error.message
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "its log is empty"
