"""How tests call the command: in this process for speed, or as a process where that is the point."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import root
from neuron_runtime.neff import NativePart, NeffManifest, write_neff
from neuron_runtime.tensors import TensorSpec

ROOT = Path(__file__).resolve().parents[2]
NATIVE = bytes(range(256))


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's shell says about colour must not decide a test."""
    for name in list(os.environ):
        if name.startswith("NEURON_") or name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NEURON_ENV_CONFIG", "none")


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """Run `neuron-env ARGS` in this process; exceptions become messages and codes as for a user."""

    def call(*args: str | Path, **options: object) -> Result:
        return CliRunner().invoke(root, [str(arg) for arg in args], prog_name="neuron-env", **options)  # type: ignore[arg-type]

    return call


@pytest.fixture
def spawn() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Run `neuron-env ARGS` as a process."""

    def call(
        *args: str | Path, env: dict[str, str] | None = None, **options: object
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            [sys.executable, "-m", "cli.main", *map(str, args)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "NEURON_ENV_CONFIG": "none", **(env or {})},
            timeout=60,
            check=False,
            **{"capture_output": True, **options},
        )

    return call


@pytest.fixture
def neff_file(tmp_path: Path) -> Path:
    """A NEFF made here, with one input, one output and a native part."""
    manifest = NeffManifest(
        name="block",
        version="0.1.0+sim",
        target="trn2",
        lnc=2,
        opt_level=1,
        inputs=(TensorSpec("x", (2, 3), "float32"),),
        outputs=(TensorSpec("y", (2, 3), "float32"),),
        aliases=((0, 0),),
        native=NativePart.describe(NATIVE, format="xla_cpu/test", cpu_features=["avx"]),
    )
    path = tmp_path / "block.neff"
    path.write_bytes(write_neff(manifest, b"module @main {}", NATIVE))
    return path
