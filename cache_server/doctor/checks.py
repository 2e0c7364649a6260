"""The doctor's checks of caches: ours, and the vendor's on this host."""

from __future__ import annotations

import shutil
import time
import urllib.error
import urllib.request
from collections import Counter
from email.utils import parsedate_to_datetime
from pathlib import Path

from cache_server.administration.opening import open_administration
from cache_server.doctor.finding import Weight, mend_all
from cache_server.doctor.rounds import vendor_caches
from cache_server.settings import CacheSettings
from cache_server.storage import is_service
from neuron_runtime.doctor.check import Check, Result, SkippedError, Status, Subject
from neuron_runtime.errors import NeuronEnvError

_LEAST_FREE = 2 << 30
_SKEW_S = 30.0
_DATE_S = 4.0


def shared_cache(subject: Subject) -> Result | str:
    """It answers, it knows this host's token, and its leases exclude."""
    settings = _settings(subject)
    if not settings.enabled or settings.url is None:
        raise SkippedError("there is no shared cache: NEURON_ENV_CACHE_URL is `none`")
    try:
        found = open_administration(settings.url, namespace=settings.namespace, trust=settings.trust()).status(
            details=False
        )
    except NeuronEnvError as error:
        remedy = error.hint or "neuron-env cache status"
        return Result(
            "shared-cache", Status.PROBLEM, f"{settings.url}: {error.message}", "a store that answers", remedy
        )
    if found.leases == "off":
        return Result(
            "shared-cache", Status.PROBLEM, f"{settings.url} answers, without leases: {found.verdict}",
            "a store that excludes", "choose another store, or put `neuron-env cache serve` in front of it",
        )  # fmt: skip
    return f"{settings.url} answers; leases are {found.leases}"


def clock(subject: Subject) -> Result | str:
    """Beside the service's, since tokens and signatures have dates."""
    settings = _settings(subject)
    if settings.url is None or not is_service(settings.url):
        raise SkippedError("there is no service to compare with")
    request = urllib.request.Request(settings.url.rstrip("/") + "/healthz", method="GET")  # noqa: S310 - http(s) alone
    begun = time.time()
    try:
        with urllib.request.urlopen(request, timeout=_DATE_S) as answer:  # noqa: S310
            date = answer.headers.get("Date")
    except urllib.error.HTTPError as error:
        date = error.headers.get("Date")
    except OSError as error:
        raise SkippedError(f"the service does not answer: {error}") from None
    if not date:
        raise SkippedError("the service tells no date")
    skew = parsedate_to_datetime(date).timestamp() - (begun + time.time()) / 2
    if abs(skew) > _SKEW_S:
        way = "behind" if skew > 0 else "ahead of"
        remedy = "sudo systemctl restart chrony || sudo timedatectl set-ntp true"
        return Result("clock", Status.PROBLEM, f"{abs(skew):.0f} s {way} the service's", "the same time", remedy)
    return "that of the service"


def disk(subject: Subject) -> Result | str:
    place = _settings(subject).local_dir
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < _LEAST_FREE:
        return Result(
            "disk", Status.PROBLEM, f"{place} has {free / (1 << 30):.1f} GiB left", "2 GiB or more",
            "neuron-env cache gc, or NEURON_ENV_CACHE_LOCAL_MAX_BYTES for the local tier",
        )  # fmt: skip
    return f"{free / (1 << 30):.0f} GiB are free for the local tier"


def vendor(subject: Subject) -> Result | str:
    """What `cache doctor` finds, in one line."""
    _here(subject)
    looked: list[Path] = []
    findings = []
    for place, found in vendor_caches():
        looked.append(place)
        findings += found
    if not looked:
        raise SkippedError("the vendor's software keeps no cache here")
    grave = [it for it in findings if it.weight is not Weight.NOTE]
    if not grave:
        return f"nothing wrong in {', '.join(map(str, looked))}"
    status = Status.PROBLEM if any(it.weight is Weight.ERROR for it in grave) else Status.WARNING
    kinds = ", ".join(f"{kind} ({count})" for kind, count in Counter(it.kind for it in grave).items())
    mendable = [it for it in grave if it.mend is not None]

    def mend() -> str:
        done = mend_all(mendable)
        return ", ".join(f"{it.kind}: mended {count} of {len(it.places)}" for it, count, _ in done)

    remedy = "neuron-env cache doctor" + (" --fix" if mendable else "")
    return Result("vendor-caches", status, kinds, "none of these", remedy, mend if mendable else None)


def _settings(subject: Subject) -> CacheSettings:
    _here(subject)
    return CacheSettings.from_environment()


def _here(subject: Subject) -> None:
    if not subject.host.live:
        raise SkippedError("only the machine itself can tell")


CHECKS = (
    Check(
        "shared-cache", "the shared cache answers, takes the token, and its leases exclude", shared_cache, limit=20.0
    ),
    Check("clock", "the clock agrees with the cache service", clock),
    Check("disk", "there is room for the local tier", disk),
    Check("vendor-caches", "TorchNeuron's and libneuronxla's caches are sound", vendor, limit=30.0),
)
