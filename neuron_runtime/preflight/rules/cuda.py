"""Calls that need CUDA: `.cuda()`, `torch.cuda.…`, CUDA's autocast, and settings of its libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ..finding import Edit, Finding, Level, Rule
from ..source import Source, argument, literal
from .base import before, found, replacing
from .cuda_names import HARMLESS, TYPES, instead_of

METHOD = Rule("cuda-method", Level.ERROR, "`.cuda()` asks for a CUDA device, and there is none on a Neuron host")
CALL = Rule(
    "torch-cuda", Level.ERROR, "`torch.cuda` is for CUDA devices: on a Neuron host it has none, and most of it raises"
)
AVAILABLE = Rule(
    "cuda-available",
    Level.ERROR,
    "there is no CUDA on a Neuron host, so the program takes its way for the CPU, in silence",
)
AMP = Rule(
    "cuda-autocast", Level.ERROR, "this autocast is CUDA's: on a Neuron host it does nothing, with a warning at best"
)
SETTING = Rule("cuda-setting", Level.NOTE, "a setting of CUDA's libraries, which has no effect here")
VISIBLE = Rule("cuda-visible-devices", Level.WARNING, "Neuron does not read it; a process then takes all NeuronCores")

RULES = (METHOD, CALL, AVAILABLE, AMP, SETTING, VISIBLE)


def check(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield from _call(source, node)
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load | ast.Store):
            yield from _name(source, node)
        if isinstance(node, ast.Subscript) and literal(node.slice) == "CUDA_VISIBLE_DEVICES":
            yield found(
                source, node, VISIBLE, "CUDA_VISIBLE_DEVICES", "set NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES"
            )


def _call(source: Source, call: ast.Call) -> Iterator[Finding]:
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr == "cuda" and source.name(function) is None:
        yield found(source, call, METHOD, ".cuda()", 'write `.to("neuron")`', *_to_neuron(source, call))


def _to_neuron(source: Source, call: ast.Call) -> list[Edit]:
    """`.cuda(0, …)` to `.to("neuron:0", …)`; nothing where the device is an expression."""
    assert isinstance(call.func, ast.Attribute)
    device = argument(call, "device", 0)
    if device is not None and not (isinstance(device, ast.Constant) and isinstance(device.value, int)):
        return []
    if len(call.args) > 1 or any(keyword.arg in (None, "device") for keyword in call.keywords):
        return []
    target = '"neuron"' if device is None else f'"neuron:{literal(device)}"'
    value = call.func.value
    assert value.end_lineno is not None
    assert value.end_col_offset is not None
    assert call.end_lineno is not None
    assert call.end_col_offset is not None
    # From behind the value to the bracket. The name stands at the end of the attribute.
    end = call.func.end_col_offset
    assert call.func.end_lineno is not None
    assert end is not None
    renamed = Edit(call.func.end_lineno, end - len("cuda"), call.func.end_lineno, end, "to")
    if device is not None:
        return [renamed, replacing(device, target)]
    if call.keywords:
        return [renamed, before(call.keywords[0], f"{target}, ")]
    text = ast.get_source_segment(source.text, call) or ""
    if not text.endswith("()"):
        return []
    close = call.end_col_offset - 1
    return [renamed, Edit(call.end_lineno, close, call.end_lineno, close, target)]


def _name(source: Source, node: ast.Attribute | ast.Name) -> Iterator[Finding]:
    above = source.parents.get(node)
    if isinstance(above, ast.Attribute):
        return
    name = source.name(node)
    if name is None:
        return
    if name.startswith(HARMLESS):
        if not isinstance(node.ctx, ast.Store) and not isinstance(above, ast.Call):
            return
        yield found(source, node, SETTING, f"`{name}`", "nothing need be done")
    elif name in ("torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast"):
        yield found(source, node, AMP, f"`{name}`", 'write `torch.autocast("neuron", dtype=torch.bfloat16)`',
                    *_autocast(source, node, above))  # fmt: skip
    elif name in TYPES:
        yield found(source, node, CALL, f"`{name}`", 'create it with `dtype=` and `device="neuron"`')
    elif name == "torch.profiler.ProfilerActivity.CUDA" or name.startswith("torch.cuda."):
        known = instead_of(name)
        edits = [replacing(node, known.name)] if known.name and _written_out(source, node, known.name) else []
        rule = AVAILABLE if name == "torch.cuda.is_available" else CALL
        finding = found(source, node, rule, f"`{name}`", known.advice, *edits)
        if rule is AVAILABLE and "neuron" in source.text.replace("torch_neuron", ""):
            # The program knows the device, and asks for CUDA for its own reasons.
            finding = replace(finding, level=Level.NOTE)
        elif rule is AVAILABLE:
            finding = replace(finding, level=Level.ERROR)
        yield finding


def _written_out(source: Source, node: ast.AST, name: str) -> bool:
    """Whether `torch` is a name in the file, so that the replacement can be written."""
    return source.imported.get("torch") == "torch" and (isinstance(node, ast.Attribute) or name.startswith("torch."))


def _autocast(source: Source, node: ast.expr, above: ast.AST | None) -> list[Edit]:
    if source.imported.get("torch") != "torch" or not isinstance(above, ast.Call) or above.func is not node:
        return []
    edits = [replacing(node, "torch.autocast")]
    if above.args:
        # The first argument of CUDA's is `enabled`; of the general one it is the device.
        return [*edits, before(above.args[0], '"neuron", enabled=')] if len(above.args) == 1 else []
    if above.keywords:
        return [*edits, before(above.keywords[0], '"neuron", ')] if above.keywords[0].arg else []
    text = ast.get_source_segment(source.text, above) or ""
    if not text.endswith("()") or above.end_lineno is None or above.end_col_offset is None:
        return []
    close = above.end_col_offset - 1
    return [*edits, Edit(above.end_lineno, close, above.end_lineno, close, '"neuron"')]
