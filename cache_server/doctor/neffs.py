"""The NEFFs in a directory of TorchNeuron's: who can read them, whether they are whole, what they were compiled for."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cache_server.doctor.finding import Finding, Weight
from neuron_runtime.neff import NeffError, read_neff
from neuron_runtime.neff.header import HEADER_SIZE, NeffHeader

_NEFF = re.compile(r"[0-9a-f]{32}\.neff")
_TEMPORARY = re.compile(r"\.tmp\.\w{6}")
_LEFT_SECONDS = 3600.0  # after which nobody writes to a temporary file any more
_TEXT = 60  # characters of a version that are shown


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was found; `header` is None where it has none that is whole."""

    path: Path
    info: os.stat_result
    header: NeffHeader | None
    fault: str = ""

    def unchanged(self) -> bool:
        try:
            now = self.path.lstat()
        except FileNotFoundError:
            return False
        return (now.st_ino, now.st_size, now.st_mtime_ns) == (
            self.info.st_ino,
            self.info.st_size,
            self.info.st_mtime_ns,
        )


def examine(root: Path, *, lnc: int | None = None, target: str | None = None, deep: bool = False) -> Iterator[Finding]:
    """What is wrong with the NEFFs below `root`, for a host with this LNC and target where they are known.

    Reads each file's header; with `deep` each whole file. Raises OSError where `root` cannot be listed.
    """
    neffs, left = _look(root, deep)
    yield from _readers(root, neffs)
    by_path = {seen.path: seen for seen in neffs}

    def remove(path: Path) -> bool:
        if not by_path[path].unchanged():
            return False
        path.unlink()
        return True

    empty = tuple(seen.path for seen in neffs if seen.info.st_size == 0)
    if empty:
        yield Finding(
            "empty", Weight.ERROR, f"empty NEFFs, as a full disk leaves them: {len(empty)}", empty,
            "each is compiled again at every start; `--fix` removes them", remove,
        )  # fmt: skip
    for why, paths in _by(neffs, lambda seen: seen.fault if seen.info.st_size else "").items():
        yield Finding(
            "damaged", Weight.ERROR, f"damaged NEFFs ({why}): {len(paths)}", paths,
            "TorchNeuron does not check what it reads; `--fix` removes them", remove,
        )  # fmt: skip
    if left:
        yield Finding(
            "leftover", Weight.WARNING, f"temporary files that dead processes left: {len(left)}", left,
            "`--fix` removes them", _remove_old,
        )  # fmt: skip
    yield from _mixtures(neffs, lnc, target)


def _look(root: Path, deep: bool) -> tuple[list[Seen], tuple[Path, ...]]:
    neffs, left = [], []
    for directory, _, names in os.walk(root, onerror=_raise):
        for name in names:
            path = Path(directory, name)
            try:
                info = path.lstat()
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(info.st_mode):
                continue
            if _NEFF.fullmatch(name):
                neffs.append(_open(path, info, deep))
            elif _TEMPORARY.fullmatch(name) and time.time() - info.st_mtime > _LEFT_SECONDS:
                left.append(path)
    return neffs, tuple(left)


def _raise(error: OSError) -> None:
    raise error


def _open(path: Path, info: os.stat_result, deep: bool) -> Seen:
    if info.st_size == 0:
        return Seen(path, info, None)
    try:
        with path.open("rb") as file:
            header = NeffHeader.unpack(file.read(HEADER_SIZE))
        if header.header_size != HEADER_SIZE or header.data_size != info.st_size - HEADER_SIZE:
            return Seen(path, info, None, "the length is not what the header says")
        if deep:
            read_neff(path)
    except NeffError as error:
        return Seen(path, info, None, error.problem if deep else "there is no whole header")
    except OSError:
        return Seen(path, info, None)  # which `_readers` tells of
    return Seen(path, info, header)


def _readers(root: Path, neffs: list[Seen]) -> Iterator[Finding]:
    """TorchNeuron's files come out with mode 0600, so that in a directory of several users each compiles for itself."""
    shared = root.stat().st_mode & 0o055
    wanted = (0o040 if shared & 0o050 == 0o050 else 0) | (0o004 if shared & 0o005 == 0o005 else 0)
    closed = [seen.path for seen in neffs if wanted & ~seen.info.st_mode]
    if closed and wanted:
        mode = "the group" if wanted == 0o040 else "others"

        def allow(path: Path) -> bool:
            info = path.lstat()
            if stat.S_ISREG(info.st_mode):
                path.chmod(stat.S_IMODE(info.st_mode) | wanted)
            return stat.S_ISREG(info.st_mode)

        yield Finding(
            "unreadable", Weight.ERROR,
            f"NEFFs that {mode} cannot read, though the directory is open to {mode}: {len(closed)}", tuple(closed),
            "`--fix` gives the right to read, as their owner or root", allow,
        )  # fmt: skip


def _mixtures(neffs: list[Seen], lnc: int | None, target: str | None) -> Iterator[Finding]:
    headed = [seen for seen in neffs if seen.header is not None]
    sizes = _by(headed, lambda seen: str(seen.header.lnc_size) if seen.header and seen.header.lnc_size else "")
    other = tuple(path for size, paths in sizes.items() if lnc is not None and size != str(lnc) for path in paths)
    if other:
        yield Finding(
            "other-lnc", Weight.WARNING, f"NEFFs for another LNC than this host's {lnc}: {len(other)}", other,
            "they are of no use here; keep a directory for each instance type and LNC",
        )  # fmt: skip
    elif lnc is None and len(sizes) > 1:
        counts = ", ".join(f"{len(paths)} for LNC {size}" for size, paths in sorted(sizes.items()))
        yield Finding("mixed-lnc", Weight.NOTE, f"NEFFs for several LNCs are in one directory: {counts}")
    versions = Counter(seen.header.neff_build_version for seen in headed if seen.header is not None)
    if len(versions) > 1:
        counts = ", ".join(f"{count} of {name[:_TEXT] or 'no version'}" for name, count in versions.most_common(5))
        yield Finding(
            "mixed-versions", Weight.WARNING, f"NEFFs of several compilers are in one directory: {counts}",
            hint="TorchNeuron's key does not hold the version, so an old NEFF is taken for a new compiler's; name the "
            "release in the directory's path",
        )  # fmt: skip
    if target is not None:
        foreign = tuple(seen.path for seen in headed if _target(seen) not in (None, target))
        if foreign:
            yield Finding(
                "other-target", Weight.WARNING, f"NEFFs for another target than {target}: {len(foreign)}", foreign,
                "keep a directory for each NeuronCore generation",
            )  # fmt: skip


def _target(seen: Seen) -> str | None:
    """The target, which only the simulator's NEFFs tell: the vendor's header has no field for it."""
    try:
        manifest = read_neff(seen.path).manifest
    except (NeffError, OSError):
        return None
    return None if manifest is None else manifest.target


def _by(neffs: list[Seen], name: Callable[[Seen], str]) -> dict[str, tuple[Path, ...]]:
    found: dict[str, list[Path]] = {}
    for seen in neffs:
        if text := name(seen):
            found.setdefault(text, []).append(seen.path)
    return {text: tuple(paths) for text, paths in found.items()}


def _remove_old(path: Path) -> bool:
    if time.time() - path.lstat().st_mtime <= _LEFT_SECONDS:
        return False
    path.unlink()
    return True
