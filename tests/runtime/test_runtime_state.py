"""The scheduler, with no process and no clock: events in, instructions out, invariants after each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_runtime.daemon.events import (
    ClientConnected,
    ClientGone,
    CoresRequested,
    Event,
    ExecutorExited,
    ExecutorReady,
    Grant,
    Instruction,
    KillExecutor,
    Refuse,
    Shutdown,
    SpawnExecutor,
    StopRequested,
    Tick,
)
from neuron_runtime.daemon.state import RuntimeState
from neuron_runtime.device.cores import CoreRequest
from neuron_runtime.device.instances import Machine
from neuron_runtime.status import NrtStatus

T = TypeVar("T")


class Driver:
    """Feeds events, checks invariants after each, and plays the executors when told to."""

    def __init__(self, *, warm: int = 1, idle_timeout: float | None = None) -> None:
        self.state = RuntimeState(Machine.of("trn2.3xlarge"), warm=warm, idle_timeout=idle_timeout)
        self.starting = [i.executor for i in self.state.start(0.0) if isinstance(i, SpawnExecutor)]

    def feed(self, event: Event) -> list[Instruction]:
        instructions = self.state.handle(event)
        self.starting += [i.executor for i in instructions if isinstance(i, SpawnExecutor)]
        self.state.validate()
        return instructions

    def ready(self) -> list[Instruction]:
        executor = self.starting.pop(0)
        return self.feed(ExecutorReady(executor, 1000 + executor))

    def client(self, identity: int, request: CoreRequest | None = None) -> list[Instruction]:
        self.feed(ClientConnected(identity, 100 + identity, 0))
        return self.feed(CoresRequested(identity, request or CoreRequest()))


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    driver.state.validate()


def only(instructions: list[Instruction], kind: type[T]) -> T:
    found = [i for i in instructions if isinstance(i, kind)]
    assert len(found) == 1, instructions
    return found[0]


def test_a_warm_executor_is_granted_at_once_and_replaced(driver: Driver) -> None:
    driver.ready()
    instructions = driver.client(1)
    assert only(instructions, Grant) == Grant(1, 1, (0, 1, 2, 3))
    assert only(instructions, SpawnExecutor)


def test_a_client_waits_for_an_executor_that_is_starting(driver: Driver) -> None:
    assert not [i for i in driver.client(1) if isinstance(i, Grant)]
    assert only(driver.ready(), Grant).client == 1


def test_without_a_request_a_process_reserves_all_cores_and_the_next_is_refused(driver: Driver) -> None:
    driver.ready()
    driver.client(1)
    refusal = only(driver.client(2, CoreRequest(count=1)), Refuse)
    assert refusal.status is NrtStatus.RESOURCE
    assert refusal.detail == "NeuronCore(s) not available - Requested:nc0-nc0 Available:0"


def test_named_cores_are_refused_only_when_one_of_them_is_taken(driver: Driver) -> None:
    driver.ready()
    assert only(driver.client(1, CoreRequest(visible=(1, 3))), Grant).cores == (1, 3)
    driver.ready()
    refusal = only(driver.client(2, CoreRequest(visible=(2, 3))), Refuse)
    assert "Requested:nc2-nc3 Available:2" in refusal.detail
    assert only(driver.client(3, CoreRequest(visible=(2, 0))), Grant).cores == (2, 0)


def test_a_count_takes_the_lowest_free_cores(driver: Driver) -> None:
    driver.ready()
    driver.client(1, CoreRequest(visible=(1,)))
    driver.ready()
    assert only(driver.client(2, CoreRequest(count=2)), Grant).cores == (0, 2)


def test_a_core_that_does_not_exist_is_refused_by_name(driver: Driver) -> None:
    driver.ready()
    refusal = only(driver.client(1, CoreRequest(visible=(0, 7))), Refuse)
    assert refusal.status is NrtStatus.INVALID
    assert "NeuronCore 7 does not exist" in refusal.detail


def test_a_refused_process_may_ask_again(driver: Driver) -> None:
    driver.ready()
    driver.client(1, CoreRequest(visible=(9,)))
    assert only(driver.feed(CoresRequested(1, CoreRequest(visible=(0,)))), Grant).cores == (0,)


def test_a_second_init_of_one_process_is_refused_and_changes_nothing(driver: Driver) -> None:
    driver.ready()
    driver.client(1)
    assert only(driver.feed(CoresRequested(1, CoreRequest())), Refuse).status is NrtStatus.INVALID
    assert driver.state.clients[1].cores == (0, 1, 2, 3)


def test_cores_return_when_the_executor_has_exited_not_when_the_client_is_gone(driver: Driver) -> None:
    driver.ready()
    driver.client(1)
    driver.ready()
    assert driver.feed(ClientGone(1)) == [KillExecutor(1)]
    waiting = driver.client(2)
    assert not [i for i in waiting if isinstance(i, Grant | Refuse)], "its cores are draining: it has to wait"
    assert only(driver.feed(ExecutorExited(1, "killed")), Grant) == Grant(2, 2, (0, 1, 2, 3))


def test_a_client_whose_executor_died_keeps_its_cores_until_it_leaves(driver: Driver) -> None:
    driver.ready()
    driver.client(1)
    driver.ready()
    driver.feed(ExecutorExited(1, "killed by SIGSEGV"))
    assert only(driver.client(2), Refuse).status is NrtStatus.RESOURCE
    driver.feed(ClientGone(1))
    assert only(driver.feed(CoresRequested(2, CoreRequest())), Grant).cores == (0, 1, 2, 3)


def test_a_client_that_leaves_while_waiting_leaves_the_executor_to_the_next(driver: Driver) -> None:
    driver.client(1)
    driver.client(2, CoreRequest(count=1))
    driver.feed(ClientGone(1))
    driver.feed(CoresRequested(2, CoreRequest(count=1)))
    assert only(driver.ready(), Grant).client == 2


def test_executors_that_never_start_are_given_up_after_three_and_tried_again_on_request(driver: Driver) -> None:
    driver.client(1)
    refused: list[Instruction] = []
    for _ in range(10):
        if not driver.starting:
            break
        refused += driver.feed(ExecutorExited(driver.starting.pop(0), "exit status 1"))
    refusal = only(refused, Refuse)
    assert refusal.status is NrtStatus.FAILURE
    assert not driver.starting, "no endless respawning"
    driver.feed(CoresRequested(1, CoreRequest()))
    assert driver.starting
    assert only(driver.ready(), Grant).client == 1


def test_an_idle_runtime_stops_but_not_under_a_client() -> None:
    driver = Driver(idle_timeout=10)
    driver.ready()
    assert driver.feed(Tick(9.0)) == []
    driver.client(1)
    assert driver.feed(Tick(100.0)) == []
    driver.feed(ClientGone(1))
    driver.feed(ExecutorExited(1, "killed"))
    assert driver.feed(Tick(105.0)) == []
    assert only(driver.feed(Tick(111.0)), Shutdown).reason == "no client for 10 s"


def test_a_stop_is_obeyed_and_no_executor_is_started_after_it(driver: Driver) -> None:
    driver.ready()
    driver.client(1)
    assert only(driver.feed(StopRequested("SIGTERM")), Shutdown).reason == "SIGTERM"
    assert driver.feed(ExecutorExited(1, "killed")) == []


def test_the_log_tells_which_event_caused_which_instruction(driver: Driver) -> None:
    driver.ready()
    driver.client(1)
    assert any("CoresRequested" in entry and "Grant(client=1" in entry for entry in driver.state.log)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.integers(0, 4)), max_size=60))
def test_no_sequence_of_events_breaks_an_invariant(steps: list[tuple[int, int, int]]) -> None:
    driver = Driver(warm=1)
    for kind, who, what in steps:
        state = driver.state
        if kind == 0 and who not in state.clients:
            driver.feed(ClientConnected(who, 100 + who, 0))
        elif kind == 1 and who in state.clients and state.clients[who].phase.value != "draining":
            driver.feed(CoresRequested(who, CoreRequest(count=what or None)))
        elif kind == 2:
            driver.feed(ClientGone(who))
        elif kind == 3 and driver.starting:
            driver.ready()
        elif kind == 4 and driver.starting:
            driver.feed(ExecutorExited(driver.starting.pop(), "exit status 1"))
        elif kind == 5:
            busy = [c.executor for c in state.clients.values() if c.executor is not None]
            if busy:
                driver.feed(ExecutorExited(busy[what % len(busy)], "killed"))
