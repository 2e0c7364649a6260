"""Programs of other people that some tests of the cache run beside it, installed when first needed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest


def installed(config: pytest.Config, name: str, program: str, command: Sequence[str]) -> Path:
    """The file `program` in a directory that outlives the test run, after `command` with its `{place}` if need be.

    Skips the test, naming the reason, where the command is missing or fails.
    """
    place = config.cache.mkdir(name) if config.cache else None
    if place is None:
        pytest.skip(f"{name} has nowhere to be installed: pytest's cache is off")
    path: Path = place / program
    if not path.exists():
        filled = [part.format(place=place) for part in command]
        try:
            subprocess.run(filled, check=True, timeout=90, capture_output=True, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            pytest.skip(f"{name} cannot be installed: there is no {command[0]} here")
        except subprocess.SubprocessError as error:
            pytest.skip(f"{name} cannot be installed: {error}")
    return path
