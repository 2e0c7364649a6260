"""Strings that name a CUDA device, in places where a device is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..finding import Finding, Level, Rule
from ..source import Source
from .base import found, replacing

CUDA_DEVICE = Rule("cuda-device", Level.ERROR, "there is no CUDA device on a Neuron host: its device is `neuron`")
BACKEND = Rule("process-group", Level.ERROR, "NCCL and Gloo know no Neuron device: its process group is `neuron`")

_DEVICE = re.compile(r"cuda(:\d+)?")
_NAMED = re.compile(r"(^|_)(device|dev)(s?$|_?(type|name|str|map)?$)|map_location", re.IGNORECASE)
_BACKEND = re.compile(r"(dist|distributed|ddp|process_group|pg)_?backend|^backend$", re.IGNORECASE)
_KEYWORDS = {"device", "device_type", "map_location", "device_map", "device_types"}
_FIRST = {
    "torch.device",
    "torch.autocast",
    "torch.amp.autocast",
    "torch.amp.GradScaler",
    "torch.set_default_device",
    "torch.amp.custom_fwd",
    "torch.amp.custom_bwd",
    "torch.distributed.device_mesh.init_device_mesh",
    "torch.distributed.init_device_mesh",
    "torch.get_device_module",
}


def check(source: Source) -> Iterator[Finding]:
    seen: set[ast.AST] = set()
    for place, rule in _places(source):
        for node in _values(place):
            if node in seen:
                continue
            seen.add(node)
            if rule is BACKEND:
                if isinstance(node, ast.Constant) and node.value in ("nccl", "cpu:gloo,cuda:nccl"):
                    yield found(source, node, rule, f'"{node.value}"', 'write "neuron"', replacing(node, '"neuron"'))
            elif isinstance(node, ast.JoinedStr):
                yield from _formatted(source, node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DEVICE.fullmatch(node.value):
                new = node.value.replace("cuda", "neuron")
                # A string in pieces or with a prefix is rare enough to be left to a person.
                text = ast.get_source_segment(source.text, node) or ""
                edits = [replacing(node, text.replace("cuda", "neuron"))] if text.count("cuda") == 1 else []
                yield found(source, node, rule, f'"{node.value}"', f'write "{new}"', *edits)


def _formatted(source: Source, node: ast.JoinedStr) -> Iterator[Finding]:
    first = node.values[0] if node.values else None
    if not isinstance(first, ast.Constant) or not re.match(r"cuda:", str(first.value)):
        return
    text = ast.get_source_segment(source.text, node) or ""
    opening = re.match(r"[fFrR]{1,2}[\"']+cuda", text)
    edits = [replacing(node, text.replace("cuda", "neuron", 1))] if opening else []
    yield found(source, node, CUDA_DEVICE, text[:40] or "cuda:", 'write f"neuron:{…}"', *edits)


def _places(source: Source) -> Iterator[tuple[ast.AST, Rule]]:
    for node in source.nodes:
        if isinstance(node, ast.JoinedStr) and len(node.values) > 1:
            # f"cuda:{rank}" names a device wherever it stands.
            yield node, CUDA_DEVICE
        if isinstance(node, ast.Call):
            yield from _of_call(source, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from _by_name(_last(target), node.value)
        elif isinstance(node, ast.arguments):
            positional = [*node.posonlyargs, *node.args]
            defaults = [*zip(reversed(positional), reversed(node.defaults), strict=False)]
            for name, value in [*defaults, *zip(node.kwonlyargs, node.kw_defaults, strict=True)]:
                if value is not None:
                    yield from _by_name(name.arg, value)
        elif isinstance(node, ast.Compare):
            yield from _of_comparison(node)
        elif isinstance(node, ast.Return) and node.value is not None:
            owner = next((a for a, _ in source.ancestors(node) if isinstance(a, ast.FunctionDef)), None)
            if owner is not None and re.search(r"device", owner.name):
                yield node.value, CUDA_DEVICE


def _of_call(source: Source, call: ast.Call) -> Iterator[tuple[ast.AST, Rule]]:
    name = source.name(call.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else None
    if call.args and (name in _FIRST or method in ("to", "to_empty")):
        yield call.args[0], CUDA_DEVICE
    if name == "torch.load" and len(call.args) > 1:
        yield call.args[1], CUDA_DEVICE
    if name == "torch.distributed.init_process_group" and call.args:
        yield call.args[0], BACKEND
    for keyword in call.keywords:
        if keyword.arg in _KEYWORDS:
            yield keyword.value, CUDA_DEVICE
        elif keyword.arg == "backend" and name and name.startswith("torch.distributed."):
            yield keyword.value, BACKEND
    if method in ("add_argument", "add_option") or (name or "").startswith(("click.option", "typer.Option")):
        flags = [str(it.value).lstrip("-") for it in call.args if isinstance(it, ast.Constant)]
        for keyword in call.keywords:
            if keyword.arg == "default":
                for flag in flags:
                    yield from _by_name(flag.replace("-", "_"), keyword.value)


def _of_comparison(node: ast.Compare) -> Iterator[tuple[ast.AST, Rule]]:
    # Not within a list of the devices that a script knows: there `neuron` is missing, "cuda" is not wrong.
    sides = [node.left, *node.comparators]
    for side in sides:
        if isinstance(side, ast.Constant) and any(_is_device(it) for it in sides if it is not side):
            yield side, CUDA_DEVICE


def _is_device(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Attribute) and node.attr == "type":
        return True
    return bool(_NAMED.search(_last(node)))


def _by_name(name: str, value: ast.AST) -> Iterator[tuple[ast.AST, Rule]]:
    if _NAMED.search(name):
        yield value, CUDA_DEVICE
    elif _BACKEND.search(name):
        yield value, BACKEND


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return ""


def _values(node: ast.AST) -> Iterator[ast.AST]:
    """What an expression may come to, as far as that is written there."""
    if isinstance(node, ast.IfExp):
        yield from _values(node.body)
        yield from _values(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _values(value)
    else:
        yield node
