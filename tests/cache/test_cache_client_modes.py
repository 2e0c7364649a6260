"""Which cache a client asks, with what token, and what it may do: read-only, overlay, must-hit."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_kit import never, open_cache, parts
from client_kit import close_cache, remote_cache
from service_kit import Service

from cache_server import CacheError, CacheSettings, NeffCache, Outcome
from cache_server.manifest import Blob
from cache_server.remote.downloads import Download
from cache_server.remote.options import RemoteOptions, parse_service_url
from cache_server.remote.service import Service as RemoteService
from cache_server.remote.tier import RemoteTier
from cache_server.storage import open_storage
from neuron_runtime.compiler.errors import CompileFailure, FailureKind

SECRET = "nec_test_0123456789abcdef"


def tree(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def compiled() -> bytes:
    return b"neff" * 100


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("service")
    service = Service(place / "store", place / "log")
    yield service
    service.close()


def test_service_serves_like_any_store(service: Service, tmp_path: Path) -> None:
    a, b = remote_cache(service.url, tmp_path / "a"), remote_cache(service.url, tmp_path / "b")
    cold = a.get_or_compile(parts(), compiled, label="graph")
    shared = b.get_or_compile(parts(), never)
    assert [cold.outcome, shared.outcome] == ["compiled", "shared_hit"]
    assert (cold.epoch, shared.epoch, shared.neff) == (1, 1, cold.neff)
    assert (a.stats.misses, a.stats.errors, b.stats.misses) == (1, 0, 0)
    assert b.get(parts("nothing")) is None
    manifest = b.peek(parts())
    assert manifest is not None
    assert manifest.label == "graph"
    assert [entry.key for entry in b.entries()] == [parts().key]
    for cache in (a, b):
        close_cache(cache)


def test_compiler_error_is_remembered_through_the_service(service: Service, tmp_path: Path) -> None:
    a, b = remote_cache(service.url, tmp_path / "a"), remote_cache(service.url, tmp_path / "b")

    def fail() -> bytes:
        raise CompileFailure("the compiler says no", kind=FailureKind.COMPILER_ERROR, stderr="no such op: foo")

    with pytest.raises(CompileFailure, match="says no"):
        a.get_or_compile(parts("bad"), fail)
    with pytest.raises(CompileFailure, match="no such op: foo"):
        b.get_or_compile(parts("bad"), never)
    for cache in (a, b):
        close_cache(cache)


def test_interrupt_frees_the_key_at_the_service(service: Service, tmp_path: Path) -> None:
    a = remote_cache(service.url, tmp_path / "a", lease_seconds=3600.0)

    def interrupt() -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        a.get_or_compile(parts("interrupted"), interrupt)
    b = remote_cache(service.url, tmp_path / "b", wait_seconds=0.0)
    assert b.get_or_compile(parts("interrupted"), compiled).outcome is Outcome.COMPILED
    for cache in (a, b):
        close_cache(cache)


def test_read_only_client_takes_no_lease_and_writes_nothing(service: Service, tmp_path: Path) -> None:
    writer = remote_cache(service.url, tmp_path / "a")
    writer.get_or_compile(parts("given"), compiled)
    cache = remote_cache(service.url, tmp_path / "b", mode="read-only")
    assert cache.get_or_compile(parts("given"), never).outcome is Outcome.SHARED_HIT
    result = cache.get_or_compile(parts("not given"), compiled)
    assert (result.outcome, result.reason) == (Outcome.COMPILED_UNCACHED, "the shared cache is only read here")
    assert writer.peek(parts("not given")) is None
    assert (cache.stats.misses, cache.stats.errors) == (1, 0)
    for each in (writer, cache):
        close_cache(each)


def test_read_only_mode_leaves_a_directory_as_it_is(tmp_path: Path) -> None:
    open_cache(tmp_path, "a").get_or_compile(parts(), compiled)
    open_cache(tmp_path, "a").get_or_compile(parts("damaged"), lambda: b"other")
    other = tmp_path / "shared" / "neuron-env-cache.v1" / "blobs" / "sha256"
    name = hashlib.sha256(b"other").hexdigest()
    (other / name[:2] / name).write_bytes(b"OTHER")
    before = tree(tmp_path / "shared")
    cache = open_cache(tmp_path, "b", mode="read-only")
    assert cache.storage is not None
    assert cache.get_or_compile(parts(), never).outcome is Outcome.SHARED_HIT
    assert cache.get_or_compile(parts("new"), compiled).outcome is Outcome.COMPILED_UNCACHED
    assert cache.get_or_compile(parts("damaged"), compiled).outcome is Outcome.COMPILED_UNCACHED
    assert tree(tmp_path / "shared") == before


def test_must_hit_mode_names_what_is_missing(tmp_path: Path) -> None:
    open_cache(tmp_path, "a").get_or_compile(parts(), compiled)
    cache = open_cache(tmp_path, "b", require_hit=True)
    assert cache.get_or_compile(parts(), never).outcome is Outcome.SHARED_HIT
    with pytest.raises(CacheError, match=f"decode .{parts('new').key}. is not in the cache") as caught:
        cache.get_or_compile(parts("new"), never, label="decode")
    assert "NEURON_ENV_CACHE_REQUIRE_HIT" in (caught.value.hint or "")
    assert list((tmp_path / "shared").glob("*/leases/default/*/*")) == [
        tmp_path / "shared" / "neuron-env-cache.v1" / "leases" / "default" / parts().key[:2] / parts().key
    ]


def test_must_hit_mode_tells_a_broken_cache_from_a_miss(tmp_path: Path) -> None:
    cache = remote_cache("http://127.0.0.1:1", tmp_path, require_hit=True)
    with pytest.raises(CacheError, match=r"cannot be had from the cache: .*cannot be reached"):
        cache.get_or_compile(parts(), never)
    assert (cache.stats.misses, cache.stats.errors) == (0, 1)
    close_cache(cache)


@pytest.mark.parametrize("layout", ["store", "local tier"])
def test_overlay_reads_its_base_in_place_and_writes_above_it(tmp_path: Path, layout: str) -> None:
    built = open_cache(tmp_path / "image", "a")
    built.get_or_compile(parts(), compiled)
    base = tmp_path / "image" / ("shared" if layout == "store" else "local-a")
    before = tree(base)
    cache = open_cache(tmp_path, "b", mode="overlay", overlay=str(base))
    assert cache.get_or_compile(parts(), never).outcome is Outcome.SHARED_HIT
    assert not cache.local.path(parts()).exists(), "it lies on this host already"
    assert cache.get_or_compile(parts("new"), compiled).outcome is Outcome.COMPILED
    assert open_cache(tmp_path, "c").get_or_compile(parts("new"), never).outcome is Outcome.SHARED_HIT
    assert cache.get(parts()) is not None
    assert tree(base) == before


def test_damaged_base_is_left_alone_and_compiled_over(tmp_path: Path) -> None:
    built = open_cache(tmp_path / "image", "a")
    built.get_or_compile(parts(), compiled)
    built.local.path(parts()).write_bytes(b"broken")
    before = tree(tmp_path / "image" / "local-a")
    cache = open_cache(tmp_path, "b", mode="overlay", overlay=str(tmp_path / "image" / "local-a"))
    assert cache.get_or_compile(parts(), compiled).neff == compiled()
    assert tree(tmp_path / "image" / "local-a") == before


def test_mode_settings_come_from_the_environment(tmp_path: Path) -> None:
    env = {
        "XDG_CACHE_HOME": str(tmp_path),
        "NEURON_ENV_CACHE_OVERLAY": "/image/cache",
        "NEURON_ENV_CACHE_REQUIRE_HIT": "1",
        "NEURON_ENV_CACHE_LOCAL_MAX_BYTES": "1.5GiB",
        "NEURON_ENV_CACHE_BUDGET_SECONDS": "2.5",
    }
    settings = CacheSettings.from_environment(env)
    assert (settings.mode, settings.overlay, settings.require_hit) == ("overlay", "/image/cache", True)
    assert (settings.local_max_bytes, settings.budget_seconds) == (3 << 29, 2.5)
    assert CacheSettings.from_environment({**env, "NEURON_ENV_CACHE_MODE": "read-only"}).read_only


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "write-only"},
        {"mode": "overlay"},
        {"local_max_bytes": -1},
        {"budget_seconds": 0.0},
        {"require_hit": True, "verify": "always"},
        {"require_hit": True, "enabled": False},
    ],
)
def test_mode_settings_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(CacheError):
        CacheSettings(None, tmp_path, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["http://h", "https://h:8443/team/cache", "http://[::1]:7878"])
def test_service_urls(url: str) -> None:
    assert parse_service_url(url + "/") == url
    assert parse_service_url(url + "/v1") == url


@pytest.mark.parametrize("url", ["http://", "https:///x", "http://h?x=1", "http://h:0", "http://h:x", "http://h#f"])
def test_urls_that_name_no_service(url: str) -> None:
    with pytest.raises(CacheError):
        parse_service_url(url)


def test_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(CacheError) as caught:
        parse_service_url(f"https://user:{SECRET}@host")
    assert SECRET not in f"{caught.value} {caught.value.hint}"


def test_administration_of_a_service_names_what_to_do() -> None:
    with pytest.raises(CacheError, match="is a cache service") as caught:
        open_storage("https://cache.example.com")
    assert "store that the service keeps" in (caught.value.hint or "")


def test_token_is_in_no_text(tmp_path: Path) -> None:
    options = RemoteOptions.from_environment("http://h", {"NEURON_ENV_CACHE_TOKEN": SECRET})
    assert options.token == SECRET
    assert SECRET not in repr(options)
    with pytest.raises(CacheError) as caught:
        RemoteOptions("http://h", token=f"{SECRET}\n{SECRET}")
    assert SECRET not in str(caught.value)


class Recorder(http.server.BaseHTTPRequestHandler):
    """Answers what its server's `replies` say, and keeps the requests' headers."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, RecordingServer)
        server.seen.append((self.path, dict(self.headers)))
        status, headers, body = server.replies(self.path, dict(self.headers))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name in the base class
        pass


class RecordingServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Recorder)
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.replies = lambda path, headers: (404, {}, b"")
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def servers() -> Iterator[tuple[RecordingServer, RecordingServer]]:
    pair = (RecordingServer(), RecordingServer())
    yield pair
    for server in pair:
        server.shutdown()
        server.server_close()


def test_redirect_to_a_presigned_address_gets_no_token(servers: tuple[RecordingServer, RecordingServer]) -> None:
    cache, store = servers
    data = os.urandom(1000)
    cache.replies = lambda path, headers: (307, {"Location": f"{store.url}/bucket/blob?signature=x"}, b"")
    store.replies = lambda path, headers: (200, {}, data)
    service = RemoteService(RemoteOptions(cache.url, token=SECRET))
    assert Download(service, "/namespaces/default/blobs/x", len(data)).read() == data
    assert cache.seen[0][1]["Authorization"] == f"Bearer {SECRET}"
    assert store.seen[0][0] == "/bucket/blob?signature=x"
    assert "Authorization" not in store.seen[0][1]
    service.connection.close()


def test_token_follows_no_redirect_of_other_requests(
    servers: tuple[RecordingServer, RecordingServer], tmp_path: Path
) -> None:
    cache, other = servers
    cache.replies = lambda path, headers: (307, {"Location": f"{other.url}{path}"}, b"")
    tier = RemoteTier.open(RemoteOptions(cache.url, token=SECRET))
    opened = NeffCache(CacheSettings(cache.url, tmp_path), tier)
    result = opened.get_or_compile(parts(), compiled)
    assert result.outcome is Outcome.COMPILED_UNCACHED
    assert "sends its clients elsewhere" in result.reason
    assert other.seen == []
    close_cache(opened)


def test_refused_token_is_read_from_its_file_again(
    servers: tuple[RecordingServer, RecordingServer], tmp_path: Path
) -> None:
    server, _ = servers
    data = b"x" * 10
    problem = {"Content-Type": "application/problem+json"}

    def reply(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if headers.get("Authorization") == "Bearer new":
            return 404, problem, b'{"type": "urn:neuron-env:cache:not-found"}'
        return 401, problem, b'{"type": "urn:neuron-env:cache:unauthorized"}'

    server.replies = reply
    token_file = tmp_path / "token"
    token_file.write_text("old\n")
    tier = RemoteTier.open(RemoteOptions(server.url, token_file=token_file))
    opened = NeffCache(CacheSettings(server.url, tmp_path / "local"), tier)
    assert opened.get(parts()) is None
    assert opened.stats.errors == 1, "the file holds the refused token still"
    token_file.write_text("new\n")
    assert opened.get(parts()) is None
    assert opened.stats.errors == 1
    assert tier.store.read_blob(Blob("0" * 64, len(data))) is None
    close_cache(opened)
