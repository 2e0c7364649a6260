"""What a compile writes beside its NEFF, such as a log that was asked for, on its way through the tiers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cache_server.fields import Fields, parse_object

if TYPE_CHECKING:
    from cache_server.manifest import Manifest
    from cache_server.tier import SharedStore

_PREFIX = "output:"  # of their names in a manifest; an imported entry's other files are none of a compile's caller
_INDEX_LIMIT = 1 << 16  # bytes
_COUNT_LIMIT = 32
_SIZE_LIMIT = 1 << 44


@dataclass(frozen=True, slots=True)
class Built:
    """A NEFF, and the contents of the other files that the compile's caller asked for, by name."""

    neff: bytes
    outputs: Mapping[str, bytes] = field(default_factory=dict)


def file_name(output: str) -> str:
    """What a manifest calls an output."""
    return _PREFIX + output


def is_output(name: str) -> bool:
    """Whether a file of a manifest is one."""
    return name.startswith(_PREFIX)


def fetch_outputs(store: SharedStore, manifest: Manifest) -> dict[str, bytes] | None:
    """The verified outputs that a manifest names; None if one is missing or damaged. Raises StoreError."""
    found = {}
    for name, blob in manifest.files.items():
        if is_output(name):
            content = store.read_blob(blob)
            if content is None:
                return None
            found[name.removeprefix(_PREFIX)] = content
    return found


def pack_outputs(outputs: Mapping[str, bytes]) -> bytes:
    """One file that holds them all: a line of JSON with names, sizes and digests, then the contents."""
    listed = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in outputs.items()]
    return json.dumps({"outputs": listed}).encode() + b"\n" + b"".join(outputs.values())


def unpack_outputs(data: bytes) -> dict[str, bytes]:
    """The reverse. Raises ValueError for anything else, and for contents that do not match their digests."""
    index, newline, rest = data.partition(b"\n")
    if not newline:
        raise ValueError("no index")
    listed = parse_object(index, limit=_INDEX_LIMIT).raw().get("outputs")
    if not isinstance(listed, list) or len(listed) > _COUNT_LIMIT:
        raise ValueError("no list of outputs")
    found, at = {}, 0
    for entry in listed:
        if not isinstance(entry, list) or len(entry) != 3:
            raise ValueError("not an output")
        fields = Fields.of(dict(zip(("name", "size", "sha256"), entry, strict=True)), "output")
        size = fields.integer("size", low=0, high=_SIZE_LIMIT)
        content = rest[at : at + size]
        if len(content) != size or hashlib.sha256(content).hexdigest() != fields.text("sha256", limit=64):
            raise ValueError("an output does not match its digest")
        found[fields.text("name", limit=200)] = content
        at += size
    if at != len(rest):
        raise ValueError("more bytes than outputs")
    return found
