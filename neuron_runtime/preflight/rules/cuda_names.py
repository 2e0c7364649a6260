"""What stands for what in `torch.cuda`: what to write, and whether that is a matter of typing."""

from __future__ import annotations

from typing import NamedTuple


class Instead(NamedTuple):
    """`name` is a full name that takes the same arguments, or None; `advice` is for people."""

    name: str | None
    advice: str


def _same(name: str) -> Instead:
    return Instead(name, f"write `{name}`")


_ACCELERATOR = [
    "is_available",
    "device_count",
    "synchronize",
    "current_stream",
    "set_stream",
    "empty_cache",
    "memory_stats",
    "memory_allocated",
    "memory_reserved",
    "max_memory_allocated",
    "max_memory_reserved",
    "reset_peak_memory_stats",
]
_NEURON = [
    "get_device_name",
    "get_rng_state",
    "get_rng_state_all",
    "set_rng_state",
    "set_rng_state_all",
    "initial_seed",
    "seed",
    "seed_all",
    "init",
    "is_initialized",
    "default_stream",
    "stream",
    "memory_summary",
    "is_bf16_supported",
    "manual_seed",
    "manual_seed_all",
]

CUDA: dict[str, Instead] = {
    **{f"torch.cuda.{name}": _same(f"torch.accelerator.{name}") for name in _ACCELERATOR},
    **{f"torch.cuda.{name}": _same(f"torch.neuron.{name}") for name in _NEURON},
    "torch.cuda.current_device": _same("torch.accelerator.current_device_index"),
    "torch.cuda.set_device": _same("torch.accelerator.set_device_index"),
    "torch.cuda.reset_accumulated_memory_stats": _same("torch.accelerator.reset_accumulated_memory_stats"),
    "torch.cuda.Stream": _same("torch.neuron.Stream"),
    "torch.cuda.Event": _same("torch.neuron.Event"),
    "torch.profiler.ProfilerActivity.CUDA": _same("torch.profiler.ProfilerActivity.PrivateUse1"),
    "torch.cuda.device": Instead("torch.neuron.device", "write `torch.neuron.device`"),
    "torch.cuda.get_device_properties": Instead(None, "`torch.neuron.get_device_properties` has name and total_memory"),
    "torch.cuda.get_device_capability": Instead(None, "leave it out: a compute capability is a CUDA matter"),
    "torch.cuda.mem_get_info": Instead(
        None, "use `torch.neuron.get_device_properties().total_memory` and `torch.accelerator.memory_allocated()`"
    ),
    "torch.cuda.reset_max_memory_allocated": Instead(None, "use `torch.accelerator.reset_peak_memory_stats`"),
    "torch.cuda.ipc_collect": Instead(None, "leave it out"),
    "torch.cuda.CUDAGraph": Instead(None, "use `torch.compile`: there is no counterpart of CUDA graphs"),
    "torch.cuda.graph": Instead(None, "use `torch.compile`: there is no counterpart of CUDA graphs"),
    "torch.cuda.make_graphed_callables": Instead(None, "use `torch.compile`: there is no counterpart of CUDA graphs"),
    "torch.cuda.is_current_stream_capturing": Instead(None, "leave it out: there is no counterpart of CUDA graphs"),
    "torch.cuda.amp.GradScaler": Instead(
        None, 'use bfloat16, which needs no scaling, or `torch.amp.GradScaler("neuron")`'
    ),
    "torch.cuda.nvtx": Instead(None, "use `torch.profiler.record_function`"),
    "torch.cuda.profiler": Instead(None, "use `torch.profiler`"),
}

# Settings of CUDA's libraries: read by nobody here, and harmful to nobody.
HARMLESS = ("torch.backends.cudnn", "torch.backends.cuda", "torch.cuda.amp.common")

# Types of tensors that are on a CUDA device by their name.
TYPES = {
    f"torch.cuda.{name}Tensor"
    for name in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
}


def instead_of(name: str) -> Instead:
    """The longest part of `name` that the table knows; advice for everything else in `torch.cuda`."""
    parts = name.split(".")
    for end in range(len(parts), 2, -1):
        known = CUDA.get(".".join(parts[:end]))
        if known:
            return known if end == len(parts) else Instead(None, known.advice)
    return Instead(None, "look for it in `torch.accelerator` or `torch.neuron`, or leave it out")
