"""What EC2's metadata service says of an instance: asked only when somebody wants to know."""

from __future__ import annotations

import urllib.error
import urllib.request

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import Facts, NotFoundHere

_SERVICE = "http://169.254.169.254"
_ASK_S = 1.0
_KEYS = {
    "instance_id": "instance-id",
    "instance_type": "instance-type",
    "ami_id": "ami-id",
    "region": "placement/region",
    "availability_zone": "placement/availability-zone",
    "life_cycle": "instance-life-cycle",
}


def probe_metadata(host: Host) -> Facts:
    """By IMDSv2, at `AWS_EC2_METADATA_SERVICE_ENDPOINT` or the usual address. Raises NotFoundHere without an answer."""
    if not host.live:
        raise NotFoundHere("only a live host has a metadata service")
    base = (host.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _SERVICE).rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise NotFoundHere(f"AWS_EC2_METADATA_SERVICE_ENDPOINT is no http URL: {base}")
    token = _ask(f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    facts = Facts()
    for name, key in _KEYS.items():
        url = f"{base}/latest/meta-data/{key}"
        facts.take(name, lambda url=url: _ask(url, {"X-aws-ec2-metadata-token": token}))  # type: ignore[misc]
    return facts


def _ask(url: str, headers: dict[str, str], method: str = "GET") -> str:
    # No proxy: the address is this machine's own.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310 - http, checked above
    try:
        with opener.open(request, timeout=_ASK_S) as answer:
            data: bytes = answer.read(65536)
            return data.decode(errors="replace").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise NotFoundHere(f"the metadata service does not answer at {url}: {reason}") from None
