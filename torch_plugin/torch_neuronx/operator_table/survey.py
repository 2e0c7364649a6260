"""Cases spread over worker processes: a crash or a hang is an outcome, and what is known is written down at once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from torch_neuronx.operator_table.case import Case, Outcome, Verdict

COMMAND = [sys.executable, "-m", "torch_neuronx.operator_table.worker"]
_START_SECONDS = 120.0


@dataclass(frozen=True)
class Options:
    """`seconds`: what a case may take."""

    samples: int
    seconds: float
    workers: int


class Book:
    """Outcomes in a file of JSON lines, the last one of a case counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.known: dict[str, Outcome] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    outcome = Outcome.from_json(json.loads(line))
                except ValueError:
                    continue  # the line that an interruption cut off
                self.known[outcome.case.key] = outcome

    def note(self, outcome: Outcome) -> None:
        with self._lock:
            self.known[outcome.case.key] = outcome
            with self._path.open("a") as file:
                file.write(json.dumps(outcome.to_json()) + "\n")


def survey(cases: Sequence[Case], options: Options, book: Book, tell: Callable[[Outcome], None]) -> None:
    """Examines the cases that the book does not know."""
    waiting: SimpleQueue[Case] = SimpleQueue()
    for case in cases:
        if case.key not in book.known:
            waiting.put(case)
    stop = threading.Event()

    def work() -> None:
        worker: Worker | None = None
        try:
            while not stop.is_set():
                try:
                    case = waiting.get_nowait()
                except Empty:
                    return
                worker = worker or Worker()
                outcome = worker.examine(case, options)
                if not worker.alive:
                    worker = None
                book.note(outcome)
                tell(outcome)
        finally:
            if worker is not None:
                worker.end()

    with ThreadPoolExecutor(options.workers) as pool:
        try:
            for running in [pool.submit(work) for _ in range(options.workers)]:
                running.result()
        finally:
            stop.set()


class Worker:
    """One process and what it is asked; it has ended after a crash or a hang."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={"NEURON_RT_NUM_CORES": "1", **os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._last_words: list[str] = []
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._listen, self._overhear)]
        for thread in self._threads:
            thread.start()
        if self._line(_START_SECONDS) != "ready":
            self.end()
            raise RuntimeError(f"the worker did not start:\n{''.join(self._last_words[-20:])}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def examine(self, case: Case, options: Options) -> Outcome:
        assert self._process.stdin is not None
        asked = {"case": {"name": case.name, "dtype": case.dtype, "backward": case.backward}}
        self._last_words.clear()
        try:
            self._process.stdin.write(json.dumps({**asked, "samples": options.samples}) + "\n")
            line = self._line(options.seconds)
        except BrokenPipeError:
            line = None
        if line:
            return Outcome.from_json(json.loads(line))
        hung = line == ""
        self.end()
        status = self._process.returncode
        if hung:
            return Outcome(case, Verdict.HUNG, detail=f"no answer in {options.seconds:g} s")
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        said = next((words.strip() for words in reversed(self._last_words) if words.strip()), "")
        return Outcome(case, Verdict.CRASHED, detail=f"{how} {said}"[:300])

    def end(self) -> None:
        if self.alive:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(2)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _line(self, seconds: float) -> str | None:
        """The next line; nothing in it when the time is over, None when the process is."""
        try:
            line = self._lines.get(timeout=seconds)
        except Empty:
            return ""
        return line.strip() or None

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("\n")

    def _overhear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last_words.append(line)
            del self._last_words[:-50]
