"""OpenTelemetry traces: a span a request, a child of the caller's. Off unless the environment names a collector."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from cache_server.service.front import Exchange

log = logging.getLogger("neuron_env.cache.server")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Tracing:
    """Makes spans with `provider`, and sees to it that they reach the collector at the end."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("neuron_env.cache")
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, exchange: Exchange, headers: list[tuple[bytes, bytes]]) -> Iterator[None]:
        """The span of one request. What becomes known while it is answered is added at its end."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in headers
            if name in (b"traceparent", b"tracestate")
        }
        parent = self._propagator.extract(carrier)
        with self._tracer.start_as_current_span(exchange.method, parent, SpanKind.SERVER) as span:
            try:
                yield
            finally:
                span.update_name(f"{exchange.method} {exchange.path}")
                span.set_attributes(_attributes(exchange))
                if exchange.status >= 500:
                    span.set_status(Status(StatusCode.ERROR))

    def close(self) -> None:
        """Sends what is left. Takes as long as the exporter's time limit at most."""
        self._provider.shutdown()


def open_tracing(environ: Mapping[str, str] | None = None) -> Tracing | None:
    """Tracing as the standard OTEL variables say; None where they name no collector, or switch it off."""
    env = os.environ if environ is None else environ
    if not any(env.get(name) for name in _ENDPOINTS) or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("no traces: OpenTelemetry is not installed; type `pip install 'neuron-env[tracing]'`")
        return None
    # The environment's name of the service wins over this one.
    named = env.get("OTEL_SERVICE_NAME") or "service.name=" in env.get("OTEL_RESOURCE_ATTRIBUTES", "")
    resource = Resource.create({} if named else {SERVICE_NAME: "neuron-env-cache"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider)


def _attributes(exchange: Exchange) -> dict[str, Any]:
    values = {
        "http.request.method": exchange.method,
        "http.route": exchange.path,
        "http.response.status_code": exchange.status,
        "http.response.body.size": exchange.sent,
        "neuron_env.request_id": exchange.request_id,
        "neuron_env.namespace": exchange.namespace,
    }
    return {name: value for name, value in values.items() if value != ""}
