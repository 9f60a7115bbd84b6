"""What a server measures, for Prometheus. Each server has a registry of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from strandline.jobs.server.state.hub import Hub
    from strandline.jobs.server.state.partials import Partials
    from strandline.jobs.server.state.replicas import Replicas

# From a look-up in memory to the longest query.
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0)

_COUNTED = {
    "hits": "Keys of partial views that were kept when they were read",
    "misses": "Keys of partial views that were not kept when they were read",
    "shared": "Of the misses, those that waited for another reader's upquery",
    "upqueries": "Upqueries",
    "dropped": "Keys that a change of an input touched",
    "evictions": "Keys that were let go for the budget",
}
_KEPT = {"kept": "Keys that are kept", "bytes": "Bytes of the keys that are kept"}


class Metrics:
    """The counters that requests move."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "strandline_request_seconds",
            "Time to answer, by route; of a subscription the time to its first byte",
            ("route", "status"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._sent = Counter("strandline_sent_bytes_total", "Bytes of answers", ("route",), registry=self.registry)
        self._lookups = Counter(
            "strandline_lookups_total", "Look-ups by key, by what answered", ("view", "by"), registry=self.registry
        )
        self._asked: dict[tuple[str, str], Histogram] = {}
        # Those of the labels that are there: to find one by its labels takes longer than to move it.
        self._answers: dict[tuple[str, int], tuple[Histogram, Counter]] = {}
        self._looked_up: dict[tuple[str, str], Counter] = {}

    def answered(self, route: str, status: int, seconds: float, size: int) -> None:
        """A request was answered, with so many bytes."""
        found = self._answers.get((route, status))
        if found is None:
            found = (self.seconds.labels(route, str(status)), self._sent.labels(route))
            self._answers[route, status] = found
        found[0].observe(seconds)
        found[1].inc(size)

    def asked(self, route: str, status: str, seconds: float) -> None:
        """A query of another protocol than HTTP was answered."""
        found = self._asked.get((route, status))
        if found is None:
            found = self._asked[route, status] = self.seconds.labels(route, status)
        found.observe(seconds)

    def looked_up(self, view: str, by: str) -> None:
        """A view was looked up: `by` is what answered."""
        found = self._looked_up.get((view, by))
        if found is None:
            found = self._looked_up[view, by] = self._lookups.labels(view, by)
        found.inc()


class Standing:
    """A collector of where replicas and subscribers stand."""

    def __init__(self, replicas: Replicas, hub: Hub) -> None:
        self._replicas = replicas
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        """The gauges, as they are now."""
        version = GaugeMetricFamily("strandline_replica_version", "Version that answers", labels=("view",))
        looked = GaugeMetricFamily(
            "strandline_replica_lag_seconds", "Since a replica was last at its table's head", labels=("view",)
        )
        failing = GaugeMetricFamily(
            "strandline_replica_failing", "1 after an error, when the table answers", labels=("view",)
        )
        anew = CounterMetricFamily(
            "strandline_replica_made_anew", "Times that a replica's store was thrown away", labels=("view",)
        )
        for replica in self._replicas.all():
            name = (replica.relation.name,)
            failing.add_metric(name, float(replica.phase in ("failed", "late")))
            anew.add_metric(name, replica.made_anew)
            if replica.version is not None:
                version.add_metric(name, replica.version)
                looked.add_metric(name, time.monotonic() - replica.looked)
        yield version
        yield looked
        yield failing
        yield anew
        yield GaugeMetricFamily("strandline_subscribers", "Subscribers connected", value=self._hub.subscribers)
        yield CounterMetricFamily("strandline_subscribers_dropped", "Let go for being slow", value=self._hub.dropped)


class PartialViewsCollector:
    """A collector of what partial views keep, and of what it took."""

    def __init__(self, partials: Partials) -> None:
        self._partials = partials

    def collect(self) -> Iterator[Metric]:
        """One family for each count of `jobs.partial.view.CacheCounts`."""
        counts = {each.definition.name: each.view.counts for each in self._partials.all()}
        for name, text in _COUNTED.items():
            family = CounterMetricFamily(f"strandline_partial_{name}", text, labels=("view",))
            for view, found in counts.items():
                family.add_metric((view,), getattr(found, name))
            yield family
        for name, text in _KEPT.items():
            gauge = GaugeMetricFamily(f"strandline_partial_{name}", text, labels=("view",))
            for view, found in counts.items():
                gauge.add_metric((view,), getattr(found, name))
            yield gauge
