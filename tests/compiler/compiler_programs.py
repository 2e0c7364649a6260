"""Small programs in StableHLO text for the compiler's tests."""

from __future__ import annotations

from pathlib import Path

# For child processes, which must find the packages under test.
ROOT = Path(__file__).resolve().parents[2]

ADD = b"""
module @first {
  func.func public @main(%a: tensor<4x4xf32>, %b: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = stablehlo.add %a, %b : tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}
"""


def chain(length: int, size: int = 64) -> bytes:
    """`length` matrix products and tanhs in a row: compile time grows with `length`."""
    kind = f"tensor<{size}x{size}xf32>"
    lines = [f"func.func public @main(%v0: {kind}) -> {kind} {{"]
    for i in range(length):
        lines.append(
            f"%m{i} = stablehlo.dot_general %v{i}, %v0, contracting_dims = [1] x [0] : ({kind}, {kind}) -> {kind}"
        )
        lines.append(f"%v{i + 1} = stablehlo.tanh %m{i} : {kind}")
    lines.append(f"return %v{length} : {kind} }}")
    return "\n".join(lines).encode()
