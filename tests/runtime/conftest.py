"""A runtime of its own for each test, and NEFFs to run on it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from runtime_kit import ADD, SLOW, Runtime

from neuron_runtime.compiler.compile import compile_neff
from neuron_runtime.compiler.options import CompileOptions
from neuron_runtime.neff import read_neff, write_neff


@pytest.fixture(scope="session")
def neffs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `add.neff`, `add-portable.neff` (no native part), `slow.neff`, `add-lnc1.neff`,
    `add-trn3.neff`, `add-foreign.neff` (native code of another processor)."""
    directory = tmp_path_factory.mktemp("neffs")
    for name, text, options, native in (
        ("add", ADD, CompileOptions(), True),
        ("add-portable", ADD, CompileOptions(), False),
        ("add-lnc1", ADD, CompileOptions(lnc=1), False),
        ("add-trn3", ADD, CompileOptions(target="trn3"), False),
        ("slow", SLOW, CompileOptions(), True),
    ):
        compiled = compile_neff(text.encode(), options, name=name, native=native)
        (directory / f"{name}.neff").write_bytes(compiled.neff)
    _for_another_processor(directory / "add.neff", directory / "add-foreign.neff")
    return directory


def _for_another_processor(source: Path, target: Path) -> None:
    """The same NEFF, its native part said to need a processor that no host is."""
    neff = read_neff(source)
    assert neff.manifest is not None
    assert neff.manifest.native is not None
    foreign = replace(neff.manifest.native, arch="another", cpu_features=("future",))
    target.write_bytes(write_neff(replace(neff.manifest, native=foreign), neff.stablehlo, neff.native))


@pytest.fixture
def runtime(neffs: Path) -> Iterator[Runtime]:
    # pytest's own temporary paths are too long for a socket.
    directory = Path(tempfile.mkdtemp(prefix="nrt-"))
    runtime = Runtime(directory, neffs)
    try:
        yield runtime
    finally:
        runtime.close()
        shutil.rmtree(directory, ignore_errors=True)
