"""Which Python environment a host's Neuron programs run in, and where its packages lie."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import NotFoundHere

_ASK = "import json,sys;print(json.dumps([sys.version.split()[0],sys.prefix,sys.path]))"


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """An interpreter and the directories its packages are in, by the host's own names.

    executable: None where the environment has none that could be found
    version: `3.12` or `3.12.4`; None where nothing tells
    """

    executable: str | None
    version: str | None
    prefix: str
    sites: tuple[str, ...]

    @property
    def series(self) -> str | None:
        """`3.12`"""
        return ".".join(self.version.split(".")[:2]) if self.version else None


def find_python(host: Host, chosen: str | None = None) -> PythonEnvironment:
    """The environment of `chosen` (an interpreter or its prefix), else this process's, else a likely one of the tree.

    Raises NotFoundHere.
    """
    if host.live:
        return _asked(host, chosen) if chosen else _this_process()
    if chosen:
        prefix = str(Path(chosen).parent.parent) if host.path(chosen).is_file() else chosen.rstrip("/")
        found = _environment(host, prefix)
        if found is None:
            raise NotFoundHere(f"{chosen} belongs to no Python environment: {prefix}/lib/python3.* does not exist")
        return found
    candidates = list(filter(None, (_environment(host, prefix) for prefix in _likely(host))))
    for candidate in candidates:
        if any(_holds_neuron(host, site) for site in candidate.sites):
            return candidate
    if candidates:
        return candidates[0]
    raise NotFoundHere("no Python environment in /opt, /usr/local or /usr")


def _this_process() -> PythonEnvironment:
    sites = tuple(dict.fromkeys(path for path in sys.path if path and Path(path).is_dir()))
    return PythonEnvironment(sys.executable or None, sys.version.split()[0], sys.prefix, sites)


def _asked(host: Host, chosen: str) -> PythonEnvironment:
    path = Path(chosen).expanduser()
    executable = str((path / "bin" / "python" if path.is_dir() else path).absolute())
    version, prefix, paths = json.loads(host.run([executable, "-c", _ASK]))
    return PythonEnvironment(executable, version, prefix, tuple(path for path in paths if path))


def _likely(host: Host) -> list[str]:
    """Prefixes in the order in which a login shell or an image's entry point would choose them."""
    named = [host.environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if host.environ.get(name)]
    try:
        optional = [f"/opt/{name}" for name in host.names("/opt")]
    except NotFoundHere:
        optional = []
    return [*named, *optional, "/usr/local", "/usr"]


def _environment(host: Host, prefix: str) -> PythonEnvironment | None:
    try:
        folders = [name for name in host.names(f"{prefix}/lib") if re.fullmatch(r"python3(\.\d+)?", name)]
    except NotFoundHere:
        return None
    sites = tuple(
        f"{prefix}/lib/{folder}/{kind}"
        for folder in folders
        for kind in ("site-packages", "dist-packages")
        if host.exists(f"{prefix}/lib/{folder}/{kind}")
    )
    if not sites:
        return None
    executable = next((f"{prefix}/bin/{name}" for name in ("python", "python3") if _is_file(host, prefix, name)), None)
    return PythonEnvironment(executable, _version(host, prefix, folders), prefix, sites)


def _is_file(host: Host, prefix: str, name: str) -> bool:
    return host.path(f"{prefix}/bin/{name}").is_file()


def _version(host: Host, prefix: str, folders: list[str]) -> str | None:
    try:
        found = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+(?:\.\d+)?)", host.text(f"{prefix}/pyvenv.cfg"), re.M)
    except NotFoundHere:
        found = None
    if found:
        return found[1]
    return max((name.removeprefix("python") for name in folders if "." in name), default=None, key=_number)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _holds_neuron(host: Host, site: str) -> bool:
    return any(re.match(r"(torch_neuronx|neuronx_cc|nki|libneuronxla)[-_]", name) for name in host.names(site))
