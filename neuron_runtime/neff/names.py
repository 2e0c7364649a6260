"""Which paths may be in an archive, alone and together."""

from __future__ import annotations

from .errors import NeffError
from .findings import shown
from .limits import NeffLimits


def clean_name(raw: bytes, limits: NeffLimits) -> str:
    """The path in one form: relative, without leading `./` and trailing `/`; empty for the root folder
    itself.

    Raises NeffError, naming the member, for a path that could leave the folder it is unpacked into, or that cannot be
    shown or stored as it is.
    """
    if len(raw) > limits.name_length:
        raise NeffError("tar", f"a member's name is longer than {limits.name_length} bytes")
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise _refused(raw.decode("utf-8", "backslashreplace"), "is not UTF-8") from None
    if not name:
        raise NeffError("tar", "a member has no name")
    if not name.isprintable() or "\\" in name:
        raise _refused(name, "holds a character that no name may hold")
    while name.startswith("./"):
        name = name[2:]
    if name.startswith("/"):
        raise _refused(name, "is absolute")
    name = name.rstrip("/")
    if name in ("", "."):
        return ""
    parts = name.split("/")
    if len(parts) > limits.name_depth:
        raise _refused(name, f"lies deeper than {limits.name_depth} folders")
    if any(part in ("", ".", "..") for part in parts):
        raise _refused(name, "is not a plain relative path")
    return name


class Tree:
    """The names met so far, and what may still join them."""

    def __init__(self, limits: NeffLimits) -> None:
        self._limits = limits
        self._files: set[str] = set()
        self._named_folders: set[str] = set()
        self._folders: set[str] = set()

    def add_file(self, name: str, size: int) -> None:
        if not name:
            raise NeffError("tar", "a file has a folder's name")
        if name in self._files or name in self._folders:
            raise _refused(name, "appears twice")
        if size > self._limits.member_size:
            raise _refused(name, f"is {size} bytes long, over the limit of {self._limits.member_size}")
        self._enter(name)
        self._files.add(name)

    def add_folder(self, name: str, size: int) -> None:
        """A folder that a file has already implied may still be named, once."""
        if size:
            raise _refused(name, f"is a folder and claims {size} bytes of content")
        if name in self._files or name in self._named_folders:
            raise _refused(name, "appears twice")
        self._enter(name)
        self._named_folders.add(name)
        self._folders.add(name)

    def _enter(self, name: str) -> None:
        if len(self._files) + len(self._named_folders) >= self._limits.members:
            raise NeffError("tar", f"the archive has more than {self._limits.members} members")
        at = name.find("/")
        while at > 0:
            parent = name[:at]
            if parent in self._files:
                raise _refused(name, "lies under a file")
            self._folders.add(parent)
            at = name.find("/", at + 1)


def _refused(name: str, why: str) -> NeffError:
    text = shown(name)
    return NeffError(text, f"the member `{text}` {why}")
