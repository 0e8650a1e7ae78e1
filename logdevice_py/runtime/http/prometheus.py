"""The declared metrics by Prometheus's conventions: base units as suffixes, ``_total`` for counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from logdevice_py.core.declare import MetricDeclaration, declarations
from logdevice_py.core.histogram import Histogram, bucket_of
from logdevice_py.runtime.metric_source import MetricSource

_MICROS: Final = 1e6
_EDGES: Final = tuple(1 << power for power in range(7, 25))
"""Upper ends of the buckets of histograms: 128 us, doubled up to 17 s."""


def prometheus_name(section: str, metric: MetricDeclaration) -> str:
    """The name under which a metric is exported."""
    words = metric.name.split("_")
    suffix = []
    if metric.unit == "bytes":
        words = [word for word in words if word != "bytes"] or ["size"]
        suffix = ["bytes"]
    elif metric.unit == "us":
        words = [word for word in words if word != "us"]
        suffix = ["seconds"]
    if metric.kind == "counter":
        suffix.append("total")
    return "_".join(["logdevice", *section.lower().split(), *words, *suffix])


class NodeCollector:
    """Makes metric families from metrics objects when it is asked for them."""

    def __init__(self, sources: Callable[[], Iterable[MetricSource]]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """One family a metric; those of a shard or a log carry the label `shard` or `log_id`."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily] = {}
        for source in self._sources():
            labels = source.labels()
            for metric in declarations(type(source.metrics)):
                name = prometheus_name(source.section, metric)
                family = families.get(name)
                if family is None:
                    family = families[name] = _FAMILIES[metric.kind](name, metric.doc, labels=list(labels))
                value = getattr(source.metrics, metric.name)
                if isinstance(family, HistogramMetricFamily):
                    family.add_metric(list(labels.values()), buckets=_buckets(value), sum_value=value.total / _MICROS)
                else:
                    family.add_metric(list(labels.values()), value / _MICROS if metric.unit == "us" else value)
        yield from families.values()


_FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """As Prometheus wants them: (upper end in seconds, how many were not longer)."""
    found: list[tuple[str, float]] = []
    begin = count = 0
    for edge in _EDGES:
        end = bucket_of(edge)
        count += sum(histogram.counts[begin:end])
        begin = end
        found.append((str(edge / _MICROS), count))
    return [*found, ("+Inf", count + sum(histogram.counts[begin:]))]


def render(sources: Callable[[], Iterable[MetricSource]]) -> bytes:
    """The text that Prometheus scrapes: the declared metrics, and what its own library tells of the process and of Python."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(NodeCollector(sources))
    return generate_latest(registry)
