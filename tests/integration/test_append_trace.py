"""The trace of appends against real nodes: every process notes its part, and nobody does before or after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.ldbench.append_tracing import TraceOrder, trace_log
from ldquery.ctl.main import parser, run
from server.dev.local_cluster import LocalCluster


async def test_appends_are_followed_through_all_processes_and_the_trace_ends_with_them() -> None:
    appends = 10
    async with LocalCluster(nodes=3) as cluster:
        assert all(host.trace is None for host in cluster.hosts.values())
        report = await trace_log(TraceOrder(appends=appends), Path(cluster.config_file), 1)
        assert all(host.trace is None for host in cluster.hosts.values())
        assert all(service.trace is None for host in cluster.hosts.values() for service in host.shards.values())
    found = report.waterfall
    assert found.appends + sum(found.lost.values()) == appends
    assert found.appends >= appends - 1, found.lost  # one may take a second wave
    assert not found.clocks, "all share one clock"
    lanes = {each.lane for each in found.spans}
    assert {"client", "sequencer", "the sequencer's own copy", "second other copy to answer", "to the reader"} <= lanes
    synced = [each for each in found.spans if each.label == "sync"]
    assert len(synced) == 3
    assert all(each.took_us >= 0 for each in found.spans)


async def test_spans_of_a_traced_client_have_what_nodes_did_as_children() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from client.tracing import TracedClient

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    async with LocalCluster(nodes=3) as cluster, TracedClient(cluster.config_file, tracer_provider=provider) as opened:
        client: Any = opened
        words = ["settings", "set", "all", "runtime.trace_instants", "10000"]
        assert await run(parser().parse_args(["-c", cluster.config_file, *words])) == 0
        assert await client.trace_nodes() == 0, "nothing was appended"
        await client.append(1, b"x")
        assert await client.trace_nodes() >= 3
        assert await client.trace_nodes() == 0, "once"
    spans = kept.get_finished_spans()
    (append,) = [each for each in spans if each.parent is None]
    parts = [each for each in spans if each.parent is not None]
    assert all(each.parent.span_id == append.context.span_id for each in parts if each.parent is not None)
    assert sorted(each.name for each in parts)[:3] == ["sequence", "store", "store"]
    assert all((append.start_time or 0) <= (each.start_time or 0) <= (each.end_time or 0) for each in parts)
