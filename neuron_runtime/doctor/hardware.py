"""Driver, devices, cores."""

from __future__ import annotations

from neuron_runtime.doctor.check import Check, Result, SkippedError, Status, Subject

_RELOAD = "sudo modprobe -r neuron && sudo modprobe neuron"


def driver(subject: Subject) -> Result | str:
    found = subject.section("driver")
    if not found.get("loaded"):
        _needs_hardware(subject)
        if subject.container:
            raise SkippedError("the driver is the container host's; look for it there")
        if found.get("installed_version"):
            return Result(
                "driver", Status.PROBLEM, f"{found['installed_version']} is installed and not loaded",
                "the kernel module `neuron`, loaded", "sudo modprobe neuron",
            )  # fmt: skip
        reason = subject.report.not_found.get("driver", "it is not loaded")
        remedy = "sudo apt-get install aws-neuronx-dkms && sudo modprobe neuron"
        return Result("driver", Status.PROBLEM, reason, "the kernel module `neuron`, loaded", remedy)
    loaded, installed = found.get("version"), found.get("installed_version")
    if loaded and installed and loaded != installed:
        return Result(
            "driver", Status.WARNING, f"{loaded} is loaded, {installed} is installed", "the installed one", _RELOAD
        )
    return f"{loaded} is loaded"


def devices(subject: Subject) -> Result | str:
    found = subject.section("devices")
    if found.get("nodes"):
        return f"{', '.join(found['nodes'])}: {found.get('family') or 'of unknown family'}"
    _needs_hardware(subject)
    reason = subject.report.not_found.get("devices.nodes") or subject.report.not_found.get("devices", "none is seen")
    if subject.container:
        return Result(
            "devices", Status.PROBLEM, f"the container sees no device: {reason}", "/dev/neuron0 and so on",
            "docker run --device=/dev/neuron0 …, one for each device; on Kubernetes ask for aws.amazon.com/neuron",
        )  # fmt: skip
    return Result("devices", Status.PROBLEM, reason, "/dev/neuron0 and so on", "sudo modprobe neuron; neuron-ls")


def cores(subject: Subject) -> Result | str:
    listed = subject.section("devices").get("neuron_ls")
    if listed is None:
        raise SkippedError("neuron-ls tells nothing")
    users = {user["pid"]: user.get("command") for device in listed for user in device["processes"] if user.get("pid")}
    if not users:
        return "no process has a NeuronCore"
    names = ", ".join(f"{pid} ({command})" for pid, command in sorted(users.items()))
    return Result(
        "cores", Status.WARNING, f"NeuronCores are held by {names}", "free cores, if a new program is to start",
        "wait or end them; NEURON_RT_VISIBLE_CORES gives each program cores of its own",
    )  # fmt: skip


def lnc(subject: Subject) -> Result | str:
    device, environ = subject.section("devices").get("lnc"), subject.host.environ
    asked = environ.get("NEURON_LOGICAL_NC_CONFIG", "").strip()
    flags = environ.get("NEURON_CC_FLAGS", "").replace("=", " ").split()
    compiled = flags[flags.index("--lnc") + 1] if "--lnc" in flags[:-1] else ""
    given = {"NEURON_LOGICAL_NC_CONFIG": asked, "--lnc in NEURON_CC_FLAGS": compiled}
    named = {name: value for name, value in given.items() if value}
    if device is not None:
        named["the devices"] = str(device)
    if len(set(named.values())) > 1:
        found = ", ".join(
            f"{name} {'say' if name.startswith('the') else 'says'} {value}" for name, value in named.items()
        )
        return Result("lnc", Status.PROBLEM, found, "one logical core size", "unset NEURON_LOGICAL_NC_CONFIG")
    if not named:
        raise SkippedError("nothing names a logical core size")
    return f"LNC {next(iter(named.values()))}"


def _needs_hardware(subject: Subject) -> None:
    if subject.report.simulated:
        raise SkippedError("the device here is simulated")
    if subject.report.image:
        raise SkippedError("an image has none")


CHECKS = (
    Check("driver", "the kernel module is loaded, and the one that is installed", driver),
    Check("devices", "the devices can be seen from here", devices),
    Check("cores", "no other process holds the cores", cores),
    Check("lnc", "devices, runtime and compiler agree about the logical core size", lnc),
)
