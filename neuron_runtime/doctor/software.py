"""Packages and variables."""

from __future__ import annotations

from neuron_runtime.doctor.check import Check, Result, SkippedError, Status, Subject

# Removed, and what became of them (facts of the release notes).
_GONE = {"NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "it was removed in SDK 2.32"}


def versions(subject: Subject) -> Result | str:
    from neuron_runtime.pins.catalog import load_catalog
    from neuron_runtime.pins.check import check_pins, nearest_set
    from neuron_runtime.pins.observed import observe_report

    catalog = load_catalog()
    observed = observe_report(subject.report, "this host", image=subject.report.image)
    chosen, reason = nearest_set(observed, catalog)
    result = check_pins(observed, chosen, reason, catalog)
    grave = [finding for finding in result.findings if str(finding.severity) == "problem"]
    if grave:
        found = "; ".join(f"{it.component} {it.found or 'is missing'}: {it.consequence}" for it in grave)
        return Result("versions", Status.PROBLEM, found, result.pins.name, grave[0].remedy or "neuron-env pins check")
    warned = [finding for finding in result.findings if str(finding.severity) == "warning"]
    if warned:
        found = "; ".join(f"{it.component} {it.found or 'is missing'}" for it in warned)
        return Result("versions", Status.WARNING, found, result.pins.name, "neuron-env pins check")
    return f"fit {result.pins.name}"


def loading(subject: Subject) -> Result | str:
    """Weights that transformers loads asynchronously hang on the device."""
    packages = subject.section("packages")
    if "transformers" not in packages or "torch-neuronx" not in packages:
        raise SkippedError("transformers and torch-neuronx are not installed together")
    if subject.host.environ.get("HF_DEACTIVATE_ASYNC_LOAD") == "1":
        return "HF_DEACTIVATE_ASYNC_LOAD is 1"
    return Result(
        "hf-loading", Status.WARNING, "HF_DEACTIVATE_ASYNC_LOAD is not 1, and from_pretrained may hang",
        "HF_DEACTIVATE_ASYNC_LOAD=1", "export HF_DEACTIVATE_ASYNC_LOAD=1",
    )  # fmt: skip


def variables(subject: Subject) -> Result | str:
    gone = [name for name in _GONE if name in subject.host.environ]
    if gone:
        found = "; ".join(f"{name} is set, and {_GONE[name]}" for name in gone)
        return Result("variables", Status.WARNING, found, "no such variable", f"unset {' '.join(gone)}")
    return "none that was removed"


CHECKS = (
    Check("versions", "driver, runtime, compiler and packages belong together", versions),
    Check("hf-loading", "transformers loads weights in a way that does not hang", loading),
    Check("variables", "no variable is set that the runtime has no use for any more", variables),
)
