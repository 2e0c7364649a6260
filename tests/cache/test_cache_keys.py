"""Keys change with everything that decides a NEFF, and with nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cache_kit import parts
from hypothesis import given
from hypothesis import strategies as st

from cache_server.errors import CacheError
from cache_server.fields import Fields
from cache_server.flags import canonical_flags
from cache_server.ir import digest_ir
from cache_server.keys import KeyParts, diff

CHANGES: dict[str, Any] = {
    "ir": "module { other }",
    "compiler": "another-cc",
    "compiler_version": "2.1",
    "flags": ["-O1"],
    "target": "trn3",
    "lnc": 1,
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_part_changes_the_key_and_is_told(name: str) -> None:
    changed = parts(**{name: CHANGES[name]})
    assert changed.key != parts().key
    [*sentences] = diff(parts(), changed)
    assert sentences
    assert all("against" in text or "only in" in text for text in sentences)


def test_schema_changes_the_key() -> None:
    same = parts()
    assert KeyParts(same.ir_digest, "cc", "2.0", same.flags, "trn2", 2, schema=2).key != same.key


def test_equal_parts_have_no_difference() -> None:
    assert parts().key == parts().key
    assert diff(parts(), parts()) == []


def test_key_is_hex_and_the_short_key_begins_it() -> None:
    key = parts().key
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")
    assert parts().short_key == key[:32]


def test_fields_do_not_run_into_each_other() -> None:
    assert parts(compiler="cc2", compiler_version=".0").key != parts(compiler="cc", compiler_version="2.0").key
    assert parts(flags=["--a=b c"]).key != parts(flags=["--a=b", "--c"]).key


def test_parts_survive_json() -> None:
    original = parts(flags=["--model-type", "transformer", "-O3"])
    text = json.dumps(original.to_json())
    assert KeyParts.from_fields(Fields.of(json.loads(text), "parts")) == original


def test_nothing_of_the_process_enters_a_key(tmp_path: Path) -> None:
    program = tmp_path / "key.py"
    program.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from cache_kit import parts\n"
        "print(parts(flags=['-O2', '--model-type=transformer', '--output', sys.argv[1]]).key)\n"
    )
    root = str(Path(__file__).parents[2])
    keys = set()
    for rank in range(3):
        directory = tmp_path / f"rank{rank}"
        directory.mkdir()
        environment = {
            "PYTHONPATH": root,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "HOSTNAME": f"host-{rank}",
            "VIRTUAL_ENV": str(directory / "venv"),
            "TMPDIR": str(directory),
            "NEURON_RT_VISIBLE_CORES": str(rank),
            "PYTHONHASHSEED": str(rank),
            "TZ": f"UTC+{rank}",
        }
        command = [sys.executable, str(program), str(directory / "module.neff")]
        if rank == 2:
            command = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere; exec "$@"', "sh", *command]
            if subprocess.run([*command[:2], "true"], capture_output=True).returncode:
                command = command[6:]  # no right to another host name here; the variables differ all the same
        run = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        keys.add(run.stdout)
    assert len(keys) == 1


SAME = [
    (["-O2"], ["--optlevel=2"]),
    (["-O2"], ["--optlevel", "2"]),
    (["-O", "2"], ["-O2"]),
    (["--model-type", "transformer"], ["--model-type=transformer"]),
    (["-O1", "--auto-cast=none"], ["--auto-cast=none", "-O1"]),
    (["-O1"], ["-O1", "--output", "/tmp/x/module.neff"]),
    (["-O1"], ["-O1", "-o", "x.neff", "--workdir=/tmp/y", "--verbose", "info", "--cache_dir=/var/tmp/z"]),
    (["-O1"], ["compile", "module.mlir", "-O1"]),
    (["--plugin=/home/a/.venv/lib/p.so"], ["--plugin", "/opt/venv/lib/p.so"]),
    (["--lr", "-1"], ["--lr=-1"]),
]
DIFFERENT = [
    (["-O1"], ["-O2"]),
    (["-O1", "-O2"], ["-O2", "-O1"]),
    (["--enable-x", "--disable-x"], ["--disable-x", "--enable-x"]),
    (["--opts", "a", "--opts", "b"], ["--opts", "b", "--opts", "a"]),
    (["--unknown"], []),
    (["--unknown=1"], ["--unknown=2"]),
    (["--unknown"], ["--unknown="]),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_flags_that_mean_the_same_are_the_same(a: list[str], b: list[str]) -> None:
    assert canonical_flags(a) == canonical_flags(b)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_flags_that_mean_something_else_differ(a: list[str], b: list[str]) -> None:
    assert canonical_flags(a) != canonical_flags(b)


@given(st.lists(st.sampled_from(["-O1", "--a=1", "--b", "--b=2", "--no-a", "x", "--output", "--lnc=2", "-v"])))
def test_canonical_flags_stay_as_they_are(flags: list[str]) -> None:
    once = canonical_flags(flags)
    assert canonical_flags(once) == once


def test_target_and_lnc_in_the_flags_count_once() -> None:
    assert parts(flags=["-O2", "--target=trn2", "--lnc", "2"]) == parts()


@pytest.mark.parametrize("flags", [["--target", "trn3"], ["--lnc=1"], ["--logical-nc-config=1"]])
def test_flags_that_contradict_the_target_are_refused(flags: list[str]) -> None:
    with pytest.raises(CacheError, match="the flags ask for"):
        parts(flags=flags)


PLAIN = b"""module {
  func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.custom_call @f(%arg0) {text = "at loc(here)"} : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""
LOCATED = b"""#loc = loc("/home/a/train.py":1:0)
#loc2 = loc("x)"(#loc))
module {
  func.func @main(%arg0: tensor<2xf32> loc("p"("/home/a/train.py":3:4))) -> tensor<2xf32> {
    %0 = stablehlo.custom_call @f(%arg0) {text = "at loc(here)"} : (tensor<2xf32>) -> tensor<2xf32> loc(#loc2)
    return %0 : tensor<2xf32> loc(callsite("f" at "a \\" ) b":1:2))
  } loc(#loc)
} loc(#loc)
"""


def test_source_locations_do_not_enter_the_digest() -> None:
    assert digest_ir(LOCATED) == digest_ir(PLAIN)


def test_text_that_only_looks_like_a_location_does() -> None:
    assert digest_ir(PLAIN) != digest_ir(PLAIN.replace(b"loc(here)", b"loc(there)"))
    assert digest_ir(b"@loc(1)") != digest_ir(b"@loc(2)")


def test_binary_and_unfinished_forms_are_hashed_as_they_are() -> None:
    assert digest_ir(b"ML\xefR\0 loc(a)") != digest_ir(b"ML\xefR\0 loc(b)")
    assert digest_ir(b"\xff loc(a)") != digest_ir(b"\xff loc(b)")
    assert digest_ir(b"x loc(a") != digest_ir(b"x loc(b")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_have_a_digest(a: bytes, b: bytes) -> None:
    assert len(digest_ir(a + b"loc(" + b)) == 64
