"""`python -m torch_neuronx.worker.process`: lowers until its caller is gone. `LoweringWorker` starts it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.serving import Serve, serve


def prepare() -> Serve:
    """Imports PyTorch without a device, and torch-mlir. Raises CompileFailure where they cannot be imported."""
    # Not earlier: `import torch_neuronx` would make the device where PyTorch is told not to.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    try:
        import torch_mlir.passmanager  # noqa: F401 - what the first request would wait for

        from torch_neuronx.eager import recipes
        from torch_neuronx.worker.version import lowering_version
    except ImportError as error:
        raise CompileFailure(
            f"operators cannot be lowered: {error}",
            kind=FailureKind.ENVIRONMENT,
            hint="install the packages that torch-neuronx-sim requires: pip install torch-neuronx-sim",
        ) from error
    version = lowering_version()
    verbs = {"call": recipes.answer_call}

    def answer(request: Mapping[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        reply, result = verbs[request["verb"]](request, payload)
        return {**reply, "version": version}, result

    return answer


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], prepare, name="the lowering process"))
