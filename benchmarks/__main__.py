"""`python -m benchmarks [NAME…]`: runs the benchmarks, each in a process of its own. `make bench` runs them all."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = (
    "execution",
    "eager",
    "compile",
    "torch_peers",
    "first_step",
    "cache",
    "cache_faults",
    "cache_waiters",
    "service",
    "eviction",
    "single_flight",
    "takeover",
    "restart",
    "visibility",
    "command",
    "launcher",
)
# Where `make bench` puts jax: beside the environment, since jaxlib behaves otherwise where it finds jax.
PEERS = Path(sys.prefix) / "bench-peers"


def main() -> int:
    chosen = sys.argv[1:] or list(NAMES)
    unknown = [name for name in chosen if name not in NAMES]
    if unknown:
        print(f"error: no benchmark {unknown[0]!r}\n\nhint: choose from {', '.join(NAMES)}", file=sys.stderr)
        return 2
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
          f"Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}")  # fmt: skip
    print("Absolute times are this machine's; the ratios are what to compare. Medians throughout.")
    failed = 0
    for name in chosen:
        # A runtime and a cache of its own each time: nothing warm from before, nothing left after.
        with tempfile.TemporaryDirectory(prefix="nbench-") as place:
            environ = os.environ | {
                "NEURON_ENV_RUNTIME_DIR": f"{place}/run",
                "XDG_CACHE_HOME": f"{place}/cache",
                "NEURON_RT_NUM_CORES": "1",
            }
            if name == "execution":
                environ["PYTHONPATH"] = str(PEERS)
            print(f"\n== {name}   (python -m benchmarks {name})", flush=True)
            code = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{name}"], env=environ, cwd=Path(__file__).parents[1], check=False
            ).returncode
            subprocess.run([sys.executable, "-m", "cli.main", "runtime", "stop"], env=environ, capture_output=True)
            failed += code != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
