"""Where a cache lies: what the mount does with locks, and what the disk has left."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cache_server.doctor.finding import Finding, Weight
from neuron_runtime.host import mounts

_MOUNTS = Path("/proc/self/mountinfo")
_LEAST_FREE = 0.05
_LEAST_BYTES = 2 << 30
_PROBE_BYTES = 1 << 20
_SLOW_SECONDS = 1.0
NETWORK = frozenset(
    {"nfs", "nfs4", "lustre", "cifs", "smb3", "ceph", "fuse.juicefs", "fuse.s3fs", "fuse.mount-s3", "fuse.goofys"}
)


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo: where it is, its file system, and the options of mount and file system."""

    point: Path
    kind: str
    options: frozenset[str]

    @property
    def is_shared(self) -> bool:
        """Whether other hosts may see it too."""
        return self.kind in NETWORK


def mount_of(place: Path, table: str | None = None) -> Mount | None:
    """The mount that `place` is on, of the table that the kernel shows or the text given; None if it cannot be told."""
    if table is None:
        try:
            table = _MOUNTS.read_text()
        except OSError:
            return None
    found = mounts.mount_of(mounts.parse_mounts(table), str(place.resolve()))
    return None if found is None else Mount(Path(found.point), found.filesystem, frozenset(found.options))


def examine_mount(place: Path, mount: Mount | None, *, locks: bool) -> Iterator[Finding]:
    """What the mount means for a cache; `locks`: its locks are kept there as well."""
    if mount is None:
        return
    where = f"{place} is on {mount.kind} at {mount.point}"
    if "ro" in mount.options:
        yield Finding("read-only", Weight.WARNING, f"{where}, which cannot be written", (place,))
    if locks and mount.kind == "lustre" and not mount.options & {"flock"}:
        what = "keeps locks to each host" if "localflock" in mount.options else "refuses flock"
        yield Finding(
            "locks-local", Weight.ERROR, f"{where}, which {what} without the option flock", (place,),
            "mount it with relatime,flock, or keep the locks on a local disk",
        )  # fmt: skip
    local_nfs = {"nolock", "local_lock=all", "local_lock=flock"} & mount.options
    if locks and mount.kind in ("nfs", "nfs4"):
        why = f"with {', '.join(sorted(local_nfs))}" if local_nfs else "whose flock may be each host's own"
        yield Finding(
            "locks-local", Weight.ERROR if local_nfs else Weight.WARNING, f"{where}, {why}", (place,),
            "keep the locks on a local disk (`TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR`); one compile for all hosts takes a "
            "lease, such as the launcher's",
        )  # fmt: skip
    if mount.kind == "tmpfs":
        yield Finding("volatile", Weight.NOTE, f"{where}: it is memory, and gone after a reboot", (place,))


def examine_disk(place: Path) -> Iterator[Finding]:
    """Whether there is room, and whether writing takes long. Writes one file of 1 MiB, which goes at once."""
    try:
        room = os.statvfs(place)
    except OSError as error:
        yield Finding("unusable", Weight.ERROR, f"{place} cannot be used: {error.strerror}", (place,))
        return
    free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    if total and (free < _LEAST_BYTES or free / total < _LEAST_FREE):
        yield Finding(
            "full", Weight.ERROR if free < _LEAST_BYTES else Weight.WARNING,
            f"{place} has {free / (1 << 30):.1f} GiB free of {total / (1 << 30):.1f}", (place,),
            "a full disk leaves empty NEFFs; make room",
        )  # fmt: skip
    if room.f_files and room.f_favail / room.f_files < _LEAST_FREE:
        yield Finding("no-inodes", Weight.WARNING, f"{place} has {room.f_favail} inodes left", (place,))
    seconds = _write(place)
    if seconds is not None and seconds > _SLOW_SECONDS:
        yield Finding("slow", Weight.WARNING, f"writing 1 MiB to {place} took {seconds:.1f} s", (place,))


def _write(place: Path) -> float | None:
    """Seconds that a file of 1 MiB takes to be on disk; None where nothing can be written."""
    probe = place / f".neuron-env-doctor-{os.urandom(8).hex()}"
    begun = time.monotonic()
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, bytes(_PROBE_BYTES))
            os.fsync(fd)
        finally:
            os.close(fd)
            with contextlib.suppress(OSError):
                probe.unlink()
    except OSError:
        return None
    return time.monotonic() - begun
