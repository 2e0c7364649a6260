"""`MODULE:FACTORY` leads to a module and example inputs, or to an error that says what is wrong with it."""

import sys
import textwrap

import pytest

pytestmark = pytest.mark.torch

GOOD = """
import torch
from neighbour import WIDTH

def linear():
    return torch.nn.Linear(WIDTH, 2), (torch.ones(1, WIDTH),)

def by_name():
    return torch.nn.Linear(WIDTH, 2), {"input": torch.ones(1, WIDTH)}

class Holder:
    @staticmethod
    def make():
        return linear()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with a factory file and a module beside it; sys.path and sys.modules are restored."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    (tmp_path / "neighbour.py").write_text("WIDTH = 3\n")
    (tmp_path / "factories.py").write_text(GOOD)
    yield tmp_path
    for name in set(sys.modules) - known:
        if name.partition("_")[0] in ("neighbour", "factories", "bad"):
            del sys.modules[name]


def build(reference):
    from torch_neuronx import build_example

    return build_example(str(reference))


def test_a_file_is_loaded_with_its_neighbours(folder):
    example = build(f"{folder}/factories.py:linear")
    assert example.module(*example.args).shape == (1, 2)


def test_a_relative_path_starts_at_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert build("factories.py:linear").args[0].shape == (1, 3)


def test_a_module_is_found_in_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert build("factories:linear").args[0].shape == (1, 3)


def test_inputs_may_be_given_by_name(folder):
    example = build(f"{folder}/factories.py:by_name")
    assert example.args == ()
    assert example.module(**example.kwargs).shape == (1, 2)


def test_the_factory_may_be_an_attribute_of_a_class(folder):
    assert build(f"{folder}/factories.py:Holder.make").args[0].shape == (1, 3)


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        ("", "missing", "has no `missing`"),
        ("made = 3", "made", "cannot be called"),
        ("def made(): return None", "made", "returned None"),
        ("def made(): return 1, 2, 3", "made", "returned a tuple of 3"),
        ("def made(): return 1, ()", "made", "first of the two is of type int"),
        ("import torch\ndef made(): return torch.nn.ReLU(), torch.ones(1)", "made", "inputs are of type Tensor"),
        ("import torch\ndef made(): return torch.nn.ReLU(), {1: 2}", "made", "not all argument names"),
        ("def made(): raise OSError('no weights')", "made", "raised OSError: no weights"),
        ("def made(argument): return argument", "made", "raised TypeError"),
        ("import no_such_module_at_all", "made", "importing .* raised ModuleNotFoundError"),
        ("def made(:", "made", "importing .* raised SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_factory_is_said(folder, source, name, message):
    from torch_neuronx import FactoryError

    (folder / "bad.py").write_text(textwrap.dedent(source))
    with pytest.raises(FactoryError, match=message) as caught:
        build(f"{folder}/bad.py:{name}")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("factories.py", "does not name a factory"),
        (":made", "does not name a factory"),
        ("factories.py:", "does not name a factory"),
        ("nowhere/model.py:made", "there is no file `nowhere/model.py`"),
        ("no_such_package.model:made", "there is no module `no_such_package`"),
        ("not-a-module:made", "neither a module nor"),
    ],
)
def test_a_reference_that_leads_nowhere(folder, reference, message):
    from torch_neuronx import FactoryError

    with pytest.raises(FactoryError, match=message) as caught:
        build(reference)
    assert caught.value.hint


def test_the_hint_lists_what_the_module_defines(folder):
    from torch_neuronx import FactoryError

    with pytest.raises(FactoryError) as caught:
        build(f"{folder}/factories.py:linaer")
    assert "linear" in caught.value.hint
