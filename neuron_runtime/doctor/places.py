"""Where caches lie, and shared memory."""

from __future__ import annotations

from neuron_runtime.doctor.check import Check, Result, SkippedError, Status, Subject
from neuron_runtime.host.missing import NotFoundHere
from neuron_runtime.host.mounts import mount_of, read_mounts

_SHM = "/dev/shm"  # noqa: S108
_LEAST_SHM = 1 << 30
_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def lasting(subject: Subject) -> Result | str:
    """Caches that a reboot, or the container's end, takes away."""
    caches = subject.section("caches")
    lost = {
        name: cache
        for name, cache in caches.items()
        if cache.get("volatile") and cache.get("files") and "lock" not in name
    }
    if lost:
        found = "; ".join(f"{name} is in {cache['place']}" for name, cache in lost.items())
        settings = [cache["setting"] for cache in lost.values() if cache["setting"].isupper()]
        name = settings[0] if settings else "TORCH_NEURONX_NEFF_CACHE_DIR"
        kept = "a mounted volume" if subject.container else "a disk that stays"
        return Result("caches-last", Status.WARNING, f"{found}: gone with the next start", kept, f"export {name}=DIR")
    return "no cache with anything in it is lost with a reboot"


def shared_memory(subject: Subject) -> Result | str:
    try:
        mount = mount_of(read_mounts(subject.host), f"{_SHM}/x")
    except NotFoundHere as missing:
        raise SkippedError(missing.message) from None
    size = next((option[5:] for option in (mount.options if mount else ()) if option.startswith("size=")), "")
    if mount is None or mount.point != _SHM or not size:
        raise SkippedError(f"{_SHM} tells no size")
    digits, unit = size.rstrip("kmg"), _UNITS.get(size[-1], 1)
    if not digits.isdecimal():
        raise SkippedError(f"{_SHM} tells the size {size}")
    size = f"{int(digits) * unit / (1 << 30):.2g} GiB"
    if int(digits) * unit < _LEAST_SHM:
        remedy = "docker run --shm-size=2g …" if subject.container else "sudo mount -o remount,size=2g " + _SHM
        return Result("shared-memory", Status.WARNING, f"{_SHM} has {size}", "1 GiB or more for data loaders", remedy)
    return f"{_SHM} has {size}"


CHECKS = (
    Check("caches-last", "caches outlive a reboot and the container", lasting),
    Check("shared-memory", "shared memory is large enough for data loaders", shared_memory),
)
