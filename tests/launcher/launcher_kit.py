"""A host for the launcher's tests: its PATH, a scripted compiler as the real one, a store, and working directories."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from cache_server.launcher import installing

ROOT = Path(__file__).resolve().parents[2]
LINE = [
    *["--framework", "XLA", "--target", "trn2", "--lnc", "2", "-O1", "--model-type", "transformer", "--auto-cast=none"],
    *("--output", "module.neff"),
]
COMPILE = ["compile", "module.mlir", *LINE]
GRAPH = "module @m { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }\n"
DEADLINE = 60.0  # seconds until a test gives a state up; never how long anything is expected to take

# A compile is journaled, has its output in `$out`, and then does what the test scripts. `neff` writes a whole one.
_COMPILER = """\
#!/bin/sh
here=@HERE@
if [ "$1" = --version ]; then
    echo asked >>"$here/asked"
    echo "NeuronX Compiler version @VERSION@"; echo; echo "Python version 3.12.1"; exit 0
fi
echo "$$ $*" >>"$here/compiles"
out=file.neff
for word in "$@"; do
    case $last in --output | -o) out=$word ;; --logfile) logfile=$word ;; esac
    case $word in --output=*) out=${word#*=} ;; esac
    last=$word
done
neff() { cat "$here/result.neff" >"$out"; }
@BODY@
"""


def neff_bytes(content: bytes = b"content") -> bytes:
    """The header's sizes are what tells a whole NEFF; the rest is the compiler's business."""
    sizes = (2, 1024, len(content), 2, 0)
    header = b"".join(value.to_bytes(8, "little") for value in sizes)
    return header + bytes(1024 - len(header)) + content


class Host:
    """Each instance is a host of its own: local tier, PATH, compiler; `store` may be another one's."""

    def __init__(self, root: Path, store: str | Path | None = None) -> None:
        self.root = root
        self.bin, self.real = root / "launcher", root / "real"
        self.store = root / "store" if store is None else store
        self.work = self.directory("work")
        installing.install(self.bin)
        self.path = [self.bin, self.real]
        self.compiler("neff")
        self.result(neff_bytes())
        self.settings: dict[str, str] = {}
        self._started: list[subprocess.Popen[str]] = []

    def directory(self, name: str, graph: str | bytes | None = GRAPH) -> Path:
        """A new working directory, with a graph in it."""
        place = self.root / name
        place.mkdir(parents=True)
        if graph is not None:
            content = graph if isinstance(graph, bytes) else graph.encode()
            (place / ("module.mlir" if isinstance(graph, str) else "module.hlo.pb")).write_bytes(content)
        return place

    def compiler(self, body: str, *, version: str = "2.28.7631.0+9a1c2d3e", place: Path | None = None) -> Path:
        """Installs the real compiler: a script that ends with `body`."""
        place = place or self.real
        place.mkdir(parents=True, exist_ok=True)
        file = place / "neuronx-cc"
        text = _COMPILER.replace("@HERE@", str(self.root)).replace("@VERSION@", version).replace("@BODY@", body)
        fresh = file.with_suffix(".new")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(file)
        return file

    def result(self, neff: bytes) -> None:
        (self.root / "result.neff").write_bytes(neff)

    @property
    def compiles(self) -> list[str]:
        """The compiles that began, each as its process and its arguments."""
        journal = self.root / "compiles"
        return journal.read_text().splitlines() if journal.exists() else []

    @property
    def environment(self) -> dict[str, str]:
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(("NEURON", "TORCH", "PYTHON"))
        }
        return {
            **plain,
            "PATH": os.pathsep.join(map(str, [*self.path, "/usr/bin", "/bin"])),
            "NEURON_ENV_CACHE_URL": str(self.store),
            "NEURON_ENV_CACHE_LOCAL_DIR": str(self.root / "local"),
            "NEURON_ENV_COMPILE_SLOTS": "0",
            **self.settings,
        }

    def start(self, *words: str, cwd: Path | None = None, **options: object) -> subprocess.Popen[str]:
        """Runs `neuronx-cc` as a caller does: found on PATH, in a working directory."""
        environment = {**self.environment, **options.pop("env", {})}  # type: ignore[dict-item]
        given: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        # Popen looks for a program on the PATH of the parent, callers on their own.
        command = ["/usr/bin/env", "neuronx-cc", *words]
        process = subprocess.Popen(command, cwd=cwd or self.work, env=environment, **given)  # type: ignore[call-overload]
        self._started.append(process)
        return process  # type: ignore[no-any-return]

    def stop(self) -> None:
        """Ends what a test that failed left running; a launcher takes its compiler along."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            with process:
                pass

    def run(self, *words: str, cwd: Path | None = None, **options: object) -> subprocess.CompletedProcess[str]:
        given = options.pop("input", None)
        stdin = subprocess.PIPE if given is not None else subprocess.DEVNULL
        with self.start(*words, cwd=cwd, stdin=stdin, **options) as process:
            stdout, stderr = process.communicate(given, timeout=DEADLINE)  # type: ignore[arg-type]
            return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)

    def neff(self, cwd: Path | None = None) -> bytes:
        return ((cwd or self.work) / "module.neff").read_bytes()

    def wait_for(self, file: str) -> None:
        """Until the scripted compiler has made this file below the host's root."""
        until(lambda: (self.root / file).exists(), f"{file} to appear")


def until(state: object, what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not state():  # type: ignore[operator]
        assert time.monotonic() < end, f"waited too long for {what}"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether a process has ended, and is at most a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> None:
    os.kill(process.pid, number)
