from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cache_kit import Fleet
from s3_kit import ENVIRONMENT, Proxy, Server, client
from service_kit import Service

from cache_server.backends import Backend
from cache_server.backends.memory import MemoryBackend
from cache_server.backends.posix import PosixBackend
from cache_server.backends.s3 import S3Backend
from cache_server.backends.s3bucket import S3Bucket
from cache_server.permissions import permissions_named


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.stop()


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that speaks S3 and keeps its conditions."""
    log = tmp_path_factory.mktemp("moto") / "log"
    server = Server([sys.executable, str(Path(__file__).with_name("s3_server.py")), "{port}"], log, **ENVIRONMENT)
    yield server
    server.stop()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials for a server of the tests, and none of this user's own settings."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "NEURON_ENV_CACHE_"))]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3_url(moto: Server, aws: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place in a new bucket, whose server this process and its children know."""
    monkeypatch.setenv("NEURON_ENV_CACHE_S3_ENDPOINT", moto.endpoint)
    bucket = f"bucket-{uuid.uuid4().hex}"
    s3 = client(moto.endpoint)
    s3.create_bucket(Bucket=bucket)
    s3.close()
    return f"s3://{bucket}/team/neff"


@pytest.fixture(params=["posix", "memory", "s3"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A new place of each kind that content can be kept in."""
    if request.param == "posix":
        yield PosixBackend(tmp_path / "store", permissions_named("group"))
    elif request.param == "s3":
        yield S3Backend(S3Bucket(request.getfixturevalue("s3_url")))
    else:
        yield MemoryBackend(f"memory://{uuid.uuid4().hex}/store")


@pytest.fixture
def proxy(moto: Server, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Stands before the server of `s3_url` for whoever opens a store from now on."""
    proxy = Proxy(moto.port)
    monkeypatch.setenv("NEURON_ENV_CACHE_S3_ENDPOINT", proxy.endpoint)
    yield proxy
    proxy.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts service processes: `serve(store, *options, **environment)`; the store below tmp_path unless given."""
    started: list[Service] = []

    def start(store: str | Path | None = None, *arguments: str, **environment: str) -> Service:
        log = tmp_path / f"service-{len(started)}.log"
        started.append(Service(store or tmp_path / "served", log, *arguments, **environment))
        return started[-1]

    yield start
    for service in started:
        service.close()


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that every user can enter and write to: pytest's own are closed to others."""
    place = Path(tempfile.mkdtemp(prefix="neuron-env-test-"))
    place.chmod(0o777)
    yield place
    reopen(place)
    shutil.rmtree(place)


def reopen(directory: Path) -> None:
    """Undoes what a test did to the modes of its directories, from the top down."""
    directory.chmod(0o777)
    for child in directory.iterdir():
        if child.is_dir() and not child.is_symlink():
            reopen(child)
