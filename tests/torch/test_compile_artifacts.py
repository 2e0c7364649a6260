"""What compiling leaves behind: artifacts, counters, NEFFs for other processes."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from device_kit import DeviceHost

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEP = """
import torch
from torch_neuronx.eager.models import builder

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)).to("neuron")

@torch.compile(backend="neuron", fullgraph=True)
def step(x):
    return model(x).sum()

step(torch.ones(3, 4, device="neuron")).backward()
torch.neuron.synchronize()
print("compiles", builder().cache.stats.compiles)
"""


@dataclass(frozen=True)
class Elsewhere:
    """What another process left: its shared tier, and PyTorch's cache artifacts."""

    shared: Path
    artifacts: Path


@pytest.fixture(scope="module")
def elsewhere(device_host: DeviceHost, tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    there = tmp_path_factory.mktemp("elsewhere")
    made = Elsewhere(there / "shared", there / "artifacts")
    save = f"""
content, info = torch.compiler.save_cache_artifacts()
assert len(info.artifacts["neuron_neff"]) == 2, info
with open({str(made.artifacts)!r}, "wb") as file:
    file.write(content)
"""
    assert device_host.run(STEP + save, **tiers(made.shared, there)).stdout == "compiles 2\n"
    return made


def tiers(shared: Path, local: Path) -> dict[str, str]:
    return {"NEURON_ENV_CACHE_URL": str(shared), "NEURON_ENV_CACHE_LOCAL_DIR": str(local / "local")}


def test_a_process_on_another_host_compiles_nothing(
    device_host: DeviceHost, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    assert device_host.run(STEP, **tiers(elsewhere.shared, tmp_path)).stdout == "compiles 0\n"


def test_megacache_takes_neffs_to_a_host_that_shares_nothing(
    device_host: DeviceHost, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    load = f"""
import torch
with open({str(elsewhere.artifacts)!r}, "rb") as file:
    info = torch.compiler.load_cache_artifacts(file.read())
assert len(info.artifacts["neuron_neff"]) == 2, info
"""
    assert device_host.run(load + STEP, **tiers(tmp_path / "shared", tmp_path)).stdout == "compiles 0\n"


def test_artifacts_and_counters_of_a_process(device_host: DeviceHost, tmp_path: Path) -> None:
    program = """
    import torch, torch_neuronx.metrics as metrics

    def double(x):
        return x * 2 + 1

    def again(x):
        return x * 2 + 1

    steps = [torch.compile(f, backend="neuron", options={"model_name": "Doubler"}) for f in (double, again)]
    for step in steps:
        assert step(torch.ones(3, device="neuron")).tolist() == [3, 3, 3]
    found = metrics.counters()
    assert found["CompilationCache.InMemoryMisses"] == 1 and found["CompilationCache.InMemoryHits"] == 1, found
    try:
        torch.compile(torch.special.airy_ai, backend="neuron")(torch.zeros(3, device="neuron"))
    except torch._dynamo.exc.BackendCompilerFailed:
        pass
    else:
        raise AssertionError("special_airy_ai lowers now: choose another operator")
    (first, second) = torch.neuron.get_dynamo_metrics()
    assert first.model_name == "doubler" and first.graph_node_count >= 3 and not first.has_collectives
    assert min(first.torch_neuronx_fx_passes_us, first.torch_neuronx_lower_us, first.torch_neuronx_compile_us) > 0
    torch.neuron.reset_dynamo_metrics()
    assert torch.neuron.get_dynamo_metrics() == []
    """
    device_host.run(
        program,
        TORCH_NEURONX_DEBUG_DIR=str(tmp_path / "debug"),
        TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS="1",
        TORCH_NEURONX_METRICS_ENABLED="1",
        TORCH_NEURONX_ENABLED_METRIC_TABLES="CompilationCache",
        TORCH_NEURONX_METRICS_DIR=str(tmp_path),
        RANK="3",
    )
    paths = sorted((tmp_path / "debug").glob("*/proc_3/doubler_*"))
    assert len(paths) == 7  # the second graph is the first, whose NEFF is loaded
    found = {path.parent.parent.name: path for path in paths}
    suffixes = {
        "fx_graphs": ".fx.txt",
        "transformed_fx": ".transformed.fx.txt",
        "stablehlo": ".stablehlo.mlir",
        "neff": ".neff",
    }
    assert found.keys() == suffixes.keys()
    for kind, suffix in suffixes.items():
        assert re.fullmatch(rf"doubler_\d{{8}}_\d{{6}}_\d{{6}}{re.escape(suffix)}", found[kind].name)
    assert "stablehlo.multiply" in found["stablehlo"].read_text()
    (error,) = (tmp_path / "debug" / "torch_mlir_error" / "proc_3").iterdir()
    assert "aten.special_airy_ai" in error.read_text()
    (table,) = tmp_path.glob("CompilationCache_*.csv")
    rows = dict(list(csv.reader(table.read_text().splitlines()))[1:])
    assert rows["CompilationCache.InMemoryHits"] == "1"
    assert int(rows["CompilationCache.NeffSize"]) == found["neff"].stat().st_size


def test_damaged_artifacts_are_passed_over(device_host: DeviceHost, tmp_path: Path) -> None:
    program = """
    from torch.compiler._cache import CacheArtifactManager
    import torch, torch_neuronx

    CacheArtifactManager.record_artifact("neuron_neff", "0" * 32, b'{"parts": {}}\\nnothing')
    content, info = torch.compiler.save_cache_artifacts()
    torch.compiler.load_cache_artifacts(content)
    """
    done = device_host.run(program, **tiers(tmp_path / "shared", tmp_path))
    assert "passed over NEFF 00000000000000000000000000000000" in done.stderr
    assert not list(tmp_path.glob("local/*/*/*.neff"))


def test_importing_torch_does_not_import_dynamo(device_host: DeviceHost) -> None:
    device_host.run("""
    import sys, torch
    assert "torch._dynamo" not in sys.modules
    assert "neuron" in torch._dynamo.list_backends()
    assert torch._dynamo.device_interface.get_interface_for_device("neuron").device_count() == 1
    """)
