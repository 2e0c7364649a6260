"""What a tensor at a NEFF's boundary looks like: name, shape, dtype."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# Canonical dtype name -> bytes an element. The names are those of NumPy and ml_dtypes, which torch shares.
ITEMSIZE = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a NEFF: static shape in elements, row-major and contiguous."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in ITEMSIZE:
            raise ValueError(f"tensor {self.name!r}: unknown dtype {self.dtype!r}")
        if any(not isinstance(n, int) or n < 0 for n in self.shape):
            raise ValueError(f"tensor {self.name!r}: shape {self.shape!r} holds a size that is not a natural number")

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.dtype]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}

    @classmethod
    def from_json(cls, data: Any) -> TensorSpec:
        """Raises ValueError on anything that is not a tensor description."""
        if not isinstance(data, dict):
            raise ValueError(f"a tensor is described by an object, not {type(data).__name__}")
        name, shape, dtype = data.get("name"), data.get("shape"), data.get("dtype")
        if not isinstance(name, str) or not isinstance(shape, list) or not isinstance(dtype, str):
            raise ValueError("a tensor needs a name (text), a shape (list) and a dtype (text)")
        return cls(name, tuple(shape), dtype)
