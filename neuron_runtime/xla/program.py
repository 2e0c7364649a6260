"""A program as an MLIR module: read from any format, made canonical, written as portable StableHLO."""

from __future__ import annotations

from collections import Counter
from typing import Any

from neuron_runtime.tensors import TensorSpec
from neuron_runtime.xla.errors import XlaError
from neuron_runtime.xla.library import Library

# The newest StableHLO that the oldest supported jaxlib reads; fixed, so that newer ones write the same bytes.
_PORTABLE_VERSION = "1.17.0"

_BYTECODE = b"ML\xefR"
_ARTIFACT = b"StableHLO_v"
_ALIAS = "tf.aliasing_output"
_NOT_TEXT = (b"\x00", b"\x01", b"\x02", b"\x08", b"\x10", b"\x12", b"\x1a")

# XLA aborts the process where the size of a shape overflows.
_MAX_TENSOR = 1 << 48

_ELEMENT_TYPES = {
    "i1": "bool",
    "i8": "int8",
    "ui8": "uint8",
    "i16": "int16",
    "ui16": "uint16",
    "i32": "int32",
    "ui32": "uint32",
    "i64": "int64",
    "ui64": "uint64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
}


class Program:
    """One MLIR module with an entry function @main."""

    def __init__(self, lib: Library, module: Any) -> None:
        self._lib = lib
        self._module = module

    @classmethod
    def read(cls, lib: Library, ir: bytes) -> Program:
        """From StableHLO (text, bytecode, portable artifact) or HLO (protobuf, text). Raises XlaError."""
        with lib.translate("the program cannot be read"):
            return cls(lib, _parse(lib, ir))

    def canonicalise(self) -> None:
        """Take away what does not change the results (locations, labels), and foreign spellings, in place."""
        with self._lib.translate("the program cannot be read"):
            main = self._main()
            self._lib.run_passes(self._module, "strip-debuginfo")
            attributes = self._module.operation.attributes
            for field in ("mhlo.num_partitions", "mhlo.num_replicas"):
                if field in attributes and (count := attributes[field].value) != 1:
                    raise XlaError(f"the program wants {count} devices ({field}); this compiler builds for one")
            table = attributes.get("mhlo.input_output_alias", None)
            for name in list(attributes):
                del attributes[name]
            self._label(main, _table_aliases(table) if table else self._argument_aliases(main))
            self._legalise()

    def signature(self) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], tuple[tuple[int, int], ...]]:
        """Inputs, outputs and (output, input) aliases of @main, sorted; XlaError where a NEFF cannot hold them."""
        main = self._main()
        inputs = tuple(self._spec(f"input{i}", kind) for i, kind in enumerate(main.type.inputs))
        outputs = tuple(self._spec(f"output{i}", kind) for i, kind in enumerate(main.type.results))
        aliases = tuple(sorted((output, i) for i, output in self._argument_aliases(main).items()))
        for output, i in aliases:
            if output >= len(outputs) or _layout(inputs[i]) != _layout(outputs[output]):
                raise XlaError(f"input {i} is aliased to output {output}, which is not of its shape and dtype")
        if len({output for output, _ in aliases}) != len(aliases):
            raise XlaError("two inputs are aliased to one output")
        return inputs, outputs, aliases

    def drop_aliases(self) -> None:
        self._label(self._main(), {})

    def serialize(self) -> bytes:
        """The portable artifact; XlaError names the operations that have no such form."""
        with self._lib.diagnostics(self._module.context) as said:
            try:
                return bytes(self._lib.stablehlo.serialize_portable_artifact(self._module, _PORTABLE_VERSION))
            except (self._lib.ir.MLIRError, ValueError, RuntimeError) as error:
                foreign = ", ".join(self._foreign_operations())
                why = f"these are not StableHLO: {foreign}" if foreign else "; ".join(said) or str(error)
                raise XlaError(f"the program holds operations the compiler cannot take: {why}") from error

    def _main(self) -> Any:
        for op in self._module.body.operations:
            if op.operation.name == "func.func" and op.attributes["sym_name"].value == "main":
                return op
        raise XlaError("the program has no function @main", hint="name the entry function `main`")

    def _argument_aliases(self, main: Any) -> dict[int, int]:
        if "arg_attrs" not in main.attributes:
            return {}
        labels = enumerate(main.attributes["arg_attrs"])
        return {i: label[_ALIAS].value for i, label in labels if _ALIAS in label}

    def _label(self, main: Any, aliases: dict[int, int]) -> None:
        """Make `aliases` the only labels that the arguments and results of @main carry."""
        ir, context = self._lib.ir, self._module.context
        integer = ir.IntegerType.get_signless(32, context)
        for field in ("arg_attrs", "res_attrs"):
            if field in main.attributes:
                del main.attributes[field]
        if aliases:
            labels = [
                {_ALIAS: ir.IntegerAttr.get(integer, aliases[i])} if i in aliases else {}
                for i in range(len(main.type.inputs))
            ]
            main.attributes["arg_attrs"] = ir.ArrayAttr.get(
                [ir.DictAttr.get(label, context) for label in labels], context
            )
        main.attributes["sym_visibility"] = ir.StringAttr.get("public", context)

    def _legalise(self) -> None:
        """Respell as StableHLO what has a spelling there: tensor constants of `arith`, and all of `chlo`."""
        ir = self._lib.ir
        names = set()
        for op in self._operations():
            names.add(op.name)
            if op.name == "arith.constant" and isinstance(op.results[0].type, ir.RankedTensorType):
                with ir.InsertionPoint(op), ir.Location.unknown(self._module.context):
                    op.results[0].replace_all_uses_with(self._lib.stablehlo.constant(op.attributes["value"]))
                op.erase()
        if any(name.startswith("chlo.") for name in names):
            self._lib.run_passes(self._module, "func.func(chlo-legalize-to-stablehlo)")

    def _operations(self) -> list[Any]:
        found: list[Any] = []

        def visit(op: Any) -> Any:
            found.append(op)
            return self._lib.ir.WalkResult.ADVANCE

        self._module.operation.walk(visit)
        return found

    def _foreign_operations(self) -> list[str]:
        # A serialisation that failed leaves some operations as `vhlo`.
        ours = ("builtin.", "func.", "stablehlo.", "vhlo.")
        counts = Counter(op.name for op in self._operations() if not op.name.startswith(ours))
        return [f"{name} ({count}x)" for name, count in sorted(counts.items())]

    def _spec(self, name: str, kind: Any) -> TensorSpec:
        if not isinstance(kind, self._lib.ir.RankedTensorType):
            raise XlaError(f"{name} is a {kind}, not a tensor of known rank")
        if not kind.has_static_shape:
            raise XlaError(f"{name} is a {kind}: its shape is not known", hint="capture the program with static shapes")
        dtype = _ELEMENT_TYPES.get(str(kind.element_type))
        if dtype is None:
            raise XlaError(f"{name} is a {kind}: elements of that type have no place in a NEFF")
        spec = TensorSpec(name, tuple(kind.shape), dtype)
        if spec.nbytes > _MAX_TENSOR:
            raise XlaError(f"{name} is a {kind}: its {spec.nbytes} bytes are more than any device has")
        return spec


def _parse(lib: Library, ir: bytes) -> Any:
    context = lib.context()
    if ir.startswith(_BYTECODE):
        if not ir[len(_BYTECODE) :].lstrip(b"\r").startswith(_ARTIFACT):
            return lib.ir.Module.parse(ir, context)
        with lib.diagnostics(context) as said:
            try:
                return lib.stablehlo.deserialize_portable_artifact(context, ir)
            except lib.ir.MLIRError as error:
                raise XlaError(f"the program cannot be read: {'; '.join(said) or error}") from error
    text = _as_text(ir)
    if text is not None and not text.strip():
        raise XlaError("the program is empty")
    if text is not None and not text.lstrip().startswith("HloModule"):
        return lib.ir.Module.parse(text, context)
    if text is not None:
        ir = lib.xla_client.hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return lib.ir.Module.parse(lib.jax.mlir.hlo_to_stablehlo(ir), context)


def _as_text(ir: bytes) -> str | None:
    """The program as text, or None when it holds bytes that no text has and every protobuf does."""
    if any(byte in ir for byte in _NOT_TEXT):
        return None
    try:
        return ir.decode()
    except UnicodeDecodeError:
        return None


def _table_aliases(table: Any) -> dict[int, int]:
    """The aliases of the table that an HLO module keeps; those inside tuples have no tensor of their own."""
    aliases: dict[int, int] = {}
    for pair in table:
        output = list(pair["output_index"])
        if not list(pair["alias"]["parameter_index"]) and len(output) <= 1:
            aliases[pair["alias"]["parameter_number"].value] = output[0] if output else 0
    return aliases


def _layout(spec: TensorSpec) -> tuple[tuple[int, ...], str]:
    return spec.shape, spec.dtype
