"""Runs a script, or calls a factory's module once on the device, and writes down what fell back.

Arguments: the file for the answer, the path or MODULE:FACTORY, and the script's own arguments.
"""

import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path

PACKAGE = "torch_neuronx"  # whichever is installed; nothing of ours is imported


def main(answer: str, target: str, arguments: list) -> int:  # type: ignore[type-arg]
    found: dict = {"error": None, "line": None, "file": None, "fallback": {}, "executed": 0}  # type: ignore[type-arg]
    status = 0
    try:
        if os.path.isfile(target):  # noqa: PTH113 - the path stays as it was typed
            sys.argv = [target, *arguments]
            sys.path.insert(0, str(Path(target).resolve().parent))
            runpy.run_path(target, run_name="__main__")
        else:
            _call(target)
    except SystemExit as end:
        if end.code not in (None, 0):
            status = 1
            found["error"] = f"it ended with {end.code!r}"
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        status = 1
        found["error"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        for frame in traceback.extract_tb(error.__traceback__):
            if Path(frame.filename).resolve() == Path(target.rpartition(":")[0] or target).resolve() or (
                frame.filename == target
            ):
                found["line"], found["file"] = frame.lineno, target
        traceback.print_exc()
    finally:
        found.update(_tracked())
        Path(answer).write_text(json.dumps(found))
    return status


def _tracked() -> dict:  # type: ignore[type-arg]
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "neuron"):
        return {"device": False}
    try:
        if torch.neuron.is_initialized():
            torch.neuron.synchronize()
        package = importlib.import_module(PACKAGE)
        fallback, executed = package.get_fallback_ops(), package.get_executed_ops()
    except Exception as error:  # noqa: BLE001 - an execution's error surfaces here, too
        return {"device": True, "error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    counts = fallback if isinstance(fallback, dict) else dict.fromkeys(fallback, 1)
    return {"device": True, "fallback": {str(name): n for name, n in counts.items()}, "executed": len(executed)}


def _call(reference: str) -> None:
    import torch
    from torch.utils._pytree import tree_map

    sys.path.insert(0, "")
    example = importlib.import_module(PACKAGE).build_example(reference)
    arguments, keywords = tree_map(
        lambda it: it.to("neuron") if isinstance(it, torch.Tensor) else it, (example.args, example.kwargs)
    )
    with torch.no_grad():
        example.module.to("neuron")(*arguments, **keywords)


if __name__ == "__main__":
    sys.path.pop(0)  # our directory is no part of the program's path
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
