"""From a command line and the files it names to a key."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cache_server.flags import canonical_flags
from cache_server.ir import canonical_pieces, digest_pieces
from cache_server.keys import KeyParts
from cache_server.launcher.arguments import STDIN, Call, NotCached, Option, split_words
from cache_server.launcher.references import referenced_files
from cache_server.launcher.version import Compiler

_TOKEN = re.compile(r"[^\s=,:;'\"]+")
_RESPONSE_LIMIT = 1 << 20  # bytes
_RESPONSE_DEPTH = 4
_FLAG_COUNT, _FLAG_LENGTH = 900, 8000  # a manifest has room for few more
_SINGLE_CORE_TARGETS = ("inf2", "trn1", "trn1n")  # a logical NeuronCore of all others is two physical ones


@dataclass(frozen=True, slots=True)
class Request:
    """A compile that can be looked up. `call` names the files, `stdin` is the input that came that way.

    `retry`: the caller wants what is remembered to have failed compiled again.
    """

    call: Call
    parts: KeyParts
    stdin: bytes | None
    retry: bool

    @property
    def label(self) -> str:
        """For people: the input's name."""
        return "standard input" if self.stdin is not None else Path(self.call.inputs[0]).name


def understand(
    arguments: Sequence[str], environ: Mapping[str, str], compiler: Callable[[], Compiler], *, stdin: bool = True
) -> Request:
    """The request that `arguments` make, with what the vendor's variables add to it. Reads the files they name.

    `compiler` is asked last. Raises NotCached for what has to go to the real compiler as it is, OSError for files that
    cannot be read.
    """
    call = Call.parse(tuple(_expanded(arguments)))
    inherited = tuple(_environment_options(environ))
    if call.has("--no_cache", "--no-cache") or any(o.name in ("--no_cache", "--no-cache") for o in inherited):
        raise NotCached("")
    target, lnc, lnc_given = _device(call, environ)
    program = None
    digests: list[str] = []
    references: dict[str, str] = {}
    for name in call.inputs:
        if name == STDIN:
            if not stdin or program is not None:
                raise NotCached("standard input cannot be read twice")
            program = sys.stdin.buffer.read()
        ir = program if name == STDIN else _read_input(name)
        pieces = canonical_pieces(ir or b"")
        digests.append(digest_pieces(pieces))
        references |= referenced_files(pieces)
    flags = [*canonical_flags(_spelled(call.options))]
    flags += [f"--from-environment={flag}" for flag in canonical_flags(_spelled(inherited)) if flag not in flags]
    flags += [f"--with-output={option.name}" for option in call.logs]
    flags += [f"--with-file={Path(path).name}:{sha256}" for path, sha256 in references.items()]
    # Of these targets a logical NeuronCore has one size. Of others the compiler's default need not be what is assumed.
    flags += [] if lnc_given or target in _SINGLE_CORE_TARGETS else ["--lnc-by-default"]
    # There is one framework, and what is imported from libneuronxla's cache does not name it.
    kept = tuple(flag for flag in flags if not flag.startswith(("--target=", "--lnc=")) and flag != "--framework=XLA")
    if len(kept) > _FLAG_COUNT or any(len(flag) > _FLAG_LENGTH for flag in kept):
        raise NotCached("the command line is longer than a key has room for")
    digest = digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
    name, version = compiler()
    parts = KeyParts(digest, name, version, kept, target, lnc)
    retry = any(option.name == "--retry_failed_compilation" for option in (*call.options, *inherited))
    return Request(call, parts, program, retry)


def _device(call: Call, environ: Mapping[str, str]) -> tuple[str, int, bool]:
    """Target, LNC, and whether the command itself names the LNC."""
    target = call.last("--target") or environ.get("NEURON_PLATFORM_TARGET_OVERRIDE")
    if not target:
        raise NotCached("the command names no `--target`")
    given = call.last("--lnc", "--logical-nc-config")
    default = environ.get("NEURON_LOGICAL_NC_CONFIG") or ("1" if target in _SINGLE_CORE_TARGETS else "2")
    lnc = given or default
    if not lnc.isdecimal() or not 1 <= int(lnc) <= 64 or len(target) > 100:
        raise NotCached("")
    return target, int(lnc), given is not None


def _expanded(words: Sequence[str], depth: int = 0) -> Iterator[str]:
    """The words with those of response files (`@file`) in their place."""
    for word in words:
        if not (word.startswith("@") and len(word) > 1):
            yield word
            continue
        if depth == _RESPONSE_DEPTH:
            raise NotCached("response files name one another too deeply")
        path = Path(word[1:])
        if not path.is_file() or path.stat().st_size > _RESPONSE_LIMIT:
            raise NotCached(f"the response file `{path}` cannot be read")
        try:
            yield from _expanded(shlex.split(path.read_text()), depth + 1)
        except ValueError as error:
            raise NotCached(f"the response file `{path}` cannot be split into words: {error}") from error


def _environment_options(environ: Mapping[str, str]) -> Iterator[Option]:
    """Callers put `NEURON_CC_FLAGS` on the command line. Should the compiler read it as well, the key has it."""
    try:
        words = shlex.split(environ.get("NEURON_CC_FLAGS", ""))
    except ValueError as error:
        raise NotCached(f"`NEURON_CC_FLAGS` cannot be split into words: {error}") from error
    for option, _, _ in split_words(words):
        if option is not None:
            yield option


def _read_input(name: str) -> bytes:
    path = Path(name)
    if not path.exists():
        raise NotCached("")  # the compiler will say so
    if not stat.S_ISREG(path.stat().st_mode):
        raise NotCached(f"the input `{name}` is no regular file, so it could not be read twice")
    return path.read_bytes()


def _spelled(options: Sequence[Option]) -> Iterator[str]:
    """The options as `canonical_flags` wants them, each file they name by its content."""
    for name, value in options:
        if value is None or name in ("--logfile", "--log-file"):
            yield name if value is None else f"{name}={value}"
        else:
            yield f"{name}={_TOKEN.sub(_content, value)}"


def _content(match: re.Match[str]) -> str:
    word = match.group()
    if not ("/" in word or "." in word):
        return word
    path = Path(word)
    try:
        mode = path.stat().st_mode
    except OSError:
        return word
    if stat.S_ISREG(mode):
        return f"sha256.{hashlib.sha256(path.read_bytes()).hexdigest()}"
    if stat.S_ISDIR(mode) and os.sep in word:
        raise NotCached(f"an option names the directory `{word}`, of which it is not known what is read or written")
    return word
