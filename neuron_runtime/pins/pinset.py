"""What belongs together: one release of the SDK with one of its builds of torch-neuronx."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_runtime.pins.release import Build, Release
from neuron_runtime.pins.versions import specifier

# What a program on the device cannot do without; all else of a release is pinned if it is there.
NEEDED_PYTHON = {
    "native": ("torch", "torch-neuronx", "neuronx-cc", "nki"),
    "xla": ("torch", "torch-neuronx", "neuronx-cc"),
}
DRIVER = "aws-neuronx-dkms"
RUNTIME = "aws-neuronx-runtime-lib"
NEEDED_SYSTEM = (DRIVER, RUNTIME, "aws-neuronx-collectives")
USEFUL_SYSTEM = ("aws-neuronx-tools",)


@dataclass(frozen=True, slots=True)
class PinSet:
    """A release and a build of it."""

    release: Release
    build: Build

    @property
    def name(self) -> str:
        return f"SDK {self.release.sdk} with torch {self.build.torch}"

    @property
    def python(self) -> dict[str, str]:
        """Pins of Python packages. What a release has in several versions is left out: which one fits is not known."""
        pins = {"torch": self.build.torch, "torch-neuronx": self.build.torch_neuronx}
        return pins | self._single("python")

    @property
    def system(self) -> dict[str, str]:
        """Pins of system packages."""
        return self._single("system")

    @property
    def open(self) -> dict[str, tuple[str, ...]]:
        """Packages of which the release has several versions."""
        return {c.name: c.versions for c in self.release.components if len(c.versions) > 1}

    @property
    def needed_python(self) -> tuple[str, ...]:
        return tuple(name for name in NEEDED_PYTHON[self.build.kind] if name in self.python)

    def constraints(self) -> list[str]:
        """Lines of a constraints file for pip."""
        return [f"{name}{specifier(pin)}" for name, pin in sorted(self.python.items())]

    def _single(self, kind: str) -> dict[str, str]:
        return {c.name: c.versions[0] for c in self.release.components if c.kind == kind and len(c.versions) == 1}
