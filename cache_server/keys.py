"""The key of a compile: everything that decides the NEFF, and nothing that does not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cache_server.errors import CacheError
from cache_server.fields import Fields
from cache_server.flags import canonical_flags, without_option
from cache_server.ir import digest_ir
from cache_server.names import check_digest

SCHEMA = 1

_LABELS = {
    "schema": "key schema",
    "ir": "graph (IR digest)",
    "compiler": "compiler",
    "compiler_version": "compiler version",
    "flags": "flags",
    "target": "target",
    "lnc": "logical NeuronCore size",
}


@dataclass(frozen=True)
class KeyParts:
    """The labelled inputs of one compile. Rank, device index, host, paths and time have no place here.

    `ir_digest` is `digest_ir(...)`; `flags` are canonical (build with `of`, which sees to it); `lnc` is the number
    of physical cores a logical NeuronCore has. Equal parts have equal keys in every process on every host.
    """

    ir_digest: str
    compiler: str
    compiler_version: str
    flags: tuple[str, ...]
    target: str
    lnc: int
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        check_digest(self.ir_digest)
        for name in ("compiler", "compiler_version", "target"):
            if not getattr(self, name):
                raise ValueError(f"a key needs a {name.replace('_', ' ')}")

    @classmethod
    def of(
        cls, *, ir: bytes, compiler: str, compiler_version: str, flags: Iterable[str], target: str, lnc: int
    ) -> KeyParts:
        """Parts for compiling the graph `ir` with `flags` as a command line has them.

        Raises CacheError when the flags name another target or LNC than the arguments do.
        """
        canonical = canonical_flags(flags)
        for option, chosen in (("--target", target), ("--lnc", str(lnc))):
            canonical, given = without_option(canonical, option)
            if given and given[-1] != chosen:
                raise CacheError(
                    f"the flags ask for `{option} {given[-1]}`, but the compile is for {chosen}",
                    hint=f"remove `{option}` from the flags, or choose {given[-1]} everywhere",
                )
        return cls(digest_ir(ir), compiler, compiler_version, canonical, target, lnc)

    @cached_property
    def key(self) -> str:
        """64 hexadecimal characters: SHA-256 over the labelled parts."""
        labelled = json.dumps(list(self.to_json().items()), separators=(",", ":"))
        return hashlib.sha256(labelled.encode()).hexdigest()

    @property
    def short_key(self) -> str:
        """The first 32 characters of `key`, as long as TorchNeuron's own persistent keys are."""
        return self.key[:32]

    def to_json(self) -> dict[str, Any]:
        """The parts by label, in the order in which the key hashes them."""
        return {
            "schema": self.schema,
            "ir": self.ir_digest,
            "compiler": self.compiler,
            "compiler_version": self.compiler_version,
            "flags": list(self.flags),
            "target": self.target,
            "lnc": self.lnc,
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> KeyParts:
        """Raises ValueError on anything that `to_json` does not write."""
        return cls(
            schema=fields.integer("schema", low=1, high=10**6),
            ir_digest=fields.text("ir", limit=64),
            compiler=fields.text("compiler", limit=200),
            compiler_version=fields.text("compiler_version", limit=200),
            flags=fields.texts("flags", count=1000, limit=8192),
            target=fields.text("target", limit=200),
            lnc=fields.integer("lnc", low=1, high=1024),
        )


def explain(parts: KeyParts) -> list[tuple[str, str]]:
    """The parts of a key by their names in words, in the order in which the key hashes them."""
    values = {**parts.to_json(), "flags": " ".join(parts.flags) or "none"}
    return [(_LABELS[name], str(value)) for name, value in values.items()]


def diff(a: KeyParts, b: KeyParts) -> list[str]:
    """Why two compiles have different keys, one sentence a difference; empty when their keys are equal."""
    left, right = a.to_json(), b.to_json()
    sentences = [
        f"{_LABELS[name]}: {left[name]} against {right[name]}"
        for name in left
        if name != "flags" and left[name] != right[name]
    ]
    return sentences + _flag_differences(a.flags, b.flags)


def _flag_differences(a: tuple[str, ...], b: tuple[str, ...]) -> list[str]:
    if a == b:
        return []
    sentences = [f"flag only in the first: {flag}" for flag in a if flag not in b]
    sentences += [f"flag only in the second: {flag}" for flag in b if flag not in a]
    return sentences or [f"order or number of repeated flags: {' '.join(a)} against {' '.join(b)}"]
