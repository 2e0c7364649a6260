"""Where the runtime keeps its socket, lock and log: one private directory a user."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neuron_runtime.config.layers import settings_environment
from neuron_runtime.errors import NeuronEnvError

_SOCKET_PATH_LIMIT = 107  # sun_path holds 108 bytes with the closing zero


@dataclass(frozen=True, slots=True)
class RuntimePaths:
    """The files of one daemon. `directory` is 0700: whoever reaches the socket can run code in executors."""

    directory: Path

    @property
    def socket(self) -> Path:
        return self.directory / "runtime.sock"

    @property
    def lock(self) -> Path:
        return self.directory / "runtime.lock"

    @property
    def log(self) -> Path:
        return self.directory / "runtime.log"

    def prepare(self) -> None:
        """Creates the directory. Raises NeuronEnvError when it is not private or the socket path too long."""
        if len(os.fsencode(self.socket)) > _SOCKET_PATH_LIMIT:
            raise NeuronEnvError(
                f"the runtime's socket path is longer than {_SOCKET_PATH_LIMIT} bytes: {self.socket}",
                hint="set `NEURON_ENV_RUNTIME_DIR` to a shorter directory",
            )
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.directory.stat()
        except OSError as error:
            raise NeuronEnvError(
                f"cannot create the runtime directory {self.directory}: {error.strerror}",
                hint="set `NEURON_ENV_RUNTIME_DIR` to a directory you own",
            ) from error
        if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
            raise NeuronEnvError(
                f"the runtime directory {self.directory} is not private "
                f"(owner {info.st_uid}, mode {stat.S_IMODE(info.st_mode):04o})",
                hint=f"type `chmod 700 {self.directory}`, or set `NEURON_ENV_RUNTIME_DIR` to a directory you own",
            )


def runtime_paths(environ: Mapping[str, str] | None = None) -> RuntimePaths:
    """`NEURON_ENV_RUNTIME_DIR`, else a directory under `XDG_RUNTIME_DIR`, else under the user's cache."""
    environ = settings_environment() if environ is None else environ
    chosen = environ.get("NEURON_ENV_RUNTIME_DIR")
    if chosen:
        return RuntimePaths(Path(chosen).expanduser().absolute())
    session = environ.get("XDG_RUNTIME_DIR")
    if session and Path(session).is_dir():
        return RuntimePaths(Path(session) / "neuron-env")
    cache = environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return RuntimePaths(Path(cache) / "neuron-env" / "run")
