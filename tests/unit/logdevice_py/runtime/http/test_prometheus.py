from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from logdevice_py.core.declare import declarations
from logdevice_py.runtime.http.prometheus import prometheus_name, render
from logdevice_py.runtime.metric_source import MetricSource
from sequencer.metrics import SequencerMetrics
from server.dev.render_docs import METRICS
from storage_node.log_store.metrics import LogStoreMetrics


def test_names_are_as_prometheus_wants_them_and_differ() -> None:
    names = [prometheus_name(section, m) for section, cls in METRICS.items() for m in declarations(cls)]
    assert len(set(names)) == len(names)
    seen = 0
    for section, cls in METRICS.items():
        for metric in declarations(cls):
            seen += 1
            name = prometheus_name(section, metric)
            assert re.fullmatch(r"logdevice_[a-zA-Z0-9_]+", name)
            assert name.endswith("_total") == (metric.kind == "counter"), name
            bare = name.removesuffix("_total")
            assert bare.endswith("_bytes") == (metric.unit == "bytes"), name
            assert bare.endswith("_seconds") == (metric.unit == "us"), name
    assert seen == len(names) > 50


def test_shards_are_labels_of_one_family_and_times_are_seconds() -> None:
    first, second = LogStoreMetrics(sync_time=1_500_000), LogStoreMetrics(sync_time=250_000)
    text = render(lambda: [MetricSource("log store", first, 0), MetricSource("log store", second, 1)]).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families["logdevice_log_store_sync_time_seconds"].samples
    assert {sample.labels["shard"]: sample.value for sample in samples} == {"0": 1.5, "1": 0.25}


def test_histograms_are_cumulative_and_in_seconds() -> None:
    metrics = SequencerMetrics()
    for micros in (100, 127, 128, 5_000, 60_000_000):
        metrics.append_latency.note(micros)
    text = render(lambda: [MetricSource("sequencer", metrics)]).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = families["logdevice_sequencer_append_latency_seconds"].samples
    buckets = {sample.labels["le"]: sample.value for sample in samples if sample.name.endswith("_bucket")}
    assert buckets["0.000128"] == 2, "buckets are of what took less"
    assert buckets["0.000256"] == 3
    assert buckets["0.008192"] == 4
    assert buckets["+Inf"] == 5
    assert [sample.value for sample in samples if sample.name.endswith("_sum")] == [60.005355]
