"""The options of a compile, read from neuronx-cc's command line and spelled one way for cache keys."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from neuron_runtime.errors import NeuronEnvError

TARGETS = ("inf2", "trn1", "trn1n", "trn2", "trn2n", "trn3")
AUTO_CASTS = ("none", "matmult", "all")

_SINGLE_CORE_TARGETS = ("inf2", "trn1", "trn1n")
# Unknown options may or may not take the next word as their value; these are known to the real compiler not to.
_SWITCHES = frozenset(
    (
        "--enable-experimental-O1",
        "--enable-experimental-spmd",
        "--enable-fast-context-switch",
        "--enable-fast-loading-neuron-binaries",
        "--enable-mixed-precision-accumulation",
        "--enable-saturate-infinity",
    )
)
# Where files go and how much is said: no part of what is compiled, hence no part of a key. The cache options are
# not the compiler's at all, but stand in the same NEURON_CC_FLAGS.
_UNKEYED = frozenset(("--cache_dir", "--logfile", "--output", "--verbose", "--workdir"))
_UNKEYED_SWITCHES = frozenset(("--no_cache", "--retry_failed_compilation"))
_ALIASES = {
    "-O": "--optlevel",
    "-o": "--output",
    "-v": "--verbose",
    "--logical-nc-config": "--lnc",
}


class OptionsError(NeuronEnvError):
    """The command line of a compile cannot be understood."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What to compile for, and how. `extra` holds options without effect here, in the order given.

    Raises OptionsError for values that no target has.
    """

    framework: str = "XLA"
    target: str = "trn2"
    lnc: int = 0  # 0: the target's own, 2 where it pairs cores and 1 elsewhere
    opt_level: int = 2
    model_type: str | None = None
    auto_cast: str | None = None
    auto_cast_type: str | None = None
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.framework.upper() != "XLA":
            _refuse("--framework", self.framework, ("XLA",))
        object.__setattr__(self, "framework", "XLA")
        if self.target not in TARGETS:
            _refuse("--target", self.target, TARGETS)
        single = self.target in _SINGLE_CORE_TARGETS
        if self.lnc == 0:
            object.__setattr__(self, "lnc", 1 if single else 2)
        if self.lnc not in ((1,) if single else (1, 2)):
            _refuse("--lnc", str(self.lnc), ("1",) if single else ("1", "2"), f" for {self.target}")
        if self.opt_level not in (1, 2, 3):
            _refuse("-O", str(self.opt_level), ("1", "2", "3"))
        if self.auto_cast is not None and self.auto_cast not in AUTO_CASTS:
            _refuse("--auto-cast", self.auto_cast, AUTO_CASTS)

    @property
    def flags(self) -> tuple[str, ...]:
        """The canonical flags: one spelling and one order for what has no order, then `extra` as given."""
        named = (
            ("--framework", self.framework),
            ("--target", self.target),
            ("--lnc", str(self.lnc)),
            ("--optlevel", str(self.opt_level)),
            ("--model-type", self.model_type),
            ("--auto-cast", self.auto_cast),
            ("--auto-cast-type", self.auto_cast_type),
        )
        return (*(f"{flag}={value}" for flag, value in named if value is not None), *self.extra)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the caller asked for and does not get."""
        unknown = [
            f"option `{flag}` has no effect in the simulator; it is part of the cache key" for flag in self.extra
        ]
        if self.auto_cast not in (None, "none"):
            unknown.append(
                f"`--auto-cast {self.auto_cast}` is not simulated: the result keeps the precision of the program"
            )
        return tuple(unknown)

    def to_json(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in self.__slots__}, "extra": list(self.extra)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompileOptions:
        return cls(**{**data, "extra": tuple(data["extra"])})

    @classmethod
    def parse(cls, flags: str | Sequence[str]) -> CompileOptions:
        """Options from flags alone, as `NEURON_CC_FLAGS` holds them (text is split as a shell would).

        Raises OptionsError, also for words that are no options.
        """
        if isinstance(flags, str):
            try:
                flags = shlex.split(flags)
            except ValueError as error:
                raise OptionsError(f"the compiler flags cannot be split into words: {error}: `{flags}`") from error
        command = Command.parse(flags)
        if command.inputs:
            raise OptionsError(f"the compiler flags hold a word that is no option: `{command.inputs[0]}`")
        return command.options


@dataclass(frozen=True, slots=True)
class Command:
    """A whole `compile` command: options, input files, and the settings that are not part of a key, by option."""

    options: CompileOptions
    inputs: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, words: Sequence[str]) -> Command:
        """`--flag value`, `--flag=value`, `-O2`; a later flag overrides an earlier one. Raises OptionsError."""
        known: dict[str, str] = {}
        settings: dict[str, str] = {}
        inputs: list[str] = []
        extra: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                inputs += rest
                break
            if not word.startswith("-") or word == "-":
                inputs.append(word)
                continue
            flag, value = _split(word)
            if flag in _UNKEYED_SWITCHES:
                continue
            if flag in _KNOWN or flag in _UNKEYED:
                if value is None:
                    if not rest or (rest[0].startswith("-") and rest[0] != "-"):
                        raise OptionsError(f"option `{flag}` needs a value", hint=f"type: {flag} VALUE")
                    value = rest.pop(0)
                (known if flag in _KNOWN else settings)[flag] = value
            elif value is not None:
                extra.append(f"{flag}={value}")
            elif flag not in _SWITCHES and rest and not rest[0].startswith("-"):
                extra.append(f"{flag}={rest.pop(0)}")
            else:
                extra.append(flag)
        fields = {_KNOWN[flag]: _number(flag, v) if flag in _NUMBERS else v for flag, v in known.items()}
        return cls(CompileOptions(**fields, extra=tuple(extra)), tuple(inputs), settings)  # type: ignore[arg-type]


_KNOWN = {
    "--framework": "framework",
    "--target": "target",
    "--lnc": "lnc",
    "--optlevel": "opt_level",
    "--model-type": "model_type",
    "--auto-cast": "auto_cast",
    "--auto-cast-type": "auto_cast_type",
}
_NUMBERS = ("--lnc", "--optlevel")


def _split(word: str) -> tuple[str, str | None]:
    if word.startswith("-O") and word[2:].lstrip("="):
        return "--optlevel", word[2:].lstrip("=")
    flag, equals, value = word.partition("=")
    return _ALIASES.get(flag, flag), value if equals else None


def _number(flag: str, value: str) -> int:
    # 0 would mean "the target's own" to CompileOptions, and is nothing a caller may ask for.
    if not (value.isascii() and value.isdigit()) or int(value[:9]) == 0:
        _refuse("-O" if flag == "--optlevel" else flag, value, ("1", "2", "3") if flag == "--optlevel" else ("1", "2"))
    return int(value[:9])


def _refuse(flag: str, value: str, choices: Sequence[str], where: str = "") -> NoReturn:
    raise OptionsError(
        f"`{value}` is no value of option `{flag}`{where}",
        hint=f"use {flag} {' or '.join((', '.join(choices[:-1]), choices[-1]) if len(choices) > 1 else choices)}",
    )
