"""The command line of a compile: what is read, what is written, and what decides the result. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

DEFAULT_OUTPUT = "file.neff"
STDIN = "-"

# Options that take a value, so that the word behind them is no input. Of others it is not known: see `Call.parse`.
_VALUED = frozenset(
    {
        "--framework", "--target", "--lnc", "--logical-nc-config", "--optlevel", "-O", "--model-type", "--auto-cast",
        "--auto-cast-type", "--distribution-strategy", "--output", "-o", "--logfile", "--log-file", "--verbose", "-v",
    }
)  # fmt: skip
_SWITCHES = frozenset(
    {
        "--enable-experimental-O1", "--enable-experimental-spmd", "--enable-fast-context-switch",
        "--enable-fast-loading-neuron-binaries", "--enable-mixed-precision-accumulation", "--enable-saturate-infinity",
        "--no_cache", "--no-cache", "--retry_failed_compilation",
    }
)  # fmt: skip
_OUTPUTS = frozenset({"--output", "-o"})
LOGS = frozenset({"--logfile", "--log-file"})
# What keeps whole directories of intermediate files, or files under names that only the compiler knows.
_UNKNOWN_FILES = re.compile(r"dump|save-?temps|work-?_?dir|artifact|temp-?_?dir|trace-?dir|profil", re.IGNORECASE)


class Option(NamedTuple):
    """One option as given; `value` is None for a switch."""

    name: str
    value: str | None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value}"


class NotCached(Exception):  # noqa: N818 - an outcome, not an error
    """This command is not one whose result could be kept: the text says why; it is empty where nobody needs to know."""


@dataclass(frozen=True, slots=True)
class Call:
    """A `compile` command. `options` are all but those of the output, in the order given."""

    inputs: tuple[str, ...]
    output: str
    options: tuple[Option, ...]

    @property
    def logs(self) -> tuple[Option, ...]:
        """The options that ask for a log in a file."""
        return tuple(option for option in self.options if option.name in LOGS)

    def last(self, *names: str) -> str | None:
        """The value that counts of an option with these spellings; None if it is not given."""
        return next((option.value for option in reversed(self.options) if option.name in names), None)

    def has(self, *names: str) -> bool:
        return any(option.name in names for option in self.options)

    @classmethod
    def parse(cls, words: Sequence[str]) -> Call:
        """Reads the words behind the program's name, response files already put in.

        Options may stand before the verb. A word behind an option that is not known to take one is its value, unless
        the command has no other input: then that word is the input. Raises NotCached for what is no compile, and for
        one that writes files nobody can name beforehand.
        """
        options: list[Option] = []
        bare: list[str] = []
        guesses: list[int] = []
        for option, word, guessed in split_words(words):
            if option is None:
                bare.append(word)
                continue
            if guessed:
                guesses.append(len(options))
            options.append(option)
        if bare[:1] != ["compile"]:
            raise NotCached("")
        inputs = bare[1:]
        if not inputs and guesses:
            at = guesses[0]
            name, value = options[at]
            inputs = [value or ""]
            options[at] = Option(name, None)
        if not inputs:
            raise NotCached("the command names no input")
        for option in options:
            if _UNKNOWN_FILES.search(str(option)) and option.name not in _OUTPUTS | LOGS:
                raise NotCached(f"`{option.name}` has the compiler write files that the cache does not keep")
        outputs = [option.value for option in options if option.name in _OUTPUTS]
        kept = tuple(option for option in options if option.name not in _OUTPUTS)
        return cls(tuple(inputs), (outputs[-1] if outputs else None) or DEFAULT_OUTPUT, kept)


def split_words(words: Sequence[str]) -> Iterator[tuple[Option | None, str, bool]]:
    """Options, and words that belong to none; the last member tells a value that may be a word of its own."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            yield from ((None, each, False) for each in rest)
            return
        if not word.startswith("-") or word == STDIN:
            yield None, word, False
            continue
        name, equals, value = word.partition("=")
        if word.startswith("-O") and word[2:3].isdigit():
            name, equals, value = "-O", "=", word[2:]
        follows = bool(rest) and (not rest[0].startswith("-") or rest[0][1:].replace(".", "", 1).isdigit())
        if equals:
            yield Option(name, value), "", False
        elif name in _SWITCHES or not follows or (rest[0] == "compile" and name not in _VALUED):
            yield Option(name, None), "", False
        else:
            yield Option(name, rest.pop(0)), "", name not in _VALUED
