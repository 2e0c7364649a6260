"""torch.compile: what the backend `neuron` does not take."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..finding import Finding, Level, Rule
from ..source import Source, argument, literal
from .base import found, replacing

DYNAMIC = Rule("compile-dynamic", Level.ERROR, "the backend needs static shapes, and refuses `dynamic=True`")
MODE = Rule("compile-mode", Level.WARNING, "the backend knows the mode `default` only; it warns and takes that")
BACKEND = Rule("compile-backend", Level.ERROR, "this backend makes no code for a Neuron device")
FLEX = Rule(
    "flex-attention", Level.WARNING, "FlexAttention works under torch.compile only; eager mode has no form of it"
)

RULES = (DYNAMIC, MODE, BACKEND, FLEX)

_FOREIGN = {"inductor", "cudagraphs", "onnxrt", "tensorrt", "torch_tensorrt", "tvm", "openxla", "ipex"}


def check(source: Source) -> Iterator[Finding]:
    for call, name in source.calls():
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if (
            name == "torch.compile"
            or _decorates(source, call)
            or (name is None and method == "compile_repeated_blocks")
        ):
            yield from _compile(source, call)
        elif name in ("torch._dynamo.mark_dynamic", "torch._dynamo.maybe_mark_dynamic"):
            yield found(source, call, DYNAMIC, f"`{name}`", "pad to fixed lengths")
        elif name == "torch.nn.attention.flex_attention.flex_attention" and "torch.compile" not in source.text:
            yield found(source, call, FLEX, "`flex_attention`", "wrap it: `torch.compile(flex_attention)`")


def _compile(source: Source, call: ast.Call) -> Iterator[Finding]:
    dynamic = argument(call, "dynamic")
    if literal(dynamic) is True:
        assert dynamic is not None
        yield found(
            source, dynamic, DYNAMIC, "`dynamic=True`", "write `dynamic=False`, and pad to fixed lengths",
            replacing(dynamic, "False"),
        )  # fmt: skip
    mode = argument(call, "mode")
    if isinstance(literal(mode), str) and literal(mode) != "default":
        assert mode is not None
        yield found(
            source,
            mode,
            MODE,
            f"`mode={literal(mode)!r}`",
            'write `mode="default"`, or leave it out',
            replacing(mode, '"default"'),
        )
    backend = argument(call, "backend")
    if literal(backend) in _FOREIGN:
        assert backend is not None
        yield found(
            source, backend, BACKEND, f"`backend={literal(backend)!r}`", 'write `backend="neuron"`, or leave it out',
            replacing(backend, '"neuron"'),
        )  # fmt: skip


def _decorates(source: Source, call: ast.Call) -> bool:
    """`functools.partial(torch.compile, dynamic=True)`."""
    return source.name(call.func) == "functools.partial" and bool(
        call.args and source.name(call.args[0]) == "torch.compile"
    )
