"""Moving many things at once without holding too many of them in memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

WORKERS = 8
BUDGET = 2 << 30  # bytes


def in_parallel(
    work: Callable[[T], R],
    things: Iterable[T],
    *,
    size: Callable[[T], int],
    workers: int = WORKERS,
    budget: int = BUDGET,
) -> Iterator[R]:
    """The results of `work`, as they come. No more than `budget` bytes are in hand at once, or one thing of any size.

    What `work` raises ends everything: what has not begun is left, what has begun is finished, and the error is raised.
    """
    scales = _Scales(budget)

    def weighed(thing: T) -> R:
        with scales.holding(min(size(thing), budget)):
            return work(thing)

    with ThreadPoolExecutor(workers, thread_name_prefix="neuron-env-transfer") as pool:
        try:
            for done in as_completed([pool.submit(weighed, thing) for thing in things]):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Scales:
    def __init__(self, budget: int) -> None:
        self._left = budget
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def holding(self, weight: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._left >= weight)
            self._left -= weight
        try:
            yield
        finally:
            with self._changed:
                self._left += weight
                self._changed.notify_all()
