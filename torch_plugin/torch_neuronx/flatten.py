"""An exported program's graph, rewritten in place until its boundary holds tensors only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuron_runtime.tensors import TensorSpec
from torch_neuronx.calls import Call, Constant, Leaf, Position
from torch_neuronx.captured import Captured, GraphInput, Mutation, Role
from torch_neuronx.dtypes import spec_of
from torch_neuronx.errors import CaptureError

if TYPE_CHECKING:
    import torch
    import torch.fx
    from torch.export import ExportedProgram
    from torch.export.graph_signature import InputSpec

# A tensor written in the source (`torch.tensor([...])`) is part of the program, so it belongs in the graph, where the
# compiler can fold it. Above this size it would bloat the program instead, and is treated like a weight.
BAKED_CONSTANT_BYTES = 64 * 1024

_ROLES = {
    "PARAMETER": Role.PARAMETER,
    "BUFFER": Role.BUFFER,
    "CONSTANT_TENSOR": Role.CONSTANT,
    "USER_INPUT": Role.USER,
}


def flatten(exported: ExportedProgram, *, bake_weights: bool) -> Captured:
    """Consume `exported`: its graph becomes the result's."""
    inputs = _flatten_inputs(exported, bake_weights)
    outputs = _flatten_outputs(exported, inputs.number_of)
    module = exported.graph_module
    module.graph.lint()
    module.recompile()
    spec = exported.call_spec
    assert spec.in_spec is not None
    assert spec.out_spec is not None
    return Captured(
        module,
        tuple(inputs.found),
        tuple(outputs.found),
        tuple(outputs.mutations),
        Call(spec.in_spec, tuple(inputs.leaves), spec.out_spec, tuple(outputs.leaves)),
        inputs.weights,
    )


@dataclass
class _Inputs:
    found: list[GraphInput] = field(default_factory=list)
    weights: dict[int, torch.Tensor] = field(default_factory=dict)
    leaves: list[Leaf] = field(default_factory=list)
    number_of: dict[str, int] = field(default_factory=dict)  # by what a mutation's target may be called


@dataclass
class _Outputs:
    found: list[TensorSpec] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)


def _flatten_inputs(exported: ExportedProgram, bake_weights: bool) -> _Inputs:
    graph, signature = exported.graph, exported.graph_signature
    overwritten = {spec.target for spec in signature.output_specs if spec.kind.name != "USER_OUTPUT"}
    result = _Inputs()
    for node, spec in zip(graph.find_nodes(op="placeholder"), signature.input_specs, strict=True):
        role = _ROLES.get(spec.kind.name)
        if role is None:
            raise CaptureError(
                f"the module uses `{spec.target or node.name}`, a {spec.kind.name.lower()} that no NEFF can hold",
                hint="keep scripted objects and effect tokens out of the module",
            )
        if role is Role.USER:
            _take_argument(result, graph, node, spec)
            continue
        assert spec.target is not None
        tensor = _weight(exported, spec)
        if spec.target not in overwritten:
            if not node.users:
                graph.erase_node(node)
                continue
            if bake_weights or (role is Role.CONSTANT and tensor.nbytes <= BAKED_CONSTANT_BYTES):
                _bake(exported.graph_module, node, tensor)
                continue
        result.weights[len(result.found)] = tensor
        _append(result, tensor, role, spec.target, spec.target)
    return result


def _take_argument(result: _Inputs, graph: torch.fx.Graph, node: torch.fx.Node, spec: InputSpec) -> None:
    if spec.arg.__class__.__name__ == "TensorArgument":
        result.leaves.append(Position(len(result.found)))
        _append(result, node.meta["val"], Role.USER, node.name, node.name)
    else:  # its value is a part of the graph already
        result.leaves.append(Constant(getattr(spec.arg, "value", None)))
        graph.erase_node(node)


def _append(result: _Inputs, tensor: torch.Tensor, role: Role, source: str, target: str) -> None:
    number = len(result.found)
    result.number_of[target] = number
    result.found.append(GraphInput(_spec(f"input{number}", tensor, source), role, source))


def _weight(exported: ExportedProgram, spec: InputSpec) -> torch.Tensor:
    assert spec.target is not None
    found: Any = exported.state_dict.get(spec.target)
    tensor: torch.Tensor = exported.constants[spec.target] if found is None else found
    return tensor.detach()


def _bake(module: torch.fx.GraphModule, node: torch.fx.Node, tensor: torch.Tensor) -> None:
    name = f"baked_{node.name}"
    module.register_buffer(name, tensor)
    with module.graph.inserting_before(node):
        constant = module.graph.get_attr(name)
    constant.meta.update(node.meta)
    node.replace_all_uses_with(constant)
    module.graph.erase_node(node)


def _flatten_outputs(exported: ExportedProgram, number_of: dict[str, int]) -> _Outputs:
    """Drop results that are no tensors, and return a tensor that has several uses once."""
    import torch

    output = exported.graph.output_node()
    (values,) = output.args
    assert isinstance(values, (tuple, list))
    result = _Outputs()
    returned: dict[torch.fx.Node, int] = {}
    for value, spec in zip(values, exported.graph_signature.output_specs, strict=True):
        if not isinstance(value, torch.fx.Node):
            result.leaves.append(Constant(value))
            continue
        number = returned.setdefault(value, len(returned))
        if number == len(result.found):
            result.found.append(_spec(f"output{number}", value.meta["val"], value.name))
        if spec.kind.name == "USER_OUTPUT":
            result.leaves.append(Position(number))
        else:
            assert spec.target is not None
            result.mutations.append(Mutation(number, number_of[spec.target]))
    output.args = (tuple(returned),)
    return result


def _spec(name: str, tensor: torch.Tensor, source: str) -> TensorSpec:
    try:
        return spec_of(name, tensor)
    except ValueError as error:
        raise CaptureError(
            f"`{source}` cannot cross the boundary of a program: {error}",
            hint="convert it to a dense tensor of another dtype inside the module",
        ) from error
