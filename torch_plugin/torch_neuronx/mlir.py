"""torch-mlir at the edge: an FX graph in, a portable StableHLO artifact out.

The only module that touches torch-mlir's Python API and its StableHLO bindings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    import torch.fx

# The StableHLO version that artifacts are written for: the oldest that has all operations torch-mlir emits (`tan` came
# last). Newer readers accept it, and a program's bytes stay the same when torch-mlir moves to a newer version.
PORTABLE_VERSION = "1.4.0"

_TO_TORCH_BACKEND = (
    "builtin.module(func.func(torch-match-quantized-custom-ops),"
    "torchdynamo-export-to-torch-backend-pipeline{extra-library=})"
)
_TO_STABLEHLO = "builtin.module(torch-backend-to-stablehlo-backend-pipeline{allow-non-finites=true})"
_WITHOUT_LOCATIONS = "builtin.module(strip-debuginfo)"


@dataclass(frozen=True)
class Diagnostic:
    """What MLIR said, and the name of the FX node it was about when it knew one."""

    message: str
    node: str | None


class MlirError(Exception):
    """A stage failed; `diagnostics` in the order they were emitted."""

    def __init__(self, stage: str, diagnostics: list[Diagnostic]) -> None:
        super().__init__(f"{stage}: {'; '.join(d.message for d in diagnostics) or 'no diagnostics'}")
        self.stage = stage
        self.diagnostics = diagnostics


def stablehlo_of(module: torch.fx.GraphModule, constants: Sequence[torch.Tensor] = ()) -> bytes:
    """Lower a flat functional graph; its placeholders and results become those of `@main`, in order.

    The last placeholders stand for `constants`, and do not appear in `@main`. The nodes' `stack_trace` metadata is
    replaced. Equal graphs give equal bytes in every process. Raises MlirError.
    """
    return _Lowering().run(module, constants)


def expand_as_strided(module: torch.fx.GraphModule) -> None:
    """Express `as_strided` by index arithmetic. torch-mlir would do so while importing, after constants are hidden."""
    from torch_mlir.extras.fx_as_strided import rewrite_as_strided

    rewrite_as_strided(module.graph)


def text_of(artifact: bytes) -> str:
    """An artifact as readable StableHLO, without locations."""
    from torch_mlir import ir
    from torch_mlir._mlir_libs import _stablehlo

    context = ir.Context()
    _stablehlo.register_dialect(context)
    return str(_stablehlo.deserialize_portable_artifact(context, artifact))


class _Lowering:
    """One context for one graph: nothing of a failed lowering reaches the next."""

    def __init__(self) -> None:
        from torch_mlir import ir
        from torch_mlir.dialects import torch as torch_dialect

        self._ir = ir
        self._context = ir.Context()
        # One thread: no thread pool to be lost in a fork, and diagnostics in program order.
        self._context.enable_multithreading(False)
        torch_dialect.register_dialect(self._context)
        self._diagnostics: list[Diagnostic] = []
        self._context.attach_diagnostic_handler(self._note)
        self._context.emit_error_diagnostics = True

    def run(self, module: torch.fx.GraphModule, constants: Sequence[torch.Tensor]) -> bytes:
        from torch_mlir._mlir_libs import _stablehlo

        lowered = self._import(module)
        self._apply("torch dialect", lowered, _TO_TORCH_BACKEND)
        self._apply("StableHLO", lowered, _TO_STABLEHLO)
        with self._context:
            self._legalise(lowered, constants)
        self._apply("canonical form", lowered, _WITHOUT_LOCATIONS)
        try:
            return bytes(_stablehlo.serialize_portable_artifact(lowered, PORTABLE_VERSION))
        except ValueError as error:
            raise self._failed("portable artifact", error) from error

    def _import(self, module: torch.fx.GraphModule) -> Any:
        from torch_mlir.extras.fx_importer import FxImporter

        # The importer turns stack traces into locations. A location that is the node's name leads from a diagnostic
        # back to the node; locations never reach the artifact.
        for node in module.graph.nodes:
            node.meta = {**node.meta, "stack_trace": f'File "{node.name}", line 1,'}
        importer = FxImporter(context=self._context)
        try:
            importer.import_graph_module(module, func_name="main")
        except (AssertionError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            raise self._failed("import", error) from error
        return importer.module

    def _apply(self, stage: str, module: Any, pipeline: str) -> None:
        from torch_mlir.passmanager import PassManager

        with self._context:
            try:
                PassManager.parse(pipeline).run(module.operation)
            except (self._ir.MLIRError, MemoryError, RuntimeError) as error:
                raise self._failed(stage, error) from error

    def _legalise(self, module: Any, constants: Sequence[torch.Tensor]) -> None:
        """Bring in line what torch-mlir leaves behind, and refuse what nothing after it would understand."""
        from torch_neuronx.mlir_rewrites import adopt_constant, bind_constants, compare_booleans, order_totally

        bind_constants(module.body.operations[0], constants)
        for operation in _walk(self._ir, module):
            if operation.name == "arith.constant":
                adopt_constant(operation)
            elif operation.name == "stablehlo.compare":
                compare_booleans(operation)
            elif operation.name == "stablehlo.sort":
                order_totally(operation)
        for operation in _walk(self._ir, module):
            if operation.name.partition(".")[0] not in ("builtin", "func", "stablehlo"):
                self._diagnostics.append(Diagnostic(f"no StableHLO for `{operation.name}`", _node(operation.location)))
        if self._diagnostics:
            raise MlirError("StableHLO", self._diagnostics)

    def _note(self, diagnostic: Any) -> bool:
        if diagnostic.severity == self._ir.DiagnosticSeverity.ERROR:
            self._diagnostics.append(Diagnostic(diagnostic.message, _node(diagnostic.location)))
        return True

    def _failed(self, stage: str, error: Exception) -> MlirError:
        found = list(self._diagnostics)
        if not found:
            found = [Diagnostic(f"{type(error).__name__}: {error}", None)]
        return MlirError(stage, found)


def _walk(ir: Any, module: Any) -> list[Any]:
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _node(location: Any) -> str | None:
    """The FX node in `loc("name":1:0)`, or the first one of a compound location."""
    match = re.search(r'"([^"]+)":1:', str(location))
    return match[1] if match else None
