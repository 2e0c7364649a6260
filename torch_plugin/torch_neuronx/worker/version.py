"""What decides the outcome of lowering, apart from what is lowered: this code, PyTorch and torch-mlir."""

from __future__ import annotations

import functools
import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def lowering_version() -> str:
    """At most 200 characters; another one wherever the same call might lower to something else.

    A digest of the sources, so that nobody has to remember to raise a number.
    """
    import torch

    try:
        torch_mlir = version("torch-mlir")
    except PackageNotFoundError:
        torch_mlir = "none"
    digest = hashlib.sha256()
    for path in sorted([*_PACKAGE.glob("*.py"), *(_PACKAGE / "eager").rglob("*.py")]):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return f"{digest.hexdigest()[:32]} torch {torch.__version__} torch-mlir {torch_mlir}"[:200]
