"""Where an export goes: a new directory, or a tar archive. Either is there whole in the end, or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from cache_server.backends.posix import PosixBackend
from cache_server.errors import CacheError
from cache_server.permissions import permissions_named


class Sink(Protocol):
    """A tree of files that is being written. Paths are relative; no path is written twice."""

    def put(self, path: str, data: bytes) -> None: ...


@contextlib.contextmanager
def open_sink(target: Path) -> Iterator[Sink]:
    """A tar archive where the name ends in `.tar`, else a directory. Raises CacheError, and leaves nothing then."""
    if target.name.endswith((".tar.gz", ".tgz", ".tar.zst", ".zip")):
        raise CacheError(
            f"an export is not compressed, since NEFFs are already: {target}", hint="give a name that ends in .tar"
        )
    if target.is_dir() and not target.name.endswith(".tar"):
        if any(target.iterdir()):
            raise _taken(target)
    elif os.path.lexists(target):
        raise _taken(target)
    # Beside the target, so that the last step is a rename.
    unfinished = target.with_name(f".{target.name}.{os.urandom(6).hex()}.unfinished")
    try:
        if target.name.endswith(".tar"):
            with unfinished.open("xb") as file:
                with TarSink(file) as sink:
                    yield sink
                file.flush()
                os.fsync(file.fileno())
            unfinished.chmod(0o644)
        else:
            unfinished.mkdir(mode=0o755)
            yield DirectorySink(unfinished)
            if target.is_dir():
                target.rmdir()
        unfinished.rename(target)
    except OSError as error:
        raise CacheError(
            f"cannot write {target}: {error.strerror or error}", hint="give a place with room that you may write to"
        ) from error
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)


class DirectorySink:
    """Files that everybody may read: a bundle is often made by one user and used by others."""

    def __init__(self, root: Path) -> None:
        self._files = PosixBackend(root, permissions_named("world-read"))
        self._root = root

    def put(self, path: str, data: bytes) -> None:
        self._files.write(path, data)


class TarSink:
    """Members without owners and times, so equal contents in equal order give equal archives."""

    def __init__(self, file: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115  closed on exit

    def __enter__(self) -> TarSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._tar.close()

    def put(self, path: str, data: bytes) -> None:
        info = tarfile.TarInfo(path)
        info.size = len(data)
        info.mode = 0o644
        self._tar.addfile(info, io.BytesIO(data))


def _taken(target: Path) -> CacheError:
    return CacheError(f"{target} is there already, and nothing is overwritten", hint="give a new name, or remove it")
