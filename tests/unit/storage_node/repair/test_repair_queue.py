"""One queue repairs what is dirty, unreadable and missing: what comes first, what is done together, and when it is tried again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from logdevice_py.core.ids import LogId, NodeId, shard_id
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND, Timestamp
from logdevice_py.protocol.messages import Fetch, GetSeqState
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from tests.unit.storage_node.fakes import (
    ASYNC_LOG,
    ME,
    SEQUENCER,
    SYNC_LOG,
    LoneStorageNode,
    ShardDriver,
    interval,
    lsn,
    release,
    stores,
)
from tests.unit.storage_node.repair.test_dirty_ranges import ALL, LOST, SETTINGS, cut_off, dirty, fetched, seq_state


def test_dirty_and_unreadable_ranges_of_a_log_are_repaired_in_one_attempt() -> None:
    driver = cut_off()
    [question] = driver.take(GetSeqState)
    driver.turn(seq_state(question, lsn(1, 6)), release(LOST[-1], log=ASYNC_LOG))
    driver.disk.corrupt(ASYNC_LOG, ALL[1])
    driver.machines.repairs.note_unreadable(driver.log(ASYNC_LOG), ALL[1], ALL[1])
    driver.advance(SECOND)
    assert len(driver.readers) == 1
    driver.tell_history([interval()])
    asked = driver.take(Fetch)
    assert asked
    for fetch in asked:
        assert (fetch.first, fetch.last) == (ALL[1], ALL[1]), "what cannot be read comes first"
        driver.turn(fetched(fetch, [ALL[1]]))
    driver.advance(MILLISECOND)
    asked = driver.take(Fetch)
    assert asked
    for fetch in asked:
        assert (fetch.first, fetch.last) == (lsn(1, 0), LOST[-1])
        driver.turn(fetched(fetch, ALL))
    assert driver.stored(ASYNC_LOG) == ALL
    assert dirty(driver) is None
    assert not driver.machines.repairs.damaged
    assert len(driver.readers) == 1
    metrics = driver.node.metrics
    assert (metrics.copies_restored, metrics.dirty_copies_restored, metrics.damaged_ranges) == (1, len(LOST), 0)


def test_what_was_noted_last_is_not_kept_waiting_by_many_dirty_logs() -> None:
    driver = ShardDriver(replace(SETTINGS, repair_logs_max=1))
    logs = [LogId(ASYNC_LOG + number) for number in range(5)]
    for log in (SYNC_LOG, *logs):
        driver.turn(*stores(ALL[:2], log=log))
    driver.power_cut()
    driver.turn(release(ALL[1]))
    driver.machines.repairs.note_unreadable(driver.log(), ALL[0], ALL[0])
    driver.turn()
    [question] = driver.take(GetSeqState)
    assert question.log == logs[0]
    driver.turn(seq_state(question, lsn(1, 3)))
    [reader] = driver.readers
    assert reader.log == SYNC_LOG


def test_a_node_that_is_back_ends_the_wait_of_a_damaged_log() -> None:
    driver = cut_off()
    [question] = driver.take(GetSeqState)
    driver.turn(seq_state(question, lsn(1, 6)), release(LOST[-1], log=ASYNC_LOG))
    for _ in range(5):
        driver.advance(10 * SECOND)
        driver.tell_history([interval()])
        for fetch in driver.take(Fetch):
            driver.turn(fetched(fetch, status=Status.FAILED))
        driver.advance(MILLISECOND)
    attempts = driver.node.metrics.repairs
    driver.advance(SECOND)
    assert driver.node.metrics.repairs == attempts, "it waits for long by now"
    driver.node.on_peer_up(SEQUENCER, driver.now)
    driver.advance(SECOND)
    assert driver.node.metrics.repairs == attempts + 1


def test_what_cannot_be_repaired_is_tried_less_and_less_often_up_to_a_limit() -> None:
    driver = ShardDriver(replace(SETTINGS, repair_retry_max_us=4 * SECOND))
    driver.turn(*stores(ALL, log=ASYNC_LOG), release(ALL[-1], log=ASYNC_LOG))
    driver.machines.repairs.note_unreadable(driver.log(ASYNC_LOG), ALL[0], ALL[0])
    began: list[int] = []
    driver.turn()
    while len(began) < 6:
        began.append(driver.now)
        driver.tell_history([interval()], complete=False)
        attempts = len(driver.readers)
        while len(driver.readers) == attempts:
            driver.advance(MILLISECOND)
    waits = [(later - earlier) / SECOND for earlier, later in pairwise(began)]
    for wait, least in zip(waits, (0.5, 1, 2, 4, 4), strict=True):
        assert least <= wait <= 1.25 * least + 0.01


def test_the_ranges_of_all_shards_of_a_node_are_counted_together() -> None:
    driver = ShardDriver(SETTINGS)
    shards = ME, shard_id(NodeId(0), 1)
    stores = [MemoryLogStore(MemoryDisk(), driver.store_settings) for _ in shards]
    for shard, store in zip(shards, stores, strict=True):
        store.adopt(ShardMarker(b"u" * 16, shard, driver.generation), boot="", now=Timestamp(driver.now))
    contents = [store.load() for store in stores]
    node = LoneStorageNode(NodeId(0), driver.config, SETTINGS, Outbox(), TimerQueue(), driver.view, contents)
    for machines in node.shards.values():
        machines.repairs.note_unreadable(machines.shard.log(ASYNC_LOG), ALL[0], ALL[0])
    assert node.metrics.damaged_ranges == 2
    next(iter(node.shards.values())).fail(driver.now)
    assert node.metrics.damaged_ranges == 1
