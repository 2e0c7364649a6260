"""What the launcher says: on standard error, and seldom."""

from __future__ import annotations

import contextlib
import sys


def say(text: str) -> None:
    """One line for people. A standard error that nobody reads is no reason to fail."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"neuron-env launcher: {text}\n")
        sys.stderr.flush()
