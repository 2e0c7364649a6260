"""What is no compile, or is not to be cached, reaches the real compiler as if there were no launcher."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launcher_kit import COMPILE, LINE, ROOT, Host

from cache_server.launcher.shim import is_shim

TELL = """echo "pid $$ in $PWD"; for word in "$@"; do echo "<$word>"; done; cat; echo told >&2"""


def pass_on(host: Host, body: str) -> None:
    """A compiler that treats every command alike, `--version` included."""
    (host.real / "neuronx-cc").write_text(f"#!/bin/sh\n{body}\n")


@pytest.mark.parametrize("words", [["--version"], ["list-operators", "--framework", "XLA"], ["compile", "--help"], []])
def test_other_commands_run_in_the_same_process_with_the_same_streams(host: Host, words: list[str]) -> None:
    pass_on(host, TELL)
    process = host.start(*words, "two words", "", "*", stdin=subprocess.PIPE)
    stdout, stderr = process.communicate("from stdin\n", timeout=60)
    expected = [f"pid {process.pid} in {host.work}", *(f"<{word}>" for word in [*words, "two words", "", "*"])]
    assert stdout.splitlines() == [*expected, "from stdin"]
    assert stderr == "told\n"
    assert process.returncode == 0


@pytest.mark.parametrize("status", [0, 1, 70, 126, 255])
def test_the_status_is_passed_on(host: Host, status: int) -> None:
    pass_on(host, f"exit {status}")
    assert host.run("--version").returncode == status


@pytest.mark.parametrize("words", [["--version"], COMPILE])
def test_a_compiler_that_a_signal_kills_is_seen_so(host: Host, words: list[str]) -> None:
    host.compiler("kill -SEGV $$")
    if words != COMPILE:
        pass_on(host, "kill -SEGV $$")
    assert host.run(*words).returncode == -signal.SIGSEGV


def test_off_goes_straight_to_the_compiler(host: Host) -> None:
    for _ in range(2):
        assert host.run(*COMPILE, env={"NEURON_ENV_LAUNCHER": "off"}).returncode == 0
    assert len(host.compiles) == 2
    assert not Path(host.store).exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--workdir", "intermediate"],
        ["--dump=somewhere"],
        ["--pipeline", "compile SaveTemps"],
        ["--tensorizer-options=--dump-to=x"],
    ],
)
def test_options_that_write_files_nobody_can_name_are_not_cached(host: Host, words: list[str]) -> None:
    for _ in range(2):
        done = host.run(*COMPILE, *words)
        assert done.returncode == 0
        assert done.stderr.count("not cached") == 1
    assert len(host.compiles) == 2


@pytest.mark.parametrize(
    "setting",
    [
        {"NEURON_CC_FLAGS": "--no_cache"},
        {"TORCH_NEURONX_NEFF_DISABLE_CACHE": "1"},
        {"TORCH_NEURONX_DISABLE_NEFF_CACHE": "1"},
    ],
)
def test_the_vendors_switches_hold(host: Host, setting: dict[str, str]) -> None:
    host.settings = setting
    for _ in range(2):
        assert host.run(*COMPILE).returncode == 0
    assert len(host.compiles) == 2


def test_the_next_compiler_is_found_behind_stacked_and_linked_launchers(host: Host, tmp_path: Path) -> None:
    other = Host(tmp_path / "other")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "neuronx-cc").symlink_to(host.bin / "neuronx-cc")
    (host.root / "nothing").mkdir()
    (host.root / "nothing" / "neuronx-cc").write_text("not executable")
    host.path = [linked, host.bin, host.root / "nothing", other.bin, host.bin, host.real]
    assert host.run(*COMPILE).returncode == 0
    assert len(host.compiles) == 1
    found = host.run(env={"NEURON_ENV_LAUNCHER": "which"}).stdout
    assert found == f"{host.real / 'neuronx-cc'}\n"


def test_a_relative_directory_on_path_is_one_of_the_callers_directory(host: Host) -> None:
    host.path = [host.bin, Path("../real")]
    done = host.run(*COMPILE)
    assert done.returncode == 0, done.stderr
    assert len(host.compiles) == 1


def test_a_wrapper_that_looks_on_path_again_ends_at_the_real_compiler(host: Host, tmp_path: Path) -> None:
    wrappers = tmp_path / "wrappers"
    wrappers.mkdir()
    (wrappers / "neuronx-cc").write_text('#!/bin/sh\nexec neuronx-cc "$@"\n')
    (wrappers / "neuronx-cc").chmod(0o755)
    host.path = [host.bin, wrappers, host.real]
    assert host.run("--version").stdout.startswith("NeuronX Compiler version 2.28")
    assert host.run(*COMPILE).returncode == 0
    host.path = [host.bin, wrappers]
    done = host.run("--version")
    assert done.returncode == 127
    assert "again and again" in done.stderr


def test_without_a_real_compiler_the_message_says_so(host: Host) -> None:
    host.path = [host.bin]
    done = host.run(*COMPILE)
    assert done.returncode == 127
    assert "no other neuronx-cc on PATH" in done.stderr


def test_a_launcher_whose_interpreter_is_gone_still_compiles(host: Host) -> None:
    file = host.bin / "neuronx-cc"
    text = file.read_text()
    file.write_text("\n".join("python=/gone/python" if it.startswith("python=") else it for it in text.split("\n")))
    assert host.run(*COMPILE).returncode == 0
    file.write_text("\n".join("packages=/gone" if line.startswith("packages=") else line for line in text.split("\n")))
    done = host.run(*COMPILE)
    assert done.returncode == 0
    assert "cannot be loaded, so nothing is cached" in done.stderr
    assert len(host.compiles) == 2


@pytest.mark.parametrize(
    "setting",
    [
        {"NEURON_ENV_CACHE_LEASE_SECONDS": "soon"},
        {"NEURON_ENV_CACHE_URL": "gopher://nowhere"},
        {"NEURON_ENV_CACHE_URL": "/proc/no/store", "NEURON_ENV_CACHE_LOCAL_DIR": "/proc/no/tier"},
        {"NEURON_ENV_CACHE_URL": "http://127.0.0.1:9", "NEURON_ENV_CACHE_BUDGET_SECONDS": "0.1"},
    ],
)
def test_a_cache_that_does_not_work_fails_no_compile(host: Host, setting: dict[str, str]) -> None:
    host.settings = setting
    done = host.run(*COMPILE)
    assert done.returncode == 0
    assert "neuron-env launcher: " in done.stderr
    assert host.neff()
    assert len(host.compiles) == 1


def test_a_compiler_without_a_version_is_not_cached(host: Host) -> None:
    host.compiler("neff")
    file = host.real / "neuronx-cc"
    file.write_text(file.read_text().replace("NeuronX Compiler version", "hello"))
    done = host.run(*COMPILE)
    assert done.returncode == 0
    assert "said no version: hello" in done.stderr


def test_the_interpreter_takes_nothing_from_the_callers_directory_or_environment(host: Host) -> None:
    for name in ("json.py", "cache_server.py", "sitecustomize.py"):
        (host.work / name).write_text("raise SystemExit('imported from the working directory')")
    for _ in range(2):
        done = host.run(*COMPILE, env={"PYTHONPATH": str(host.work), "PYTHONHOME": "/nowhere"})
        assert (done.returncode, done.stderr) == (0, "")
    assert len(host.compiles) == 1


def test_a_missing_input_is_the_compilers_to_complain_of(host: Host) -> None:
    host.compiler("echo 'no such input' >&2; exit 66")
    done = host.run("compile", "nowhere.mlir", *LINE)
    assert (done.returncode, done.stderr) == (66, "no such input\n")


def test_install_and_uninstall_touch_launchers_only(host: Host, tmp_path: Path) -> None:
    def neuron_env(*words: str, path: list[Path]) -> subprocess.CompletedProcess[str]:
        host.path = path
        environment = {**host.environment, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "cli.main", "launcher", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    place = tmp_path / "a place"
    done = neuron_env("install", "--dir", str(place), path=[host.real])
    assert done.returncode == 0, done.stderr
    assert f"export PATH='{place}':$PATH" in done.stdout
    assert is_shim(place / "neuronx-cc")
    done = neuron_env("status", "--dir", str(place), path=[host.real])
    assert done.returncode == 1
    assert "PATH does not lead to the launcher" in done.stdout
    done = neuron_env("status", "--dir", str(place), path=[place, host.real])
    assert done.returncode == 0, done.stdout
    assert "neuronx-cc 2.28.7631.0+9a1c2d3e" in done.stdout
    refused = neuron_env("install", "--dir", str(host.real), path=[host.real])
    assert refused.returncode == 1
    assert "is not replaced" in refused.stderr
    assert neuron_env("uninstall", "--dir", str(host.real), path=[]).returncode == 1
    assert neuron_env("uninstall", "--dir", str(place), path=[]).returncode == 0
    assert not (place / "neuronx-cc").exists()
    assert (host.real / "neuronx-cc").exists()
