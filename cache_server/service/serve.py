"""The process: listens first, drains at the signal to end, and ends with exit code 0."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from cache_server.errors import CacheError, StoreError
from cache_server.service.app import build_app
from cache_server.service.context import Context
from cache_server.service.express import express_protocol
from cache_server.service.front import Exchange, tell
from cache_server.service.gate import Principal
from cache_server.service.intake import intake_protocol
from cache_server.service.routes.blobs import BLOB_PATH
from cache_server.service.settings import ServiceSettings

log = logging.getLogger("neuron_env.cache.server")

_LOOK_FOR_TOKENS = 5.0  # seconds
_BACKLOG = 4096  # a whole fleet may start at once


def serve(settings: ServiceSettings, *, tell: Callable[[str], None] = lambda line: None) -> None:
    """Serves until SIGTERM or SIGINT. `tell` gets lines for people, from when clients can connect.

    Raises CacheError for settings that cannot work, and OSError for an address that cannot be had.
    """
    import uvloop

    listener = _listen(settings)
    try:
        uvloop.run(_serve(settings, listener, tell))
    finally:
        listener.close()


def raise_file_limit() -> int:
    """Lets this process have as many connections as its hard limit allows. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


async def _serve(settings: ServiceSettings, listener: socket.socket, tell: Callable[[str], None]) -> None:
    import uvicorn

    from cache_server.service.assembly import assemble

    context = assemble(settings)
    await _refuse_useless_doors(context)
    raise_file_limit()
    if not settings.log_requests:
        logging.getLogger("neuron_env.cache.access").setLevel(logging.WARNING)
    config = uvicorn.Config(
        build_app(context),
        http=_protocol(context),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
        **_tls(settings),
    )

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            # uvicorn's own would end the process by the signal; a drained service ends well.
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                for line in _banner(context, _url(settings, listener)):
                    tell(line)
                context.follow("the proof of leases", _tell_of_leases(context, tell))

    server = Server(config)
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []

    def end() -> None:
        if ending:
            server.should_exit = server.force_exit = True  # asked twice: whoever asks is in a hurry
            return
        ending.append(loop.create_task(_drain(context, server)))

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, end)
    context.start()
    _collect_rarely()
    try:
        await server.serve(sockets=[listener])
    finally:
        await context.close()


def _protocol(context: Context) -> type[Any]:
    from cache_server.service.tls import CertificateProtocol

    observe, each = context.metrics.observe, context.settings.log_requests

    def told(request_id: str, principal: Principal, namespace: str, sent: int, begun: float) -> None:
        if each:
            tell(context, Exchange(request_id, "GET", begun, BLOB_PATH, namespace, principal, 200, sent))
        else:
            observe("GET", BLOB_PATH, 200, time.monotonic() - begun, sent)

    context.express.told = told
    return express_protocol(context.express, intake_protocol(CertificateProtocol))


def _collect_rarely() -> None:
    """Requests leave next to no cycles: looking for them after each 700 objects is a twentieth of all work."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


async def _drain(context: Context, server: Any) -> None:
    log.info("draining: no new leases, those who wait are answered, running requests end")
    context.draining.set()
    context.watches.drain()
    await asyncio.sleep(context.settings.drain_delay)
    server.should_exit = True


def _banner(context: Context, url: str) -> list[str]:
    return [
        f"listening on {url}",
        f"store        {context.backend.url}",
        f"access       {context.gate.mode}",
        f"clients set  NEURON_ENV_CACHE_URL={url}",
    ]


async def _tell_of_leases(context: Context, tell: Callable[[str], None]) -> None:
    try:
        works = await context.leases_work()
    except StoreError as error:
        tell(f"leases       not proven: {error}")
        return
    if works:
        tell("leases       proven: of two who wrote one record, one was refused")
    else:
        tell("leases       off: the store lets two writers win, so a graph may be compiled more than once")


async def _refuse_useless_doors(context: Context) -> None:
    """Raises CacheError rather than serve a whole network of which nobody can get in, or all, for want of a thought."""
    settings = context.settings
    if settings.loopback or settings.anonymous is not None:
        return
    try:
        if await asyncio.wait_for(context.gate.knows_somebody(), _LOOK_FOR_TOKENS):
            return
    except (StoreError, TimeoutError) as error:
        # Nobody gets in without a token, so it is safe to start before the store can be asked.
        log.warning("whether there are tokens is not known yet: %s", error or "the store does not answer")
        return
    raise CacheError(
        f"{settings.listen} can be reached from other hosts, and this service knows no tokens",
        hint="make one with `neuron-env cache token create`, or say what everybody may do with "
        "`--anonymous read` (or `write`: a NEFF is code, and who can write can run code on every reader)",
    )


def _listen(settings: ServiceSettings) -> socket.socket:
    host, port = settings.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise CacheError(
            f"cannot listen on {settings.listen}: {error.strerror or error}", hint="choose another with `--listen`"
        ) from error


def _url(settings: ServiceSettings, listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _tls(settings: ServiceSettings) -> dict[str, Any]:
    import ssl

    if settings.tls_cert is None:
        return {}
    return {
        "ssl_certfile": str(settings.tls_cert),
        "ssl_keyfile": str(settings.tls_key),
        "ssl_ca_certs": str(settings.client_ca) if settings.client_ca else None,
        "ssl_cert_reqs": ssl.CERT_OPTIONAL if settings.client_ca else ssl.CERT_NONE,
    }
