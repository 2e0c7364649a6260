"""Compiler flags in the one form that enters a key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Options that say where things go, what is printed or how the vendor's own cache behaves: never what is compiled.
_IRRELEVANT = frozenset(
    {
        "--output", "-o", "--workdir", "--work-dir", "--artifact-dir", "--temp-dir", "--logfile", "--log-file",
        "--logfile-verbose", "--log-level", "--verbose", "-v", "--quiet", "--cache_dir", "--cache-dir", "--no_cache",
        "--no-cache", "--retry_failed_compilation", "--dump", "--dump-to", "--dump-dir", "--debug-dump-path",
    }
)  # fmt: skip
_ALIASES = {"--optlevel": "-O", "--logical-nc-config": "--lnc", "-O": "-O"}
_GLUED = re.compile(r"(-O)(\d)")
_TOGGLE = re.compile(r"^--(?:no-|enable-|disable-)")


class _Flag(NamedTuple):
    name: str
    value: str | None


def canonical_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """The flags that decide what is compiled, one text an option, in an order that callers cannot influence.

    `--opt value` and `--opt=value` are one spelling, as are `--optlevel=2` and `-O2`. Output names, work and log
    places, and words that belong to no option (the verb, the input file) are dropped. A value that is an absolute
    path keeps only its last component, so a moved virtual environment changes nothing. Different options are sorted;
    repeats of one option, and `--enable-x` against `--disable-x`, keep their order, because the last one wins.
    """
    kept = [flag for flag in _split(flags) if flag.name not in _IRRELEVANT]
    kept.sort(key=lambda flag: _TOGGLE.sub("--", flag.name))
    return tuple(_spelled(flag) for flag in kept)


def without_option(flags: tuple[str, ...], name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Splits canonical flags into those that are not option `name`, and the values given to it."""
    prefix = name + "="
    rest = tuple(flag for flag in flags if not flag.startswith(prefix))
    return rest, tuple(flag.removeprefix(prefix) for flag in flags if flag.startswith(prefix))


def _split(flags: Iterable[str]) -> Iterator[_Flag]:
    pending: str | None = None
    for word in flags:
        if not word.startswith("-") or _is_number(word):
            if pending is not None:
                yield _Flag(pending, word)
            pending = None
            continue
        if pending is not None:
            yield _Flag(pending, None)
        name, equals, value = word.partition("=")
        if glued := _GLUED.fullmatch(name):
            name, equals, value = glued[1], "=", glued[2]
        name = _ALIASES.get(name, name)
        pending = None if equals else name
        if equals:
            yield _Flag(name, value)
    if pending is not None:
        yield _Flag(pending, None)


def _is_number(word: str) -> bool:
    return word[1:].replace(".", "", 1).isdigit()


def _spelled(flag: _Flag) -> str:
    if flag.value is None:
        return flag.name
    value = flag.value.rstrip("/").rpartition("/")[2] if flag.value.startswith("/") else flag.value
    return f"{flag.name}{value}" if flag.name == "-O" else f"{flag.name}={value}"
