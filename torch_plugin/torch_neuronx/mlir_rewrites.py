"""Rewrites of single StableHLO operations that torch-mlir leaves incomplete. Each takes an MLIR operation in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch_neuronx.dtypes import to_numpy

if TYPE_CHECKING:
    import torch


def bind_constants(function: Any, constants: Sequence[torch.Tensor]) -> None:
    """Give the function's last arguments their values and drop them from its signature."""
    from torch_mlir import ir

    block = function.regions[0].blocks[0]
    kept = len(block.arguments) - len(constants)
    kind = function.attributes["function_type"].value
    with ir.InsertionPoint.at_block_begin(block), function.operation.location:
        for number, constant in enumerate(constants):
            argument = block.arguments[kept + number]
            value = _dense(constant, argument.type)
            argument.replace_all_uses_with(_create("stablehlo.constant", argument.type, (), value=value))
    for _ in constants:
        block.erase_argument(kept)
    bound = ir.FunctionType.get(kind.inputs[:kept], kind.results, context=function.operation.context)
    function.attributes["function_type"] = ir.TypeAttr.get(bound)


def _dense(constant: torch.Tensor, kind: Any) -> Any:
    """A dense attribute; one element stands for all where the tensor was expanded from a scalar."""
    from torch_mlir import ir

    if constant.numel() > 1 and not any(constant.stride()):
        constant = constant[(0,) * constant.ndim]
    array = to_numpy(constant).reshape(-1)
    bits = array if constant.dtype.is_complex else array.view(f"u{array.itemsize}")
    return ir.DenseElementsAttr.get(bits, type=kind.element_type, shape=kind.shape)


def adopt_constant(operation: Any) -> None:
    """`arith.constant` of a tensor becomes `stablehlo.constant`: XLA takes either, the portable form only the latter.

    Complex constants are left alone, and refused later: MLIR's Python bindings cannot read them.
    """
    from torch_mlir import ir

    kind = operation.results[0].type
    if not isinstance(kind, ir.RankedTensorType) or isinstance(kind.element_type, ir.ComplexType):
        return
    with ir.InsertionPoint(operation), operation.location:
        constant = _create("stablehlo.constant", kind, (), value=operation.attributes["value"])
    operation.results[0].replace_all_uses_with(constant)
    operation.erase()


def compare_booleans(compare: Any) -> None:
    """Booleans are unsigned to XLA, which refuses the signed comparison that torch-mlir asks for."""
    from torch_mlir import ir

    kind = compare.operands[0].type
    if isinstance(kind, ir.RankedTensorType) and str(kind.element_type) == "i1":
        compare.attributes["compare_type"] = _comparison_type("UNSIGNED", compare.context)


def order_totally(sort: Any) -> None:
    """Sort as PyTorch does: equals keep their order, -0 equals 0, and NaN comes after everything else.

    torch-mlir compares with `<`, which is no order once there is a NaN: the whole result would be arbitrary. PyTorch
    leaves the order of equals open unless asked for a stable sort, so being stable always serves both.
    """
    from torch_mlir import ir

    context = sort.context
    sort.attributes["is_stable"] = ir.BoolAttr.get(True, context)
    comparator = sort.regions[0].blocks[0]
    for compare in list(comparator.operations):
        if compare.operation.name != "stablehlo.compare":
            continue
        kind = compare.operands[0].type
        if not isinstance(kind, ir.RankedTensorType) or not isinstance(kind.element_type, ir.FloatType):
            continue
        with ir.InsertionPoint(compare), compare.operation.location:
            for number, value in enumerate(list(compare.operands)):
                compare.operation.operands[number] = _canonical(value, kind)
        compare.operation.attributes["compare_type"] = _comparison_type("TOTALORDER", context)


def _canonical(value: Any, kind: Any) -> Any:
    """One NaN and one zero, since the total order tells them apart by sign."""
    from torch_mlir import ir

    flag = ir.RankedTensorType.get([], ir.IntegerType.get_signless(1))

    def constant(number: float) -> Any:
        element = ir.FloatAttr.get(kind.element_type, number)
        return _create("stablehlo.constant", kind, (), value=ir.DenseElementsAttr.get_splat(kind, element))

    def compare(left: Any, right: Any, direction: str) -> Any:
        return _create(
            "stablehlo.compare",
            flag,
            (left, right),
            comparison_direction=ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>"),
            compare_type=_comparison_type("FLOAT", kind.context),
        )

    zero = constant(0.0)
    value = _create("stablehlo.select", kind, (compare(value, zero, "EQ"), zero, value))
    return _create("stablehlo.select", kind, (compare(value, value, "NE"), constant(float("nan")), value))


def _comparison_type(name: str, context: Any) -> Any:
    from torch_mlir import ir

    return ir.Attribute.parse(f"#stablehlo<comparison_type {name}>", context)


def _create(name: str, result: Any, operands: tuple[Any, ...], **attributes: Any) -> Any:
    from torch_mlir import ir

    return ir.Operation.create(name, results=[result], operands=operands, attributes=attributes).result
