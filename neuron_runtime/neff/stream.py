"""The content of a NEFF as a forward-only stream of unpacked bytes, inflated piece by piece and bounded."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from .errors import NeffError
from .limits import NeffLimits

_PIECE = 256 << 10
_GZIP_MAGIC = b"\x1f\x8b"


class ContentStream:
    """Unpacked bytes in order. Memory stays within a few pieces, whatever the content claims.

    `chunks` are the packed bytes. Content that is not gzip is taken as it is: packagers may store a plain
    tar. Every method raises NeffError with field `data` where the content ends early, is damaged or exceeds
    the limits.
    """

    def __init__(self, chunks: Iterator[bytes | memoryview], limits: NeffLimits) -> None:
        self._limits = limits
        self._chunks = chunks
        self._packed = 0
        self._unpacked = 0
        self._piece = b""
        self._at = 0
        first = next(chunks, b"")
        self._pieces = self._inflate(first) if bytes(first[:2]) == _GZIP_MAGIC else self._plain(first)

    @property
    def position(self) -> int:
        """Unpacked bytes handed out so far."""
        return self._unpacked - (len(self._piece) - self._at)

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes; the caller bounds `size`."""
        pieces = list(self.pieces(size))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pieces(self, size: int) -> Iterator[bytes]:
        """Exactly `size` bytes, in pieces of bounded size."""
        while size > 0:
            if self._at == len(self._piece) and not self._advance():
                raise NeffError("data", f"the archive ends in the middle: {size} more bytes were announced")
            piece = self._piece[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            yield piece

    def skip(self, size: int) -> None:
        for _ in self.pieces(size):
            pass

    def rest(self) -> Iterator[bytes]:
        """Whatever is left, in pieces of bounded size; afterwards the packed bytes are known to be used up."""
        while self._at < len(self._piece) or self._advance():
            piece, self._at = self._piece[self._at :], len(self._piece)
            yield piece

    def _advance(self) -> bool:
        self._piece, self._at = next(self._pieces, b""), 0
        self._unpacked += len(self._piece)
        limits = self._limits
        if self._unpacked > limits.unpacked_size:
            raise NeffError("data", f"the content unpacks to more than {limits.unpacked_size} bytes")
        if self._unpacked > limits.ratio_floor and self._unpacked > limits.ratio * self._packed:
            raise NeffError("data", f"the content unpacks to more than {limits.ratio} times its packed size")
        return bool(self._piece)

    def _plain(self, chunk: bytes | memoryview) -> Iterator[bytes]:
        while chunk:
            self._packed += len(chunk)
            yield bytes(chunk)
            chunk = next(self._chunks, b"")

    def _inflate(self, chunk: bytes | memoryview) -> Iterator[bytes]:
        inflater = zlib.decompressobj(wbits=31)
        while not inflater.eof:
            try:
                piece = inflater.decompress(chunk, _PIECE)
            except zlib.error as error:
                raise NeffError("data", f"the gzip stream is damaged ({error})") from error
            left = inflater.unconsumed_tail
            self._packed += len(chunk) - len(left)
            if piece:
                yield piece
            # An empty chunk is fed once more: the inflater may still hold output beyond the last input.
            elif not chunk and not inflater.eof:
                raise NeffError("data", "the gzip stream ends in the middle")
            chunk = left or next(self._chunks, b"")
        if inflater.unused_data or chunk:
            raise NeffError("data", "bytes follow the end of the gzip stream")
