"""The adapter's executables: every dtype and shape in and out, in place, in order, and after a reload."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from neuron_runtime.arrays import numpy_dtype
from neuron_runtime.tensors import ITEMSIZE, TensorSpec
from neuron_runtime.xla import Xla, XlaError

ELEMENTS = {
    "bool": "i1",
    "int8": "i8",
    "uint8": "ui8",
    "int16": "i16",
    "uint16": "ui16",
    "int32": "i32",
    "uint32": "ui32",
    "int64": "i64",
    "uint64": "ui64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "complex<f32>",
    "complex128": "complex<f64>",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
}


def build(xla: Xla, text: str, opt_level: int = 2):
    return xla.compile(xla.portable(text.encode()), opt_level)


def aligned(shape, dtype) -> np.ndarray:
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.zeros(count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count].view(dtype).reshape(shape)


def run(executable, *arrays):
    outputs = executable.execute([executable.alias(a) for a in arrays])
    return [executable.view(o) for o in outputs]


def test_every_dtype_has_an_element_type():
    assert ELEMENTS.keys() == ITEMSIZE.keys()


@pytest.mark.parametrize("shape", [(), (5,), (0, 4), (16, 3)], ids=str)
@pytest.mark.parametrize("name", ELEMENTS)
def test_values_survive_the_round_trip_unchanged(xla, name, shape):
    kind = "tensor<" + "".join(f"{n}x" for n in shape) + ELEMENTS[name] + ">"
    program = f"func.func public @main(%a: {kind}, %b: {kind}) -> ({kind}, {kind}) {{ return %b, %a : {kind}, {kind} }}"
    executable = build(xla, program)
    dtype = numpy_dtype(name)
    rng = np.random.default_rng(7)
    a, b = (aligned(shape, dtype) for _ in range(2))
    a[...] = rng.integers(0, 2, shape).astype(dtype)
    b[...] = rng.integers(0, 2, shape).astype(dtype)
    swapped = run(executable, a, b)
    assert executable.inputs == (TensorSpec("input0", shape, name), TensorSpec("input1", shape, name))
    assert executable.outputs == (TensorSpec("output0", shape, name), TensorSpec("output1", shape, name))
    for got, want in zip(swapped, (b, a), strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        assert got.tobytes() == want.tobytes()


def test_aligned_input_is_read_in_place(xla):
    executable = build(xla, "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> { return %a : tensor<8xf32> }")
    array = aligned((8,), np.float32)
    handle = executable.alias(array)
    array[:] = np.arange(8)
    (output,) = executable.execute([handle])
    np.testing.assert_array_equal(executable.view(output), np.arange(8))
    array[:] = 3
    np.testing.assert_array_equal(executable.view(executable.execute([handle])[0]), np.full(8, 3))
    np.testing.assert_array_equal(executable.view(output), np.arange(8))


def test_misaligned_input_is_copied_and_right(xla):
    executable = build(
        xla,
        "func.func @main(%a: tensor<1000xf32>) -> tensor<1000xf32> {"
        " %0 = stablehlo.add %a, %a : tensor<1000xf32> return %0 : tensor<1000xf32> }",
    )
    array = aligned((1001,), np.float32)[1:]
    array[:] = np.arange(1000)
    np.testing.assert_array_equal(run(executable, array)[0], 2 * np.arange(1000))


def test_handle_keeps_its_memory_alive(xla):
    executable = build(
        xla, "func.func @main(%a: tensor<4096xf32>) -> tensor<4096xf32> { return %a : tensor<4096xf32> }"
    )
    array = aligned((4096,), np.float32)
    array[:] = 5
    handle = executable.alias(array)
    del array
    gc.collect()
    xla.collect()
    [aligned((4096,), np.float32).fill(1) for _ in range(20)]
    assert executable.view(executable.execute([handle])[0]).min() == 5


def test_view_outlives_its_output_and_cannot_be_written(xla):
    executable = build(
        xla,
        "func.func @main(%a: tensor<4096xf32>) -> tensor<4096xf32> {"
        " %0 = stablehlo.add %a, %a : tensor<4096xf32> return %0 : tensor<4096xf32> }",
    )
    array = aligned((4096,), np.float32)
    array[:] = 2
    view = run(executable, array)[0]
    gc.collect()
    for _ in range(20):
        run(executable, aligned((4096,), np.float32))
    assert view.min() == view.max() == 4
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_execution_is_over_when_execute_returns(xla):
    """Misaligned inputs are copied while the execution already runs; outputs must be whole all the same."""
    executable = build(
        xla,
        "func.func @main(%a: tensor<512x512xf32>) -> tensor<512x512xf32> {"
        " %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] :"
        " (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>"
        " return %0 : tensor<512x512xf32> }",
    )
    flat = aligned((512 * 512 + 1,), np.float32)[1:].reshape(512, 512)
    flat[:] = np.eye(512)
    for _ in range(10):
        (output,) = executable.execute([executable.alias(flat)])
        assert output.is_ready()


def test_unused_arguments_stay_in_place(xla):
    executable = build(
        xla,
        "func.func @main(%a: tensor<2xf32>, %unused: tensor<7xi8>, %c: tensor<2xf32>) -> tensor<2xf32> {"
        " %0 = stablehlo.subtract %a, %c : tensor<2xf32> return %0 : tensor<2xf32> }",
    )
    assert [i.dtype for i in executable.inputs] == ["float32", "int8", "float32"]
    result = run(executable, np.full(2, 5, np.float32), np.zeros(7, np.int8), np.full(2, 3, np.float32))
    np.testing.assert_array_equal(result[0], [2, 2])


def test_program_without_outputs(xla):
    executable = build(xla, "func.func @main(%a: tensor<2xf32>) { return }")
    assert executable.outputs == ()
    assert run(executable, np.zeros(2, np.float32)) == []


def test_program_without_inputs(xla):
    executable = build(
        xla,
        "func.func @main() -> tensor<3xi64> {"
        " %0 = stablehlo.constant dense<[1, -2, 9007199254740993]> : tensor<3xi64> return %0 : tensor<3xi64> }",
    )
    assert run(executable)[0].tolist() == [1, -2, 9007199254740993]


def test_aliases_are_told_and_the_input_is_left_alone(xla):
    executable = build(
        xla,
        "func.func @main(%step: tensor<f32>, %cache: tensor<64xf32> {tf.aliasing_output = 1 : i32})"
        " -> (tensor<f32>, tensor<64xf32>) {"
        " %0 = stablehlo.add %cache, %cache : tensor<64xf32> return %step, %0 : tensor<f32>, tensor<64xf32> }",
    )
    assert executable.aliases == ((1, 1),)
    cache = aligned((64,), np.float32)
    cache[:] = 1
    handles = [executable.alias(np.float32(0).reshape(())), executable.alias(cache)]
    for _ in range(2):
        outputs = executable.execute(handles)
        assert executable.view(outputs[1]).tolist() == [2.0] * 64
    assert cache.tolist() == [1.0] * 64


def test_wrong_number_or_size_of_inputs_is_an_error(xla):
    executable = build(xla, "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")
    with pytest.raises(XlaError) as error:
        executable.execute([])
    assert error.value.status == "INVALID_ARGUMENT"
    with pytest.raises(XlaError):
        executable.execute([executable.alias(np.zeros(5, np.float32))])


def test_native_code_reloads_with_its_signature(xla):
    executable = build(
        xla,
        "func.func @main(%a: tensor<4x2xbf16>, %n: tensor<i1>) -> (tensor<4x2xbf16>, tensor<i1>) {"
        " %0 = stablehlo.add %a, %a : tensor<4x2xbf16> return %0, %n : tensor<4x2xbf16>, tensor<i1> }",
    )
    native = executable.serialize()
    loaded = xla.load(native)
    assert (loaded.inputs, loaded.outputs) == (executable.inputs, executable.outputs)
    named = xla.load(native, inputs=[TensorSpec("x", (4, 2), "bfloat16"), TensorSpec("n", (), "bool")])
    assert [i.name for i in named.inputs] == ["x", "n"]
    assert loaded.code_bytes == len(native)
    a = np.arange(8, dtype=numpy_dtype("bfloat16")).reshape(4, 2)
    doubled, flag = run(loaded, a, np.array(True))
    assert doubled.tolist() == (2 * np.arange(8).reshape(4, 2)).tolist()
    assert flag.item() is True


@pytest.mark.parametrize("damage", [lambda n: b"", lambda n: n[:100], lambda n: n[:-100], lambda n: bytes(len(n))])
def test_damaged_native_code_is_refused(xla, damage):
    native = build(xla, "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }").serialize()
    with pytest.raises(XlaError, match="native code cannot be loaded"):
        xla.load(damage(native))


def test_costs_are_estimated(xla):
    executable = build(
        xla,
        "func.func @main(%a: tensor<32x16xf32>, %b: tensor<16x8xf32>) -> tensor<32x8xf32> {"
        " %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] :"
        " (tensor<32x16xf32>, tensor<16x8xf32>) -> tensor<32x8xf32> return %0 : tensor<32x8xf32> }",
    )
    assert executable.flops == 2 * 32 * 16 * 8
    assert executable.bytes_accessed >= 4 * (32 * 16 + 16 * 8 + 32 * 8)
    assert executable.temp_bytes >= 0
    assert executable.code_bytes == len(executable.serialize())


def test_client_serves_parent_and_child_of_a_fork(run_script):
    """The parent has only imported jaxlib when it forks, as a zygote does."""
    run_script("""
import os
from neuron_runtime.xla import Xla, preload
preload()
assert len(os.listdir("/proc/self/task")) == 1, "importing started threads"
xla = Xla()
text = b"func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
pid = os.fork()
xla.compile(xla.portable(text))
if not pid:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
""")


def test_importing_the_adapter_imports_nothing_heavy(run_script):
    run_script("""
import sys
import neuron_runtime.xla, neuron_runtime.compiler.options, neuron_runtime.compiler.errors
import neuron_runtime.compiler.compile, neuron_runtime.compiler.warm, neuron_runtime.compiler.cc
heavy = {"jaxlib", "numpy", "torch", "ml_dtypes", "rich", "asyncio", "fsspec"} & sys.modules.keys()
assert not heavy, heavy
""")
