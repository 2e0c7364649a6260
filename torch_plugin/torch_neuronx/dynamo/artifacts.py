"""What a compile leaves behind for people to read, in the directories that TorchNeuron documents.

`<debug dir>/<kind>/proc_<rank>/<model>_<time><suffix>`; without TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS nothing.
"""

from __future__ import annotations

import datetime
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torch_neuronx.dynamo.options import enabled

if TYPE_CHECKING:
    import torch.fx

log = logging.getLogger("torch_neuronx")

DEFAULT_DIR = "/tmp/neuron_backend"  # noqa: S108 - the documented default
SUFFIXES = {
    "fx_graphs": ".fx.txt",
    "transformed_fx": ".transformed.fx.txt",
    "stablehlo": ".stablehlo.mlir",
    "neff": ".neff",
    "torch_mlir_error": ".txt",
}


class Artifacts:
    """Of one graph. A directory that cannot be written costs a warning, never the compile."""

    def __init__(self, model_name: str) -> None:
        now = datetime.datetime.now().strftime("%Y%m%d_%H%M%S_%f")
        self._stem = f"{model_name}_{now}"
        self._root: Path | None = None
        if enabled("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", False):
            self._root = Path(os.environ.get("TORCH_NEURONX_DEBUG_DIR") or DEFAULT_DIR)

    def graph(self, kind: str, module: torch.fx.GraphModule) -> None:
        self.text(kind, lambda: module.print_readable(print_output=False))

    def text(self, kind: str, text: Callable[[], str]) -> None:
        if self._root is not None:
            self.binary(kind, text().encode())

    def binary(self, kind: str, content: bytes) -> None:
        if self._root is None:
            return
        directory = self._root / kind / f"proc_{os.environ.get('RANK', '0')}"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{self._stem}{SUFFIXES[kind]}").write_bytes(content)
        except OSError as error:
            log.warning("cannot keep compilation artifacts in %s: %s", directory, error.strerror)
            self._root = None
