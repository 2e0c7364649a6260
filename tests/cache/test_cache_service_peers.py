"""ccache and sccache, which nobody here wrote, compile C twice through the service: the second time are hits."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cache_kit import eventually
from service_kit import Service
from tools_kit import installed

pytestmark = pytest.mark.fleet

Serve = Callable[..., Service]
REQUIREMENTS = Path(__file__).parents[2] / "requirements" / "peers.txt"
INSTALL = [
    sys.executable,
    "-m",
    "pip",
    "install",
    "--quiet",
    "--no-deps",
    "--target",
    "{place}",
    "-r",
    str(REQUIREMENTS),
]
SOURCES = {f"part{number}.c": f"int part{number}(int x) {{ return x * {number + 2}; }}\n" for number in range(3)}


def tool(config: pytest.Config, name: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc here")
    return installed(config, "build-cache-peers", f"bin/{name}", INSTALL)


def compile_all(compiler: list[str], place: Path, environment: dict[str, str]) -> list[bytes]:
    """Compiles every source into a fresh directory; returns the objects."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    objects = []
    for name, text in SOURCES.items():
        (place / name).write_text(text)
        made = place / f"{name}.o"
        subprocess.run(
            [*compiler, "gcc", "-O2", "-c", name, "-o", made.name],
            cwd=place,
            env={**os.environ, **environment},
            check=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        objects.append(made.read_bytes())
    return objects


@pytest.mark.parametrize("prefix", ["", "/team-a"])
def test_ccache_hits_what_it_stored(serve: Serve, tmp_path: Path, pytestconfig: pytest.Config, prefix: str) -> None:
    ccache = tool(pytestconfig, "ccache")
    service = serve()

    def environment(host: str) -> dict[str, str]:
        return {
            "CCACHE_DIR": str(tmp_path / host),
            "CCACHE_CONFIGPATH": str(tmp_path / "none"),
            "CCACHE_REMOTE_STORAGE": f"{service.url}{prefix}|layout=bazel|operation-timeout=10000",
        }

    first = compile_all([str(ccache)], tmp_path / "build", environment("host-1"))
    second = compile_all([str(ccache)], tmp_path / "build", environment("host-2"))
    assert second == first
    told = subprocess.run(
        [ccache, "--print-stats"],
        env={**os.environ, **environment("host-2")},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    counted = dict(re.findall(r"^(\w+)\t(\d+)$", told, re.MULTILINE))
    assert counted["cache_miss"] == "0"
    assert int(counted["remote_storage_hit"]) == len(SOURCES)
    assert list((tmp_path / "served").rglob(f"plain/{prefix.strip('/') or 'default'}/ac/*/*"))


def test_sccache_hits_what_it_stored(serve: Serve, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    sccache = tool(pytestconfig, "sccache")
    service = serve()

    def build(host: str) -> tuple[list[bytes], dict[str, int]]:
        # The path of a socket has a limit that pytest's directories can exceed.
        socket = Path(tempfile.gettempdir()) / f"sccache-{os.getpid()}-{host}.sock"
        environment = {
            "SCCACHE_WEBDAV_ENDPOINT": f"{service.url}/team-b/dav",
            "SCCACHE_SERVER_UDS": str(socket),
            "SCCACHE_DIR": str(tmp_path / host),
            "SCCACHE_CONF": str(tmp_path / "none"),
        }
        everything = {**os.environ, **environment}
        try:
            objects = compile_all([str(sccache)], tmp_path / "build", environment)
            told = subprocess.run(
                [sccache, "--show-stats", "--stats-format=json"], env=everything, check=True, capture_output=True
            ).stdout
        finally:
            subprocess.run([sccache, "--stop-server"], env=everything, capture_output=True, check=False)
            socket.unlink(missing_ok=True)
        stats = json.loads(told)["stats"]
        return objects, {
            "hits": sum(stats["cache_hits"]["counts"].values()),
            "misses": sum(stats["cache_misses"]["counts"].values()),
            "errors": stats["cache_write_errors"] + sum(stats["cache_errors"]["counts"].values()),
        }

    first, cold = build("host-1")
    second, warm = build("host-2")
    assert second == first
    assert cold == {"hits": 0, "misses": len(SOURCES), "errors": 0}
    assert warm == {"hits": len(SOURCES), "misses": 0, "errors": 0}


def test_plain_objects_stay_apart(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    data = b"an object of another build cache"
    name = hashlib.sha256(data).hexdigest()
    for where in (f"/cas/{name}", f"/ac/{name}", "/dav/a/b/object", f"/team/cas/{name}", "/team/dav/a/b/object"):
        assert service.get(where).status == 404
        assert service.request("PUT", where, data).status == 201
        assert service.get(where).data == data
        assert service.request("HEAD", where).headers["content-length"] == str(len(data))
        assert service.get(where, Range="bytes=3-8").data == data[3:9]
    assert service.get(f"/v1/namespaces/default/blobs/{name}").status == 404
    assert service.get(f"/other/cas/{name}").status == 404


def test_results_may_change_and_content_may_not(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    name = hashlib.sha256(b"content").hexdigest()
    for value in (b"one", b"two"):
        assert service.request("PUT", f"/ac/{name}", value).status == 201
        assert service.get(f"/ac/{name}").data == value
    for wrong in (b"contents", b"c" * (6 << 20)):
        answer = service.request("PUT", f"/cas/{name}", wrong)
        assert (answer.status, answer.slug) == (422, "digest-mismatch")
    assert service.get(f"/cas/{name}").status == 404
    large = os.urandom(1 << 20) * 6
    assert service.request("PUT", "/dav/large", large).status == 201
    assert service.get("/dav/large").data == large
    for path in ("/dav/a/../../b", "/dav/a//b", "/dav/" + "a/" * 20 + "a", "/ac/short", "/cas/" + "A" * 64):
        assert service.request("PUT", path, b"x").status in (400, 404)
    eventually(lambda: not list((tmp_path / "served").rglob("staging/*")), "nothing is left in staging")


def test_collections_need_not_be_made(serve: Serve) -> None:
    service = serve()
    for where in ("/dav/", "/dav/a/b/", "/team/dav/"):
        answer = service.request("PROPFIND", where)
        assert (answer.status, b"<D:collection/>" in answer.data) == (207, True)
        assert service.request("MKCOL", where).status == 201
    assert service.request("PROPFIND", "/dav/a").status == 404
    service.request("PUT", "/dav/a", b"12345")
    assert b"<D:getcontentlength>5<" in service.request("PROPFIND", "/dav/a").data
