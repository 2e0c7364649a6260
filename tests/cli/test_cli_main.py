"""The root command: help that imports nothing, exit codes, messages, and streams that fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from cli.lazy import LazyCommand
from cli.main import COMMANDS, root
from cli.version import checkout_commit
from neuron_runtime.errors import NeuronEnvError

Invoke = Callable[..., Result]
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]
ROOT = Path(__file__).resolve().parents[2]

HEAVY = ("jaxlib", "jax", "numpy", "torch", "fsspec", "rich", "asyncio", "yaml", "tarfile", "hashlib", "json")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], str]]:
    """Register a command whose body is the given function; gives its name."""

    def register(body: Callable[[], None]) -> str:
        monkeypatch.setitem(root.commands, "probe", click.command("probe", help="A probe.")(body))
        return "probe"

    return register


@pytest.mark.parametrize("args", [["--help"], ["-h"], ["neff", "--help"]])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    program = (
        "import sys; from cli.main import root\n"
        f"try: root.main({args!r}, prog_name='neuron-env')\n"
        f"except SystemExit: pass\nprint('LOADED', *[m for m in {HEAVY!r} if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Commands:" in run.stdout
    assert run.stdout.splitlines()[-1] == "LOADED"


def test_help_lists_every_command_even_one_that_cannot_be_imported(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(root.lazy, "ghost", LazyCommand("cli.no_such_module:ghost", "Not here."))
    result = invoke("--help")
    assert result.exit_code == 0
    for name, lazy in {**COMMANDS, "ghost": root.lazy["ghost"]}.items():
        assert re.search(rf"^  {name} +{re.escape(lazy.short_help)}$", result.stdout, re.MULTILINE)
    called = invoke("ghost")
    assert called.exit_code == 1
    assert called.stderr.startswith("error: `neuron-env ghost` is not part of this installation\n\nhint: ")


def test_a_command_whose_dependency_is_missing_names_it(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "needs_absent_package.py").write_text("import absent_package\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(root.lazy, "ghost", LazyCommand("needs_absent_package:ghost", "Not here."))
    result = invoke("ghost")
    assert result.exit_code == 1
    assert "needs the package `absent_package`" in result.stderr
    assert "pip install 'neuron-env[sim]'" in result.stderr


def test_version_names_commit_and_simulation(invoke: Invoke) -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert re.fullmatch(r"neuron-env \d+\.\d+\.\d+( \(commit [0-9a-f]+\+?\))?", first)
    assert re.match(r"simulated device \d+\.\d+\.\d+\+sim ", second)


def test_the_commit_is_that_of_the_checkout_and_none_elsewhere(tmp_path: Path) -> None:
    assert checkout_commit(tmp_path) is None
    (tmp_path / ".git").write_text("not a repository")
    assert checkout_commit(tmp_path) is None
    (tmp_path / ".git").unlink()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "file").write_text("1")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    commit = checkout_commit(tmp_path)
    assert commit
    assert head.startswith(commit)
    (tmp_path / "file").write_text("2")
    assert checkout_commit(tmp_path) == commit + "+"


def test_an_error_and_its_hint_go_to_stderr(invoke: Invoke, command: Callable[..., str]) -> None:
    @command
    def name() -> None:
        raise NeuronEnvError("the disk is full", hint="free some room")

    result = invoke("probe")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: the disk is full\n\nhint: free some room\n"


def test_an_unexpected_exception_is_one_line_and_a_way_to_see_more(invoke: Invoke, command: Callable[..., str]) -> None:
    @command
    def name() -> None:
        raise ZeroDivisionError("division by zero\nsecond line")

    result = invoke("probe")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: unexpected failure: ZeroDivisionError: division by zero\n\nhint: ")
    assert "--debug" in result.stderr
    debugged = invoke("--debug", "probe")
    assert "Traceback (most recent call last)" in debugged.stderr
    assert "run again" not in debugged.stderr
    assert invoke("probe", env={"NEURON_ENV_DEBUG": "1"}).stderr == debugged.stderr


def test_an_interrupt_is_130(invoke: Invoke, command: Callable[..., str]) -> None:
    @command
    def name() -> None:
        raise KeyboardInterrupt

    result = invoke("probe")
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr
    assert result.stderr.strip() == "error: interrupted"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["nef"], "there is no command `nef`; did you mean `neff`?"),
        (["zzz"], "there is no command `zzz`"),
        (["--nonsense"], "No such option"),
        (["--color", "sometimes", "neff"], "sometimes"),
        (["neff", "info"], "Missing argument 'FILE'"),
        (["neff", "ls", "a", "b"], "unexpected extra argument"),
    ],
)
def test_usage_errors_are_2_and_point_to_the_help(invoke: Invoke, args: list[str], text: str) -> None:
    result = invoke(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert text in result.stderr
    assert re.search(r"\n\nhint: see `neuron-env.* --help`\n$", result.stderr)


def test_no_command_shows_the_help(invoke: Invoke) -> None:
    result = invoke()
    assert result.exit_code == 2
    assert "Commands:" in result.stderr
    assert "error:" not in result.stderr


def test_completion_lists_commands_without_importing_them(spawn: Spawn) -> None:
    run = spawn(env={"_NEURON_ENV_COMPLETE": "bash_complete", "COMP_WORDS": "neuron-env ", "COMP_CWORD": "1"})
    assert run.returncode == 0
    assert {line.split(b",")[1].decode() for line in run.stdout.splitlines()} >= set(COMMANDS)


def test_a_closed_pipe_is_quiet(neff_file: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        [sys.executable, "-m", "cli.main", "neff", "info", str(neff_file), "--json"],
        cwd=ROOT,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writing)
    assert run.returncode == 1
    assert run.stderr == b""


def test_a_socket_that_breaks_is_not_taken_for_a_closed_pipe(invoke: Invoke, command: Callable[..., str]) -> None:
    @command
    def name() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    result = invoke("probe")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the other side closed the connection\n\nhint: ")


def test_a_full_disk_is_an_error_and_not_silence(spawn: Spawn, neff_file: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        run = spawn("neff", "ls", neff_file, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert run.returncode == 1
    assert run.stderr == b"error: No space left on device\n"


def test_a_part_that_is_not_installed_is_named_with_how_to_get_it(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch_neuronx", None)
    result = invoke("compile", "model.py:factory")
    assert result.exit_code == 1
    assert "error: this command needs the package `torch_neuronx`, which is not installed" in result.stderr
    assert "hint: install torch-neuronx-sim" in result.stderr
