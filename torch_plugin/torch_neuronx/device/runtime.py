"""What the C++ side of the device asks of the runtime client."""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import TYPE_CHECKING, Any

from torch_neuronx import _C

if TYPE_CHECKING:
    from neuron_runtime.client.core import Core
    from neuron_runtime.client.session import Session
    from neuron_runtime.protocol.queue import QueueEndpoint

_NO_TIMEOUT_S = 1e9


class DeviceRuntime:
    """One for a process. The session begins with the first core that is opened, not before."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._cores: dict[int, Core] = {}
        self._mapped: list[Any] = []  # keeps HBM mapped for tensors that outlive the session

    @property
    def session(self) -> Session:
        """Raises NrtError when no cores are to be had."""
        if self._session is None:
            from neuron_runtime.client.runtime import current_runtime

            _C.poison_fork()
            self._session = current_runtime()
            # Runs before the client's own handler, which was registered first, closes the session.
            atexit.register(_C.close_cores)
        return self._session

    def device_count(self) -> int:
        """The NeuronCores this process has, or would get; 0 where the settings say nonsense."""
        from neuron_runtime.daemon.settings import DaemonSettings
        from neuron_runtime.device.cores import request_from_environment
        from neuron_runtime.errors import NeuronEnvError

        if self._session is not None:
            return len(self._session.visible_cores)
        try:
            request = request_from_environment(os.environ)
            if request.visible is not None:
                return len(request.visible)
            return request.count or DaemonSettings.from_environment().machine.core_count
        except NeuronEnvError:
            return 0

    def open(self, index: int) -> None:
        """Gives the core's queue to C++, which is its one writer from here on."""
        core = self.session.core(index)
        address = ctypes.c_char.from_buffer(core.arena)
        self._mapped.append(address)

        def take(endpoint: QueueEndpoint) -> DeviceQueue:
            _C.add_core(
                index,
                ctypes.addressof(address),
                len(core.arena),
                endpoint.memory,
                endpoint.core_index,
                endpoint.wake_executor,
                endpoint.wake_client,
                core.timeout or _NO_TIMEOUT_S,
            )
            return DeviceQueue(index)

        core.hand_over(take)
        self._cores[index] = core

    def allocate(self, index: int, nbytes: int) -> tuple[int, str]:
        """Offset of a new range, or -1 and why there is none."""
        from neuron_runtime.status import NrtError

        try:
            return self._cores[index].allocate(nbytes), ""
        except NrtError as error:
            return -1, error.message

    def release(self, index: int, offset: int, last_use: int) -> None:
        core = self._cores[index]
        core.free(offset, last_use)
        core.usage()  # also gives back what was freed

    def check_alive(self) -> None:
        """Raises NrtError when the executor or the daemon has ended."""
        if self._session is not None:
            self._session.check()
            self._session.check_peers()


class DeviceQueue:
    """The queue of a core that C++ writes, as `neuron_runtime.client` uses it."""

    def __init__(self, index: int) -> None:
        self._index = index

    @property
    def submitted(self) -> int:
        return _C.submitted(self._index)

    @property
    def completed(self) -> int:
        return _C.completed(self._index)

    def submit(self, kind: int, target: int, inputs: int, operands: Any, alive: Any) -> int:
        return _C.submit(self._index, int(kind), target, inputs, list(operands))

    def wait(self, sequence: int, alive: Any, timeout: float | None = None) -> None:
        _C.wait(self._index, sequence)

    def take_error(self) -> Any:
        from neuron_runtime.protocol.queue import CommandError
        from neuron_runtime.status import NrtStatus

        failure = _C.take_failure(self._index)
        if failure is None:
            return None
        sequence, status, detail, count = failure
        return CommandError(sequence, NrtStatus(status), detail, count)

    def publish_usage(self, tensors: int, peak: int, models: int, failures: int, loaded: int) -> None:
        _C.publish_usage(self._index, [tensors, peak, models, failures, loaded])

    def close(self) -> None:
        _C.close_cores()


RUNTIME = DeviceRuntime()
