"""Python packages that matter to Neuron, from their metadata: nothing is imported."""

from __future__ import annotations

import json
import re
from importlib.metadata import Distribution, distributions
from typing import Any

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import NotFoundHere
from neuron_runtime.host.pythons import PythonEnvironment

NEURON = (
    "torch-neuronx",
    "torch-neuronx-sim",
    "neuronx-cc",
    "nki",
    "nrtpy",
    "libneuronxla",
    "libtorch-neuronx-lite",
    "torch-xla",
    "jax-neuronx",
    "neuronx-distributed",
    "optimum-neuron",
    "torchtitan-neuron",
    "vllm-neuron",
    "vllm-omni-neuron",
    "neuron-env",
)
FROM_AN_INDEX = "a package index (which one is not recorded)"
FRAMEWORKS = ("torch", "torch-mlir", "jax", "jaxlib", "numpy", "transformers", "accelerate", "trl", "diffusers", "vllm")


def read_packages(host: Host, python: PythonEnvironment) -> dict[str, dict[str, Any]]:
    """By name: version, directory, installer, where it came from, wheel tags; `copies` that another one hides.

    Raises NotFoundHere where none of them is installed.
    """
    sites = [str(host.path(site)) for site in python.sites]
    found: dict[str, dict[str, Any]] = {}
    for name in (*NEURON, *FRAMEWORKS):
        copies = {str(copy.locate_file("")): copy for copy in distributions(name=name, path=sites)}
        described = [_describe(host, copy, version) for copy in copies.values() if (version := _version(copy))]
        if described:
            found[name] = described[0] | {"hidden_copies": described[1:]}
    if "torch-neuronx" in found:
        found["torch-neuronx"]["build"] = torch_neuronx_build(found["torch-neuronx"]["version"])
    if "torch" in found:
        found["torch"]["build"] = torch_build(host, found["torch"])
    if not found:
        raise NotFoundHere(f"no package of Neuron or of PyTorch is installed in {python.prefix}")
    return found


def torch_neuronx_build(version: str) -> str:
    """Which software hides behind the name torch-neuronx: `native`, `xla`, or the public index's `placeholder`."""
    if re.fullmatch(r"1\.0(\.0)*", version):
        return "placeholder"
    series = tuple(map(int, re.findall(r"\d+", version)[:2]))
    return "native" if series >= (2, 13) else "xla"


def torch_build(host: Host, package: dict[str, Any]) -> str | None:
    """`cpu`, `cu130`, `rocm…`: from the version's local part, else from torch/version.py; None where neither tells."""
    _, plus, local = package["version"].partition("+")
    if plus:
        return str(local)
    try:
        text = host.text(f"{package['location'].rstrip('/')}/torch/version.py")
    except NotFoundHere:
        return None
    if found := re.search(r"^cuda[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.M):
        return "cu" + found[1].replace(".", "")
    if found := re.search(r"^hip[^=\n]*=\s*['\"]([\d.]+)", text, re.M):
        return f"rocm{found[1]}"
    return "cpu"


def _version(package: Distribution) -> str | None:
    """None where a package's removal has left a directory behind; Python's own reader fails on that in several ways."""
    text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
    found = re.search(r"^Version:\s*(\S+)", text, re.M)
    return found[1] if found else None


def _describe(host: Host, package: Distribution, version: str) -> dict[str, Any]:
    return {
        "version": version,
        "location": host.name(host.root / str(package.locate_file(""))).rstrip("/"),
        "installer": (package.read_text("INSTALLER") or "").strip() or None,
        "origin": _origin(package),
        "tags": re.findall(r"^Tag:\s*(\S+)", package.read_text("WHEEL") or "", re.M),
    }


def _origin(package: Distribution) -> str:
    """Where it came from, as far as PEP 610 records it; of a package index nothing is recorded."""
    try:
        direct = json.loads(package.read_text("direct_url.json") or "null")
    except ValueError:
        return "unknown: direct_url.json cannot be read"
    if not isinstance(direct, dict):
        return FROM_AN_INDEX
    url = str(direct.get("url", ""))
    if (direct.get("dir_info") or {}).get("editable"):
        return f"editable, {url}"
    if vcs := direct.get("vcs_info"):
        return f"{vcs.get('vcs', 'vcs')}, {url} at {str(vcs.get('commit_id', ''))[:12]}"
    return url
