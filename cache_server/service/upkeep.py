"""Work on the whole store for an administrator who waits for it: an answer that tells how far it is, line by line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cache_server.fields import encode_object
from cache_server.service.errors import ProblemError, problem_of

if TYPE_CHECKING:
    from cache_server.service.front import Exchange

NDJSON = "application/x-ndjson"
_TELL_SECONDS = 1.0  # between two lines, so that neither the asker nor a proxy takes the service for dead

Progress = Callable[[int, int], None]
Work = Callable[[Progress], Mapping[str, Any]]
Call = Callable[..., Awaitable[Any]]


class AbandonedError(Exception):
    """Nobody waits for the work any more."""


class UpkeepAnswer(Response):
    """Runs `work` in a thread and answers with a JSON object a line: `progress` each second, `result` at the end.

    Or `problem`, a problem document, for what went wrong after the answer had begun. The work ends with its listener:
    it is given up at its next sign of progress when the asker goes away or the replica drains. What was done until
    then stays done, each step being one that the store can live with. Who holds `turn` works.
    """

    def __init__(self, call: Call, work: Work, *, turn: asyncio.Lock, draining: asyncio.Event) -> None:
        super().__init__(b"", 200, {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}, media_type=NDJSON)
        del self.headers["content-length"]
        self._call = call
        self._work = work
        self._turn = turn
        self._draining = draining
        self._given_up = threading.Event()
        self._done = self._total = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone, drained = asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(self._draining.wait())
        try:
            async with self._turn:
                running = asyncio.ensure_future(self._call(self._work, self._progress))
                try:
                    await self._wait(running, gone, drained, send)
                finally:
                    self._given_up.set()
                    # The thread may be in the middle of a step: the next who has the turn must not meet it.
                    await asyncio.shield(asyncio.wait([running]))
            # Whoever hears of the end may begin the next.
            if not gone.done():
                await _send_line(send, _outcome(running, scope["neuron_env"]), last=True)
        finally:
            gone.cancel()
            drained.cancel()

    async def _wait(
        self, running: asyncio.Future[Any], gone: asyncio.Future[None], drained: asyncio.Future[Any], send: Send
    ) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        waited: list[asyncio.Future[Any]] = [running, gone, drained]
        while not running.done():
            await _send_line(send, {"progress": {"done": self._done, "total": self._total}})
            await asyncio.wait(waited, timeout=_TELL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() or drained.done():
                self._given_up.set()
                await asyncio.wait([running])

    def _progress(self, done: int, total: int) -> None:
        """Called by the thread."""
        if self._given_up.is_set():
            raise AbandonedError
        self._done, self._total = done, total


def _outcome(running: asyncio.Future[Mapping[str, Any]], exchange: Exchange) -> Mapping[str, Any]:
    """The last line. Raises what nobody foresaw."""
    try:
        return {"result": running.result()}
    except AbandonedError:
        problem: ProblemError | None = ProblemError(
            "draining", "this replica is about to end", hint="ask again: the rest is done then"
        )
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
    assert problem is not None
    exchange.problem = problem.slug
    return {"problem": problem.to_json(exchange.request_id)}


async def _send_line(send: Send, value: Mapping[str, Any], *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": encode_object(value), "more_body": not last})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
