"""TLS for uvicorn: which certificates are asked for, and the names in the one that a client has shown.

uvicorn verifies client certificates but does not tell the application of them. Its HTTP protocol is a class that may be
replaced; this one puts the names that the certificate vouches for into each request's scope.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cache_server.trust.certificates import subject_names

CERTIFICATE_NAMES = "neuron_env.certificate_names"  # in an ASGI scope; absent where no certificate was shown


class CertificateProtocol(HttpToolsProtocol):
    """HTTP/1.1 over TLS, with the names in the client's verified certificate in the scope."""

    _names: tuple[str, ...] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Empty unless the certificate was verified against the CA that is configured.
        self._names = subject_names(transport.get_extra_info("peercert") or {})

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._names:
            self.scope[CERTIFICATE_NAMES] = self._names  # type: ignore[literal-required]
