"""`MODULE:FACTORY`: how a command line names a PyTorch program."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch_neuronx.errors import FactoryError

if TYPE_CHECKING:
    import torch

_USAGE = "name a function as `package.module:function` or `path/to/file.py:function`"


@dataclass(frozen=True)
class Example:
    """A module and one call of it: `module(*args, **kwargs)`."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


def build_example(reference: str) -> Example:
    """Call the factory that `reference` names.

    The factory takes no arguments and returns `(module, example_inputs)`, where example_inputs is a tuple of positional
    arguments or a dict of keyword arguments. FactoryError tells what is missing or wrong; an exception raised by
    the factory itself becomes its cause.
    """
    import torch

    factory = load_factory(reference)
    try:
        made = factory()
    except Exception as error:
        raise FactoryError(
            f"the factory `{reference}` raised {type(error).__name__}: {error}",
            hint="a factory takes no arguments and returns (module, example_inputs)",
        ) from error
    if not isinstance(made, tuple) or len(made) != 2:
        raise _wrong_return(reference, f"it returned {_describe(made)}")
    module, inputs = made
    if not isinstance(module, torch.nn.Module):
        raise _wrong_return(reference, f"the first of the two is {_describe(module)}, no torch.nn.Module")
    if isinstance(inputs, Mapping):
        if not all(isinstance(name, str) for name in inputs):
            raise _wrong_return(reference, "the keys of its example inputs are not all argument names")
        return Example(module, (), dict(inputs))
    if isinstance(inputs, (tuple, list)):
        return Example(module, tuple(inputs))
    raise _wrong_return(reference, f"its example inputs are {_describe(inputs)}")


def load_factory(reference: str) -> Callable[[], Any]:
    """The callable that `package.module:function` or `path/to/file.py:function` names; FactoryError otherwise."""
    where, colon, name = reference.rpartition(":")
    if not colon or not where or not name:
        raise FactoryError(f"`{reference}` does not name a factory", hint=_USAGE)
    module = _load_file(Path(where)) if where.endswith(".py") else _import(where)
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise FactoryError(
                f"`{where}` has no `{name}`", hint=_suggest(module) or f"define `{name}` in it"
            ) from None
    if not callable(found):
        raise FactoryError(f"`{reference}` is {_describe(found)}, which cannot be called", hint=_USAGE)
    return found  # type: ignore[no-any-return]


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise FactoryError(f"`{name}` is neither a module nor a `.py` file", hint=_USAGE)
    # As `python -m` does: a console script's sys.path lacks the directory it was called in.
    _search_first(Path.cwd())
    try:
        return importlib.import_module(name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise FactoryError(
                f"there is no module `{missing}`",
                hint=f"run from the directory that holds it, install it, or {_USAGE}",
            ) from error
        raise _import_failed(name, error) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FactoryError(f"there is no file `{path}`", hint=f"{_USAGE}; paths start at {Path.cwd()}")
    path = path.resolve()
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"{path.stem}_{digest}"  # two files of one name may be loaded side by side
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    _search_first(path.parent)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _import_failed(str(path), error) from error
    return module


def _search_first(directory: Path) -> None:
    """Put the directory first on sys.path, and leave it: a factory may import its neighbours when it is called."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _import_failed(name: str, error: BaseException) -> FactoryError:
    return FactoryError(
        f"importing `{name}` raised {type(error).__name__}: {error}",
        hint="mend the error; `--debug` shows where it happened",
    )


def _wrong_return(reference: str, what: str) -> FactoryError:
    return FactoryError(
        f"the factory `{reference}` must return (module, example_inputs), but {what}",
        hint="return a torch.nn.Module and a tuple of its arguments, such as `return model.eval(), (input_ids, mask)`",
    )


def _describe(value: object) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return "None" if value is None else f"of type {type(value).__name__}"


def _suggest(module: ModuleType) -> str | None:
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return f"it defines: {', '.join(sorted(own))}" if own else None
