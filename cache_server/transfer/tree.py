"""A directory in one of the vendor's layouts, to which an import adds what has no key of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cache_server.backends.posix import PosixBackend
from cache_server.permissions import Permissions
from cache_server.transfer.source import Member


class Tree:
    """Files below `root`, each added whole or not at all, and none replaced. Methods raise StoreError."""

    def __init__(self, root: Path, permissions: Permissions) -> None:
        self.name = str(root)
        self._files = PosixBackend(root, permissions)

    def has(self, path: str) -> bool:
        found = self._files.find(path)
        return found is not None and found.size > 0

    def add(self, path: str, member: Member, read: Callable[[Member], bytes]) -> None:
        """Writes a member's content, over an empty file too: that is what a full disk leaves of a NEFF."""
        self._files.write(path, read(member))
