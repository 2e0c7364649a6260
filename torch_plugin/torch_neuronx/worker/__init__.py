"""Lowering in a process of its own, kept warm: torch-mlir may crash or hang, and training goes on."""
