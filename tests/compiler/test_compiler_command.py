"""`neuronx-cc-sim` from end to end: what it writes, says and returns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from compiler_programs import ADD, ROOT, chain

from neuron_runtime.compiler.version import COMPILER_VERSION
from neuron_runtime.neff import read_neff

COMMAND = [sys.executable, "-W", "error", "-m", "neuron_runtime.compiler.cc"]


@pytest.fixture
def cc(tmp_path):
    """Run the command in an empty directory that holds `module.mlir`."""
    (tmp_path / "module.mlir").write_bytes(ADD)

    def run(*words: str, stdin: bytes = b"", **options) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*COMMAND, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            input=stdin,
            capture_output=True,
            timeout=60,
            **options,
        )

    return run


def files(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_the_line_that_torch_neuronx_runs(cc, tmp_path):
    line = (
        "compile module.mlir --framework XLA --target trn2 --lnc 2 -O1 --model-type transformer --auto-cast=none"
        " --output module.neff"
    )
    done = cc(*line.split())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    manifest = read_neff((tmp_path / "module.neff").read_bytes()).manifest
    assert (manifest.name, manifest.target, manifest.lnc, manifest.opt_level) == ("module", "trn2", 2, 1)
    assert manifest.version == COMPILER_VERSION
    assert files(tmp_path) == {"module.mlir", "module.neff"}


def test_hlo_protobuf_is_known_by_content_not_name(cc, tmp_path):
    from neuron_runtime.xla.library import load

    proto = load().jax.mlir.mlir_module_to_xla_computation(ADD.decode(), use_tuple_args=False, return_tuple=False)
    (tmp_path / "module.txt").write_bytes(proto.as_serialized_hlo_module_proto())
    assert cc("compile", "module.txt", "--output", "a.neff").returncode == 0
    assert len(read_neff((tmp_path / "a.neff").read_bytes()).manifest.inputs) == 2


def test_standard_input_and_the_default_output(cc, tmp_path):
    assert cc("compile", "-", "--target", "trn2", stdin=ADD).returncode == 0
    assert read_neff((tmp_path / "file.neff").read_bytes()).manifest.name == "model"


def test_unknown_flag_is_warned_about(cc):
    done = cc("compile", "module.mlir", "--tensorizer-options=--x", "--verbose", "info")
    assert done.returncode == 0
    assert b"[WARNING] [NCC_WSIM001] option `--tensorizer-options=--x`" in done.stderr
    assert b"[INFO] file.neff" in done.stderr


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_says_what_it_is(cc, word):
    done = cc(word)
    assert done.returncode == 0
    assert b"usage: neuronx-cc-sim compile FILE" in done.stdout
    assert b"not the compiler of AWS Neuron" in done.stdout


def test_version_says_simulated(cc):
    done = cc("--version")
    assert done.returncode == 0
    assert COMPILER_VERSION.encode() in done.stdout
    assert b"simulated" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], b"no command given"),
        (["list-operators"], b"unknown command `list-operators`"),
        (["compile"], b"one input file is needed, not 0"),
        (["compile", "a", "b"], b"not 2: a b"),
        (["compile", "module.mlir", "--target", "gpu"], b"`gpu` is no value of option `--target`"),
        (["compile", "module.mlir", "-O9"], b"`9` is no value of option `-O`"),
        (["compile", "module.mlir", "--output"], b"option `--output` needs a value"),
    ],
)
def test_wrong_command_line_is_code_2_with_a_hint(cc, tmp_path, words, says):
    done = cc(*words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert says in done.stderr
    assert b"\nhint: " in done.stderr
    assert files(tmp_path) == {"module.mlir"}


@pytest.mark.parametrize("path", ["absent.mlir", "."])
def test_unreadable_input_is_code_66(cc, path):
    done = cc("compile", path)
    assert done.returncode == 66
    assert f"[ERROR] the input `{path}` cannot be read: ".encode() in done.stderr


def test_bad_program_is_code_70_and_leaves_no_output(cc, tmp_path):
    (tmp_path / "file.neff").write_bytes(b"old")
    done = cc("compile", "-", stdin=b"rubbish")
    assert done.returncode == 70
    assert done.stderr.startswith(b"[ERROR] [NCC_ESIM001] the program cannot be read")
    assert b"rubbish" in done.stderr
    assert (tmp_path / "file.neff").read_bytes() == b"old"


def test_compiler_crash_is_code_70(cc, tmp_path):
    done = cc("compile", "-", stdin=b"module {" * 100_000)
    assert done.returncode == 70
    assert done.stderr.startswith(b"[INTERNAL_ERROR] [NCC_ISIM003] the compiler died: signal SIGSEGV")
    assert files(tmp_path) == {"module.mlir"}


@pytest.mark.parametrize("output", ["absent/x.neff", ".", "/dev/full"])
def test_unwritable_output_is_code_73(cc, tmp_path, output):
    done = cc("compile", "module.mlir", "--output", output)
    assert done.returncode == 73
    assert f"[ERROR] the output `{output}` ".encode() in done.stderr
    assert files(tmp_path) == {"module.mlir"}


def test_disk_full_leaves_neither_a_part_nor_the_old_file_changed(cc, tmp_path):
    import resource

    (tmp_path / "file.neff").write_bytes(b"old")
    # Python ignores SIGXFSZ, so the write that passes the limit fails as one on a full disk does.
    done = cc("compile", "module.mlir", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    assert done.returncode == 73
    assert files(tmp_path) == {"module.mlir", "file.neff"}
    assert (tmp_path / "file.neff").read_bytes() == b"old"


def test_output_goes_through_links_and_to_devices(cc, tmp_path):
    (tmp_path / "real.neff").write_bytes(b"old")
    (tmp_path / "link.neff").symlink_to("real.neff")
    assert cc("compile", "module.mlir", "--output", "link.neff").returncode == 0
    assert (tmp_path / "link.neff").is_symlink()
    assert read_neff((tmp_path / "real.neff").read_bytes()).manifest
    assert cc("compile", "module.mlir", "--output", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()


def test_output_has_the_callers_mode(cc, tmp_path):
    assert cc("compile", "module.mlir", umask=0o027).returncode == 0
    assert (tmp_path / "file.neff").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_ended_mid_compile_leaves_no_output_and_no_worker(tmp_path, busy, gone, until, number, code):
    (tmp_path / "long.mlir").write_bytes(chain(2000))
    with subprocess.Popen(
        [*COMMAND, "compile", "long.mlir"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until(lambda: children.read_text().split(), "the worker to start")
        worker = int(children.read_text().split()[0])
        until(busy(worker), "the worker to compile")
        process.send_signal(number)
        assert process.wait(20) == code
    until(lambda: gone(worker), "the worker to go")
    assert files(tmp_path) == {"long.mlir"}
