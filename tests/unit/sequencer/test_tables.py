"""What the debug tables say of sequencers and recoveries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from logdevice_py.core.ids import LogId
from logdevice_py.protocol.messages import Store
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from sequencer import tables
from sequencer.store_availability import Reason
from tests.unit.sequencer.fakes import LOG, active
from tests.unit.sequencer.recovery.bench import Bench
from tests.unit.sequencer.recovery.test_node_recoveries import start_many


def silent(store: Store) -> None:
    """A shard that does not answer."""


def test_a_sequencer_is_told_with_its_epoch_and_its_window() -> None:
    world = active()
    world.append()
    world.run()
    (row,) = tables.sequencers_rows(world.node, Constraints(log_id=LOG))
    sequencer = world.sequencer
    assert sequencer.current is not None
    assert (row.state, row.epoch, row.last_released) == ("ACTIVE", sequencer.epoch, sequencer.last_released)
    assert row.next_lsn == sequencer.current.next_lsn
    assert (row.in_flight, row.window_bytes, row.is_recovered) == (0, 0, 1)
    world.answer = silent
    world.append()
    world.run()
    (row,) = tables.sequencers_rows(world.node, EVERYTHING)
    assert row.in_flight == 1
    assert row.window_bytes > 0
    assert row.last_known_good == row.last_released
    assert list(tables.sequencers_rows(world.node, Constraints(log_id=LogId(LOG + 1)))) == []


def test_graylisted_shards_are_told_with_the_reason() -> None:
    world = active()
    slow = world.config.storage_shards()[1]
    world.node.context.availability.block(slow, Reason.SLOW, world.now)
    (row,) = tables.graylist_rows(world.node, EVERYTHING)
    assert (row.graylisted_node_id << 8 | row.graylisted_shard, row.reason) == (slow, "SLOW")


def test_recoveries_say_how_far_they_are_and_which_are_queued() -> None:
    bench = Bench(1, "node:1", concurrent_log_recoveries=1)
    start_many(bench, range(1, 3))
    node: Any = SimpleNamespace(recoveries=bench.recoveries)
    running, waiting = tables.recoveries_rows(node, EVERYTHING)
    assert (running.log_id, running.state, running.epoch_state) == (1, "RECOVERING", "SEAL_OR_INACTIVE")
    assert "SEAL_OR_INACTIVE" in running.waits_for
    assert (waiting.log_id, waiting.state, waiting.epoch) == (2, "IDLE", None)
    assert [row.log_id for row in tables.recoveries_rows(node, Constraints(log_id=LogId(2)))] == [2]
