"""What `neuron-env --version` says."""

from __future__ import annotations

import subprocess
from pathlib import Path

from neuron_runtime.version import RUNTIME_VERSION, VERSION

CHECKOUT = Path(__file__).resolve().parent.parent


def version_lines() -> list[str]:
    """The version, with the commit when the code runs from a git checkout, and the simulated device's version."""
    commit = checkout_commit(CHECKOUT)
    return [
        f"neuron-env {VERSION}" + (f" (commit {commit})" if commit else ""),
        f"simulated device {RUNTIME_VERSION} (nothing it reports was measured on hardware)",
    ]


def checkout_commit(folder: Path) -> str | None:
    """The short commit of `folder`, `+` appended where files differ from it; None outside a checkout."""
    if not (folder / ".git").exists():
        return None
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() or None
