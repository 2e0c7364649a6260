"""The parts that keep a bad store from hurting jobs: breaker, retries, efforts."""

from __future__ import annotations

import threading
import time

import pytest
from cache_kit import eventually

from cache_server.errors import BreakerOpenError, StoreError, TimedOutError, UnavailableError
from cache_server.resilience.breaker import Breaker
from cache_server.resilience.effort import Effort, current_effort, effort_of
from cache_server.resilience.guard import Guard
from cache_server.resilience.retries import Persistence, RetryBudget


class Store:
    """A store that fails until `works` is set; counts what it is asked."""

    def __init__(self) -> None:
        self.works = False
        self.asked = 0
        self.probes = 0
        self.probed = threading.Event()
        self.breaker = Breaker("test://", self.probe, shortest_pause=0.01, longest_pause=0.02)

    def probe(self) -> None:
        self.probes += 1
        self.probed.set()
        if not self.works:
            raise UnavailableError("away")

    def ask(self, timeout: float = 1.0) -> str:
        self.asked += 1
        if not self.works:
            raise UnavailableError("away")
        return "answer"


@pytest.fixture
def store() -> Store:
    return Store()


def test_breaker_opens_after_failures_in_a_row_and_closes_by_itself(store: Store) -> None:
    store.breaker.failed()
    store.breaker.failed()
    store.breaker.succeeded()
    store.breaker.failed()
    store.breaker.failed()
    store.breaker.check()
    store.breaker.failed()
    with pytest.raises(BreakerOpenError):
        store.breaker.check()
    assert store.probed.wait(10)
    assert store.breaker.is_open
    store.works = True
    eventually(lambda: not store.breaker.is_open, "the breaker closes")
    store.breaker.check()
    assert store.breaker.opened == 1


def test_first_failure_after_a_probe_opens_the_breaker_again(store: Store) -> None:
    store.works = True
    for _ in range(3):
        store.breaker.failed()
    eventually(lambda: not store.breaker.is_open, "the breaker closes")
    store.works = False
    store.breaker.failed()
    assert store.breaker.is_open
    assert store.breaker.opened == 2
    store.breaker.stop()


def test_passing_trouble_is_retried(store: Store) -> None:
    def ask(timeout: float) -> str:
        if store.asked == 1:
            store.works = True
        return store.ask()

    assert Persistence(store.breaker, timeout=1.0).run(ask) == "answer"
    assert store.asked == 2


def test_retries_end(store: Store) -> None:
    persistence = Persistence(store.breaker, timeout=1.0)
    with pytest.raises(UnavailableError, match="away"):
        persistence.run(store.ask)
    assert store.asked == 3
    with pytest.raises(BreakerOpenError):
        persistence.run(store.ask)
    assert store.asked == 3, "an open breaker asks nothing"
    store.breaker.stop()


def test_refusals_are_not_retried_and_do_not_open_the_breaker(store: Store) -> None:
    def refuse(timeout: float) -> str:
        store.asked += 1
        raise StoreError("forbidden")

    for _ in range(5):
        with pytest.raises(StoreError, match="forbidden"):
            Persistence(store.breaker, timeout=1.0).run(refuse)
    assert store.asked == 5
    assert not store.breaker.is_open


def test_insisting_goes_past_an_open_breaker_until_its_time_is_over(store: Store) -> None:
    for _ in range(3):
        store.breaker.failed()
    begun = time.monotonic()
    with effort_of(0.3, insist=True), pytest.raises(UnavailableError):
        Persistence(store.breaker, timeout=1.0).run(store.ask)
    assert store.asked > 1
    assert time.monotonic() - begun < 5
    store.breaker.stop()


def test_pause_that_the_store_asks_for_is_kept_or_too_long(store: Store) -> None:
    def busy(timeout: float) -> str:
        store.asked += 1
        raise UnavailableError("busy", retry_after=60.0)

    begun = time.monotonic()
    with effort_of(5.0), pytest.raises(UnavailableError, match="busy"):
        Persistence(store.breaker, timeout=1.0).run(busy)
    assert store.asked == 1
    assert time.monotonic() - begun < 5


def test_timeouts_shrink_with_the_effort_and_then_nothing_is_asked(store: Store) -> None:
    allowed: list[float] = []

    def silent(timeout: float) -> str:
        allowed.append(timeout)
        current_effort().charge(timeout)
        raise TimedOutError("silent")

    with effort_of(3.0) as effort, pytest.raises(TimedOutError):
        Persistence(store.breaker, timeout=2.0, attempts=10).run(silent)
    assert allowed[0] == 2.0
    assert all(later <= 1.0 for later in allowed[1:])
    assert effort.left < 1.0


def test_attempt_that_moved_something_is_no_failure(store: Store) -> None:
    moved = 0

    def trickle(timeout: float) -> str:
        nonlocal moved
        moved += 1
        if moved < 8:
            raise UnavailableError("broken off")
        return "answer"

    assert Persistence(store.breaker, timeout=1.0).run(trickle, progress=lambda: moved) == "answer"
    assert not store.breaker.is_open


def test_retries_may_not_become_the_load() -> None:
    budget = RetryBudget(tokens=2.0)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    for _ in range(11):
        budget.earn()
    assert [budget.take() for _ in range(2)] == [True, False]


def test_efforts_nest_and_end() -> None:
    with effort_of(5.0) as outer:
        with effort_of(1.0, insist=True) as inner:
            assert current_effort() is inner
            inner.charge(3.0)
            assert inner.left == 0.0
        assert current_effort() is outer
        assert outer.left == 5.0
    assert current_effort() is not outer
    assert isinstance(current_effort(), Effort)


def test_guard_counts_failures_and_charges_them(store: Store) -> None:
    guard = Guard(store.breaker)
    for _ in range(3):
        with pytest.raises(UnavailableError, match="away"), guard():
            store.ask()
    with pytest.raises(BreakerOpenError), guard():
        raise AssertionError("this must not be asked")
    with effort_of(0.0, insist=True), pytest.raises(TimedOutError), guard():
        raise AssertionError("this must not be asked")
    store.breaker.stop()
