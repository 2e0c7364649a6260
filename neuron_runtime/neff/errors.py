"""The errors of the NEFF format."""

from __future__ import annotations

from typing import ClassVar

from neuron_runtime.errors import NeuronEnvError


class NeffError(NeuronEnvError):
    """A NEFF that cannot be read, or must not be written.

    `field` names what is wrong: a header field by its published name, a member of the archive by its path, a
    manifest key as `manifest.KEY`, or one of `header` (too short), `data` (the packed content) and `tar` (the
    archive in it).
    """

    prefix: ClassVar[str] = "invalid NEFF: "

    def __init__(self, field: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(self.prefix + problem, hint=hint)
        self.field = field
        self.problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by positional arguments alone, and a worker's error must reach its caller.
        return _rebuild, (type(self), self.field, self.problem, self.hint)


class NeffAccessError(NeffError):
    """What was asked for is out of reach, and the NEFF need not be at fault.

    `field` is `file`, `directory`, or the member that the NEFF does not have.
    """

    prefix = ""


def _rebuild(kind: type[NeffError], field: str, problem: str, hint: str | None) -> NeffError:
    return kind(field, problem, hint=hint)
