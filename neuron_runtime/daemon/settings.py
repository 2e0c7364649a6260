"""What a daemon is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neuron_runtime.config.layers import settings_environment
from neuron_runtime.device.instances import DEFAULT_INSTANCE_TYPE, Machine
from neuron_runtime.errors import NeuronEnvError

DEFAULT_IDLE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """`idle_timeout` in seconds, None for never; `warm` executors kept ready; `native` allows native code."""

    machine: Machine
    idle_timeout: float | None = DEFAULT_IDLE_TIMEOUT_S
    warm: int = 1
    native: bool = True

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> DaemonSettings:
        """`NEURON_ENV_INSTANCE_TYPE`, `NEURON_LOGICAL_NC_CONFIG`, `NEURON_ENV_RUNTIME_IDLE_TIMEOUT` (seconds, 0
        for never), `NEURON_ENV_RUNTIME_WARM`, `NEURON_ENV_RUNTIME_NATIVE` (`auto` or `never`).

        Raises NeuronEnvError naming the variable that does not parse.
        """
        environ = settings_environment() if environ is None else environ
        lnc = _number(environ, "NEURON_LOGICAL_NC_CONFIG", None)
        idle = _number(environ, "NEURON_ENV_RUNTIME_IDLE_TIMEOUT", int(DEFAULT_IDLE_TIMEOUT_S))
        warm = _number(environ, "NEURON_ENV_RUNTIME_WARM", 1)
        native = environ.get("NEURON_ENV_RUNTIME_NATIVE", "auto")
        if native not in ("auto", "never"):
            raise NeuronEnvError(f"NEURON_ENV_RUNTIME_NATIVE={native!r} is not valid", hint="give `auto` or `never`")
        return cls(
            Machine.of(environ.get("NEURON_ENV_INSTANCE_TYPE") or DEFAULT_INSTANCE_TYPE, lnc),
            idle_timeout=float(idle) if idle else None,
            warm=1 if warm is None else warm,
            native=native == "auto",
        )


def _number(environ: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal():
        raise NeuronEnvError(f"{name}={text!r} is not valid", hint="give a natural number")
    return int(text)
