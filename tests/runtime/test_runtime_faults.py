"""What is left when somebody dies: real processes, kill -9, and races."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from runtime_kit import DEADLINE_S, Runtime, descendants, go_on, line, process_alive, wait_until

from neuron_runtime.tools.snapshot import take_snapshot

HOLD = """
    nrt.current_runtime()
    say("holds", nrt.current_runtime().executor_pid)
    input()
"""


def long_execution(seconds: int = 60) -> str:
    """A client that is in the middle of an execution that lasts for minutes once it says so."""
    return f"""
        slow = nrt.NrtpyModel.load_from_neff(NEFFS / "slow.neff")
        x = nrt.NrtpyTensor.from_numpy(np.ones((256, 256), np.float32))
        warm = nrt.NrtpyTensor.from_numpy(np.array(1, np.int32))
        slow(inputs={{"input0": x, "input1": warm}})["output0"].numpy()
        rounds = nrt.NrtpyTensor.from_numpy(np.array({seconds} * 10_000, np.int32))
        result = slow(inputs={{"input0": x, "input1": rounds}})["output0"]
        say("executing", nrt.current_runtime().executor_pid)
        try:
            result.numpy()
        except nrt.NrtError as error:
            say(error)
        input()
    """


def test_client_killed_mid_execution_gives_cores_and_memory_back(runtime: Runtime) -> None:
    client = runtime.start(long_execution())
    executor = int(line(client).split()[1])
    assert set(runtime.owners().values()) == {client.pid}
    client.kill()
    wait_until(lambda: not process_alive(executor), "the executor to end with its client")
    wait_until(lambda: not runtime.owners(), "the cores to be free")
    runtime.run("assert nrt.current_runtime().visible_cores == (0, 1, 2, 3)")


def test_the_next_process_gets_the_cores_of_one_that_has_just_ended(runtime: Runtime) -> None:
    for _ in range(3):
        runtime.run("assert len(nrt.current_runtime().visible_cores) == 4; os._exit(0)")


def test_executor_killed_is_unrecoverable_for_its_client_and_unseen_by_others(runtime: Runtime) -> None:
    victim = runtime.start(long_execution(), NEURON_RT_VISIBLE_CORES="0")
    other = runtime.start(
        """
        model = nrt.NrtpyModel.load_from_neff(NEFFS / "add.neff")
        x = nrt.NrtpyTensor.from_numpy(np.ones((64, 64), np.float32))
        say("ready")
        input()
        assert (model(inputs={"input0": x, "input1": x})["output0"].numpy() == 2).all()
        say("computed")
        """,
        NEURON_RT_VISIBLE_CORES="1-2",
    )
    assert line(other) == "ready"
    executor = int(line(victim).split()[1])
    os.kill(executor, signal.SIGKILL)
    said = line(victim)
    assert said == (
        f"NRT Error NRT_EXEC_UNIT_UNRECOVERABLE(101): the executor of this process (pid {executor}) has ended"
    )
    assert runtime.owners()[0] == victim.pid, "a process keeps its cores until it lets go of them"
    go_on(other)
    assert line(other) == "computed"


def test_a_client_whose_executor_died_goes_on_after_reset(runtime: Runtime) -> None:
    runtime.run(
        """
        import signal
        os.kill(nrt.current_runtime().executor_pid, signal.SIGKILL)
        try:
            nrt.NrtpyModel.load_from_neff(NEFFS / "add.neff")
        except nrt.NrtError as error:
            assert error.status is nrt.NrtStatus.EXEC_UNIT_UNRECOVERABLE, error
        else:
            raise AssertionError("loaded on a dead executor")
        nrt.reset()
        model = nrt.NrtpyModel.load_from_neff(NEFFS / "add.neff")
        x = nrt.NrtpyTensor.from_numpy(np.ones((64, 64), np.float32))
        assert (model(inputs={"input0": x, "input1": x})["output0"].numpy() == 2).all()
        """
    )


def test_daemon_killed_takes_its_executors_along_and_the_next_client_starts_another(runtime: Runtime) -> None:
    client = runtime.start(long_execution())
    line(client)
    daemon = runtime.snapshot()["pid"]
    family = descendants(daemon)
    assert len(family) >= 2, "a zygote and an executor"
    os.kill(daemon, signal.SIGKILL)
    assert line(client) == "NRT Error NRT_CLOSED(14): the runtime daemon has ended"
    wait_until(lambda: not any(map(process_alive, family)), f"no orphan among {family}")
    assert runtime.paths.socket.exists(), "kill -9 leaves the socket file; the next daemon must cope"
    runtime.run("assert nrt.current_runtime().visible_cores == (0, 1, 2, 3)")
    assert runtime.snapshot()["pid"] != daemon


def test_zygote_killed_is_replaced(runtime: Runtime) -> None:
    runtime.run("nrt.current_runtime()")
    daemon = runtime.snapshot()["pid"]
    (zygote,) = (p for p in descendants(daemon) if "zygote" in _command(p) and _parent(p) == daemon)
    os.kill(zygote, signal.SIGKILL)
    wait_until(lambda: not process_alive(zygote), "the zygote to end")
    runtime.run("assert nrt.current_runtime().visible_cores == (0, 1, 2, 3)")
    assert runtime.snapshot()["pid"] == daemon


def test_a_forked_child_that_outlives_the_client_does_not_hold_its_cores(runtime: Runtime) -> None:
    client = runtime.start(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        nrt.current_runtime()
        child = os.fork()
        if child == 0:
            os.close(1); os.close(2)
            time.sleep(60)
            os._exit(0)
        say(child)
        input()
        """
    )
    child = int(line(client))
    try:
        client.kill()
        client.wait()
        wait_until(lambda: not runtime.owners(), "the cores to be free although the child holds the socket")
        assert process_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_cores_held_by_another_process_are_refused_with_its_words(runtime: Runtime) -> None:
    holder = runtime.start(HOLD, NEURON_RT_VISIBLE_CORES="0-2")
    line(holder)
    said = runtime.run(
        """
        try:
            nrt.current_runtime()
        except nrt.NrtError as error:
            say(error.status.label, error.detail)
            say(error.hint)
        """
    )
    assert said.startswith("NRT_RESOURCE NeuronCore(s) not available - Requested:nc0-nc3 Available:1\n")
    assert "NEURON_RT_VISIBLE_CORES" in said
    runtime.run("assert nrt.current_runtime().visible_cores == (3,)", NEURON_RT_NUM_CORES="1")


def test_a_stalled_execution_times_out_and_the_client_lives(runtime: Runtime) -> None:
    client = runtime.start(long_execution(), NEURON_RT_EXEC_TIMEOUT="1")
    line(client)
    said = line(client)
    assert said == "NRT Error NRT_TIMEOUT(5): no command ended on this NeuronCore for 1 s"


def test_two_daemons_racing_for_one_socket_leave_one(runtime: Runtime) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-m", "neuron_runtime.daemon"], env=runtime.environ, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    try:
        wait_until(lambda: sum(r.poll() is None for r in racers) == 1, "all but one to give up")
        losers = [r for r in racers if r.poll() is not None]
        assert {r.returncode for r in losers} == {3}
        for loser in losers:
            assert loser.stderr is not None
            assert b"already serves" in loser.stderr.read()
        (winner,) = (r for r in racers if r.poll() is None)
        wait_until(lambda: take_snapshot(runtime.paths), "the winner to answer")
        assert runtime.snapshot()["pid"] == winner.pid
    finally:
        for racer in racers:
            racer.terminate()
            racer.communicate(timeout=DEADLINE_S)


def test_clients_that_start_together_share_one_daemon_they_started(runtime: Runtime) -> None:
    clients = [runtime.start(HOLD, NEURON_RT_NUM_CORES="1") for _ in range(4)]
    for client in clients:
        assert line(client).startswith("holds")
    assert sorted(runtime.owners()) == [0, 1, 2, 3]
    assert len(set(runtime.owners().values())) == 4


@pytest.mark.parametrize("what", ["socket", "file"])
def test_a_stale_socket_does_not_block_the_start(runtime: Runtime, what: str) -> None:
    runtime.paths.prepare()
    if what == "socket":
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
            dead.bind(str(runtime.paths.socket))
    else:
        runtime.paths.socket.write_text("not a socket")
    runtime.run("nrt.current_runtime()")


def test_garbage_on_the_control_socket_disturbs_nobody(runtime: Runtime) -> None:
    holder = runtime.start(HOLD)
    line(holder)
    for garbage in (b"\0" * 100, b"{", b"[]", b'{"verb": "init"}', b'{"protocol": 1, "verb": "init", "visible": [-1]}'):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
            end.connect(str(runtime.paths.socket))
            end.settimeout(DEADLINE_S)
            end.send(garbage)
            answer = end.recv(1 << 16)
            assert not answer or b'"error"' in answer
    assert set(runtime.owners().values()) == {holder.pid}


@pytest.mark.timeout(300)
def test_sixty_four_clients_at_once_each_compute_on_a_core_of_their_own(runtime: Runtime) -> None:
    runtime.environ["NEURON_ENV_INSTANCE_TYPE"] = "trn2.48xlarge"
    program = """
        model = nrt.NrtpyModel.load_from_neff(NEFFS / "add.neff")
        me = float(os.environ["RANK"])
        x = nrt.NrtpyTensor.from_numpy(np.full((64, 64), me, np.float32))
        for _ in range(20):
            assert (model(inputs={"input0": x, "input1": x})["output0"].numpy() == 2 * me).all()
        say(nrt.current_runtime().visible_cores[0])
        input()
    """
    clients = [runtime.start(program, NEURON_RT_NUM_CORES="1", RANK=str(rank)) for rank in range(64)]
    cores = {int(line(client)) for client in clients}
    assert cores == set(range(64))
    daemon = runtime.snapshot()["pid"]
    for client in clients:
        client.kill()
    wait_until(lambda: not runtime.owners(), "all cores to be free")
    wait_until(lambda: len(descendants(daemon)) <= 2, "only the zygote and one warm executor to be left")


def test_an_idle_runtime_stops_and_leaves_no_socket(runtime: Runtime) -> None:
    runtime.environ["NEURON_ENV_RUNTIME_IDLE_TIMEOUT"] = "1"
    runtime.run("nrt.current_runtime()")
    wait_until(lambda: not runtime.paths.socket.exists(), "the daemon to stop when idle")


def test_sigterm_ends_the_daemon_and_its_family(runtime: Runtime) -> None:
    client = runtime.start(HOLD)
    line(client)
    daemon = runtime.snapshot()["pid"]
    family = descendants(daemon)
    os.kill(daemon, signal.SIGTERM)
    wait_until(lambda: not any(map(process_alive, [daemon, *family])), "daemon, zygote and executors to end")
    assert not runtime.paths.socket.exists()


def test_a_runtime_directory_that_others_may_enter_is_refused(runtime: Runtime) -> None:
    runtime.paths.directory.chmod(0o777)
    said = runtime.run(
        """
        try:
            nrt.current_runtime()
        except Exception as error:
            say(error)
        """
    )
    assert "is not private" in said
    runtime.paths.directory.chmod(0o700)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
