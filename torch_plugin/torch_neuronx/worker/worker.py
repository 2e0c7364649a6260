"""The caller's side: requests in plain data, StableHLO and plain data back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.warm_worker import WarmWorker
from neuron_runtime.config.layers import settings_environment
from neuron_runtime.errors import NeuronEnvError

_DEFAULT_SECONDS = 120.0


class LoweringWorker:
    """Asks one process, started on first use and replaced when it dies, to lower one thing at a time.

    Each kind of request is a verb that `process.py` answers. Thread-safe; a forked child gets a process of its own.
    """

    def __init__(self, *, timeout: float | None = None, module: str = "torch_neuronx.worker.process") -> None:
        """`timeout`: seconds after which a request is given up and the process killed; None for the environment's."""
        self._timeout = _timeout() if timeout is None else timeout
        # The process makes no device; it sets the switch itself, once it has imported this package.
        environ = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
        self._worker = WarmWorker(module, name="the lowering process", task="the lowering", environ=environ)
        self._unusable: CompileFailure | None = None

    @property
    def pid(self) -> int | None:
        """The process id while there is a process."""
        return self._worker.pid

    def lower_call(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The recipe of an operator's call: `eager/recipes.py` says what goes in and comes back.

        Raises CompileFailure when the process died, hung, or cannot be had on this host.
        """
        return self._ask("call", request)

    def interrupt(self) -> None:
        """Give up the request that another thread waits for."""
        self._worker.interrupt()

    def close(self) -> None:
        """End the process. A later request starts another."""
        self._worker.close()

    def _ask(self, verb: str, request: Mapping[str, Any], payload: bytes = b"") -> tuple[dict[str, Any], bytes]:
        if self._unusable is not None:
            raise self._unusable
        try:
            # The first request is not to pay for the start, which has a limit of its own.
            self._worker.start()
            return self._worker.ask({"verb": verb, **request}, payload, timeout=self._timeout)
        except CompileFailure as failure:
            if failure.kind is FailureKind.ENVIRONMENT:
                self._unusable = failure
            raise


def _timeout() -> float:
    text = settings_environment().get("NEURON_ENV_LOWERING_TIMEOUT", "").strip()
    try:
        seconds = float(text or _DEFAULT_SECONDS)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise NeuronEnvError(
            f"NEURON_ENV_LOWERING_TIMEOUT is {text!r}, which is no positive number of seconds",
            hint=f"unset it, or write seconds, such as `NEURON_ENV_LOWERING_TIMEOUT={_DEFAULT_SECONDS:g}`",
        )
    return seconds
