"""Element types that the device has not, or has in another width."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..finding import Finding, Level, Rule
from ..source import Source, argument, literal
from .base import found

FLOAT64 = Rule("float64", Level.WARNING, "the device computes float64 in 32 bits, without a word")
FP8 = Rule(
    "fp8",
    Level.WARNING,
    "`torch._scaled_mm` is not there; FP8 is for NKI kernels on Trn3; elsewhere it falls back or fails",
)
COMPLEX = Rule(
    "complex", Level.NOTE, "complex numbers are decomposed or left to the compiler, depending on the version of PyTorch"
)
QUANTIZED = Rule(
    "quantized", Level.WARNING, "PyTorch's quantised tensors have no form on the device and fall back to the host"
)

RULES = (FLOAT64, FP8, COMPLEX, QUANTIZED)

_FP8_MODULES = ("torchao.float8", "transformer_engine", "torch._scaled_mm")


def check(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.Attribute | ast.Name) and not isinstance(source.parents.get(node), ast.Attribute):
            name = source.name(node) or ""
            if source.only_named(node):
                continue
            if name in ("torch.float64", "torch.double", "torch.DoubleTensor") and not _on_cpu(source, node):
                yield found(source, node, FLOAT64, f"`{name}`", "use float32, or compute that part on the CPU")
            elif re.fullmatch(r"torch\.float8_\w+", name) or name.startswith(_FP8_MODULES):
                yield found(source, node, FP8, f"`{name}`", "use bfloat16")
            elif re.fullmatch(r"torch\.(complex(32|64|128)?|cfloat|cdouble|view_as_complex|polar)", name):
                yield found(source, node, COMPLEX, f"`{name}`", "compute with pairs of real numbers where it matters")
            elif name.startswith(("torch.quantize_per_", "torch.ao.quantization", "torch.quantization")):
                yield found(source, node, QUANTIZED, f"`{name}`", "use bfloat16, or quantise on the CPU")
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "double"
            and not node.args
            and not node.keywords
            and source.name(node.func) is None
            and "torch" in {name.partition(".")[0] for name in source.imported.values()}
            and not _on_cpu(source, node)
        ):
            yield found(source, node, FLOAT64, "`.double()`", "use float32, or compute that part on the CPU")


def _on_cpu(source: Source, node: ast.AST) -> bool:
    """Whether the same call, or one in the same chain of methods, says that it is for the CPU."""
    for above, _ in source.ancestors(node):
        if isinstance(above, ast.stmt):
            break
        if isinstance(above, ast.Call) and literal(argument(above, "device")) == "cpu":
            return True
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr in ("cpu", "numpy"):
            return True
    outer = source.parents.get(node)
    return isinstance(outer, ast.Attribute) and outer.attr in ("cpu", "numpy")
