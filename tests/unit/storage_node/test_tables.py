"""What the debug tables say of a shard's state."""

from __future__ import annotations

from logdevice_py.core.ids import LogId, format_shard
from logdevice_py.core.lsn import LSN_MAX
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import GetEpochRecoveryMetadata, StartFlags
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from storage_node import tables
from storage_node.log_store.interface import ReadResult, ReadShard
from tests.unit.storage_node.epochs.test_purge import answer
from tests.unit.storage_node.fakes import (
    ASYNC_LOG,
    ME,
    SEQUENCER,
    SHARDS,
    SYNC_LOG,
    ShardDriver,
    clean,
    image,
    interval,
    lsn,
    release,
    start,
    store,
    stores,
)


def test_logs_are_told_with_what_is_released_sealed_and_clean() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1), lsn(1, 2)]), release(lsn(1, 1)), start())
    (row,) = tables.log_storage_state_rows(driver.node, Constraints(log_id=SYNC_LOG))
    assert (row.log_id, row.shard, row.last_released, row.highest_lsn) == (SYNC_LOG, 0, lsn(1, 1), lsn(1, 2))
    assert (row.lce, row.unclean_epochs, row.read_streams, row.held_release) == (0, 1, 1, None)
    driver.turn(clean(1, 1, lng=2, last=3))
    (row,) = tables.log_storage_state_rows(driver.node, Constraints(log_id=SYNC_LOG))
    assert (row.lce, row.unclean_epochs) == (1, 0)


def test_constraints_find_their_log_without_looking_at_others() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1)]), (SEQUENCER, store(lsn(1, 1), log=ASYNC_LOG)))
    assert {row.log_id for row in tables.stored_logs_rows(driver.node, EVERYTHING)} == {SYNC_LOG, ASYNC_LOG}
    assert [r.log_id for r in tables.stored_logs_rows(driver.node, Constraints(log_id=ASYNC_LOG))] == [ASYNC_LOG]
    assert list(tables.stored_logs_rows(driver.node, Constraints(shard=1))) == []
    assert list(tables.stored_logs_rows(driver.node, Constraints(log_id=LogId(SYNC_LOG + 1000)))) == []


def test_logs_that_come_and_go_between_two_rows_break_nothing() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1)]), (SEQUENCER, store(lsn(1, 1), log=ASYNC_LOG)))
    rows = tables.stored_logs_rows(driver.node, EVERYTHING)
    first = next(rows)
    logs = driver.machines.shard.logs
    del logs[SYNC_LOG if first.log_id == ASYNC_LOG else ASYNC_LOG]
    driver.machines.shard.log(SYNC_LOG + 1000)
    assert list(rows) == []


def test_a_reader_is_told_with_where_it_stands() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1), lsn(1, 2)]), release(lsn(1, 1)), start(single_copy=True, known_down=SHARDS[1:2]))
    (row,) = tables.readers_rows(driver.node, EVERYTHING)
    assert (row.state, row.read_pointer, row.last_released) == ("WAITING", lsn(1, 2), lsn(1, 1))
    assert (row.single_copy, row.known_down, row.until_lsn <= LSN_MAX) == (1, format_shard(SHARDS[1]), True)
    assert row.client.startswith("C")
    assert list(tables.readers_rows(driver.node, Constraints(log_id=ASYNC_LOG))) == []


def test_a_reader_is_told_with_its_order_and_a_hedge_with_being_one() -> None:
    driver = ShardDriver()
    order = [(SHARDS[2], 5), (SHARDS[0], 0), (SHARDS[1], 0)]
    driver.turn(*stores([lsn(1, 1)]), start(single_copy=True, order=order))
    driver.turn(start(stream=2, single_copy=True, flags=StartFlags.HEDGE))
    near, hedge = tables.readers_rows(driver.node, EVERYTHING)
    names = list(map(format_shard, SHARDS))
    assert (near.reading_order, near.hedge) == (f"{names[0]}, {names[1]} | {names[2]}", 0)
    assert (hedge.reading_order, hedge.hedge) == ("", 1)
    assert driver.node.metrics.hedges_served == 1


def test_a_reader_is_told_with_how_much_it_got_since_it_was_begun_anew() -> None:
    driver = ShardDriver()
    size = len(image(lsn(1, 1)))
    driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
    driver.turn(release(lsn(1, 2)), start(credit=10 * size))
    (row,) = tables.readers_rows(driver.node, EVERYTHING)
    assert (row.bytes_sent, row.bytes_left) == (2 * size, 8 * size)
    driver.turn(start(lsn(1, 2), version=2, credit=10 * size))
    (row,) = tables.readers_rows(driver.node, EVERYTHING)
    assert (row.bytes_sent, row.bytes_left, row.filter_version) == (size, 9 * size, 2)


def test_a_purge_names_the_shards_that_it_waits_for() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
    driver.turn(release(lsn(2, 1)))
    (row,) = tables.purges_rows(driver.node, EVERYTHING)
    assert (row.log_id, row.state, row.purge_to) == (SYNC_LOG, "READING_HISTORY", 1)
    driver.tell_history([interval()])
    first, *_ = driver.take(GetEpochRecoveryMetadata)
    driver.turn(answer(first, {}))
    (row,) = tables.purges_rows(driver.node, EVERYTHING)
    assert (row.state, row.unknown_epochs) == ("ASKING", 1)
    others = [format_shard(shard) for shard in SHARDS if shard not in (ME, first.shard)]
    assert row.waits_for == ", ".join(others)


def test_a_record_is_told_with_its_header_and_damage_in_its_place() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
    found = driver.store.read(ReadShard(0, ME, SYNC_LOG, lsn(1, 1), lsn(1, 9), 1 << 20))
    damaged = ReadResult(Status.OK, lsn(1, 9), found.entries, corrupt=[(lsn(1, 5), lsn(1, 6))], bodiless=[lsn(1, 4)])
    rows = list(tables.record_rows(SYNC_LOG, 0, damaged))
    assert [(row.lsn, row.status) for row in rows] == [
        (lsn(1, 1), "OK"),
        (lsn(1, 2), "OK"),
        (lsn(1, 4), "NO_BODY"),
        (lsn(1, 5), "CORRUPT"),
    ]
    assert rows[0].wave == 1
    assert rows[0].recovery_epoch is None
    assert format_shard(ME) in (rows[0].copyset or "")
    assert rows[2].copyset is None


def test_copies_that_do_not_count_are_told_as_such_and_payloads_only_when_they_are_wanted() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1)]))
    found = driver.store.read(ReadShard(0, ME, SYNC_LOG, lsn(1, 1), lsn(1, 9), 1 << 20))
    rows = list(tables.record_rows(SYNC_LOG, 0, found, found.entries))
    assert [(row.is_current, row.payload is None) for row in rows] == [(0, False), (1, False)]
    (bare,) = tables.record_rows(SYNC_LOG, 0, found, bare=True)
    assert (bare.payload, bare.wave, bare.records) == (None, 1, 1)


def test_entries_are_counted_by_copyset() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1), lsn(1, 2), lsn(1, 3)]))
    found = driver.store.read(ReadShard(0, ME, SYNC_LOG, lsn(1, 1), lsn(1, 9), 1 << 20))
    counts = tables.CopysetCounts(SYNC_LOG, 0)
    counts.add(ReadResult(Status.OK, lsn(1, 1), found.entries[:1]))
    counts.add(ReadResult(Status.OK, lsn(1, 9), found.entries[1:]))
    (row,) = counts.rows()
    assert (row.lsn, row.last_lsn, row.entries, row.records) == (lsn(1, 1), lsn(1, 3), 3, 3)
    assert format_shard(ME) in row.copyset
