"""`python -m torch_neuronx.collect_env`: the same as `neuron-env collect`, in this interpreter."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Becomes the command, with the same options."""
    # A process of its own rather than an import: the command stands above this package.
    os.execv(sys.executable, [sys.executable, "-m", "cli.main", "collect", *sys.argv[1:]])  # noqa: S606 - ours


if __name__ == "__main__":
    main()
