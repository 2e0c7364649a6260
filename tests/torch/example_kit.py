"""The examples as modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_example(folder: str, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`load_example("gpt", "train", …)` imports examples/gpt/train.py, which finds its neighbours as when it is run."""
    monkeypatch.syspath_prepend(str(EXAMPLES / folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)
