"""A runtime and a cache for tests of the device, and programs that use them in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DeviceHost:
    """What a simulated host has: the runtime's directory, and a cache with both tiers."""

    runtime: Path
    cache: Path

    def settings(self) -> dict[str, str]:
        return {
            "NEURON_ENV_RUNTIME_DIR": str(self.runtime),
            "NEURON_ENV_CACHE_URL": str(self.cache / "shared"),
            "NEURON_ENV_CACHE_LOCAL_DIR": str(self.cache / "local"),
            "NEURON_RT_NUM_CORES": "1",
        }

    def run(
        self, program: str, *, check: bool = True, timeout: float = 110.0, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs Python source with warnings as errors; its output and errors as text."""
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
            env={**os.environ, **self.settings(), **settings},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def stop(self) -> None:
        """Ends the daemon; the tests' own processes have let go of it."""
        subprocess.run(
            [sys.executable, "-m", "cli.main", "runtime", "stop"],
            env={**os.environ, **self.settings()},
            capture_output=True,
            timeout=60,
            check=False,
        )
