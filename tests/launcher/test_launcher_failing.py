"""Compilers that behave badly: what their caller sees, what is remembered, and what is left behind."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
from launcher_kit import COMPILE, GRAPH, Host, gone, neff_bytes, until

from cache_server.launcher.verdict import judge
from neuron_runtime.compiler.errors import FailureKind

ERROR = "echo '2026-12-01T00:00:00Z ERROR [NCC_EVRF009] the graph needs an operator that is not there' >&2; exit 70"


def nothing_is_held(host: Host) -> None:
    """No lease outlives a launcher: the next compile begins at once, without a takeover."""
    host.compiler("neff")
    done = host.run(*COMPILE)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("status", [1, 2, 70, 126, 127, 137, 255])
def test_every_status_comes_through_and_is_not_remembered_without_an_error_of_the_program(
    host: Host, status: int
) -> None:
    host.compiler(f"echo progress; echo 'what went wrong' >&2; exit {status}")
    for _ in range(2):
        done = host.run(*COMPILE)
        assert (done.returncode, done.stdout, done.stderr) == (status, "progress\n", "what went wrong\n")
    assert len(host.compiles) == 2
    nothing_is_held(host)


def test_an_error_of_the_program_is_remembered_with_text_status_and_origin(host: Host, tmp_path: Path) -> None:
    host.compiler(ERROR)
    first = host.run(*COMPILE)
    assert first.returncode == 70
    other = Host(tmp_path / "other", store=host.store)
    again = other.run(*COMPILE)
    assert again.returncode == 70
    assert first.stderr in again.stderr
    assert "this graph failed to compile" in again.stderr
    assert "NEURON_ENV_CACHE_RETRY_FAILURES" in again.stderr
    assert other.compiles == []
    other.compiler("neff")
    assert other.run(*COMPILE, "--retry_failed_compilation").returncode == 0
    assert other.neff() == neff_bytes()


def test_all_who_wait_for_a_compile_that_fails_get_its_error(host: Host) -> None:
    host.compiler(f'until [ -e "$here/go" ]; do sleep 0.05; done; {ERROR}')
    started = [host.start(*COMPILE, cwd=host.directory(f"rank-{rank}")) for rank in range(4)]
    until(lambda: host.compiles, "a compile")
    (host.root / "go").touch()
    for process in started:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 70
        assert "NCC_EVRF009" in stderr
    assert len(host.compiles) == 1


@pytest.mark.parametrize(
    ("status", "stderr", "kind"),
    [
        (70, "[ERROR] [NCC_EVRF009] no such operator", FailureKind.COMPILER_ERROR),
        (1, "x: NCC_EOOM001 the program needs more than the device's memory", FailureKind.COMPILER_ERROR),
        (70, "[INTERNAL_ERROR] [NCC_IBTN006] assertion", FailureKind.ENVIRONMENT),
        (70, "", FailureKind.ENVIRONMENT),
        (70, "[F137] neuronx-cc was forcibly killed", FailureKind.OUT_OF_MEMORY),
        (70, "[NCC_EVRF009]\nMemoryError", FailureKind.OUT_OF_MEMORY),
        (70, "[NCC_EXXX001]\nOSError: [Errno 28] No space left on device", FailureKind.ENVIRONMENT),
        (1, "ImportError: libfoo.so", FailureKind.ENVIRONMENT),
        (2, "usage: [NCC_EARG001]", FailureKind.ENVIRONMENT),
        (127, "", FailureKind.ENVIRONMENT),
        (124, "[NCC_EVRF009]", FailureKind.TIMEOUT),
        (137, "[NCC_EVRF009]", FailureKind.KILLED),
        (-9, "[NCC_EVRF009]", FailureKind.KILLED),
        (70, "[ERROR] [NCC_ESIM001] bad", FailureKind.COMPILER_ERROR),
        (70, "[ERROR] [NCC_ESIM002] memory", FailureKind.ENVIRONMENT),
    ],
)
def test_only_what_is_the_programs_own_fault_counts_as_such(status: int, stderr: str, kind: FailureKind) -> None:
    failure = judge(status, stderr)
    assert failure.kind is kind
    assert failure.exit_code == status


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('head -c 1030 "$here/result.neff" >"$out"', "is no complete NEFF"),
        (': >"$out"', "is no complete NEFF"),
        ("true", "cannot be read"),
    ],
    ids=["truncated", "empty", "missing"],
)
def test_a_result_that_is_none_is_not_kept(host: Host, body: str, why: str) -> None:
    host.compiler(body)
    for _ in range(2):
        done = host.run(*COMPILE)
        assert done.returncode == 0
        assert why in done.stderr
    assert len(host.compiles) == 2
    nothing_is_held(host)


def test_partial_output_of_a_failed_compile_stays_as_it_was_left(host: Host) -> None:
    host.compiler('echo partial >"$out"; exit 70')
    assert host.run(*COMPILE).returncode == 70
    assert host.neff() == b"partial\n"


def test_children_that_hold_the_streams_open_delay_nothing(host: Host) -> None:
    host.compiler('sleep 600 >/dev/null & echo $! >"$here/child"; echo said >&2; neff')
    # A file: whoever holds a pipe keeps its reader waiting, with a launcher or without.
    with (host.root / "stderr").open("w+") as said:
        assert host.run(*COMPILE, stderr=said).returncode == 0
        said.seek(0)
        assert said.read() == "said\n"
    os.kill(int((host.root / "child").read_text()), signal.SIGKILL)
    assert host.neff() == neff_bytes()


def test_both_streams_in_one_keep_their_order(host: Host) -> None:
    host.compiler("for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; done; neff")
    with (host.root / "both").open("w+") as both:
        host.run(*COMPILE, stdout=both, stderr=both)
        both.seek(0)
        assert both.read().split("\n")[:-1] == [f"{name} {i}" for i in range(1, 6) for name in ("out", "err")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_the_compiler_and_what_it_started(host: Host, number: signal.Signals) -> None:
    child = 'trap "touch $0/child-told; exit" TERM USR1; touch $0/ready; while :; do sleep 0.02; done'
    host.compiler(
        f"trap 'touch \"$here/told\"; wait; exit {128 + number}' TERM USR1\n"
        f"sh -c '{child}' \"$here\" &\nwhile :; do sleep 0.02; done"
    )
    process = host.start(*COMPILE)
    host.wait_for("ready")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert (host.root / "told").exists()
    host.wait_for("child-told")
    nothing_is_held(host)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_compiler_that_dies_of_the_signal_is_seen_so(host: Host, number: signal.Signals) -> None:
    host.compiler('touch "$here/ready"; exec sleep 600')
    process = host.start(*COMPILE)
    host.wait_for("ready")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number
    nothing_is_held(host)


def test_a_compiler_that_ignores_the_signal_goes_on_and_is_kept(host: Host) -> None:
    host.compiler('trap \'\' TERM; touch "$here/ready"; until [ -e "$here/go" ]; do sleep 0.02; done; neff')
    process = host.start(*COMPILE)
    host.wait_for("ready")
    process.send_signal(signal.SIGTERM)
    (host.root / "go").touch()
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (0, "")
    host.run(*COMPILE, cwd=host.directory("again"))
    assert len(host.compiles) == 1


def test_kill_9_takes_the_compiler_along_and_the_next_takes_over(host: Host) -> None:
    host.compiler("trap '' TERM INT; touch \"$here/ready\"; while :; do sleep 0.05; done")
    process = host.start(*COMPILE)
    host.wait_for("ready")
    compiler = int(host.compiles[0].split()[0])
    process.kill()
    process.communicate(timeout=60)
    until(lambda: gone(compiler), "the compiler to be gone")
    host.compiler("neff")
    done = host.run(*COMPILE)
    assert done.returncode == 0
    assert "neuron-env launcher: took over module.mlir" in done.stderr


def test_a_signal_ends_a_wait_for_somebody_elses_compile(host: Host) -> None:
    host.compiler('touch "$here/ready"; until [ -e "$here/go" ]; do sleep 0.02; done; neff')
    owner = host.start(*COMPILE)
    host.wait_for("ready")
    for number in (signal.SIGTERM, signal.SIGINT):
        waiter = host.start(*COMPILE, cwd=host.directory(f"waits-{number}"))
        until(lambda: catches(waiter.pid, signal.SIGUSR1), "the waiter to wait")  # noqa: B023 - called at once
        waiter.send_signal(number)
        waiter.communicate(timeout=60)
        assert waiter.returncode == -number
    (host.root / "go").touch()
    owner.communicate(timeout=60)
    assert owner.returncode == 0
    assert len(host.compiles) == 1


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, which the launcher gets before it waits or compiles."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))


def test_a_compiler_that_cannot_write_fails_as_it_does_alone(host: Host) -> None:
    host.compiler('cat "$here/result.neff" "$here/result.neff" >"$out" || exit 70')
    host.result(neff_bytes(bytes(100 << 10)))
    alone = host.run(*COMPILE, env={"NEURON_ENV_LAUNCHER": "off"}, preexec_fn=limited)
    done = host.run(*COMPILE, preexec_fn=limited)
    assert done.returncode == alone.returncode != 0
    nothing_is_held(host)


def test_a_cache_without_room_fails_no_compile(host: Host) -> None:
    """A link is no writing: the output is whole although no process here may write so large a file."""
    whole = host.root / "whole.neff"
    whole.write_bytes(neff_bytes(bytes(200 << 10)))
    host.compiler(f'ln -f "{whole}" "$out"')
    done = host.run(*COMPILE, preexec_fn=limited)
    assert done.returncode == 0
    assert host.neff() == whole.read_bytes()
    assert "File too large" in done.stderr
    assert host.run(*COMPILE).returncode == 0
    assert len(host.compiles) == 2


def test_a_hit_that_cannot_be_written_is_compiled(host: Host) -> None:
    host.run(*COMPILE)
    other = host.directory("elsewhere", GRAPH)
    (other / "module.neff").mkdir()
    host.compiler("echo 'is a directory' >&2; exit 73")
    done = host.run(*COMPILE, cwd=other)
    assert done.returncode == 73
    assert done.stderr.endswith("is a directory\n")


@pytest.mark.fleet
def test_64_launchers_on_8_keys_compile_8_times(host: Host) -> None:
    host.compiler("sleep 0.2; neff")
    graphs = [f"module @m{number} {{}}\n" for number in range(8)]
    places = [host.directory(f"rank-{rank}", graphs[rank % 8]) for rank in range(64)]
    started = [host.start(*COMPILE, cwd=place) for place in places]
    for process, place in zip(started, places, strict=True):
        _, stderr = process.communicate(timeout=100)
        assert process.returncode == 0
        assert all("waiting for the compile of" in line for line in stderr.splitlines()), stderr
        assert host.neff(place) == neff_bytes()
    assert len(host.compiles) == 8
