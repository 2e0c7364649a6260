"""Prometheus metrics of one process. Labels are route templates and codes, never keys or names from outside."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cache_server.manifest import Manifest

_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "MKCOL"})
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Counters of this process since it began. Others add theirs to `registry`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answered = 0
        self.errors = 0
        self.requests = Counter(
            "neuron_env_cache_requests", "Requests answered", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "neuron_env_cache_request_seconds",
            "Time from a request's head to the end of its answer, long polls included",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.lookups = Counter("neuron_env_cache_lookups", "Keys asked for", ["result"], registry=self.registry)
        self.published = Counter("neuron_env_cache_published", "Entries made", ["kind"], registry=self.registry)
        self.saved = Counter(
            "neuron_env_cache_saved_compile_seconds", "What the compiles took that hits avoided", registry=self.registry
        )
        self.acts = Counter(
            "neuron_env_cache_lease_acts", "What became of acts on leases", ["act", "result"], registry=self.registry
        )
        for result in ("hit", "failure_hit", "miss"):
            self.lookups.labels(result)
        self.sent = Counter("neuron_env_cache_sent_bytes", "Bytes of answers' bodies", registry=self.registry)
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self.in_flight = Gauge("neuron_env_cache_requests_in_flight", "Requests being answered", registry=self.registry)

    def watch(self, waiters: Callable[[], float], held: Callable[[], float]) -> None:
        """Where to read, at each scrape, how many wait and how many leases are held."""
        name = "neuron_env_cache_lease_waiters"
        Gauge(name, "Requests that wait for a lease's news", registry=self.registry).set_function(waiters)
        name = "neuron_env_cache_leases_held"
        Gauge(name, "Leases held, as far as this process has seen", registry=self.registry).set_function(held)

    def observe(self, method: str, route: str, status: int, seconds: float, sent: int) -> None:
        """Counts one answer. `route` is a template."""
        kind = (method, route, status)
        series = self._series.get(kind)
        if series is None:
            # Looking labels up takes longer than counting. Statuses and routes are few, and so are methods here.
            named = method if method in _METHODS else "other"
            series = (self.requests.labels(named, route, str(status)), self.seconds.labels(named, route))
            if named == method:
                self._series[kind] = series
        series[0].inc()
        series[1].observe(seconds)
        self.sent.inc(sent)
        self.answered += 1
        self.errors += status >= 500

    def hit(self, manifest: Manifest) -> None:
        """Counts an entry that was found."""
        self.lookups.labels("hit" if manifest.failure is None else "failure_hit").inc()
        if manifest.failure is None:
            self.saved.inc(manifest.producer.compile_seconds)

    def miss(self) -> None:
        """Counts a key that nobody has."""
        self.lookups.labels("miss").inc()

    def totals(self) -> dict[str, int]:
        """Answers of this process by kind, for `/v1/stats`."""
        return {"answered": self.answered, "errors": self.errors}

    def text(self) -> bytes:
        """The exposition format of Prometheus."""
        return generate_latest(self.registry)
