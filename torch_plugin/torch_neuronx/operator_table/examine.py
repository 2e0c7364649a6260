"""One case, run on the device and on the CPU, in this process."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from torch_neuronx.operator_table.case import SEVERITY, Case, Outcome, Verdict
from torch_neuronx.operator_table.compare import beyond_32_bits, differ, difference, unset
from torch_neuronx.operator_table.samples import database, leaves, mapped, moved, samples, sparse
from torch_neuronx.tracking import clear_op_tracking, get_executed_ops, get_fallback_ops

_ANY_PLACE = ("argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "sort", "topk")
_BY_VALUES = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


def examine(case: Case, count: int) -> Outcome:
    """The case's worst sample; nothing that Python can catch gets out."""
    began = time.monotonic()
    worst, detail, compared, excused, random = Verdict.COMPILED, "", 0, 0, False
    fallbacks: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = samples(case, count)
        except Exception as error:  # noqa: BLE001
            return Outcome(case, Verdict.SKIPPED, detail=f"no samples: {_told(error)}")
        for sample in given:
            verdict, told, fell, drew = _sample(case, sample)
            random |= drew
            if verdict is Verdict.SKIPPED:
                excused += told == "beyond 32 bits"
                detail = detail or told
                continue
            compared += 1
            fallbacks |= fell
            if SEVERITY.index(verdict) > SEVERITY.index(worst):
                worst, detail = verdict, told
    if not compared:
        worst = Verdict.SKIPPED
    elif worst is Verdict.COMPILED:
        detail = ""
    return Outcome(
        case, worst, compared, excused, random, tuple(sorted(fallbacks)), detail, round(time.monotonic() - began, 2)
    )


def _sample(case: Case, sample: Any) -> tuple[Verdict, str, set[str], bool]:
    run = _Run(case, sample)
    try:
        wanted = run.on("cpu")
        again = run.on("cpu", seed=2)
    except Exception as error:  # noqa: BLE001
        return Verdict.SKIPPED, f"the CPU refuses: {_told(error)}", set(), False
    arguments = (sample.input, sample.args, sample.kwargs)
    if sparse(arguments) or sparse(wanted):
        return Verdict.SKIPPED, "sparse", set(), False
    if beyond_32_bits(arguments, wanted):
        return Verdict.SKIPPED, "beyond 32 bits", set(), False
    random = differ(wanted, again)
    settle = _settled(case, sample)
    torch.neuron.synchronize()
    clear_op_tracking()
    try:
        with _reasons() as reasons:
            found = mapped(run.on("neuron"), _fetched)
            torch.neuron.synchronize()
    except Exception as error:  # noqa: BLE001
        if "only supports contiguous/preserve memory format" in str(error):
            return Verdict.SKIPPED, "channels_last, which the device refuses as documented", set(), random
        if "to be on cpu" in str(error):
            return Verdict.SKIPPED, "PyTorch wants an argument on the CPU", set(), random
        return Verdict.FAILED, _told(error), set(), random
    fell = set(get_fallback_ops())
    random |= any(_tagged(name, {torch.Tag.nondeterministic_seeded}) for name in fell | set(get_executed_ops()))
    values = "none" if unset(case.name) else "statistics" if random else "all"
    found, wanted = settle(found), settle(wanted)
    wrong = difference(found, wanted, values=values)
    if wrong and values == "all":
        wrong = difference(found, wanted, exact=run.exactly())
    if wrong:
        return Verdict.WRONG, wrong, fell, random
    if fell:
        by_nature = all(_tagged(name, _BY_VALUES) for name in fell)
        return (Verdict.HOST if by_nature else Verdict.FELL_BACK), "; ".join(reasons)[:300], fell, random
    return Verdict.COMPILED, "", fell, random


def _settled(case: Case, sample: Any) -> Callable[[Any], Any]:
    """What of the results is settled: among equal elements PyTorch leaves open whose place is given."""
    if case.name.split(".")[0] not in _ANY_PLACE:
        return lambda results: results
    if case.backward:
        return lambda gradients: [gradient.float().sum() for gradient in gradients]
    if case.name == "argsort":
        dim = sample.args[0] if sample.args else sample.kwargs.get("dim", -1)
        return lambda places: torch.take_along_dim(sample.input, places.cpu(), dim) if sample.input.dim() else places
    return lambda results: results[0] if isinstance(results, tuple) else results


@contextlib.contextmanager
def _reasons() -> Iterator[list[str]]:
    """Why operators fall back meanwhile."""
    found: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "runs on the host" in str(record.msg):
                found.append(record.getMessage())

    log, listener = logging.getLogger("torch_neuronx"), Listener()
    level = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(listener)
    try:
        yield found
    finally:
        log.removeHandler(listener)
        log.setLevel(level)


def _fetched(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


class _Run:
    """A sample, on whichever device."""

    def __init__(self, case: Case, sample: Any) -> None:
        self._case = case
        self._sample = sample

    def on(self, device: str, *, seed: int = 1, change: Callable[[Any], Any] = lambda leaf: leaf) -> Any:
        """Forward: the results. Backward: the gradients of all inputs that require one; tracking begins after
        forward."""
        torch.manual_seed(seed)
        sample = self._sample
        given = moved(mapped((sample.input, list(sample.args), dict(sample.kwargs)), change), device)
        with mock.patch.object(torch, "manual_seed", return_value=torch.default_generator):
            # Many of the database's random operators set a seed of their own, which would hide that they are random.
            results = database()[self._case.name](given[0], *given[1], **given[2])
        if not self._case.backward:
            return results
        results = [leaf for leaf in leaves(sample.output_process_fn_grad(results)) if _differentiable(leaf)]
        inputs = [leaf for leaf in leaves(given) if _differentiable(leaf)]
        if not results or not inputs:
            raise ValueError("nothing to differentiate")
        gradients = [_gradient(result) for result in results]
        if device != "cpu":
            torch.neuron.synchronize()
            clear_op_tracking()
        return [
            gradient
            for gradient in torch.autograd.grad(results, inputs, gradients, allow_unused=True)
            if gradient is not None
        ]

    def exactly(self) -> Any:
        """The CPU's results in float64; None where it has none."""
        try:
            return self.on("cpu", change=_doubled)
        except Exception:  # noqa: BLE001
            return None


def _doubled(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
        return leaf.detach().double().requires_grad_(leaf.requires_grad)
    return leaf


def _differentiable(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _gradient(result: torch.Tensor) -> torch.Tensor:
    wave = torch.cos(torch.arange(result.numel(), dtype=torch.float64)).reshape(result.shape)
    return wave.to(result.dtype).to(result.device)


def _tagged(name: str, tags: set[torch.Tag]) -> bool:
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
    if packet is None:
        return False
    return any(tags & set(getattr(packet, overload).tags) for overload in packet.overloads())


def _told(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]
