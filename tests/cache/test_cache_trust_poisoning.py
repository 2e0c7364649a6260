"""Somebody can write the store but has no key: no reader that requires signatures ever runs what they left there."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cache_kit import parts
from trust_kit import EVIL, GOOD, Fleet, blob_path, entry_path, evil, manifest_of, overwrite

from cache_server import CacheSettings, NeffCache
from cache_server.administration.fsck import Fault, check, repair
from cache_server.leases import Lease, Vacant
from cache_server.leases.owner import Owner
from cache_server.manifest import NEFF_FILE, Failure, Manifest, decode_manifest
from cache_server.result import Outcome
from cache_server.store import Put
from cache_server.trust.keys import SigningKey
from cache_server.trust.signatures import Signer
from neuron_runtime.compiler.errors import FailureKind

OWN = b"what this job compiles for itself"


def replaced_blob(fleet: Fleet, good: Manifest) -> None:
    fleet.attacker().store.backend.write(blob_path(good.files[NEFF_FILE]), EVIL)


def replaced_blob_of_the_same_length(fleet: Fleet, good: Manifest) -> None:
    fleet.attacker().store.backend.write(blob_path(good.files[NEFF_FILE]), b"!" * len(GOOD))


def replaced_manifest(fleet: Fleet, good: Manifest) -> None:
    store = fleet.attacker().store
    overwrite(fleet.attacker(), manifest_of(store.put_blob(EVIL)))


def swapped_digest(fleet: Fleet, good: Manifest) -> None:
    overwrite(fleet.attacker(), evil(fleet.attacker(), good))


def swapped_digest_and_stripped_signature(fleet: Fleet, good: Manifest) -> None:
    overwrite(fleet.attacker(), replace(evil(fleet.attacker(), good), signature=None))


def stripped_signature(fleet: Fleet, good: Manifest) -> None:
    overwrite(fleet.attacker(), replace(good, signature=None))


def key_of_their_own(fleet: Fleet, good: Manifest) -> None:
    overwrite(fleet.attacker(), Signer(SigningKey.generate()).sign(evil(fleet.attacker(), good), "default"))


def key_of_their_own_under_the_trusted_name(fleet: Fleet, good: Manifest) -> None:
    signed = Signer(SigningKey.generate()).sign(evil(fleet.attacker(), good), "default")
    assert signed.signature is not None
    named = replace(signed.signature, key_id=fleet.key.public.key_id)
    overwrite(fleet.attacker(), replace(signed, signature=named))


def entry_of_another_key(fleet: Fleet, good: Manifest) -> None:
    other = fleet.publish(EVIL, ir="another graph")
    store = fleet.attacker().store
    store.backend.write(entry_path(store, good.key), other.encode())


def files_of_another_signed_entry(fleet: Fleet, good: Manifest) -> None:
    other = fleet.publish(EVIL, ir="another graph")
    overwrite(fleet.attacker(), replace(good, files=other.files, signature=other.signature))


def entry_of_another_namespace(fleet: Fleet, good: Manifest) -> None:
    overwrite(fleet.attacker(), fleet.publish(EVIL, namespace="sandbox"))


def failure_that_never_happened(fleet: Fleet, good: Manifest) -> None:
    failure = Failure(FailureKind.COMPILER_ERROR, "do not even try", time.time() + 1e6)
    overwrite(fleet.attacker(), replace(good, files={}, failure=failure))


def settled_record(fleet: Fleet, good: Manifest) -> None:
    """No entry, and a lease record that says the key was published just now."""
    storage = fleet.attacker()
    forged = evil(storage, good)
    storage.store.backend.remove_if(entry_path(storage.store, good.key), good.encode())
    name = storage.store.record_name(good.key)
    lease = Lease.claim(storage.records, name, Vacant(0, None), owner=Owner.here(), lease_seconds=15.0)
    lease.publish(replace(forged, epoch=lease.epoch))


def unsigned_settled_record(fleet: Fleet, good: Manifest) -> None:
    settled_record(fleet, replace(good, signature=None))
    fleet.attacker().store.drop_manifest(good)


def settled_record_and_manifest(fleet: Fleet, good: Manifest) -> None:
    settled_record(fleet, good)
    replaced_manifest(fleet, good)


def settled_record_of_a_failure(fleet: Fleet, good: Manifest) -> None:
    storage = fleet.attacker()
    storage.store.backend.remove_if(entry_path(storage.store, good.key), good.encode())
    name = storage.store.record_name(good.key)
    lease = Lease.claim(storage.records, name, Vacant(0, None), owner=Owner.here(), lease_seconds=15.0)
    failure = Failure(FailureKind.COMPILER_ERROR, "do not even try", time.time() + 1e6)
    lease.publish(replace(good, files={}, failure=failure, epoch=lease.epoch))


def highest_epoch(fleet: Fleet, good: Manifest) -> None:
    overwrite(fleet.attacker(), replace(evil(fleet.attacker(), good), epoch=1 << 62))


ATTACKS: list[Callable[[Fleet, Manifest], None]] = [
    replaced_blob,
    replaced_blob_of_the_same_length,
    replaced_manifest,
    swapped_digest,
    swapped_digest_and_stripped_signature,
    stripped_signature,
    key_of_their_own,
    key_of_their_own_under_the_trusted_name,
    entry_of_another_key,
    files_of_another_signed_entry,
    entry_of_another_namespace,
    failure_that_never_happened,
    settled_record,
    unsigned_settled_record,
    settled_record_and_manifest,
    settled_record_of_a_failure,
    highest_epoch,
]


@pytest.fixture
def world(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_what_the_service_signed_is_a_hit(world: Fleet) -> None:
    world.publish()
    assert world.job().get_or_compile(parts(), lambda: OWN).neff == GOOD


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_reader_that_requires_signatures_compiles_rather_than_use(
    world: Fleet, attack: Callable[[Fleet, Manifest], None]
) -> None:
    attack(world, world.publish())
    job = world.job()
    assert job.get(parts()) is None
    result = job.get_or_compile(parts(), lambda: OWN)
    assert (result.neff, result.outcome) == (OWN, Outcome.COMPILED)
    again = world.job().get_or_compile(parts(), lambda: pytest.fail("this host made one"))
    assert (again.neff, again.outcome) == (OWN, Outcome.LOCAL_HIT)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_who_has_the_key_mends_what_was_poisoned(world: Fleet, attack: Callable[[Fleet, Manifest], None]) -> None:
    attack(world, world.publish())
    world.key.save(world.tmp / "key.pem")
    maker = world.job("maker", signing_key=world.tmp / "key.pem")
    assert maker.get_or_compile(parts(), lambda: OWN).neff == OWN
    result = world.job("reader").get_or_compile(parts(), lambda: pytest.fail("the maker published one"))
    assert (result.neff, result.outcome) == (OWN, Outcome.SHARED_HIT)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_reader_that_does_not_require_them_has_at_least_the_digest(
    world: Fleet, attack: Callable[[Fleet, Manifest], None]
) -> None:
    attack(world, world.publish())
    manifest = world.reader(required=False).store.read_manifest(parts().key)
    if manifest is not None and manifest.failure is None:
        blob = manifest.files[NEFF_FILE]
        neff = world.reader(required=False).store.read_blob(blob)
        assert neff is None or hashlib.sha256(neff).hexdigest() == blob.sha256
    if attack in (replaced_blob, replaced_blob_of_the_same_length, swapped_digest, files_of_another_signed_entry):
        result = world.job(require_signature=False).get(parts())
        assert result is None


def test_older_signed_entry_put_back_is_what_the_service_once_made_or_nothing(world: Fleet) -> None:
    old = world.publish(b"the first result, found to be wrong")
    store = world.service()
    store.drop_manifest(old)
    new = world.publish(GOOD, epoch=2)
    overwrite(world.attacker(), old)
    reader = world.reader()
    assert reader.store.read_manifest(parts().key) == old  # it is authentic: a signature does not say "still"
    assert new.signature is not None
    since = replace(world.key.public, not_before=new.signature.signed_at)
    assert world.reader(keys=(since,)).store.read_manifest(parts().key) is None
    overwrite(world.attacker(), new)
    assert world.reader(keys=(since,)).store.read_manifest(parts().key) == new


def test_refused_is_neither_error_nor_quarantined_and_is_told_once(
    world: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    swapped_digest(world, world.publish())
    job = world.job()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert job.get(parts()) is None
    assert (job.stats.refused, job.stats.errors, job.stats.quarantined) == (3, 0, 0)
    assert job.stats.to_json()["refused"] == 3
    assert len([record for record in caplog.records if "wrongly signed" in record.getMessage()]) == 1
    # Others may trust another key: the entry stays for fsck and for them.
    assert world.attacker().store.read_manifest(parts().key) is not None


def test_what_this_host_fetched_before_it_required_signatures_is_not_used_after(world: Fleet) -> None:
    storage = world.attacker()
    storage.store.put_manifest(manifest_of(storage.store.put_blob(EVIL)))
    careless = NeffCache.open(settings=CacheSettings(world.url, world.tmp / "local-reader"))
    assert careless.get_or_compile(parts(), lambda: OWN).neff == EVIL
    result = world.job("reader").get_or_compile(parts(), lambda: OWN)
    assert (result.neff, result.outcome) == (OWN, Outcome.COMPILED)


def test_key_that_is_no_longer_trusted_takes_its_neffs_from_the_local_tier_too(world: Fleet) -> None:
    world.publish()
    assert world.job().get_or_compile(parts(), lambda: OWN).outcome is Outcome.SHARED_HIT
    assert world.job().get_or_compile(parts(), lambda: OWN).outcome is Outcome.LOCAL_HIT
    new = SigningKey.generate().public.text
    assert world.job(trusted_keys=new).get_or_compile(parts(), lambda: OWN).neff == OWN


def test_note_of_another_neff_does_not_vouch_for_this_one(world: Fleet) -> None:
    world.publish()
    job = world.job()
    job.get_or_compile(parts(), lambda: OWN)
    note = job.local.path(parts()).with_suffix(".neff.origin").read_bytes()
    NeffCache.open(settings=CacheSettings(world.url, world.tmp / "local-reader")).local.put(parts(), EVIL, 1.0)
    assert job.local.path(parts()).with_suffix(".neff.origin").read_bytes() == note
    assert world.job().local.get(parts()) is None


def test_signed_entry_takes_the_place_of_an_unsigned_one_of_any_epoch(world: Fleet) -> None:
    storage = world.attacker()
    blob = storage.store.put_blob(GOOD)
    assert storage.store.put_manifest(manifest_of(blob, epoch=9)) is Put.CREATED
    service = world.service()
    assert service.put_manifest(service.signed(manifest_of(blob, epoch=1))) is Put.CREATED
    assert world.reader().store.read_manifest(parts().key) is not None
    assert service.put_manifest(service.signed(manifest_of(blob, epoch=2))) is Put.SAME
    assert service.put_manifest(service.signed(manifest_of(service.put_blob(OWN), epoch=1))) is Put.OTHER
    assert storage.store.put_manifest(manifest_of(storage.store.put_blob(OWN), epoch=1)) is Put.OTHER


def test_reader_of_an_earlier_version_takes_a_signed_manifest(world: Fleet) -> None:
    signed = world.publish()
    unsigned_reader = world.attacker().store
    assert unsigned_reader.read_manifest(signed.key) == signed
    value = signed.to_json()
    assert decode_manifest(signed.encode(), key=signed.key).to_json() == value
    assert "signature" not in replace(signed, signature=None).to_json()


@pytest.mark.parametrize("attack", [swapped_digest, stripped_signature, key_of_their_own, settled_record])
def test_fsck_finds_what_readers_refuse_and_removes_it(world: Fleet, attack: Callable[[Fleet, Manifest], None]) -> None:
    attack(world, world.publish())
    world.publish(ir="a good one")
    reader = world.reader()
    problems = check(reader, now=time.time(), grace=3600.0)
    bad = [problem for problem in problems if problem.fault is Fault.BAD_SIGNATURE]
    assert [problem.name for problem in bad] == [parts().key]
    assert repair(reader, bad[0], Owner.here())
    assert not [it for it in check(reader, now=time.time(), grace=3600.0) if it.fault is Fault.BAD_SIGNATURE]
    assert reader.store.read_manifest(parts("a good one").key) is not None


def test_fsck_without_keys_says_nothing_of_signatures(world: Fleet) -> None:
    swapped_digest(world, world.publish())
    problems = check(world.attacker(), now=time.time(), grace=3600.0)
    assert Fault.BAD_SIGNATURE not in {problem.fault for problem in problems}


def test_base_that_others_filled_needs_signatures_too(world: Fleet) -> None:
    storage = world.attacker()
    storage.store.put_manifest(manifest_of(storage.store.put_blob(EVIL)))
    own = str(world.tmp / "own")
    for base in (world.url, str(world.tmp / "local-evil")):
        maker = NeffCache.open(settings=CacheSettings("none", world.tmp / "local-evil"))
        maker.local.put(parts(), EVIL, 1.0)
        host = f"reader-{len(base)}"
        settings = CacheSettings(
            own,
            world.tmp / f"local-{host}",
            trusted_keys=world.key.public.text,
            require_signature=True,
            mode="overlay",
            overlay=base,
        )
        assert NeffCache.open(settings=settings).get(parts()) is None


def test_tree_whose_notes_say_made_here_is_believed_by_nobody_else(world: Fleet) -> None:
    maker = world.job("maker")
    maker.get_or_compile(parts("theirs"), lambda: EVIL)
    world.publish()
    maker.get_or_compile(parts(), lambda: OWN)
    tree = NeffCache.open(
        settings=CacheSettings(
            str(world.tmp / "own"),
            world.tmp / "local-reader",
            trusted_keys=world.key.public.text,
            require_signature=True,
            mode="overlay",
            overlay=str(world.tmp / "local-maker"),
        )
    )
    assert tree.get(parts("theirs")) is None
    hit = tree.get(parts())
    assert hit is not None
    assert hit.neff == GOOD


@pytest.mark.parametrize("attack", [unsigned_settled_record, stripped_signature, replaced_manifest])
def test_who_has_a_key_but_does_not_require_one_signs_nothing_that_it_merely_found(
    world: Fleet, attack: Callable[[Fleet, Manifest], None]
) -> None:
    attack(world, world.publish())
    world.key.save(world.tmp / "key.pem")
    trusting = NeffCache.open(
        settings=CacheSettings(world.url, world.tmp / "local-maker", signing_key=world.tmp / "key.pem")
    )
    assert trusting.get_or_compile(parts(), lambda: OWN).neff in (EVIL, GOOD)
    assert world.reader().store.read_manifest(parts().key) is None
    assert world.job().get_or_compile(parts(), lambda: OWN).neff == OWN
