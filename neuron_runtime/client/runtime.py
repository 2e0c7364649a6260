"""The one runtime of this process: configured before first use, made on it, closed by `reset` or at exit."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable

from neuron_runtime.client.session import Session
from neuron_runtime.status import NrtpyError

_lock = threading.Lock()
_session: Session | None = None


def configure(visible_cores: Iterable[int] | None = None) -> None:
    """Sets `NEURON_RT_VISIBLE_CORES` for the first use to come; None leaves it as it is.

    Raises NrtpyError when the runtime is active, TypeError or ValueError for what is not a list of core numbers.
    """
    if isinstance(visible_cores, int):
        raise TypeError("visible_cores must be an iterable of core numbers, such as [0, 1] or range(4)")
    with _lock:
        if _session is not None:
            raise NrtpyError("the runtime is active", hint="call `reset()` first")
        if visible_cores is None:
            return
        cores = list(visible_cores)
        for core in cores:
            if not isinstance(core, int) or isinstance(core, bool):
                raise TypeError(f"a core number must be an int, not {core!r}")
            if core < 0:
                raise ValueError(f"a core number must not be negative: {core}")
        os.environ["NEURON_RT_VISIBLE_CORES"] = ",".join(map(str, cores))


def current_runtime() -> Session:
    """The process's session; the first call asks the daemon for cores. Raises NrtError."""
    global _session
    with _lock:
        if _session is None:
            _session = Session()
            atexit.register(reset)
        _session.check()
        return _session


def synchronize(core_id: int | None = None) -> None:
    """Waits for all submitted work, of one core or of all. Raises the first error since the last wait."""
    session = current_runtime()
    for index in range(len(session.visible_cores)) if core_id is None else (core_id,):
        session.core(index).synchronize()


def reset() -> None:
    """Closes the runtime and gives its cores back; no-op when there is none."""
    global _session
    with _lock:
        session, _session = _session, None
    if session is not None:
        session.close()
        atexit.unregister(reset)
