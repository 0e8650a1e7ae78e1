"""What was appended lately, as looks at the sequencers tell it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.core.histogram import longer_than
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from logdevice_py.tables.sequencing import AppendThroughputRow
from sequencer import tables
from sequencer.throughput import LOOKS_KEPT, AppendThroughput
from tests.unit.sequencer.fakes import LOG, World, active


class Observed:
    """A world that is looked at every ten seconds."""

    def __init__(self) -> None:
        self.world: World = active()
        self.throughput = AppendThroughput()
        self.now = Micros(0)
        self.look()

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            for _ in self.throughput.look(self.world.node, self.now):
                pass
            self.now = Micros(self.now + 10 * SECOND)

    def append(self, count: int, size: int) -> None:
        for _ in range(count):
            self.world.append(b"x" * size)
            self.world.run(SECOND // 100)

    def row(self) -> AppendThroughputRow:
        (row,) = self.throughput.rows(self.world.node, Constraints(log_id=LOG))
        return row


def test_entries_and_bytes_of_payloads_are_told_per_second() -> None:
    observed = Observed()
    observed.append(5, 100)
    observed.look()
    row = observed.row()
    assert (row.log_id, row.log_group, row.seconds_1min) == (LOG, "/logs", 10.0)
    assert (row.entries_1min, row.entries_10min) == (0.5, 0.5)
    assert row.bytes_1min == pytest.approx(50, rel=0.3), "and some bytes around each payload"
    observed.look(5)
    assert observed.row().entries_1min == pytest.approx(5 / 60, abs=1e-3)


def test_what_was_before_the_first_look_is_not_counted_as_if_it_came_within_it() -> None:
    observed = Observed()
    observed.look()
    assert list(observed.throughput.rows(observed.world.node, EVERYTHING)) == []


def test_a_log_that_gets_nothing_for_ten_minutes_is_told_no_more() -> None:
    observed = Observed()
    observed.append(1, 1)
    observed.look(LOOKS_KEPT)
    assert observed.row().entries_1min == 0
    assert observed.row().entries_10min > 0
    observed.look()
    assert list(observed.throughput.rows(observed.world.node, EVERYTHING)) == []
    assert list(observed.throughput.rows(observed.world.node, Constraints(log_id=LogId(LOG + 1)))) == []


def test_a_new_epoch_begins_at_nothing_and_loses_nothing() -> None:
    observed = Observed()
    observed.append(4, 10)
    observed.world.sequencer.activate(observed.world.now)
    observed.world.run(SECOND)
    observed.append(2, 10)
    observed.look()
    assert observed.row().entries_1min in (0.2, 0.6), "those of the old epoch count while it drains"


def test_one_entry_of_eight_is_measured_and_every_store() -> None:
    observed = Observed()
    metrics = observed.world.node.metrics
    measured = sum(metrics.append_latency.counts)
    observed.append(16, 10)
    assert sum(metrics.append_latency.counts) - measured == 2
    observed.look()
    rows = list(tables.append_latency_rows(observed.world.node, observed.throughput.recent_latencies()))
    assert rows[0].operation == "append"
    assert rows[0].samples == 2
    assert rows[0].p50_us <= rows[0].p99_us <= rows[0].max_us
    stores = rows[1:]
    assert {row.operation for row in stores} == {"store"}
    assert sum(row.samples for row in stores) >= 48
    assert replace(stores[0]).timeout_us == observed.world.node.context.store_timeouts.timeout(
        (stores[0].to_node_id << 8 | stores[0].to_shard,),  # type: ignore[operator,arg-type]
        1,
    )
    collected = observed.world.node.collect_metrics().store_latency
    assert sum(collected.counts) == sum(row.samples for row in stores)
    assert sum(observed.world.node.collect_metrics().store_latency.counts) == sum(row.samples for row in stores)
    assert longer_than(collected.counts, 0.0) == max(row.max_us for row in stores)
