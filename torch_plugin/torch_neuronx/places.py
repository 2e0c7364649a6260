"""Where in the user's source a graph node comes from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch.fx

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)\n(?P<code>[^\n]*)')


def place_of(node: torch.fx.Node) -> str | None:
    """`file:line in function: code` of the innermost frame outside PyTorch itself; None when not recorded."""
    return innermost_place(node.meta.get("stack_trace"))


def innermost_place(stack_trace: str | None) -> str | None:
    frames = list(_FRAME.finditer(stack_trace or ""))
    if not frames:
        return None
    import torch

    pytorch = Path(torch.__file__).parent
    own = [frame for frame in frames if pytorch not in Path(frame["file"]).parents]
    frame = (own or frames)[-1]
    return f"{frame['file']}:{frame['line']} in {frame['function']}: {frame['code'].strip()}"


def operator_of(node: torch.fx.Node) -> str:
    """The operator's name as PyTorch prints it, such as `aten.topk.default`."""
    return str(node.target)
