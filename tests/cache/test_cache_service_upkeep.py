"""Work on the whole store for somebody who waits for it: told as it goes, and never left to run for nobody."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cache_server.errors import StoreError
from cache_server.service.upkeep import Progress, UpkeepAnswer

pytestmark = pytest.mark.fleet

DEADLINE = 60.0


class Asker:
    """One who asked for work, as ASGI shows them: `lines` is what they were told."""

    def __init__(self, work: Callable[[Progress], Mapping[str, Any]]) -> None:
        self.gone, self.draining, self.turn = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self.exchange = SimpleNamespace(request_id="r1", problem="")
        self.lines: list[dict[str, Any]] = []
        self._answer = UpkeepAnswer(asyncio.to_thread, work, turn=self.turn, draining=self.draining)

    async def listen(self) -> None:
        await asyncio.wait_for(self._answer({"neuron_env": self.exchange}, self._receive, self._send), DEADLINE)

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            # Whoever hears of the end may begin the next.
            assert self.turn.locked() == message["more_body"]
            self.lines.append(json.loads(message["body"]))


def endless(begun: threading.Event) -> Callable[[Progress], Mapping[str, Any]]:
    """Work that only ends when nobody wants it any more."""

    def work(progress: Progress) -> Mapping[str, Any]:
        done = 0
        while True:
            done += 1
            progress(done, 0)
            begun.set()

    return work


def test_progress_is_told_and_then_the_result() -> None:
    async def main() -> None:
        may_end = threading.Event()

        def work(progress: Progress) -> Mapping[str, Any]:
            progress(3, 4)
            may_end.wait(DEADLINE)
            return {"found": 1}

        asker = Asker(work)
        listening = asyncio.create_task(asker.listen())
        async with asyncio.timeout(DEADLINE):
            while {"progress": {"done": 3, "total": 4}} not in asker.lines:
                await asyncio.sleep(0.01)
        may_end.set()
        await listening
        assert asker.lines[-1] == {"result": {"found": 1}}

    asyncio.run(main())


def test_work_ends_when_its_asker_goes_away() -> None:
    async def main() -> None:
        begun = threading.Event()
        asker = Asker(endless(begun))
        listening = asyncio.create_task(asker.listen())
        await asyncio.to_thread(begun.wait, DEADLINE)
        asker.gone.set()
        await listening
        assert not asker.turn.locked()
        assert all("progress" in line for line in asker.lines)

    asyncio.run(main())


def test_replica_that_drains_gives_up_and_says_so() -> None:
    async def main() -> None:
        begun = threading.Event()
        asker = Asker(endless(begun))
        listening = asyncio.create_task(asker.listen())
        await asyncio.to_thread(begun.wait, DEADLINE)
        asker.draining.set()
        await listening
        assert asker.lines[-1]["problem"]["type"].endswith(":draining")
        assert asker.exchange.problem == "draining"

    asyncio.run(main())


def test_what_goes_wrong_after_the_answer_has_begun_is_its_last_line() -> None:
    def work(progress: Progress) -> Mapping[str, Any]:
        raise StoreError("the disk is gone")

    async def main() -> None:
        asker = Asker(work)
        await asker.listen()
        problem = asker.lines[-1]["problem"]
        assert (problem["detail"], problem["request_id"]) == ("the disk is gone", "r1")

    asyncio.run(main())
