"""A program that torch.export saved, as a module with its example inputs."""

from __future__ import annotations

import zipfile
from pathlib import Path

from torch_neuronx.errors import FactoryError
from torch_neuronx.factory import Example, build_example

_HINT = "save it with `torch.export.save(torch.export.export(module, args), 'model.pt2')` and this version of PyTorch"


def load_example(reference: str) -> Example:
    """What `path/to/model.pt2` or `MODULE:FACTORY` names. Raises FactoryError."""
    return load_exported(Path(reference)) if reference.endswith(".pt2") else build_example(reference)


def load_exported(path: Path) -> Example:
    """The program as a module, with the inputs it was exported with. FactoryError where there are none."""
    import torch

    if not path.is_file():
        raise FactoryError(f"there is no file `{path}`", hint=f"paths start at {Path.cwd()}; {_HINT}")
    if not zipfile.is_zipfile(path):
        raise FactoryError(f"`{path}` is no program of torch.export", hint=_HINT)
    try:
        exported = torch.export.load(path)
    except Exception as error:
        raise FactoryError(f"cannot read `{path}`: {type(error).__name__}: {error}", hint=_HINT) from error
    if exported.example_inputs is None:
        raise FactoryError(f"`{path}` was saved without example inputs", hint=_HINT)
    args, kwargs = exported.example_inputs
    return Example(exported.module(), tuple(args), dict(kwargs))
