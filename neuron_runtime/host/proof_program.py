"""Computes something on the device `neuron` and compares it; run by `proof.py` in the interpreter that is examined.

It prints one line of JSON behind a mark, since libraries talk on stdout too. Old interpreters must be able to run it.
"""

import importlib
import json

MARK = "NEURON-ENV-PROOF "
PACKAGE = "torch_neuronx"  # whoever provides it over there; nothing of ours is imported


def prove() -> dict:  # type: ignore[type-arg]
    import torch

    found = {"torch": torch.__version__}
    module = getattr(torch, "neuron", None)
    if module is None:
        try:
            importlib.import_module(PACKAGE)  # makes the device
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            return dict(found, error=f"torch_neuronx cannot be imported: {type(error).__name__}: {error}")
        module = getattr(torch, "neuron", None)
    if module is None:
        return dict(found, error="torch_neuronx makes no `torch.neuron`: it is not the native build")
    if not module.is_available():
        return dict(found, error="torch.neuron.is_available() is False: there is no device")
    found["devices"] = module.device_count()
    left = (torch.arange(64, dtype=torch.float32).reshape(8, 8) - 30.0) / 2.0
    right = left.t().contiguous()
    result = (left.to("neuron") @ right.to("neuron")).cpu()
    module.synchronize()
    # Small multiples of a half: each format that a device may compute in holds the operands exactly.
    difference = float((result - left @ right).abs().max())
    try:
        found["device"] = str(module.get_device_properties(0).name)
    except (AttributeError, RuntimeError):
        found["device"] = "neuron:0"
    found["difference"] = difference
    if not difference <= 0.02 * float((left @ right).abs().max()):
        return dict(found, error=f"the device multiplies matrices wrongly: off by {difference:g}")
    try:
        fallback = list(importlib.import_module(PACKAGE).get_fallback_ops())
    except (ImportError, AttributeError):
        fallback = []
    if any("mm" in str(name) for name in fallback):
        return dict(found, error="the multiplication ran on the host: {}".format(", ".join(map(str, fallback))))
    return found


def die_with_parent() -> None:
    """Whoever asked may be killed; a device must not stay taken by a question that nobody asks any more."""
    import ctypes
    import signal

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


if __name__ == "__main__":
    try:
        die_with_parent()
        answer = prove()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        answer = {"error": f"{type(error).__name__}: {error}"}
    print("\n" + MARK + json.dumps(answer), flush=True)  # noqa: T201 - this is the program's output
