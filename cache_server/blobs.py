"""Content that is hashed while it passes, whatever its size."""

from __future__ import annotations

import contextlib
import hashlib

from cache_server.backends import Content, Incoming, pieces
from cache_server.errors import DigestError
from cache_server.manifest import Blob


class BlobUpload:
    """A blob on its way into a store, its SHA-256 taken as it arrives.

    Nobody sees it before `finish` has found length and digest right. Methods may be called from any thread, one at a
    time, and raise StoreError when the store cannot work.
    """

    def __init__(self, blob: Blob, incoming: Incoming, arrived: Content | None = None) -> None:
        """`arrived` is what an earlier upload left in `incoming`: read once, hashed, and closed."""
        self.blob = blob
        self._incoming = incoming
        self._hash = hashlib.sha256()
        if arrived is not None:
            with contextlib.closing(arrived):
                for piece in pieces(arrived, 0, incoming.offset):
                    self._hash.update(piece)

    @property
    def offset(self) -> int:
        """Bytes that have arrived."""
        return self._incoming.offset

    @property
    def complete(self) -> bool:
        return self.offset == self.blob.size

    def append(self, data: bytes | memoryview) -> None:
        """Takes the next bytes. Raises DigestError if there are more than were announced; StoreError, and keeps a part.

        After a StoreError `offset` tells what was kept.
        """
        before = self.offset
        if before + len(data) > self.blob.size:
            raise DigestError(f"more than the {self.blob.size} bytes that were announced came for {self.blob.sha256}")
        try:
            self._incoming.append(data)
        finally:
            self._hash.update(memoryview(data)[: self.offset - before])

    def finish(self) -> None:
        """Puts the blob in its place. Raises DigestError, and throws it away, if it is not what was announced."""
        check(self.blob, self.offset, self._hash.hexdigest(), abort=self._incoming)
        self._incoming.finish()

    def abort(self) -> None:
        """Throws away what has arrived; does nothing after `finish`."""
        self._incoming.abort()

    def suspend(self) -> bool:
        """Lets go of it; True if `Store.resume_blob` can take it up again."""
        return self._incoming.suspend()


def check(blob: Blob, size: int, sha256: str, *, abort: Incoming | None = None) -> None:
    """Raises DigestError, and throws the upload away, unless size and digest are those of `blob`."""
    if size != blob.size:
        why = f"{size} bytes came instead of {blob.size} for the blob {blob.sha256}"
    elif sha256 != blob.sha256:
        why = f"the content has the SHA-256 {sha256}, not {blob.sha256} as announced"
    else:
        return
    if abort is not None:
        abort.abort()
    raise DigestError(
        why,
        hint="send it again; if it happens twice, the file changes while it is read, or a machine on the way is faulty",
    )


def digest_of(content: Content) -> str:
    """The SHA-256 of an open object in lower-case hexadecimal, read piece by piece. Raises StoreError."""
    digest = hashlib.sha256()
    for piece in pieces(content):
        digest.update(piece)
    return digest.hexdigest()
