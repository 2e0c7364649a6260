"""NEFFs in PyTorch's portable cache: `torch.compiler.save_cache_artifacts()` and `load_cache_artifacts()`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cache_server import CacheResult, KeyParts

ARTIFACT = "neuron_neff"
_HEADER_LIMIT = 1 << 20  # bytes


def record(parts: KeyParts, result: CacheResult) -> None:
    """Notes a graph's NEFF for the next `save_cache_artifacts`."""
    from torch.compiler._cache import CacheArtifactManager

    CacheArtifactManager.record_artifact(ARTIFACT, parts.short_key, packed(parts, result))


def packed(parts: KeyParts, result: CacheResult) -> bytes:
    """The parts of the key as a line of JSON, then the NEFF."""
    seconds = result.compile_seconds or result.saved_seconds
    header = json.dumps({"parts": parts.to_json(), "compile_seconds": seconds}, separators=(",", ":"))
    return header.encode() + b"\n" + result.neff


def unpacked(content: bytes) -> tuple[KeyParts, bytes, float]:
    """Raises ValueError for anything that `packed` does not make, or whose NEFF is none."""
    from cache_server.fields import parse_object
    from cache_server.keys import KeyParts
    from neuron_runtime.neff import NeffError, read_neff

    header, _, neff = content.partition(b"\n")
    fields = parse_object(header, limit=_HEADER_LIMIT)
    seconds = fields.number("compile_seconds", low=0, high=1e8)
    try:
        read_neff(neff)
    except NeffError as error:
        raise ValueError(str(error)) from error
    return KeyParts.from_fields(fields.object("parts")), neff, seconds


def _populate(key: str, content: bytes) -> None:
    import logging

    from torch_neuronx.eager.models import builder

    cache = builder().cache
    try:
        if cache.trust is not None:
            raise ValueError("signatures are required here, and it has none")
        parts, neff, seconds = unpacked(content)
        if parts.short_key != key:
            raise ValueError("its key is not that of its parts")
    except ValueError as error:
        logging.getLogger("torch_neuronx").warning("passed over NEFF %s of the cache artifacts: %s", key, error)
        return
    cache.local.put(parts, neff, seconds)


def register_artifact() -> None:
    """Makes the type known to PyTorch; once."""
    from torch.compiler._cache import CacheArtifact, CacheArtifactFactory

    if ARTIFACT in CacheArtifactFactory._artifact_types:
        return

    class NeffArtifact(CacheArtifact):
        def populate_cache(self) -> None:
            _populate(self.key, self.content)

        @staticmethod
        def type() -> str:
            return ARTIFACT

        @staticmethod
        def encode(content: Any) -> bytes:
            return bytes(content)

    CacheArtifactFactory.register(NeffArtifact)
