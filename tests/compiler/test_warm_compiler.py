"""The warm worker: reused while it lives, replaced when it dies, each failure named for what it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from compiler_programs import ADD, ROOT, chain

from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.options import CompileOptions
from neuron_runtime.compiler.warm import WarmCompiler
from neuron_runtime.neff import read_neff

# Compiles for tens of seconds, so that whatever happens meanwhile happens in the middle of it.
LONG = chain(2000)


@pytest.fixture
def compiling(busy, until):
    """Start compiling LONG in a thread; returns when the worker is at work, with its pid and the failure to come."""
    threads = []

    def start(compiler: WarmCompiler, **arguments) -> tuple[int, list[CompileFailure]]:
        compiler.start()
        failures: list[CompileFailure] = []

        def run() -> None:
            try:
                compiler.compile(LONG, **arguments)
            except CompileFailure as failure:
                failures.append(failure)

        pid = compiler.worker_pid
        at_work = busy(pid)
        threads.append(threading.Thread(target=run))
        threads[-1].start()
        until(at_work, "the worker to compile")
        return pid, failures

    def join() -> None:
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()

    start.join = join
    yield start
    join()


def test_worker_is_reused(warm):
    first = warm.compile(ADD, name="one")
    pid = warm.worker_pid
    second = warm.compile(ADD, CompileOptions(target="trn3"), native=False)
    assert warm.worker_pid == pid
    assert read_neff(first.neff).manifest == first.manifest
    assert (first.manifest.name, second.manifest.target) == ("one", "trn3")
    assert first.manifest.native
    assert second.manifest.native is None


def test_name_that_no_neff_can_have_is_refused_at_once():
    with WarmCompiler() as compiler, pytest.raises(ValueError, match="no name for a NEFF"):
        compiler.compile(ADD, name="two\nlines")
    assert compiler.worker_pid is None


def test_warnings_come_back(warm):
    done = warm.compile(ADD, CompileOptions.parse("--not-there 1"), native=False)
    (warning,) = done.warnings
    assert "--not-there=1" in warning


def test_bad_program_is_a_compiler_error_and_keeps_the_worker(warm):
    warm.start()
    pid = warm.worker_pid
    with pytest.raises(CompileFailure, match="rubbish") as error:
        warm.compile(b"rubbish")
    assert error.value.kind is FailureKind.COMPILER_ERROR
    assert warm.worker_pid == pid


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL], ids=lambda n: n.name)
def test_worker_killed_mid_compile(warm, compiling, number):
    pid, failures = compiling(warm)
    os.kill(pid, number)
    compiling.join()
    (failure,) = failures
    assert failure.kind is FailureKind.KILLED
    assert number.name in failure.message
    assert failure.exit_code == -number
    assert warm.compile(ADD).neff
    assert warm.worker_pid not in (None, pid)


def test_program_that_overflows_the_parsers_stack(warm):
    with pytest.raises(CompileFailure, match="SIGSEGV") as error:
        warm.compile(b"module {" * 100_000)
    assert error.value.kind is FailureKind.KILLED
    assert warm.compile(ADD).neff


@pytest.mark.parametrize("rubbish", range(5))
def test_random_bytes_never_reach_the_caller_as_a_crash(warm, rubbish):
    data = (
        os.urandom(5000),
        b"ML\xefR" + os.urandom(5000),
        b"ML\xefR\rStableHLO_v1.17.0\x00" + os.urandom(5000),
        b"\n\x04main" + os.urandom(5000),
        ADD[:-30] + os.urandom(50),
    )[rubbish]
    with pytest.raises(CompileFailure) as error:
        warm.compile(data)
    assert error.value.kind in (FailureKind.COMPILER_ERROR, FailureKind.KILLED, FailureKind.OUT_OF_MEMORY)
    assert warm.compile(ADD).neff


def test_compile_that_takes_too_long_is_killed(warm, gone, until):
    warm.start()
    pid = warm.worker_pid
    with pytest.raises(CompileFailure, match=r"longer than 0\.5 s") as error:
        warm.compile(LONG, timeout=0.5)
    assert error.value.kind is FailureKind.TIMEOUT
    until(lambda: gone(pid), "the worker to go")
    assert warm.compile(ADD).neff


@pytest.mark.parametrize("program", [ADD, ADD + b" " * (4 << 20)], ids=["small", "fills the pipe"])
def test_worker_that_hangs_is_killed_at_the_timeout(warm, program):
    warm.start()
    os.kill(warm.worker_pid, signal.SIGSTOP)
    with pytest.raises(CompileFailure) as error:
        warm.compile(program, timeout=0.3)
    assert error.value.kind is FailureKind.TIMEOUT
    assert warm.compile(program).neff


def test_waiting_for_another_threads_compile_counts_as_time(warm, compiling):
    pid, failures = compiling(warm)
    with pytest.raises(CompileFailure, match="busy") as error:
        warm.compile(ADD, timeout=0.2)
    assert error.value.kind is FailureKind.TIMEOUT
    os.kill(pid, signal.SIGKILL)
    compiling.join()
    assert failures[0].kind is FailureKind.KILLED


def test_program_beyond_the_memory_limit():
    count = 40_000_000
    program = (
        f"func.func @main() -> tensor<{count}xi8> {{"
        f' %0 = stablehlo.constant dense<"0x{"01" * count}"> : tensor<{count}xi8> return %0 : tensor<{count}xi8> }}'
    ).encode()
    with WarmCompiler(memory_limit=64 << 20) as compiler:
        for _ in range(2):
            with pytest.raises(CompileFailure, match="ran out of memory") as error:
                compiler.compile(program)
            assert error.value.kind is FailureKind.OUT_OF_MEMORY
            assert compiler.compile(ADD).neff


def test_compile_beyond_the_memory_limit():
    with WarmCompiler(memory_limit=4 << 20) as compiler, pytest.raises(CompileFailure) as error:
        compiler.compile(chain(400))
    assert error.value.kind is FailureKind.OUT_OF_MEMORY
    assert error.value.stderr


def test_memory_limit_is_a_positive_number():
    with pytest.raises(ValueError, match="-1 bytes"):
        WarmCompiler(memory_limit=-1)


def test_idle_worker_that_died_is_replaced_without_a_failure(warm, until):
    warm.start()
    os.kill(warm.worker_pid, signal.SIGKILL)
    until(lambda: warm.worker_pid is None, "the worker to go")
    assert warm.compile(ADD).neff


def test_worker_that_cannot_start_is_the_environments_fault(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with WarmCompiler() as compiler, pytest.raises(CompileFailure, match="cannot be started") as error:
        compiler.compile(ADD)
    assert error.value.kind is FailureKind.ENVIRONMENT


def test_absent_jaxlib_is_the_environments_fault(monkeypatch, tmp_path):
    (tmp_path / "jaxlib.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with WarmCompiler() as compiler, pytest.raises(CompileFailure, match="not here") as error:
        compiler.compile(ADD)
    assert error.value.kind is FailureKind.ENVIRONMENT
    assert "pip install" in error.value.hint


def test_modules_in_the_working_directory_are_not_imported(monkeypatch, tmp_path):
    (tmp_path / "jaxlib.py").write_text("raise ImportError('from the working directory')")
    monkeypatch.chdir(tmp_path)
    with WarmCompiler() as compiler:
        assert compiler.compile(ADD).neff


def test_threads_share_one_worker(warm):
    with ThreadPoolExecutor(4) as pool:
        names = [f"graph{i}" for i in range(12)]
        done = list(pool.map(lambda name: warm.compile(ADD, name=name, native=False), names))
    assert [d.manifest.name for d in done] == names


def test_close_ends_the_worker_and_gives_everything_back(gone, until):
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    compiler = WarmCompiler()
    compiler.compile(ADD, native=False)
    pid = compiler.worker_pid
    assert descriptors() > before
    compiler.close()
    assert gone(pid)
    assert compiler.worker_pid is None
    assert descriptors() == before
    compiler.close()
    compiler.compile(ADD, native=False)
    pid = compiler.worker_pid
    del compiler
    until(lambda: gone(pid), "the worker of a forgotten compiler to go")
    assert descriptors() == before


CALLER = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from compiler_programs import chain
from neuron_runtime.compiler.warm import WarmCompiler
compiler = WarmCompiler()
thread = threading.Thread(target=compiler.start)
thread.start()
thread.join()
print(compiler.worker_pid, flush=True)
compiler.compile(chain(2000))
"""


@pytest.mark.parametrize("stopped", [False, True], ids=["busy", "stopped"])
def test_caller_killed_mid_compile_leaves_no_orphan(busy, gone, until, stopped):
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, str(Path(__file__).parent)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    ) as caller:
        worker = int(caller.stdout.readline())
        until(busy(worker), "the worker to compile")
        if stopped:
            os.kill(worker, signal.SIGSTOP)
        caller.kill()
        until(lambda: gone(worker), "the orphaned worker to go", 5)


def test_worker_outlives_the_thread_that_started_it(warm):
    warm.close()
    thread = threading.Thread(target=warm.start)
    thread.start()
    thread.join()
    pid = warm.worker_pid
    assert warm.compile(ADD).neff
    assert warm.worker_pid == pid


def test_forked_child_gets_a_worker_of_its_own(run_script):
    run_script(
        """
import os, sys
sys.path.insert(0, sys.argv[1])
from compiler_programs import ADD
from neuron_runtime.compiler.warm import WarmCompiler
with WarmCompiler() as compiler:
    compiler.start()
    pid = compiler.worker_pid
    child = os.fork()
    if not child:
        assert compiler.worker_pid is None
        compiler.compile(ADD)
        assert compiler.worker_pid not in (None, pid)
        compiler.close()
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compiler.worker_pid == pid
    compiler.compile(ADD)
    assert compiler.worker_pid == pid
""",
        str(Path(__file__).parent),
    )


def test_interrupted_compile_is_given_up(run_script):
    """Ctrl-C in the middle must not leave a reply behind that the next compile would take for its own."""
    run_script(
        """
import signal, sys
sys.path.insert(0, sys.argv[1])
from compiler_programs import ADD, chain
from neuron_runtime.compiler.warm import WarmCompiler
with WarmCompiler() as compiler:
    compiler.start()
    long = chain(2000)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        compiler.compile(long)
    except KeyboardInterrupt:
        pass
    else:
        raise SystemExit("not interrupted")
    assert compiler.worker_pid is None
    assert compiler.compile(ADD, name="after").manifest.name == "after"
""",
        str(Path(__file__).parent),
    )
