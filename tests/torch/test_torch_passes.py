"""Each rewrite mends a program that fails or misleads without it."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def graph_of(function, *args):
    from torch_neuronx import capture

    return capture(Call(function), args).graph_module


def without(*dropped):
    from torch_neuronx.passes import PASSES

    return [entry for entry in PASSES if entry not in dropped]


def run(xla, lowered, *args):
    from torch_neuronx.dtypes import from_numpy, to_numpy

    return [from_numpy(out) for out in xla.compile(lowered.stablehlo)([to_numpy(a) for a in args])]


def check(xla, function, *args):
    """The function gives on XLA what it gives on the CPU, bit for bit."""
    from torch_neuronx import lower_graph

    expected = function(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = run(xla, lower_graph(graph_of(function, *args)), *args)
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.slice_scatter(torch.zeros(3, 2), 0, 1),
        lambda x: x.slice_scatter(torch.zeros(2, 2), 0, -2),
        lambda x: x.slice_scatter(torch.zeros(4, 2)),
        lambda x: x.slice_scatter(torch.zeros(2, 2), 0, 0, 9, 2),
    ],
    ids=["to-the-end", "negative", "whole", "step-beyond-the-end"],
)
def test_slice_scatter_bounds(xla, function):
    from torch_neuronx import LoweringError, lower_graph
    from torch_neuronx.passes import bound_slice_scatters

    x = torch.arange(8.0).reshape(4, 2)
    check(xla, function, x)
    with pytest.raises(LoweringError, match=r"aten.slice_scatter.default"):
        lower_graph(graph_of(function, x), passes=without(bound_slice_scatters))


def test_stable_sort_lowers(xla):
    from torch_neuronx import LoweringError, lower_graph
    from torch_neuronx.passes import sort_stably_by_default

    # Long enough for an unstable algorithm to swap equals.
    x = torch.randint(0, 3, (200,), generator=torch.Generator().manual_seed(0))

    def function(x):
        return tuple(torch.sort(x, stable=True)) + tuple(torch.sort(x, stable=True, descending=True))

    check(xla, function, x)
    with pytest.raises(LoweringError, match=r"aten.sort.stable"):
        lower_graph(graph_of(function, x), passes=without(sort_stably_by_default))


def test_results_without_elements_lower(xla):
    from torch_neuronx import LoweringError, lower_graph
    from torch_neuronx.passes import fill_empty_results

    def function(x):
        return x[:, :0].sum() + x.sum()

    check(xla, function, torch.ones(2, 3))
    with pytest.raises(LoweringError, match=r"aten.slice.Tensor"):
        lower_graph(graph_of(function, torch.ones(2, 3)), passes=without(fill_empty_results))


def test_a_number_put_where_a_mask_says(xla):
    from torch_neuronx import LoweringError, lower_graph
    from torch_neuronx.passes import select_instead_of_masked_put

    def function(x, rows):
        x = x.clone()
        x[x > 4] = -1
        x[rows] = 9
        return x

    args = (torch.arange(8.0).reshape(4, 2), torch.tensor([True, False, False, True]))
    check(xla, function, *args)
    with pytest.raises(LoweringError, match=r"aten.index_put.default"):
        lower_graph(graph_of(function, *args), passes=without(select_instead_of_masked_put))


def test_negative_indices_count_from_the_end(xla):
    from torch_neuronx import lower_graph
    from torch_neuronx.passes import wrap_negative_indices

    def function(x, index):
        return x[index], x[:, index[:1]], x.index_put((index,), torch.zeros(2))

    args = (torch.arange(8.0).reshape(4, 2), torch.tensor([-1, 1]))
    check(xla, function, *args)
    wrong = run(xla, lower_graph(graph_of(function, *args), passes=without(wrap_negative_indices)), *args)
    assert not torch.equal(wrong[0], function(*args)[0])


def test_results_that_are_no_tensors_do_not_reach_the_device():
    from torch_neuronx import lower_graph
    from torch_neuronx.calls import Constant, Position

    module = graph_of(lambda x: (x + 1, x * 2), torch.ones(2))
    output = module.graph.output_node()
    first, second = output.args[0]
    output.args = ((None, second, 3, first, second),)
    lowered = lower_graph(module)
    assert lowered.results == (Constant(None), Position(0), Constant(3), Position(1), Position(0))
    assert [spec.name for spec in lowered.outputs] == ["output0", "output1"]


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_constants_are_hidden_from_a_folder_that_is_wrong(xla, dtype):
    """3 < 0 must not be true (float32), and must not end the process (int64).

    To constants that torch-mlir sees both happen, but not every time: so that is not asserted here.
    """
    kind = getattr(torch, dtype)
    number = 0 if dtype == "float32" else 0.0
    check(xla, lambda x: (torch.full((), 3, dtype=kind) < number) & x, torch.tensor(True))


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64]
)
def test_constants_of_every_kind_keep_their_values(xla, dtype):
    values = torch.tensor([[1, 0, 3], [0, 5, 6]]).to(dtype)
    number = torch.tensor(1).to(dtype)

    def function(x):
        return torch.cat([x, values.clone()]), number.clone(), torch.full((2, 2), 1, dtype=dtype), values[:, :0].clone()

    check(xla, function, torch.zeros(1, 3, dtype=dtype))


@pytest.mark.parametrize("descending", [False, True])
def test_nan_comes_last_and_zeros_are_equal(xla, descending):
    nan = float("nan")
    x = torch.tensor([0.0, nan, -1.0, float("inf"), -0.0, -nan, 0.0, -float("inf")])
    check(xla, lambda x: torch.sort(x, stable=True, descending=descending)[1], x)
    check(xla, lambda x: torch.topk(x, 2)[0], x)


def test_booleans_can_be_compared(xla):
    check(xla, lambda x, y: ((x > 0) != (y > 0), (x > 0) == y.bool()), torch.tensor([-1.0, 1.0]), torch.ones(2))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_remainder_has_the_sign_of_the_divisor(xla, dtype):
    x, y = torch.arange(-5, 5).to(dtype), torch.tensor([3, -3, 2, -2, 7, -7, 1, -1, 4, -4]).to(dtype)
    check(xla, lambda x, y: (x % 3, x % -3, x % y, torch.remainder(7, y), torch.fmod(x, 3), torch.fmod(x, y)), x, y)


@pytest.mark.parametrize(
    ("bins", "low", "high"), [(8, 0, 7), (4, -1.5, 2.5), (5, 0, 0), (1, 0, 1)], ids=["experts", "range", "auto", "one"]
)
def test_histogram(xla, bins, low, high):
    x = torch.tensor([0.0, 7.0, 3.0, 3.0, -1.5, 2.5, 9.0, 0.5, 1.0])
    check(xla, lambda x: torch.histc(x, bins=bins, min=low, max=high), x)
    check(xla, lambda x: torch.histc(x, bins=bins, min=low, max=high), torch.full((3,), 2.0))


def test_unset_memory_is_zero_so_that_results_repeat(xla):
    from torch_neuronx import lower_graph

    def function(x):
        return (
            torch.empty_permuted((2, 3), (1, 0)) * x,
            torch.empty(2, 3) * x,
            torch.empty_strided((2, 3), (3, 1)) * x,
            torch.empty_like(x),
        )

    for result in run(xla, lower_graph(graph_of(function, torch.ones(2, 3))), torch.ones(2, 3)):
        assert result.eq(0).all()


def test_lowering_leaves_the_graph_as_it_was():
    from torch_neuronx import lower_graph

    module = graph_of(lambda x: x[torch.tensor([-1])], torch.ones(2))
    before = (module.code, [dict(node.meta) for node in module.graph.nodes])
    lower_graph(module)
    assert (module.code, [dict(node.meta) for node in module.graph.nodes]) == before
