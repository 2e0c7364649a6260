"""Signals while a compile is under way: the compiler gets them, as it would without a launcher."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

_FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP,
)  # fmt: skip
_STOPPING = frozenset({signal.SIGTSTP})


class Interrupted(BaseException):
    """A signal ended this process's wait. Nobody but `main` catches it; leases are released on its way."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Passes signals on to the process group of the compiler that runs, and raises Interrupted where none does.

    What was ignored when this process began (as by nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._group = 0
        for number in _FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._receive)

    @contextlib.contextmanager
    def for_group(self, group: int) -> Iterator[None]:
        """Runs the body with the signals going to this process group."""
        self._group = group
        try:
            yield
        finally:
            self._group = 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, number)
        if number in _STOPPING:
            # As the terminal expects of a whole job. SIGCONT comes to this process, and is for the compiler too.
            os.kill(os.getpid(), signal.SIGSTOP)
            if self._group:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._group, signal.SIGCONT)
        elif not self._group:
            raise Interrupted(number)


def die_of(number: int) -> NoReturn:
    """Ends this process by a signal, so that its parent sees what it would have seen of the compiler."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # there is nothing to find in a core of this process
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)
