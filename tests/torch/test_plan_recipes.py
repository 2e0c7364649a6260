"""Plans that the cache keeps: found again without lowering, and never used where they are not exactly right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from device_kit import DeviceHost

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    from torch_neuronx.worker.worker import LoweringWorker

    made = LoweringWorker()
    yield made
    made.close()


class NoWorker:
    def lower_call(self, request: Any) -> Any:
        raise AssertionError(f"lowered {request}")


class Counted:
    """A worker, and how often it was asked."""

    def __init__(self, worker: Any) -> None:
        self.count = 0
        self._worker = worker

    def lower_call(self, request: Any) -> Any:
        self.count += 1
        return self._worker.lower_call(request)


Kit = Callable[..., Any]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """Recipes of a host with a local tier of that name, and one shared tier for all."""
    from cache_server import NeffCache
    from torch_neuronx.eager.recipes import Recipes

    def make(worker: Any, local: str = "local", *, shared: bool = True) -> Any:
        url = str(tmp_path / "shared") if shared else "none"
        return Recipes(NeffCache.open(url, local_dir=tmp_path / local), worker, "trn2", 2)

    return make


def tensor(*sizes: int) -> Any:
    from torch_neuronx.eager.arguments import TensorArgument

    return TensorArgument(torch.float32, sizes, torch.empty(sizes, device="meta").stride())


def add(recipes: Any, *sizes: int) -> Any:
    from torch_neuronx.eager.arguments import VaryingNumber

    return recipes.get(torch.ops.aten.add.Tensor, [tensor(*sizes), tensor(*sizes), VaryingNumber("float")], label="add")


def kept(root: Path) -> list[Path]:
    return sorted(root.glob("??/??/*.neff"))


def test_arguments_are_the_same_after_a_journey_as_json() -> None:
    from torch_neuronx.eager.arguments import NumberArgument, VaryingNumber, from_json, to_json

    plain = [None, True, 3, 2.5, float("inf"), 1 - 2j, "tanh", torch.device("cpu"), torch.int8, torch.strided]
    arguments = [*plain, tensor(2, 3), NumberArgument(torch.bool), VaryingNumber("int"), [tensor(4), None, 1]]
    arguments.append(torch.channels_last)
    assert from_json(json.loads(json.dumps(to_json(arguments)))) == arguments


def test_a_recipe_is_found_again_on_this_host_and_on_another(kit: Kit, worker: Any) -> None:
    made = add(kit(worker), 2, 3)
    assert made.stablehlo.startswith(b"ML\xefR")
    assert [immediate.place for immediate in made.immediates] == [(2, -1)]
    assert add(kit(NoWorker(), shared=False), 2, 3) == made
    assert add(kit(NoWorker(), "elsewhere"), 2, 3) == made


def test_that_an_operator_has_no_graph_is_remembered(kit: Kit, worker: Any) -> None:
    from torch_neuronx.eager.arguments import TensorArgument
    from torch_neuronx.eager.recipe import OnHost

    def masked(recipes: Any) -> Any:
        mask = TensorArgument(torch.bool, (8,), (1,))
        return recipes.get(torch.ops.aten.index.Tensor, [tensor(8), [mask]], label="index")

    made = masked(kit(worker))
    assert isinstance(made, OnHost)
    assert "depends on values" in made.reason
    assert masked(kit(NoWorker())) == made


def test_wrong_arguments_leave_nothing_in_the_cache(kit: Kit, worker: Any, tmp_path: Path) -> None:
    from torch_neuronx.eager.recipe import OnHost

    recipes = kit(worker)
    made = recipes.get(torch.ops.aten.mm.default, [tensor(3, 3), tensor(4, 4)], label="mm")
    assert isinstance(made, OnHost)
    assert kept(tmp_path / "local") == []
    assert list(recipes._cache.entries()) == []


@pytest.mark.parametrize("what", ["sources", "default dtype", "sizes"])
def test_another_version_or_signature_is_another_recipe(
    kit: Kit, worker: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    from torch_neuronx.eager import recipes

    counted = Counted(worker)
    add(kit(counted), 2)
    add(kit(counted), 2)
    assert counted.count == 1
    if what == "sources":
        monkeypatch.setattr(recipes, "lowering_version", lambda: "other")
    elif what == "default dtype":
        monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)
    made = add(kit(counted), 2) if what != "sizes" else add(kit(counted), 2, 1)
    assert made.stablehlo
    assert counted.count == 2


def test_what_another_version_lowered_is_used_but_not_kept(
    kit: Kit, worker: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch_neuronx.eager import recipes

    monkeypatch.setattr(recipes, "lowering_version", lambda: "other")
    assert add(kit(worker), 2).stablehlo
    assert kept(tmp_path / "local") == []


def test_the_version_is_one_of_sources_torch_and_torch_mlir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_neuronx.worker import version

    here = version.lowering_version()
    assert torch.__version__ in here
    (tmp_path / "eager").mkdir()
    (tmp_path / "lowering.py").write_text("one = 1\n")
    monkeypatch.setattr(version, "_PACKAGE", tmp_path)
    first = version.lowering_version.__wrapped__()
    (tmp_path / "lowering.py").write_text("one = 2\n")
    second = version.lowering_version.__wrapped__()
    (tmp_path / "eager" / "numbers.py").write_text("")
    assert len({here, first, second, version.lowering_version.__wrapped__()}) == 4
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    assert version.lowering_version.__wrapped__() not in (here, first, second)


@pytest.mark.parametrize("how", ["flipped", "truncated", "emptied", "no note", "foreign"])
def test_a_damaged_record_is_ignored_and_written_again(kit: Kit, worker: Any, tmp_path: Path, how: str) -> None:
    counted = Counted(worker)
    recipes = kit(counted, shared=False)
    made = add(recipes, 2)
    (path,) = kept(tmp_path / "local")
    whole = path.read_bytes()
    if how == "flipped":
        path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    elif how == "truncated":
        path.write_bytes(whole[:50])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "no note":
        path.with_name(f"{path.name}.sha256").unlink()
    else:
        from torch_neuronx.eager.arguments import VaryingNumber
        from torch_neuronx.eager.recipes import request_for

        arguments = [tensor(2), tensor(2), VaryingNumber("float")]
        parts = recipes._parts(request_for(torch.ops.aten.add.Tensor, arguments))
        recipes._cache.local.put(parts, b'{"schema": 1, "kind": "graph", "inputs": [[7, -1, true]]}\n', 1.0)
    assert add(kit(counted, shared=False), 2) == made
    assert counted.count == 2
    assert path.read_bytes() == whole
    assert add(kit(NoWorker(), shared=False), 2) == made


GOOD = {
    "schema": 1,
    "kind": "graph",
    "random_numbers": 0,
    "inputs": [[0, -1, False]],
    "immediates": [["argument", 1, -1, "int64"]],
    "outputs": [[-1, -1, [2, 3], [3, 1], "float32", True]],
    "results": [["new", 0, 0]],
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("schema", 2),
        ("kind", "other"),
        ("random_numbers", -1),
        ("random_numbers", True),
        ("inputs", [[1, -1, False]]),
        ("inputs", [[2, -1, False]]),
        ("inputs", [[-1, -1, False]]),
        ("inputs", [[0, 0, False]]),
        ("inputs", [[0, -1, 1]]),
        ("inputs", [[0, -1]]),
        ("inputs", {}),
        ("immediates", [["argument", 0, -1, "int64"]]),
        ("immediates", [["argument", 1, -1, "nn"]]),
        ("immediates", [["clock", -1, -1, "int64"]]),
        ("immediates", [["seed", 1, -1, "int64"]]),
        ("outputs", [[1, -1, [2, 3], [3, 1], "float32", True]]),
        ("outputs", [[-1, -1, [2, 3], [3], "float32", True]]),
        ("outputs", [[-1, -1, [2, 3], [0, 1], "float32", True]]),
        ("outputs", [[-1, -1, [2, -3], [3, 1], "float32", True]]),
        ("outputs", [[-1, -1, [1 << 40, 1 << 40], [1, 1], "float32", True]]),
        ("results", [["new", 1, 0]]),
        ("results", [["list", 0, 2]]),
        ("results", [["argument", 1, 0]]),
        ("results", [["pointer", 0, 0]]),
        ("results", []),
    ],
)
def test_a_recipe_that_does_not_fit_its_call_is_refused(field: str, value: Any) -> None:
    from torch_neuronx.eager.arguments import VaryingNumber
    from torch_neuronx.eager.recipe import decode, encode

    arguments = [tensor(2, 3), VaryingNumber("int")]
    good = json.dumps(GOOD).encode() + b"\ngraph"
    recipe = decode(good, arguments, 1)
    assert decode(encode(recipe), arguments, 1) == recipe
    with pytest.raises(ValueError, match=r"."):
        decode(json.dumps({**GOOD, field: value}).encode() + b"\ngraph", arguments, 1)


@pytest.mark.parametrize("data", [b"", b"\n", b"[]\n", b"\x80\x04", b"{" * 100000, b'{"schema": NaN}'])
def test_what_is_no_recipe_is_refused(data: bytes) -> None:
    from torch_neuronx.eager.recipe import decode

    with pytest.raises(ValueError, match=r"."):
        decode(data, [], 0)


def test_a_recipe_whose_graph_has_other_sizes_is_lowered_again(
    tracked: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch_neuronx.eager import models
    from torch_neuronx.eager.arguments import TensorArgument
    from torch_neuronx.eager.recipe import encode
    from torch_neuronx.eager.recipes import request_for

    recipes = models.recipes()
    op = torch.ops.aten.neg.default
    small = recipes.get(op, [tensor(5)], label="neg")
    liar = TensorArgument(torch.float32, (47,), (1,))
    right = recipes.get(op, [liar], label="neg")
    parts = recipes._parts(request_for(op, [liar]))
    mixed = encode(right).partition(b"\n")[0] + b"\n" + small.stablehlo
    recipes._cache.local.put(parts, mixed, 1.0)
    value = torch.arange(47.0)
    assert torch.equal(value.to("neuron").neg().cpu(), -value)
    assert "does not fit its graph" in caplog.text
    assert tracked.get_fallback_ops() == {}
    assert recipes.get(op, [liar], label="neg") == right


PROGRAM = """
    import sys
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.Dropout()).to("neuron")
    loss = model(torch.ones(3, 7).to("neuron")).square().mean()
    loss.backward()
    torch.fft.rfft(torch.ones(6).to("neuron"))
    from torch_neuronx.eager.models import builder, lowering_worker
    stats = builder().cache.stats
    print(stats.compiles > 0, lowering_worker().pid is not None, "torch_mlir" in sys.modules)
    """


def test_a_warm_start_neither_lowers_nor_compiles_nor_imports_torch_mlir(
    device_host: DeviceHost, tmp_path: Path
) -> None:
    settings = {"NEURON_RT_VISIBLE_CORES": "2", "NEURON_ENV_CACHE_URL": str(tmp_path / "shared")}
    starts = [(tmp_path / "one", "True True False"), (tmp_path / "one", "False False False")]
    starts.append((tmp_path / "two", "False False False"))
    for local, expected in starts:
        done = device_host.run(PROGRAM, NEURON_ENV_CACHE_LOCAL_DIR=str(local), **settings)
        assert done.stdout.strip() == expected
