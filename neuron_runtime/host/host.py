"""A machine as it can be read: this one, or a tree of files that holds one's root directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from neuron_runtime.host.missing import NotFoundHere
from neuron_runtime.host.running import Programs

_MAX_TEXT_BYTES = 16 << 20
_MAX_LINKS = 40
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/aws/neuron/bin"


@dataclass(frozen=True, slots=True)
class Host:
    """Where to read a machine. Names are absolute paths of that machine, wherever its root lies.

    root: the directory that is its `/`
    environ: the environment a program of interest would have there
    executes: whether its programs may be run; never those of an image, whose programs nobody vouches for
    live: whether this is the machine that the reader runs on
    time_limit: seconds that one of its programs gets
    programs: those that run for this reader
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=dict)
    executes: bool = True
    live: bool = False
    time_limit: float = 1.8
    programs: Programs = field(default_factory=Programs, compare=False, repr=False)

    @classmethod
    def here(cls) -> Host:
        """The machine that this process runs on."""
        return cls(environ=dict(os.environ), live=True)

    @classmethod
    def image(cls, root: Path, environ: Mapping[str, str] | None = None) -> Host:
        """An unpacked image: its files are read, its programs are not run."""
        return cls(root=root.resolve(), environ=dict(environ or {}), executes=False)

    def path(self, name: str | PurePosixPath) -> Path:
        """Where the file called `name` lies. Links are followed within the root, so that none leads out of it."""
        if self.root == Path("/"):
            return Path(name)
        done, todo, links = self.root, list(PurePosixPath(name).parts[1:]), 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                done = done if done == self.root else done.parent
                continue
            candidate = done / part
            if candidate.is_symlink() and (links := links + 1) <= _MAX_LINKS:
                target = candidate.readlink()
                if target.is_absolute():
                    done, todo = self.root, [*target.parts[1:], *todo]
                else:
                    todo = [*target.parts, *todo]
            elif links > _MAX_LINKS:
                raise NotFoundHere(f"{name}: too many links")
            else:
                done = candidate
        return done

    def name(self, path: Path) -> str:
        """What the machine itself calls a file that was found under the root."""
        return str(path) if self.root == Path("/") else "/" + str(path.relative_to(self.root))

    def exists(self, name: str) -> bool:
        try:
            return self.path(name).exists()
        except (OSError, NotFoundHere):
            return False

    def text(self, name: str) -> str:
        """The content of a file without surrounding space. Raises NotFoundHere."""
        try:
            # Unbuffered, in pieces: files of /proc refuse a read into a large buffer.
            with self.path(name).open("rb", buffering=0) as file:
                data = bytearray()
                while len(data) < _MAX_TEXT_BYTES and (piece := file.read(65536)):
                    data += piece
            return data.decode(errors="replace").strip()
        except OSError as error:
            raise _missing(name, error) from None

    def names(self, directory: str) -> list[str]:
        """The names in a directory, in order. Raises NotFoundHere."""
        try:
            return sorted(os.listdir(self.path(directory)))  # noqa: PTH208 - names, not paths
        except OSError as error:
            raise _missing(directory, error) from None

    def status(self, name: str) -> os.stat_result:
        """Raises NotFoundHere."""
        try:
            return self.path(name).stat()
        except OSError as error:
            raise _missing(name, error) from None

    def which(self, program: str) -> str:
        """The program of that name which this machine's PATH finds first. Raises NotFoundHere."""
        searched = self.environ.get("PATH") or _USUAL_PATH
        if "/" in program:
            candidates = [program]
        else:
            # The tools are often installed and not on PATH.
            folders = [*searched.split(":"), "/usr/sbin", "/sbin", "/opt/aws/neuron/bin"]
            candidates = [f"{folder.rstrip('/')}/{program}" for folder in folders if folder.startswith("/")]
        for candidate in candidates:
            try:
                info = self.path(candidate).stat()
            except (OSError, NotFoundHere):
                continue
            if stat.S_ISREG(info.st_mode) and info.st_mode & 0o111:
                return candidate
        raise NotFoundHere(f"there is no program `{program}` on PATH or in /opt/aws/neuron/bin")

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        environ: Mapping[str, str] | None = None,
        label: str | None = None,
    ) -> str:
        """What a program of this machine prints on stdout; messages call it `label`.

        Raises NotFoundHere where there is none, where it fails, and where it takes more than `timeout` (by default the
        host's limit) seconds; it and all it started have then been killed.
        """
        program = self.which(argv[0])
        if not self.executes:
            raise NotFoundHere(f"`{argv[0]}` was not run: the programs of an image are not executed")
        command = [str(self.path(program)) if self.root != Path("/") else program, *argv[1:]]
        limit = self.time_limit if timeout is None else timeout
        return self.programs.run(command, {**self.environ, **(environ or {})}, limit, label=label or " ".join(argv[:3]))


def _missing(name: str, error: OSError) -> NotFoundHere:
    if isinstance(error, FileNotFoundError):
        return NotFoundHere(f"{name} does not exist")
    return NotFoundHere(f"{name} cannot be read: {error.strerror}")
