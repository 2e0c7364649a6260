"""Makes `neuron` a device of PyTorch. Costs milliseconds: nothing of the runtime is started."""

from __future__ import annotations

import importlib.metadata
import os

_registered = False


def register() -> None:
    """Idempotent. Raises RuntimeError beside the real torch-neuronx, which has the same import name."""
    global _registered
    if _registered:
        return
    _refuse_the_real_one()
    # The vendor's package sets these for the processes it starts, unless the user has.
    os.environ.setdefault("NEURON_RT_ALLOW_LEGACY_NEFF", "1")
    os.environ.setdefault("NEURON_RT_DBG_ZEROCOPY", "1")
    os.environ.setdefault("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "1")
    os.environ.setdefault("TORCH_NEURONX_ENABLE_ASYNC_NRT", "1")
    import torch

    from torch_neuronx import _C, neuron
    from torch_neuronx.device.runtime import RUNTIME
    from torch_neuronx.dynamo import registration as dynamo

    torch.utils.rename_privateuse1_backend("neuron")
    torch._register_device_module("neuron", neuron)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _C.set_runtime(RUNTIME)
    dynamo.register()
    directory = os.environ.get("NEURON_ENV_RECOMPILES_DIR")
    if directory:
        from torch_neuronx.recording import Recorder

        Recorder(directory).attach()
    _registered = True


def _refuse_the_real_one() -> None:
    try:
        version = importlib.metadata.version("torch-neuronx")
    except importlib.metadata.PackageNotFoundError:
        return
    raise RuntimeError(
        f"torch-neuronx {version} is installed beside torch-neuronx-sim; both are `torch_neuronx` to Python. "
        "Type `pip uninstall torch-neuronx-sim` on a Trainium host, `pip uninstall torch-neuronx` elsewhere"
    )
