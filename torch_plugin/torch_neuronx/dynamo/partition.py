"""How a joint graph is cut into forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx


def partition(
    joint: torch.fx.GraphModule, inputs: Sequence[Any], **kwargs: Any
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """PyTorch's min-cut: what is cheap to compute again is not kept. A position in the random stream always is."""
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.utils.checkpoint import CheckpointPolicy

    ops = torch.ops.torch_neuronx
    for target in (ops.random_seed.default, ops.random_offset.default):
        for node in joint.graph.find_nodes(op="call_function", target=target):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return min_cut_rematerialization_partition(joint, inputs, **kwargs)  # type: ignore[arg-type]
