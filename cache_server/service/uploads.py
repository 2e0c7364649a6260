"""Uploads that outlive their connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable

from cache_server.blobs import BlobUpload
from cache_server.errors import CacheError, StoreError
from cache_server.manifest import Blob
from cache_server.service.admission import Space
from cache_server.service.errors import ProblemError, not_found
from cache_server.service.streams import Call
from cache_server.store import Store, blob_path

log = logging.getLogger("neuron_env.cache.server")

_ID = re.compile(r"[0-9a-f]{32}-(?P<size>\d{1,14})-(?P<sha256>[0-9a-f]{64})")
_PREFIX = "upload-"
IDLE_SECONDS = 3600.0


class _AbandonedError(Exception):
    """Ends a reservation whose upload came to nothing."""


class Session:
    """One upload in this process' hand. Whoever asks for it last has the turn: an older request may be long dead."""

    def __init__(
        self, namespace: str, name: str, upload: BlobUpload, room: contextlib.AsyncExitStack, call: Call
    ) -> None:
        self.namespace = namespace
        self.id = name
        self.upload = upload
        self.used_at = time.monotonic()
        self._room = room
        self._call = call
        self._lock = asyncio.Lock()
        self._turn: object = None
        self._ended = False

    async def take_turn(self) -> Turn:
        """From now on only the holder of the turn appends. Waits for what is just being written."""
        async with self._lock:
            turn = Turn(self)
            self._turn = turn
            self.used_at = time.monotonic()
            return turn

    async def end(self, act: Callable[[], object], *, stored: bool) -> None:
        """Ends the session by `act`, which finishes, aborts or suspends the upload. A second call does nothing."""
        async with self._lock:
            if self._ended:
                return
            self._ended = True
            self._turn = None
            try:
                await self._call(act)
            except BaseException:
                await self._give_back()
                raise
            if stored:
                await self._room.aclose()
            else:
                await self._give_back()

    async def _give_back(self) -> None:
        error = _AbandonedError()
        with contextlib.suppress(_AbandonedError):
            await self._room.__aexit__(_AbandonedError, error, None)

    async def append(self, turn: Turn, data: bytes | memoryview) -> None:
        async with self._lock:
            if self._ended or self._turn is not turn:
                raise ProblemError("wrong-offset", "another request has taken this upload over")
            self.used_at = time.monotonic()
            try:
                await self._call(self.upload.append, data)
            finally:
                self.used_at = time.monotonic()


class Turn:
    """The right to append to a session, until somebody else takes it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def offset(self) -> int:
        return self._session.upload.offset

    async def append(self, data: bytes | memoryview) -> None:
        """Raises ProblemError once the turn is somebody else's; DigestError and StoreError as BlobUpload.append."""
        await self._session.append(self, data)


class Uploads:
    """The sessions of one process. A session's name tells all that is needed to take it up again from the store.

    On a store that keeps half an object (a directory), a session survives the process, and any process that shares the
    directory can go on with it. On others it ends with the process, and the sender begins anew. Sessions that nobody
    used for an hour are thrown away, wherever they were begun.
    """

    def __init__(
        self,
        call: Call,
        store: Callable[[str], Store],
        space: Callable[[], Space],
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._call = call
        self._store = store
        self._space = space
        self._idle = idle_seconds
        self._sessions: dict[tuple[str, str], Session] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._taking_up = asyncio.Lock()

    async def begin(self, namespace: str, blob: Blob) -> Session:
        """A new session; its room is reserved until it ends. Raises ProblemError where there is none; StoreError."""
        name = f"{os.urandom(16).hex()}-{blob.size}-{blob.sha256}"
        return await self._open(
            namespace, name, blob, lambda store: store.receive_blob(blob, name=_staged(namespace, name))
        )

    async def find(self, namespace: str, name: str) -> Session:
        """A session by its id, taken up from the store if need be. Raises ProblemError if there is none."""
        session = self._sessions.get((namespace, name))
        if session is not None:
            return session
        match = _ID.fullmatch(name)
        if match is not None:
            blob = Blob(match["sha256"], int(match["size"]))
            async with self._taking_up:
                session = self._sessions.get((namespace, name))
                if session is not None:
                    return session
                with contextlib.suppress(_AbandonedError):
                    return await self._open(
                        namespace, name, blob, lambda store: store.resume_blob(blob, name=_staged(namespace, name))
                    )
        raise not_found("no such upload is under way here: it has ended, or was begun at another replica; start again")

    async def finish(self, session: Session) -> None:
        """Puts the blob in its place. Raises DigestError, and throws it away, if it is not what was announced."""
        self._sessions.pop((session.namespace, session.id), None)
        try:
            await session.end(session.upload.finish, stored=True)
        except StoreError:
            await self._call(session.upload.abort)
            raise

    async def abort(self, session: Session) -> None:
        """Throws away what has arrived."""
        self._sessions.pop((session.namespace, session.id), None)
        await session.end(session.upload.abort, stored=False)

    def start(self) -> None:
        """Begins to look for sessions that nobody uses any more."""
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep_for_ever())

    async def close(self) -> None:
        """Lets go of every session; those that the store can keep are found again by the next process."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        for session in list(self._sessions.values()):
            with contextlib.suppress(StoreError):
                await session.end(session.upload.suspend, stored=False)
        self._sessions.clear()

    async def sweep(self) -> None:
        """Throws away what nobody used for `idle_seconds`, here and, by age, what dead processes left."""
        expired = time.monotonic() - self._idle
        for session in [it for it in self._sessions.values() if it.used_at < expired]:
            log.info("the upload %s was not used for %.0f s, and is thrown away", session.id, self._idle)
            await self.abort(session)
        await self._call(self._remove_left, time.time() - self._idle)

    async def _sweep_for_ever(self) -> None:
        while True:
            try:
                await self.sweep()
            except CacheError as error:
                log.warning("cannot look for uploads that nobody uses: %s", error)
            await asyncio.sleep(self._idle / 4)

    def _remove_left(self, before: float) -> None:
        backend = self._store("default").backend
        for found in backend.scan("staging"):
            if found.path.rpartition("/")[2].startswith(_PREFIX) and found.modified_at < before:
                backend.remove(found)

    async def _open(self, namespace: str, name: str, blob: Blob, act: Callable[[Store], BlobUpload | None]) -> Session:
        async with _reserved(self._space(), namespace, blob) as room:
            upload = await self._call(act, self._store(namespace))
            if upload is None:
                raise _AbandonedError
            session = Session(namespace, name, upload, room.pop_all(), self._call)
        self._sessions[namespace, name] = session
        return session


@contextlib.asynccontextmanager
async def _reserved(space: Space, namespace: str, blob: Blob) -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as room:
        await room.enter_async_context(space.reserve(namespace, blob.size, blob_path(blob.sha256)))
        yield room


def _staged(namespace: str, name: str) -> str:
    return f"{_PREFIX}{namespace}-{name}"
