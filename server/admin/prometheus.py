"""The declared metrics by Prometheus's conventions: base units as suffixes, ``_total`` for counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from logdevice_py.core.declare import MetricDeclaration, declarations

_MICROS: Final = 1e6


@dataclass(frozen=True, slots=True)
class MetricSource:
    """A metrics object, and what counts with it."""

    section: str
    """As in docs/metrics.md."""
    metrics: Any
    shard: int | None = None
    """Index of the shard that counts; None: the node as a whole."""


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
        """One family a metric; those that shards count carry the label `shard`."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for source in self._sources():
            labels = [] if source.shard is None else [str(source.shard)]
            for metric in declarations(type(source.metrics)):
                name = prometheus_name(source.section, metric)
                family = families.get(name)
                if family is None:
                    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                    family = families[name] = make(name, metric.doc, labels=["shard"] if labels else [])
                value = getattr(source.metrics, metric.name)
                family.add_metric(labels, value / _MICROS if metric.unit == "us" else value)
        yield from families.values()


def render(sources: Callable[[], Iterable[MetricSource]]) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(NodeCollector(sources))
    return generate_latest(registry)
