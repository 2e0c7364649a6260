"""FX rewrites before lowering; each mends one thing that torch-mlir cannot take or gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch_neuronx.calls import Constant, Leaf, Position

if TYPE_CHECKING:
    import torch.fx

Pass = Callable[["torch.fx.GraphModule"], None]


def bound_slice_scatters(module: torch.fx.GraphModule) -> None:
    """Give `slice_scatter` a start and an end within the dimension.

    `x[1:] = y` says "to the end" as INT64_MAX, and torch-mlir tries to allocate that many indices; bounds that are
    None or negative it does not take at all.
    """
    import torch

    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.slice_scatter.default):
        args = _arguments(node)
        size = node.meta["val"].shape[args["dim"]]
        start, end, step = slice(args["start"], args["end"], args["step"]).indices(size)
        node.args = (args["input"], args["src"], args["dim"], start, end, step)
        node.kwargs = {}


def spell_out_pooling_strides(module: torch.fx.GraphModule) -> None:
    """No stride means that of the window; torch-mlir takes it for 1 and fails to verify what it makes."""
    import torch

    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.max_pool2d_with_indices.default):
        args = _arguments(node)
        if not args["stride"]:
            node.args = (args["input"], args["kernel_size"], args["kernel_size"])
            node.args += (args["padding"], args["dilation"], args["ceil_mode"])
            node.kwargs = {}


def sort_stably_by_default(module: torch.fx.GraphModule) -> None:
    """torch-mlir knows no `sort.stable`; every sort becomes a stable one in the end, so the plain one says the same."""
    import torch

    aten = torch.ops.aten
    for node in module.graph.find_nodes(op="call_function", target=aten.sort.stable):
        args = _arguments(node)
        node.target = aten.sort.default
        node.args = (args["input"], args["dim"], args["descending"])
        node.kwargs = {}


def fill_empty_results(module: torch.fx.GraphModule) -> None:
    """A result without elements has no values to compute, while slices of width zero and the like fail to verify."""
    import torch

    for node in list(module.graph.nodes):
        value = node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor) and value.numel() == 0:
            _replace(node, torch.ops.aten.full.default, list(value.shape), 0, dtype=value.dtype)


def select_instead_of_masked_put(module: torch.fx.GraphModule) -> None:
    """`x[mask] = number` needs no index arithmetic, of which torch-mlir's has a shape that depends on values."""
    import torch

    aten = torch.ops.aten
    for node in module.graph.find_nodes(op="call_function", target=aten.index_put.default):
        args = _arguments(node)
        if len(args["indices"]) != 1 or args["accumulate"]:
            continue
        (mask,) = args["indices"]
        value, target = args["values"], args["input"].meta["val"]
        if mask.meta["val"].dtype is not torch.bool or value.meta["val"].numel() != 1:
            continue
        rank = mask.meta["val"].ndim
        graph = module.graph
        with graph.inserting_before(node):
            # The mask covers the leading dimensions of the target.
            for dim in range(rank, target.ndim):
                mask = _call(graph, aten.unsqueeze.default, mask, dim)
            value = _call(graph, aten.reshape.default, value, [])
        _replace(node, aten.where.self, mask, value, args["input"])


def wrap_negative_indices(module: torch.fx.GraphModule) -> None:
    """Count negative indices from the end; torch-mlir's gathers and scatters take them for out of range."""
    import torch
    import torch.fx

    aten = torch.ops.aten
    for target in (aten.index.Tensor, aten.index_put.default):
        for node in module.graph.find_nodes(op="call_function", target=target):
            tensor, indices, *rest = node.args
            assert isinstance(tensor, torch.fx.Node)
            assert isinstance(indices, (list, tuple))
            sizes = tensor.meta["val"].shape
            with module.graph.inserting_before(node):
                wrapped = [
                    index if index is None else _wrapped(module.graph, index, sizes[dim])
                    for dim, index in enumerate(indices)
                ]
            node.args = (tensor, wrapped, *rest)


def _wrapped(graph: torch.fx.Graph, index: Any, size: int) -> Any:
    import torch

    if index.meta["val"].dtype is torch.bool:
        return index
    aten = torch.ops.aten
    negative = _call(graph, aten.lt.Scalar, index, 0)
    return _call(graph, aten.where.self, negative, _call(graph, aten.add.Scalar, index, size), index)


def accumulate_in_float32(module: torch.fx.GraphModule) -> None:
    """Sums of 16-bit numbers are kept in 32 bits until their end, as on other devices: 65504 is float16's largest."""
    import torch

    aten = torch.ops.aten
    sums = (aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.cumsum.default)
    products = (aten.prod.default, aten.prod.dim_int)
    for target in (*sums, *products):
        for node in module.graph.find_nodes(op="call_function", target=target):
            given, *rest = node.args
            if given.meta["val"].dtype not in (torch.float16, torch.bfloat16):
                continue
            asked = node.kwargs.get("dtype") or node.meta["val"].dtype
            kwargs = {name: value for name, value in node.kwargs.items() if name != "dtype"}
            with module.graph.inserting_before(node):
                wide = _call(module.graph, aten._to_copy.default, given, dtype=torch.float32)
                whole = _call(module.graph, target, wide, *rest, **kwargs)
            _replace(node, aten._to_copy.default, whole, dtype=asked)


def hide_constants(module: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Turn constant tensors into placeholders after the real ones, and give their values in that order.

    torch-mlir folds operators on constants, and some of its folds are wrong: a float constant compared with the integer
    0 has the wrong truth value, an integer one compared with 0.0 ends the process. It cannot fold what it cannot
    see; the values come back once the graph is StableHLO, for XLA to fold. A constant with one value throughout is
    given as an expanded scalar.
    """
    import torch
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    aten = torch.ops.aten
    graph = module.graph
    found: list[torch.Tensor] = []
    last = next(iter(reversed(graph.find_nodes(op="placeholder"))), None)
    for node in list(graph.nodes):
        if node.op == "get_attr":
            value = _attribute(module, node.target)
            if not isinstance(value, torch.Tensor):
                continue
        elif node.target in (aten.full.default, aten.full_like.default, aten.scalar_tensor.default):
            result = node.meta["val"]
            number = node.args[0] if node.target is aten.scalar_tensor.default else node.args[1]
            value = torch.full((), number, dtype=result.dtype).expand(result.shape)
        else:
            continue
        with graph.inserting_before(next(iter(graph.nodes))) if last is None else graph.inserting_after(last):
            last = graph.placeholder(f"constant_{len(found)}")
        last.meta.update(node.meta, tensor_meta=_extract_tensor_metadata(value))
        node.replace_all_uses_with(last)
        graph.erase_node(node)
        found.append(value)
    return found


def _attribute(module: torch.fx.GraphModule, path: str) -> Any:
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def drop_results_that_are_no_tensors(module: torch.fx.GraphModule) -> tuple[Leaf, ...]:
    """Leave tensors only among the results, each once; tell for each former result what it was.

    None reaches MLIR as `!torch.none`, which no lowering accepts; numbers need no device at all.
    """
    import torch.fx

    output = module.graph.output_node()
    (values,) = output.args
    kept: dict[Any, int] = {}
    leaves: list[Leaf] = []
    for value in values if isinstance(values, (tuple, list)) else (values,):
        if isinstance(value, torch.fx.Node):
            leaves.append(Position(kept.setdefault(value, len(kept))))
        else:
            leaves.append(Constant(value))
    output.args = (tuple(kept),)
    return tuple(leaves)


def _call(graph: torch.fx.Graph, target: Any, *args: Any, **kwargs: Any) -> torch.fx.Node:
    """A new node whose `meta["val"]` comes from running the operator on its arguments' fake tensors."""
    import torch.fx

    node = graph.call_function(target, args, kwargs)
    fake_args, fake_kwargs = torch.fx.node.map_arg((args, kwargs), lambda argument: argument.meta["val"])
    node.meta["val"] = target(*fake_args, **fake_kwargs)
    return node


def _replace(node: torch.fx.Node, target: Any, *args: Any, **kwargs: Any) -> None:
    """Let another call give the node's result."""
    graph = node.graph
    with graph.inserting_before(node):
        new = graph.call_function(target, args, kwargs)
    new.meta.update(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of an operator by the names in its schema (`self` is called input), defaults filled in."""
    given = node.normalized_arguments(node.graph.owning_module, normalize_to_only_use_kwargs=True)
    assert given is not None
    return dict(given.kwargs)


PASSES: tuple[Pass, ...] = (
    bound_slice_scatters,
    spell_out_pooling_strides,
    sort_stably_by_default,
    fill_empty_results,
    select_instead_of_masked_put,
    wrap_negative_indices,
    accumulate_in_float32,
)
