"""Whatever torch-mlir does to its process, the program goes on: the operator runs on the host, with the reason told."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from device_kit import DeviceHost

from neuron_runtime.compiler.errors import CompileFailure, FailureKind

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def hangs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hangs") / "hangs"


@pytest.fixture(scope="module")
def worker(hangs: Path) -> Iterator[Any]:
    from torch_neuronx.worker.worker import LoweringWorker

    with pytest.MonkeyPatch.context() as patch:
        paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("LOWERING_HANGS", str(hangs))
        made = LoweringWorker(timeout=60, module="faulty_lowering")
        yield made
        made.close()


def request(name: str, size: int = 3) -> dict[str, Any]:
    from torch_neuronx.eager.arguments import TensorArgument
    from torch_neuronx.eager.recipes import overload, request_for

    return request_for(overload(name, ""), [TensorArgument(torch.float32, (size,), (1,))])


def when_it_hangs(hangs: Path, act: Callable[[], None]) -> threading.Thread:
    def wait() -> None:
        while not hangs.exists():
            time.sleep(0.005)
        act()

    hangs.unlink(missing_ok=True)
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_crash_of_torch_mlir_is_a_failure_and_the_next_request_gets_a_new_process(worker: Any) -> None:
    with pytest.raises(CompileFailure, match=r"the lowering process died: signal SIG(SEGV|ABRT)") as caught:
        worker.lower_call(request("aten::sin"))
    assert caught.value.kind is FailureKind.KILLED
    assert worker.pid is None
    reply, made = worker.lower_call(request("aten::tan"))
    assert reply["lasting"]
    assert made.partition(b"\n")[2].startswith(b"ML\xefR")


def test_the_process_loads_no_device(worker: Any) -> None:
    worker.lower_call(request("aten::tan"))
    maps = Path(f"/proc/{worker.pid}/maps").read_text()
    assert "libtorch_cpu" in maps
    assert "torch_neuronx/_C" not in maps


def test_a_process_killed_in_the_middle_is_a_failure(worker: Any, hangs: Path) -> None:
    thread = when_it_hangs(hangs, lambda: os.kill(worker.pid, signal.SIGKILL))
    with pytest.raises(CompileFailure, match="the lowering process died: signal SIGKILL"):
        worker.lower_call(request("aten::cos"))
    thread.join(10)
    assert worker.lower_call(request("aten::tan"))[0]["lasting"]


def test_a_request_can_be_given_up_from_another_thread(worker: Any, hangs: Path) -> None:
    thread = when_it_hangs(hangs, worker.interrupt)
    with pytest.raises(CompileFailure, match="signal SIGKILL"):
        worker.lower_call(request("aten::cos"))
    thread.join(10)


def test_a_hang_ends_at_the_time_limit(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.lower_call(request("aten::tan"))
    pid = worker.pid
    monkeypatch.setattr(worker, "_timeout", 0.5)
    with pytest.raises(CompileFailure, match=r"the lowering took longer than 0.5 s and was killed") as caught:
        worker.lower_call(request("aten::cos"))
    assert caught.value.kind is FailureKind.TIMEOUT
    assert not Path(f"/proc/{pid}").exists()


def test_an_operator_that_crashes_or_hangs_runs_on_the_host(
    worker: Any, tracked: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch_neuronx.eager import models

    monkeypatch.setattr(models, "lowering_worker", lambda: worker)
    value = torch.linspace(0, 1, 19)
    there = value.to("neuron")
    with caplog.at_level(logging.DEBUG, "torch_neuronx"):
        for _ in range(2):
            torch.testing.assert_close(there.sin().cpu(), value.sin())
    assert tracked.get_fallback_ops() == {"aten::sin": 2}
    reasons = [record.getMessage() for record in caplog.records if "aten::sin runs on the host" in record.getMessage()]
    assert len(reasons) == 1
    assert "the lowering process died: signal SIG" in reasons[0]
    torch.testing.assert_close(there.tan().cpu(), value.tan())
    assert tracked.get_executed_ops()["aten::tan"] == 1
    monkeypatch.setattr(worker, "_timeout", 0.5)
    monkeypatch.setenv("NEURON_FALLBACK_ENABLED", "0")
    refused = "CPU fallback is disabled for operation=aten::cos: the lowering took longer"
    with pytest.raises(RuntimeError, match=refused):
        there.cos()


def test_where_the_process_cannot_be_had_it_is_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_neuronx.worker.worker import LoweringWorker

    worker = LoweringWorker(module="no_such_module")
    with pytest.raises(CompileFailure, match="the lowering process did not start") as first:
        worker.lower_call(request("aten::tan"))
    with pytest.raises(CompileFailure) as second:
        worker.lower_call(request("aten::tan"))
    assert second.value is first.value
    assert "no_such_module" in str(first.value.stderr)


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_time_limit_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from neuron_runtime.errors import NeuronEnvError
    from torch_neuronx.worker.worker import LoweringWorker

    monkeypatch.setenv("NEURON_ENV_LOWERING_TIMEOUT", text)
    with pytest.raises(NeuronEnvError, match="no positive number of seconds"):
        LoweringWorker()


def test_ctrl_c_ends_a_program_whose_operator_hangs(device_host: DeviceHost, hangs: Path) -> None:
    hangs.unlink(missing_ok=True)
    done = device_host.run(
        """
        import os, signal, threading, time
        from pathlib import Path
        import torch
        from torch_neuronx.eager import models, planning
        from torch_neuronx.worker.worker import LoweringWorker

        worker = LoweringWorker(timeout=1000, module="faulty_lowering")
        models.lowering_worker = planning.lowering_worker = lambda: worker
        tensor = torch.ones(23).to("neuron")

        def press() -> None:
            while not Path(os.environ["LOWERING_HANGS"]).exists():
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press, daemon=True).start()
        try:
            tensor.cos()
        except KeyboardInterrupt:
            print("interrupted")
        """,
        LOWERING_HANGS=str(hangs),
        PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
    )
    assert done.stdout == "interrupted\n"
    assert "Traceback" not in done.stderr
