"""The caches that a Neuron program on a host would use: where, how large, for whom, on what."""

from __future__ import annotations

import functools
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neuron_runtime.config.layers import load_layers
from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import Facts, NotFoundHere
from neuron_runtime.host.mounts import Mount, mount_of, read_mounts
from neuron_runtime.host.places import CachePlace, cache_places
from neuron_runtime.host.probes import run_probes

COUNT_S = 0.4  # to count one cache's files; a large one is counted in part
_VOLATILE = frozenset({"tmpfs", "ramfs", "overlay"})


def probe_caches(host: Host) -> Facts:
    """By cache: place, setting, and what is there. A URL is not contacted.

    Each is looked into on a clock of its own: a mount whose server has died hangs whoever looks, and takes no other
    cache with it. `exists` is then None.
    """
    facts = Facts()
    try:
        mounts = read_mounts(host)
    except NotFoundHere:
        mounts = []
    # Our own caches may also be named by a configuration file.
    places = cache_places(load_layers(host.environ).merged() if host.live else host.environ)
    known = {cache.name: _where(host, cache, mounts) for cache in places}
    probes = {
        name: functools.partial(_look, host, where["directory"])
        for name, where in known.items()
        if where["kind"] == "directory"
    }
    answers = run_probes(probes, {}, host.time_limit)
    for name, where in known.items():
        where.pop("directory", None)
        if name in answers:
            found = answers[name]
            where |= found.facts if found.facts is not None else {"exists": None, "reason": found.reason}
        facts.put(name, where)
    return facts


def _where(host: Host, cache: CachePlace, mounts: list[Mount]) -> dict[str, Any]:
    """What can be said without touching the directory."""
    about = {"place": cache.place, "setting": cache.setting}
    if cache.place == "none":
        return about | {"kind": "off"}
    if "://" in cache.place and not cache.place.startswith("file://"):
        return about | {"kind": "url"}
    directory = cache.place.removeprefix("file://")
    if not directory.startswith("/"):
        directory = str(Path.cwd() / directory) if host.live else f"/{directory}"
    mount = mount_of(mounts, directory)
    return about | {
        "kind": "directory",
        "directory": directory,
        "filesystem": mount.filesystem if mount else None,
        "mount_point": mount.point if mount else None,
        "mount_options": list(mount.options) if mount else [],
        "volatile": _volatile(directory, mount),
    }


def _look(host: Host, directory: str) -> Facts:
    facts = Facts()
    try:
        info = host.status(directory)
    except NotFoundHere as missing:
        facts.values |= {"exists": False, "reason": missing.message}
        return facts
    files, size, complete = _count(host.path(directory))
    facts.values |= {
        "exists": True,
        "mode": f"{stat.S_IMODE(info.st_mode):04o}",
        "owner": info.st_uid,
        "files": files,
        "bytes": size,
        "complete": complete,
    }
    return facts


def _volatile(directory: str, mount: Mount | None) -> bool:
    """Whether a reboot or the container's end loses it."""
    return (mount is not None and mount.filesystem in _VOLATILE) or directory.startswith(("/tmp/", "/run/"))  # noqa: S108


def _count(directory: Path) -> tuple[int, int, bool]:
    """Files, bytes, and whether that is all: counting ends after COUNT_S seconds."""
    deadline, files, size = time.monotonic() + COUNT_S, 0, 0
    for entry in _walk(directory):
        if time.monotonic() > deadline:
            return files, size, False
        try:
            size += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue
        files += 1
    return files, size, True


def _walk(directory: Path) -> Iterator[os.DirEntry[str]]:
    pending = [str(directory)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        yield entry
        except OSError:
            continue
