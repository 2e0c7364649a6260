"""The local tier: NEFFs on this host, in the directory layout of TorchNeuron's own persistent cache."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cache_server.backends.posix import PosixBackend
from cache_server.errors import StoreError
from cache_server.fields import parse_object
from cache_server.hostlock import HostLock
from cache_server.keys import KeyParts
from cache_server.local_limit import LocalLimit
from cache_server.manifest import MANIFEST_LIMIT, Manifest, decode_manifest
from cache_server.outputs import pack_outputs, unpack_outputs
from cache_server.permissions import PRIVATE

if TYPE_CHECKING:
    from cache_server.trust.signatures import Verifier

log = logging.getLogger("neuron_env.cache")

_LIMIT = 1 << 44  # bytes
_DIGEST_LIMIT = 1024
_DIGEST_FILE = re.compile(
    r"# neuron-env-neff 1 key=(?P<key>[0-9a-f]{64}) size=(?P<size>\d{1,14}) compile_seconds=(?P<seconds>\d{1,9}\.\d+)\n"
    r"(?P<sha256>[0-9a-f]{64})  [0-9a-f]{32}\.neff\n"
)

_DESCRIBED = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/(?P<key>[0-9a-f]{32})\.neff\.json")


@dataclass(frozen=True, slots=True)
class LocalHit:
    """A verified NEFF, the seconds that compiling it had taken, and the manifest it was just fetched with, if any."""

    neff: bytes
    compile_seconds: float
    manifest: Manifest | None = None
    outputs: Mapping[str, bytes] = field(default_factory=dict)


class LocalTier:
    """NEFFs at `<root>/<k[0:2]>/<k[2:4]>/<k>.neff`, k being the 32-character short key.

    The layout has room for the NEFF alone, so its digest stands beside it in `<k>.neff.sha256`, a file that
    `sha256sum --check` reads and TorchNeuron ignores. It was chosen over the hash in the NEFF's own header because
    that one does not cover the header, may be MD5, and says nothing of the key. The digest file is written first: a
    crash between the two leaves a miss, never a NEFF with the wrong digest. Nothing is flushed to disk: what a power
    cut tears does not verify. A NEFF without a digest file is not ours, cannot be verified, and is a miss. One that
    does not match is moved to `quarantine/` and is a miss.

    With `max_bytes` the NEFFs used least recently make room for new ones; one that would be larger alone is not kept.
    With `read_only` nothing is kept, moved or marked. With a `verifier`, `<k>.neff.origin` says where a NEFF came from,
    and a hit needs an origin that the verifier accepts for `namespace`: see trust/origin.py. In a tier that is only
    read, which somebody else filled, it needs a signature. `<k>.neff.json` is the entry's manifest,
    with all that publishing it later takes; a NEFF is as good without. `<k>.neff.outputs` holds the other files of a
    compile that has any; one that is damaged makes the NEFF a miss.

    Nothing here raises: a local tier that cannot be read misses, one that cannot be written is passed over.
    """

    def __init__(
        self,
        root: Path,
        *,
        max_bytes: int | None = None,
        read_only: bool = False,
        verifier: Verifier | None = None,
        namespace: str = "default",
    ) -> None:
        self.root = root
        self._read_only = read_only
        self._limit = None if max_bytes is None or read_only else LocalLimit(root, max_bytes)
        self._verifier = verifier
        self._namespace = namespace
        self.quarantined = 0
        self.errors = 0
        self._files = PosixBackend(root, PRIVATE, durable=False)

    def path(self, parts: KeyParts) -> Path:
        """Where the NEFF of `parts` is or would be."""
        return self.root / _path(parts.short_key)

    def get(self, parts: KeyParts) -> LocalHit | None:
        """The NEFF, verified against its digest; None if there is none."""
        path = _path(parts.short_key)
        try:
            note = self._files.read(path + ".sha256", _DIGEST_LIMIT)
            if note is None:
                return None
            neff = self._files.read(path, _LIMIT)
        except StoreError as error:
            self._complain(error)
            return None
        if neff is None:
            return None
        match = _DIGEST_FILE.fullmatch(note.decode("ascii", "replace"))
        if match is None:
            self._quarantine(path, "its digest file is damaged")
            return None
        if match["key"] != parts.key:
            return None  # another key with the same first half
        if len(neff) != int(match["size"]) or hashlib.sha256(neff).hexdigest() != match["sha256"]:
            self._quarantine(path, "it does not match its digest")
            return None
        if self._verifier is not None and not self._vouched_for(path, parts.key, match["sha256"], self._verifier):
            return None
        if self._limit is not None:
            self._limit.touch(self.root / f"{path}.sha256")
        try:
            packed = self._files.read(path + ".outputs", _LIMIT)
            outputs = unpack_outputs(packed) if packed is not None else {}
        except StoreError as error:
            self._complain(error)
            return None
        except ValueError as problem:
            self._quarantine(path, f"its other outputs are damaged: {problem}")
            return None
        return LocalHit(neff, float(match["seconds"]), outputs=outputs)

    def put(
        self,
        parts: KeyParts,
        neff: bytes,
        compile_seconds: float,
        *,
        manifest: Manifest | None = None,
        made: Manifest | None = None,
        outputs: Mapping[str, bytes] | None = None,
    ) -> bool:
        """Keeps a NEFF for this host; False if it could not be kept.

        `manifest` is what it was fetched with, `made` what describes one that was compiled here.
        """
        if self._read_only or (self._limit is not None and len(neff) > self._limit.max_bytes):
            return False
        path = _path(parts.short_key)
        try:
            if self._verifier is not None:
                from cache_server.trust.origin import origin_note

                self._files.write(path + ".origin", origin_note(neff, manifest))
            if outputs:
                self._files.write(path + ".outputs", pack_outputs(outputs))
            for name, content in files_of(parts, neff, compile_seconds, made or manifest):
                self._files.write(name, content)
        except StoreError as error:
            self._complain(error)
            return False
        if self._limit is not None:
            self._limit.added(len(neff))
        return True

    def holds(self, key: str) -> bool:
        """Whether the NEFF of `key` is here, by its name and length alone: `get` is what verifies it."""
        path = _path(key[:32])
        try:
            note = self._files.read(path + ".sha256", _DIGEST_LIMIT)
            found = self._files.find(path)
        except StoreError as error:
            self._complain(error)
            return False
        match = None if note is None else _DIGEST_FILE.fullmatch(note.decode("ascii", "replace"))
        return match is not None and found is not None and match["key"] == key and found.size == int(match["size"])

    def manifests(self) -> Iterator[Manifest]:
        """What describes the NEFFs that are here and could be published. Lists the tier: for administration."""
        for path in self._files.walk(""):
            if (match := _DESCRIBED.fullmatch(path)) is None:
                continue
            try:
                data = self._files.read(path, MANIFEST_LIMIT)
                if data is not None and (manifest := described_by(data, match["key"])) is not None:
                    yield manifest
            except StoreError as error:
                self._complain(error)

    def lock(self, parts: KeyParts) -> HostLock:
        """The lock under which one process of this host at a time fetches or compiles the key. Not taken yet."""
        return HostLock(self.root / "locks", parts.short_key)

    def _vouched_for(self, path: str, key: str, sha256: str, verifier: Verifier) -> bool:
        from cache_server.trust.origin import ORIGIN_LIMIT, vouched_for

        try:
            note = self._files.read(path + ".origin", ORIGIN_LIMIT)
        except StoreError as error:
            self._complain(error)
            return False
        # What others filled may say "made here" of anything.
        ours = not self._read_only
        return vouched_for(note, key=key, sha256=sha256, verifier=verifier, namespace=self._namespace, ours=ours)

    def _complain(self, error: StoreError) -> None:
        self.errors += 1
        level = logging.WARNING if self.errors == 1 else logging.DEBUG
        log.log(level, "the local tier is passed over: %s", error)

    def _quarantine(self, path: str, why: str) -> None:
        self.quarantined += 1
        if self._read_only:
            log.warning("not used: %s, since %s", self.root / path, why)
            return
        target = f"quarantine/{path.rpartition('/')[2]}-{os.urandom(4).hex()}"
        log.warning("moved %s to %s: %s", self.root / path, target, why)
        try:
            self._files.move(path, target)
            self._files.unlink(path + ".sha256")
            self._files.unlink(path + ".json")
            self._files.unlink(path + ".outputs")
        except StoreError as error:
            self._complain(error)


def files_of(
    parts: KeyParts, neff: bytes, compile_seconds: float, manifest: Manifest | None
) -> Iterator[tuple[str, bytes]]:
    """The files of one NEFF and their paths in a tier, in the order in which they must be written."""
    path = _path(parts.short_key)
    seconds = min(max(compile_seconds, 0.0), 1e8)
    if manifest is not None:
        yield path + ".json", manifest.encode()
    note = (
        f"# neuron-env-neff 1 key={parts.key} size={len(neff)} compile_seconds={seconds:.6f}\n"
        f"{hashlib.sha256(neff).hexdigest()}  {parts.short_key}.neff\n"
    )
    yield path + ".sha256", note.encode()
    yield path, neff


def described_by(data: bytes, short_key: str) -> Manifest | None:
    """The manifest in a `<k>.neff.json`; None if it is damaged, a later version's, or of another key or a failure."""
    try:
        key = parse_object(data, limit=MANIFEST_LIMIT).text("key", limit=64)
        manifest = decode_manifest(data, key=key) if key[:32] == short_key else None
    except ValueError:
        return None
    return manifest if manifest is not None and manifest.failure is None else None


def _path(short_key: str) -> str:
    return f"{short_key[0:2]}/{short_key[2:4]}/{short_key}.neff"
