"""Where a graph came from is no part of its digest, in whichever form it comes; what it computes is."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_server.hlo import essence_of_hlo
from cache_server.ir import digest_ir
from cache_server.mlirbytecode import essence_of_bytecode

pytest.importorskip("jaxlib")


def text(path: str = "/opt/venv/lib/model.py", line: int = 3, constant: float = 1.0, call: str = "nki") -> str:
    return f"""
module @jit_step {{ func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %c = stablehlo.constant dense<{constant}> : tensor<4xf32>
  %0 = stablehlo.add %a, %c : tensor<4xf32> loc("{path}":{line}:2)
  %1 = stablehlo.custom_call @{call}(%0) {{backend_config = "/kernels/a.klir"}} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32> }} }}
"""


def bytecode(source: str) -> bytes:
    from neuron_runtime.xla.library import load

    lib = load()
    with lib.context():
        out = io.BytesIO()
        lib.ir.Module.parse(source).operation.write_bytecode(out)
    return out.getvalue()


def portable(source: str) -> bytes:
    from neuron_runtime.xla.library import load

    lib = load()
    with lib.context():
        return bytes(lib.stablehlo.serialize_portable_artifact(lib.ir.Module.parse(source), "1.9.0"))


def hlo(source: str) -> bytes:
    from jaxlib import _jax

    computation = _jax.mlir.mlir_module_to_xla_computation(source, use_tuple_args=False, return_tuple=False)
    return bytes(computation.as_serialized_hlo_module_proto())


FORMS = pytest.mark.parametrize(
    "form", [str.encode, bytecode, portable, hlo], ids=["text", "bytecode", "portable", "hlo"]
)


@FORMS
def test_another_directory_gives_the_same_digest(form) -> None:
    here, there = form(text()), form(text("/home/somebody/a/much/longer/checkout/model.py"))
    assert here != there
    assert digest_ir(here) == digest_ir(there)


@pytest.mark.parametrize("form", [str.encode, hlo], ids=["text", "hlo"])
def test_another_line_and_file_give_the_same_digest(form) -> None:
    assert digest_ir(form(text())) == digest_ir(form(text("/opt/venv/lib/other.py", line=40)))


@FORMS
def test_what_is_computed_counts(form) -> None:
    digests = {digest_ir(form(text(**change))) for change in ({}, {"constant": 2.0}, {"call": "other"})}
    assert len(digests) == 3


@FORMS
def test_the_path_of_a_kernel_counts(form) -> None:
    assert digest_ir(form(text())) != digest_ir(form(text().replace("/kernels/a", "/others/a")))


def test_the_modules_name_and_number_do_not_count_in_hlo() -> None:
    assert digest_ir(hlo(text())) == digest_ir(hlo(text().replace("@jit_step", "@jit_step_47")))


@FORMS
def test_a_damaged_graph_is_hashed_as_it_is(form) -> None:
    whole = form(text())
    digests = {digest_ir(whole[:end]) for end in range(1, len(whole), 7)}
    assert len(digests) == len(range(1, len(whole), 7))


@given(st.binary(max_size=200))
def test_no_bytes_are_too_odd(data: bytes) -> None:
    for prefix in (b"", b"ML\xefR", b"\x0a\x01m\x1a"):
        digest_ir(prefix + data)
        essence_of_hlo(prefix + data)
        essence_of_bytecode(prefix + data)
