"""The trace of appends against real nodes: every process notes its part, and nobody does before or after."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ldbench.append_tracing import TraceOrder, trace_log
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
