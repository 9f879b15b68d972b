"""Counters for Prometheus, in a registry of their own: two servers in a process do not share them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """What a server counts."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter("adamab_requests", "Requests", ["path", "status"], registry=registry)
        self._seconds = Histogram(
            "adamab_request_seconds", "Time to answer", ["path"], buckets=_SECONDS, registry=registry
        )
        self.in_progress = Gauge(
            "adamab_requests_in_progress", "Requests that are being answered", registry=registry
        )
        self._items = Counter("adamab_items", "Texts and pictures that were classified", registry=registry)
        self._batches = Histogram("adamab_batch_items", "Items a batch", buckets=_SIZES, registry=registry)
        self._batch_seconds = Histogram(
            "adamab_batch_seconds", "Time to compute a batch", buckets=_SECONDS, registry=registry
        )
        self._waiting = Gauge("adamab_waiting_items", "Items that wait for a batch", registry=registry)
        self._reloads = Counter("adamab_reloads", "Reloads of the model", ["outcome"], registry=registry)

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request was answered; `path` is the route's, so that nobody can make up new ones."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def waiting(self, items: int) -> None:
        """So many items wait."""
        self._waiting.set(items)

    def batch(self, items: int, seconds: float) -> None:
        """A batch was computed."""
        self._batches.observe(items)
        self._batch_seconds.observe(seconds)

    def answered(self, items: int) -> None:
        """So many items were classified and told."""
        self._items.inc(items)

    def reload(self, outcome: str) -> None:
        """A model was reloaded, was the same, or could not be read."""
        self._reloads.labels(outcome).inc()

    def page(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)
