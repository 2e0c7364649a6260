"""The places a fleet can share, each with its server if it needs one: a directory, S3 (moto's server), our service."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.service.peers import PEERS

# moto's threads look at an object's condition first and write it later; the tests' server does both in one step.
_MOTO = Path(__file__).parents[2] / "tests" / "cache" / "s3_server.py"
_BUCKET = "fleet"


@dataclass(frozen=True)
class Shared:
    """A shared tier: its URL, and the environment in which processes find it."""

    name: str
    url: str
    environment: Mapping[str, str] = field(default_factory=dict)


class Unavailable(Exception):  # noqa: N818  it is a reason to do without, not an error
    """Something cannot be had on this machine; the text says how to get it."""


@contextmanager
def directory(place: Path) -> Iterator[Shared]:
    yield Shared("directory", str(place / "shared"))


@contextmanager
def s3(place: Path) -> Iterator[Shared]:
    port = free_port()
    with process([sys.executable, str(_MOTO), str(port)], place / "moto.log"):
        await_port(port)
        yield _bucket("S3 (moto)", port, "test")


@contextmanager
def s3rver(place: Path) -> Iterator[Shared]:
    """A server that accepts conditional writes and ignores the conditions. Raises Unavailable."""
    script = PEERS / "node_modules" / "s3rver" / "bin" / "s3rver.js"
    if not script.exists():
        raise Unavailable(f"npm install --prefix {PEERS} s3rver@3.7.1")
    port = free_port()
    command = ["node", str(script), "-d", str(place / "s3rver"), "-a", "127.0.0.1", "-p", str(port)]
    with process([*command, "--no-vhost-buckets"], place / "s3rver.log"):
        await_port(port)
        yield _bucket("S3 (s3rver)", port, "S3RVER")  # the one identity that it knows


@contextmanager
def service(place: Path) -> Iterator[Shared]:
    port = free_port()
    command = [sys.executable, "-m", "cli.main", "cache", "serve", str(place / "served")]
    with process([*command, "--listen", f"127.0.0.1:{port}"], place / "service.log"):
        await_port(port)
        yield Shared("service", f"http://127.0.0.1:{port}")


STORES: Mapping[str, Callable[[Path], object]] = {"directory": directory, "s3": s3, "service": service}


@contextmanager
def process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended afterwards, its output in `log`."""
    with log.open("ab") as output:
        started = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(timeout=20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def program(name: str) -> str:
    """The path of a peer's program, which `make bench` installs or the system has; empty if there is none."""
    return shutil.which(name, path=f"{PEERS / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}") or ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def await_port(port: int, seconds: float = 60.0) -> None:
    """Waits until somebody listens. Raises TimeoutError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise TimeoutError(f"nobody listens on port {port}")


def _bucket(name: str, port: int, identity: str) -> Shared:
    import boto3

    endpoint = f"http://127.0.0.1:{port}"
    secret = identity if identity == "S3RVER" else "test-secret"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=identity,
        aws_secret_access_key=secret,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=_BUCKET)
    client.close()
    environment = {
        "AWS_ACCESS_KEY_ID": identity,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "NEURON_ENV_CACHE_S3_ENDPOINT": endpoint,
    }
    return Shared(name, f"s3://{_BUCKET}/neff", environment)
