"""The compiler as a library: results against NumPy, what the NEFF says, and when its bytes repeat."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from compiler_programs import ADD, chain

from neuron_runtime.arrays import numpy_dtype
from neuron_runtime.compiler.compile import compile_neff
from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.options import CompileOptions
from neuron_runtime.compiler.version import COMPILER_VERSION
from neuron_runtime.cpu import CpuIdentity
from neuron_runtime.neff import read_neff
from neuron_runtime.tensors import TensorSpec

F = "tensor<6x8xf32>"


def unary(op: str) -> str:
    return f"func.func @main(%a: {F}) -> {F} {{ %0 = stablehlo.{op} %a : {F} return %0 : {F} }}"


def binary(op: str) -> str:
    return f"func.func @main(%a: {F}, %b: {F}) -> {F} {{ %0 = stablehlo.{op} %a, %b : {F} return %0 : {F} }}"


def body(signature: str, result: str, lines: str) -> str:
    return f"func.func @main({signature}) -> {result} {{ {lines} return %r : {result} }}"


def softmax(a):
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


SOFTMAX = body(
    f"%a: {F}",
    F,
    f"""%ninf = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %m = stablehlo.reduce(%a init: %ninf) applies stablehlo.maximum across dimensions = [1]
      : ({F}, tensor<f32>) -> tensor<6xf32>
    %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<6xf32>) -> {F}
    %d = stablehlo.subtract %a, %mb : {F}
    %e = stablehlo.exponential %d : {F}
    %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
      : ({F}, tensor<f32>) -> tensor<6xf32>
    %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<6xf32>) -> {F}
    %r = stablehlo.divide %e, %sb : {F}""",
)
CASES = {
    "add": (binary("add"), np.add),
    "divide": (binary("divide"), np.divide),
    "maximum": (binary("maximum"), np.maximum),
    "exponential": (unary("exponential"), np.exp),
    "tanh": (unary("tanh"), np.tanh),
    "logistic": (unary("logistic"), lambda a: 1 / (1 + np.exp(-a))),
    "softmax": (SOFTMAX, softmax),
    "batched matmul": (
        body(
            "%a: tensor<2x6x8xf32>, %b: tensor<2x8x5xf32>",
            "tensor<2x6x5xf32>",
            "%r = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]"
            " : (tensor<2x6x8xf32>, tensor<2x8x5xf32>) -> tensor<2x6x5xf32>",
        ),
        np.matmul,
    ),
    "transpose": (
        body(f"%a: {F}", "tensor<8x6xf32>", f"%r = stablehlo.transpose %a, dims = [1, 0] : ({F}) -> tensor<8x6xf32>"),
        np.transpose,
    ),
    "slice": (
        body(f"%a: {F}", "tensor<2x4xf32>", f"%r = stablehlo.slice %a [1:5:2, 4:8] : ({F}) -> tensor<2x4xf32>"),
        lambda a: a[1:5:2, 4:8],
    ),
    "concatenate": (
        body(
            f"%a: {F}, %b: {F}",
            "tensor<12x8xf32>",
            f"%r = stablehlo.concatenate %a, %b, dim = 0 : ({F}, {F}) -> tensor<12x8xf32>",
        ),
        lambda a, b: np.concatenate([a, b]),
    ),
    "convolution": (
        body(
            "%a: tensor<1x1x9x9xf32>, %b: tensor<2x1x3x3xf32>",
            "tensor<1x2x7x7xf32>",
            "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],"
            " window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
            " : (tensor<1x1x9x9xf32>, tensor<2x1x3x3xf32>) -> tensor<1x2x7x7xf32>",
        ),
        lambda a, b: np.einsum("hwij,oij->ohw", np.lib.stride_tricks.sliding_window_view(a[0, 0], (3, 3)), b[:, 0])[
            None
        ],
    ),
}


def run(xla, neff: bytes, arrays, *, native: bool):
    file = read_neff(neff)
    executable = xla.load(file.native) if native else xla.compile(file.stablehlo)
    outputs = executable.execute([executable.alias(a) for a in arrays])
    return [executable.view(o) for o in outputs]


@pytest.mark.parametrize("name", CASES)
def test_result_is_numpys(xla, name):
    program, reference = CASES[name]
    done = compile_neff(program.encode(), CompileOptions(opt_level=1), xla=xla)
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(i.shape, dtype=np.float32) for i in done.manifest.inputs]
    (got,) = run(xla, done.neff, arrays, native=True)
    np.testing.assert_allclose(got, reference(*arrays), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_native_part_and_stablehlo_give_one_result_at_every_level(xla, level):
    done = compile_neff(chain(5), CompileOptions(opt_level=level), xla=xla)
    values = np.random.default_rng(1).standard_normal((64, 64), dtype=np.float32) / 8
    (native,), (compiled,) = (run(xla, done.neff, [values], native=n) for n in (True, False))
    np.testing.assert_allclose(native, compiled, rtol=1e-6, atol=1e-7)
    expected = values
    for _ in range(5):
        expected = np.tanh(expected @ values)
    np.testing.assert_allclose(native, expected, rtol=1e-4, atol=1e-6)


def test_bfloat16_keeps_its_precision_and_no_more(xla):
    kind = "tensor<16xbf16>"
    program = f"func.func @main(%a: {kind}) -> {kind} {{ %0 = stablehlo.add %a, %a : {kind} return %0 : {kind} }}"
    values = np.linspace(-3, 3, 16).astype(numpy_dtype("bfloat16"))
    (got,) = run(xla, compile_neff(program.encode(), xla=xla).neff, [values], native=True)
    np.testing.assert_array_equal(got, values + values)


def test_manifest_describes_the_program_and_the_compile(xla):
    options = CompileOptions.parse("--target trn3 --lnc 1 -O3")
    done = compile_neff(ADD, options, name="first step", xla=xla)
    manifest = read_neff(done.neff).manifest
    assert manifest == done.manifest
    assert (manifest.name, manifest.version) == ("first step", COMPILER_VERSION)
    assert (manifest.target, manifest.lnc, manifest.opt_level) == ("trn3", 1, 3)
    assert manifest.inputs == tuple(TensorSpec(f"input{i}", (4, 4), "float32") for i in (0, 1))
    assert manifest.outputs == (TensorSpec("output0", (4, 4), "float32"),)
    assert manifest.flops == 16
    assert manifest.bytes_accessed == 3 * 16 * 4
    part = manifest.native
    assert xla.accepts(part.format, CpuIdentity(part.arch, part.cpu_features))
    assert not xla.accepts(part.format, CpuIdentity(part.arch, (*part.cpu_features, "avx9")))
    assert not xla.accepts("xla:cpu jaxlib 0.1", CpuIdentity(part.arch, part.cpu_features))
    assert done.seconds > 0


def test_aliases_reach_the_manifest(xla):
    program = ADD.replace(b"%b: tensor<4x4xf32>", b"%b: tensor<4x4xf32> {tf.aliasing_output = 0 : i32}")
    assert compile_neff(program, xla=xla).manifest.aliases == ((0, 1),)


def test_without_native_part_equal_programs_give_equal_bytes_in_every_process(xla, run_script):
    relabelled = ADD.replace(b"@first", b"@other").replace(b"%a", b"%x")
    here = {compile_neff(p, native=False, xla=xla).neff for p in (ADD, ADD, relabelled)}
    assert len(here) == 1
    assert read_neff(here.pop()).manifest.native is None
    script = """
import hashlib, sys
from neuron_runtime.compiler.compile import compile_neff
print(hashlib.sha256(compile_neff(sys.argv[1].encode(), native=False).neff).hexdigest())
"""
    there = run_script(script, ADD.decode()).stdout.strip()
    assert there == hashlib.sha256(compile_neff(ADD, native=False, xla=xla).neff).hexdigest()


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256])
def test_name_that_no_neff_can_have(xla, name):
    with pytest.raises(ValueError, match="no name for a NEFF"):
        compile_neff(ADD, name=name, xla=xla)


def test_bad_program_is_a_compiler_error(xla):
    with pytest.raises(CompileFailure, match="cannot be read") as error:
        compile_neff(b"rubbish", xla=xla)
    assert error.value.kind is FailureKind.COMPILER_ERROR


def test_program_that_only_xla_refuses_is_a_compiler_error(xla):
    program = b"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = stablehlo.custom_call @no_such_kernel(%a) : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32> }"""
    with pytest.raises(CompileFailure, match="no_such_kernel") as error:
        compile_neff(program, xla=xla)
    assert error.value.kind is FailureKind.COMPILER_ERROR


def test_absent_jaxlib_is_the_environments_fault(run_script):
    run_script("""
import sys
sys.modules["jaxlib"] = None
from neuron_runtime.compiler.compile import compile_neff
from neuron_runtime.compiler.errors import CompileFailure, FailureKind
try:
    compile_neff(b"module {}")
except CompileFailure as failure:
    assert failure.kind is FailureKind.ENVIRONMENT, failure.kind
    assert "pip install" in failure.hint
else:
    raise SystemExit("no failure")
""")
