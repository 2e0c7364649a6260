"""What a store needs from the place it is kept in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Found:
    """An object as a scan saw it: its size in bytes and the time of its last write, in seconds since 1970.

    `version` changes with every write. `readable_by_all` is False where the permissions keep somebody from reading
    whom the store's policy lets read.
    """

    path: str
    size: int
    modified_at: float
    version: str
    readable_by_all: bool = True


class Content(Protocol):
    """An object opened for reading. Everything read from it belongs to the version that was opened.

    Methods may be called from any thread, one at a time.
    """

    size: int  # bytes
    piece: int  # bytes that are good to read at once

    def read(self, start: int, size: int) -> bytes:
        """Exactly `size` bytes from the offset `start`. Raises StoreError if they do not come."""
        ...

    def close(self) -> None: ...


class Incoming(Protocol):
    """An object on its way in. Nobody sees it before `finish`, and then they see all of it.

    Methods may be called from any thread, one at a time; each raises StoreError when it cannot work.
    """

    @property
    def offset(self) -> int:
        """Bytes that have arrived."""
        ...

    def append(self, data: bytes | memoryview) -> None:
        """Takes the next bytes. After an error `offset` still says how many are kept."""
        ...

    def finish(self) -> None:
        """Puts the object in place of whatever is there. Nothing may follow."""
        ...

    def abort(self) -> None:
        """Throws away what has arrived. Does nothing after `finish`."""
        ...

    def suspend(self) -> bool:
        """Lets go of it; True if `Backend.resume` can take it up again, in this process or another."""
        ...


class Backend(Protocol):
    """Objects by relative path, each seen whole or not at all. Every method raises StoreError when it cannot work.

    `url` names the place in messages.
    """

    url: str

    def read(self, path: str, limit: int) -> bytes | None:
        """The content, None if there is none; one byte more than `limit` when the object is longer than that."""
        ...

    def write(self, path: str, data: bytes | memoryview) -> None:
        """Puts `data` in place of whatever is there. Readers see the old or the new content."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Puts `data` there if nothing is; False if something was. Of several writers one wins."""
        ...

    def remove_if(self, path: str, expected: bytes) -> bool:
        """Removes the object if `expected` is its content; False otherwise."""
        ...

    def move(self, path: str, target: str) -> bool:
        """Renames an object; False if it is not there."""
        ...

    def walk(self, prefix: str) -> Iterator[str]:
        """The paths below `prefix`, in no order. For administration: nothing that a compile waits for lists."""
        ...

    def scan(self, prefix: str) -> Iterator[Found]:
        """The objects below `prefix`, in no order; fails rather than leave out what it cannot look at.

        For administration, which takes what it does not find for unused.
        """
        ...

    def remove(self, found: Found) -> bool:
        """Removes an object unless it was written again since it was found; False if it was, or is gone.

        A write in the same instant may be lost: only for what its readers can do without.
        """
        ...

    def find(self, path: str) -> Found | None:
        """What is known of one object; None if there is none."""
        ...

    def open(self, path: str) -> Content | None:
        """An object to be read piece by piece; None if there is none. Close it."""
        ...

    def receive(self, path: str, size: int, *, name: str = "") -> Incoming:
        """Begins an object of `size` bytes that will be put at `path`. `name` is what `resume` finds it by."""
        ...

    def resume(self, path: str, size: int, *, name: str) -> tuple[Incoming, Content] | None:
        """Takes up what `suspend` left or a process that died, together with the bytes that had arrived.

        None if there is nothing by that name, or if somebody else has it in hand.
        """
        ...

    def touch(self, path: str) -> bool:
        """Gives an object a new version without writing its content; False if that cannot be done."""
        ...

    def presigned(self, path: str, seconds: int) -> str | None:
        """A URL at which anybody may read the object for so long; None where places have none."""
        ...


def pieces(content: Content, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """The bytes from `start` up to `stop` (by default the end) in pieces. Raises StoreError."""
    end = content.size if stop is None else stop
    while start < end:
        data = content.read(start, min(content.piece, end - start))
        start += len(data)
        yield data
