"""Programs in every format become one canonical artifact; what cannot is refused with a reason."""

from __future__ import annotations

import pytest

from neuron_runtime.xla import XlaError

PLAIN = b"""
func.func public @main(%a: tensor<4x4xf32>, %b: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %c = stablehlo.constant dense<2.0> : tensor<4x4xf32>
  %0 = stablehlo.multiply %a, %c : tensor<4x4xf32>
  %1 = stablehlo.add %0, %b : tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
"""

# The same program as a tracer on some host, at some time, would write it.
LABELLED = b"""
#where = loc("/home/someone/venv/model.py":12:3)
module @jit_step attributes {torch.debug_dump_path = "/tmp/rank7", mhlo.num_partitions = 1 : i32} {
  func.func @main(%weights: tensor<4x4xf32> {jax.arg_info = "w"} loc("weights"), %x: tensor<4x4xf32>)
      -> (tensor<4x4xf32> {jax.result_info = "out"}) {
    %two = arith.constant dense<2.0> : tensor<4x4xf32> loc(#where)
    %scaled = stablehlo.multiply %weights, %two : tensor<4x4xf32> loc(fused[#where, "scale"])
    %sum = stablehlo.add %scaled, %x : tensor<4x4xf32> loc(#where)
    return %sum : tensor<4x4xf32> loc(#where)
  }
}
"""

ALIASED = b"""
func.func public @main(%a: tensor<8xf32>, %b: tensor<8xf32> {tf.aliasing_output = 0 : i32}) -> tensor<8xf32> {
  %0 = stablehlo.add %a, %b : tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""


def bytecode(text: bytes) -> bytes:
    import io

    from neuron_runtime.xla.library import load

    out = io.BytesIO()
    load().ir.Module.parse(text.decode(), load().context()).operation.write_bytecode(out)
    return out.getvalue()


def hlo(text: bytes):
    from neuron_runtime.xla.library import load

    return load().jax.mlir.mlir_module_to_xla_computation(text.decode(), use_tuple_args=False, return_tuple=False)


def test_labels_locations_and_dialects_do_not_show(xla):
    assert xla.portable(LABELLED) == xla.portable(PLAIN)


def test_canonical_form_is_a_fixed_point(xla):
    portable = xla.portable(LABELLED)
    assert portable.startswith(b"ML\xefR\rStableHLO_v")
    assert xla.portable(portable) == portable


def test_bytecode_and_text_are_one_program(xla):
    assert bytecode(LABELLED)[:4] == b"ML\xefR"
    assert xla.portable(bytecode(LABELLED)) == xla.portable(PLAIN)


@pytest.mark.parametrize("text", [ALIASED, PLAIN.replace(b"%b :", b"%a :")], ids=["aliased", "unused argument"])
def test_hlo_protobuf_and_hlo_text_keep_signature_and_aliases(xla, text):
    expected = xla.compile(xla.portable(text))
    for form in (hlo(text).as_serialized_hlo_module_proto(), hlo(text).as_hlo_text().encode()):
        got = xla.compile(xla.portable(form))
        assert (got.inputs, got.outputs, got.aliases) == (expected.inputs, expected.outputs, expected.aliases)


def test_alias_survives_as_the_only_label(xla):
    assert xla.compile(xla.portable(ALIASED)).aliases == ((0, 1),)
    assert xla.portable(ALIASED) == xla.portable(ALIASED.replace(b"0 : i32}", b'0 : i32, jax.x = "y"}'))
    assert xla.portable(ALIASED) != xla.portable(ALIASED.replace(b" {tf.aliasing_output = 0 : i32}", b""))


def test_values_and_shapes_do_show(xla):
    forms = {
        xla.portable(PLAIN),
        xla.portable(PLAIN.replace(b"2.0", b"3.0")),
        xla.portable(PLAIN.replace(b"4x4", b"4x5")),
        xla.portable(PLAIN.replace(b"f32", b"f64")),
    }
    assert len(forms) == 4


def test_chlo_is_lowered(xla):
    import math

    import numpy as np

    executable = xla.compile(
        xla.portable(
            b"func.func @main(%a: tensor<3xf64>) -> tensor<3xf64> {"
            b" %0 = chlo.erf %a : tensor<3xf64> -> tensor<3xf64> return %0 : tensor<3xf64> }"
        )
    )
    values = np.array([-0.5, 0.0, 2.0])
    got = executable.view(executable.execute([executable.alias(values)])[0])
    np.testing.assert_allclose(got, [math.erf(v) for v in values], rtol=1e-12)


def main_of(signature: str) -> bytes:
    return f"func.func @main({signature}) {{ return }}".encode()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"not a program", "cannot be read"),
        (b"\xff\xfe\xfd", "cannot be read"),
        (b"\n\x04main\x12\x06main.1", "cannot be read"),
        (b"ML\xefRrubbish", "cannot be read"),
        (b"ML\xefR\rStableHLO_v1.17.0\x00\x01%", "cannot be read"),
        (b"ML\xefR\rStableHLO_v99.0.0\x00\x01%", "cannot be read"),
        (b"HloModule", "cannot be read"),
        (PLAIN[:-20], "cannot be read"),
        (PLAIN.replace(b"stablehlo.add %0, %b", b"stablehlo.add %0, %nope"), "cannot be read"),
        (b"module {}", "no function @main"),
        (PLAIN.replace(b"@main", b"@other"), "no function @main"),
        (main_of("%a: tensor<?xf32>"), "input0 is a tensor<?xf32>: its shape is not known"),
        (main_of("%a: tensor<*xf32>"), "input0"),
        (main_of("%a: f32"), "input0 is a f32"),
        (main_of("%a: tensor<4xf32>, %b: tensor<4xi4>"), "input1 is a tensor<4xi4>"),
        (main_of("%a: tensor<999999999999999999x4xf32>"), "more than any device has"),
        (main_of("%t: !stablehlo.token"), "input0 is a !stablehlo.token"),
        (b"func.func private @main(tensor<4xf32>) -> tensor<4xf32>", "cannot"),
        (main_of("%a: tensor<4xf32> {tf.aliasing_output = 3 : i32}"), "aliased to output 3"),
        (ALIASED.replace(b"%a: tensor<8xf32>", b"%a: tensor<8xf32> {tf.aliasing_output = 0 : i32}"), "two inputs"),
        (b"module attributes {mhlo.num_partitions = 8 : i32} {" + PLAIN + b"}", "wants 8 devices"),
        (PLAIN.replace(b"stablehlo.add", b"arith.addf"), "arith.addf (1x)"),
        (PLAIN.replace(b"stablehlo.add", b"foo.bar"), "foo.bar"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_program_is_refused_with_the_reason(xla, program, reason):
    with pytest.raises(XlaError) as error:
        xla.compile(xla.portable(program))
    assert reason in error.value.message


def test_refusals_print_nothing(xla, capfd):
    for program in (b"ML\xefR\rStableHLO_v1.17.0\x00\x01%", PLAIN.replace(b"stablehlo.add", b"arith.addf"), b"x"):
        with pytest.raises(XlaError):
            xla.portable(program)
    assert capfd.readouterr() == ("", "")


def test_threads_share_nothing(xla):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(xla.portable, [PLAIN, LABELLED] * 20)) == {xla.portable(PLAIN)}
