"""Where a NEFF of the local tier came from, so that one fetched before signatures were required is not used after.

The tier is private to its user, so a note beside the NEFF is believed: "made here", or the manifest that vouched for
it, whose signature is verified again with the keys that are trusted by then.
"""

from __future__ import annotations

import hashlib

from cache_server.fields import encode_object, parse_object
from cache_server.manifest import MANIFEST_LIMIT, NEFF_FILE, Manifest, manifest_from_fields
from cache_server.trust.signatures import Verifier

ORIGIN_LIMIT = MANIFEST_LIMIT + 4096  # bytes


def origin_note(neff: bytes, manifest: Manifest | None) -> bytes:
    """What stands beside a NEFF that was fetched with `manifest`, or made by this host (None)."""
    if manifest is None:
        return encode_object({"made_here": hashlib.sha256(neff).hexdigest()})
    return encode_object({"manifest": manifest.to_json()})


def vouched_for(note: bytes | None, *, key: str, sha256: str, verifier: Verifier, namespace: str, ours: bool) -> bool:
    """Whether a NEFF with this digest may be used by who verifies signatures of this namespace.

    `ours`: nobody else can write the note, so that it is believed where it says that this host made the NEFF.
    """
    try:
        fields = parse_object(note or b"{}", limit=ORIGIN_LIMIT)
        if ours and fields.raw().get("made_here") == sha256:
            return True
        manifest = manifest_from_fields(fields.object("manifest"), key=key)
    except ValueError:
        return not verifier.required
    blob = manifest.files.get(NEFF_FILE)
    if blob is None or blob.sha256 != sha256:
        return not verifier.required
    return verifier.objection(manifest, namespace) is None
