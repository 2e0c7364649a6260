"""Caches of the vendor's software as they are found on hosts, and archives that nobody should trust."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from pathlib import Path

from cache_server import CacheSettings, NeffCache
from neuron_runtime.neff import NeffManifest, write_neff
from neuron_runtime.tensors import TensorSpec

VERSION = "2.15.141.0+d3cfc8ca"
FLAGS = ["--target=trn1", "--model-type=transformer", "-O2"]


def neff(name: str) -> bytes:
    """A whole NEFF that says of itself that it is whole."""
    manifest = NeffManifest(
        name=name,
        version="0.1.0+sim",
        target="trn2",
        lnc=2,
        opt_level=1,
        inputs=(TensorSpec("x", (2, 3), "float32"),),
        outputs=(TensorSpec("y", (2, 3), "float32"),),
        aliases=(),
        native=None,
    )
    return write_neff(manifest, b"module @main {}")


def cache_at(tmp: Path, name: str) -> NeffCache:
    """A cache that shares nothing with those of other names."""
    return NeffCache.open(settings=CacheSettings(str(tmp / name / "shared"), tmp / name / "local"))


def torch_cache(root: Path, *keys: str, content: bytes | None = None) -> Path:
    """TorchNeuron's cache with a NEFF for each short key."""
    for key in keys:
        path = root / key[0:2] / key[2:4] / f"{key}.neff"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(neff(key[:8]) if content is None else content)
    return root


def module(root: Path, name: str, **files: bytes) -> Path:
    """One compile in the cache of libneuronxla; `neff`, `done`, `log`, `hlo`, `flags` and `lock` name its files."""
    names = {
        "neff": "model.neff",
        "done": "model.done",
        "log": "model.log",
        "hlo": "model.hlo_module.pb",
        "flags": "compile_flags.json",
        "lock": "model.hlo_module.pb.lock",
    }
    directory = root / f"neuronxcc-{VERSION}" / name
    directory.mkdir(parents=True, exist_ok=True)
    for which, content in files.items():
        (directory / names[which]).write_bytes(content)
    return directory


def legacy_cache(root: Path) -> Path:
    """A module in every state that there is."""
    flags = json.dumps(FLAGS).encode()
    module(root, "MODULE_100+aaaa", neff=neff("known"), done=b"", hlo=b"hlo 100", flags=flags)
    module(root, "MODULE_101+aaaa", neff=neff("foreign"), done=b"", hlo=b"hlo 101")
    module(root, "MODULE_102+aaaa", log=b"starting\nERROR: out of memory\n\n", hlo=b"hlo 102", flags=flags)
    module(root, "MODULE_103+aaaa", hlo=b"hlo 103", flags=flags, lock=b"")
    stale = module(root, "MODULE_104+aaaa", hlo=b"hlo 104", flags=flags, lock=b"")
    old = time.time() - 7 * 86400
    os.utime(stale / "model.hlo_module.pb.lock", (old, old))
    module(root, "MODULE_105+aaaa", hlo=b"hlo 105", flags=flags)
    module(root, "MODULE_106+aaaa", neff=b"", done=b"", flags=flags)
    module(root, "MODULE_107+aaaa", neff=neff("torn")[:-100], done=b"", flags=flags)
    module(root, "MODULE_108+aaaa", neff=neff("unfinished"), flags=flags)
    return root


def tar_of(directory: Path, target: Path, mode: str = "w") -> Path:
    """What `tar` makes of a directory: in the order of the file system, with owners and times."""
    with tarfile.open(target, mode) as archive:  # type: ignore[call-overload]
        archive.add(directory, arcname=".")
    return target


def raw_tar(target: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive with exactly these members."""
    with tarfile.open(target, "w") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target


def info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found
