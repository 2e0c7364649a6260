"""The vendor's caches of this host, one after another, with what is wrong with each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cache_server.doctor.finding import Finding
from cache_server.doctor.legacy import examine_legacy
from cache_server.doctor.locks import examine_locks
from cache_server.doctor.neffs import examine
from cache_server.doctor.places import examine_disk, examine_mount, mount_of
from neuron_runtime.errors import NeuronEnvError

_TORCH, _LOCKS, _LEGACY = "/tmp/neff_cache", "/tmp/local_cache", "/var/tmp/neuron-compile-cache"  # noqa: S108 - theirs


def vendor_caches(
    torch: Path | None = None,
    legacy: Path | None = None,
    *,
    target: str | None = None,
    lnc: int | None = None,
    deep: bool = False,
    clear_all: bool = False,
) -> Iterator[tuple[Path, list[Finding]]]:
    """TorchNeuron's directory, its locks, and libneuronxla's: those given, named by a variable, or there by default.

    Raises OSError, and NeuronEnvError for a directory that is named and not there.
    """
    root = _place(torch, "TORCH_NEURONX_NEFF_CACHE_DIR", _TORCH)
    if root is not None:
        found = [*examine_mount(root, mount_of(root), locks=False), *examine_disk(root)]
        yield root, [*found, *examine(root, lnc=lnc, target=target, deep=deep)]
    local = _place(None, "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", _LOCKS)
    if local is not None:
        yield local, [*examine_mount(local, mount_of(local), locks=True), *examine_locks(local / "locks")]
    old = _place(legacy, "NEURON_COMPILE_CACHE_URL", _LEGACY)
    if old is not None:
        mount = mount_of(old)
        found = [*examine_mount(old, mount, locks=True), *examine_disk(old)]
        shared = mount is None or mount.is_shared
        yield old, [*found, *examine_legacy(old, shared=shared, clear_all=clear_all)]


def _place(given: Path | None, variable: str, default: str) -> Path | None:
    """The directory that is meant; None for a default that is not there, or a bucket. Raises for one that was named."""
    named = os.environ.get(variable, "")
    if given is None and "://" in named and not named.startswith("file://"):
        return None
    place = given or Path(named.removeprefix("file://") or default)
    if place.is_dir():
        return place.absolute()
    if given is not None or named:
        source = "`--dir` or `--legacy-dir`" if given is not None else f"`{variable}`"
        raise NeuronEnvError(f"{place} is not a directory", hint=f"it is what {source} names")
    return None
