"""Write a compile's output so that its name holds all of it or none."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path


def write_output(path: Path, data: bytes) -> None:
    """Put `data` in `path`, replacing what is there at once. Raises OSError, and then leaves nothing new behind.

    A symbolic link keeps pointing where it does. What is no regular file (`/dev/null`, a pipe) is written to.
    """
    path = path.resolve()
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        regular = True
    if not regular:
        path.write_bytes(data)
        return
    partial = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.partial")
    # Not `tempfile`, which makes files that only their owner can read.
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(data)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
