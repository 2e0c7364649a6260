"""Whether PyTorch can use the device: proved by a computation in a process of its own, with a time limit."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import NotFoundHere
from neuron_runtime.host.packages import read_packages
from neuron_runtime.host.proof_program import MARK
from neuron_runtime.host.pythons import PythonEnvironment, find_python

PROOF_S = 120.0


def prove_device(host: Host, python: str | None = None, timeout: float = PROOF_S) -> dict[str, Any]:
    """`torch`, `device`, `devices`, `simulated`, `difference`, `seconds` of a product of two matrices on the device.

    It takes one NeuronCore where the environment asks for none, since a process takes all of them otherwise. Raises
    NotFoundHere with the reason why the device cannot be used.
    """
    if not host.executes:
        raise NotFoundHere("not tried: the programs of an image are not executed")
    environment = find_python(host, python)
    packages = read_packages(host, environment)
    for wanted in (("torch",), ("torch-neuronx", "torch-neuronx-sim")):
        if not packages.keys() & set(wanted):
            raise NotFoundHere(f"{wanted[0]} is not installed in {environment.prefix}{_other(host, environment)}")
    if environment.executable is None:
        raise NotFoundHere(f"there is no interpreter in {environment.prefix}/bin")
    cores = any(host.environ.get(name) for name in ("NEURON_RT_NUM_CORES", "NEURON_RT_VISIBLE_CORES"))
    environ = {} if cores else {"NEURON_RT_NUM_CORES": "1"}
    source = (Path(__file__).parent / "proof_program.py").read_text()
    started = time.monotonic()
    printed = host.run([environment.executable, "-c", source], timeout=timeout, environ=environ, label="the proof")
    found = _answer(printed)
    if error := found.get("error"):
        raise NotFoundHere(str(error))
    name = str(found.get("device", ""))
    return found | {"simulated": "simulated" in name, "seconds": round(time.monotonic() - started, 3)}


def _other(host: Host, environment: PythonEnvironment) -> str:
    """Where the user's shell has another environment than the one that was looked into, the way to look there."""
    active = host.environ.get("VIRTUAL_ENV") or host.environ.get("CONDA_PREFIX")
    return (
        f"; the active environment is another: give `--python {active}`"
        if active and active != environment.prefix
        else ""
    )


def _answer(printed: str) -> dict[str, Any]:
    for line in reversed(printed.splitlines()):
        if line.startswith(MARK):
            answer = json.loads(line.removeprefix(MARK))
            if isinstance(answer, dict):
                return answer
    raise NotFoundHere("the proof ended without an answer")
