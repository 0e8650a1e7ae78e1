"""STORE against seals, waves, damage and the disk."""

from __future__ import annotations

import pytest

from logdevice_py.config.cluster import ShardState
from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.ids import EVENT_LOG_DELTAS, LogId, metadata_log_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Mutated, Sealed, Stored, StoredFlags, StoreFlags
from storage_node.log_store.interface import WriteShard
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import (
    ASYNC_LOG,
    ME,
    SEQUENCER,
    SHARDS,
    SYNC_LOG,
    ShardDriver,
    clean,
    image,
    lsn,
    recovery_store,
    release,
    seal,
    start,
    store,
    stores,
)


def statuses(driver: ShardDriver) -> list[Status]:
    return [message.status for message in driver.take(Stored)]


class TestMemory:
    def test_entries_of_metadata_logs_are_not_kept_in_memory(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)], log=metadata_log_of(SYNC_LOG)), *stores([lsn(1, 1)], log=SYNC_LOG))
        logs = driver.machines.shard.logs
        assert logs[metadata_log_of(SYNC_LOG)].recent is None
        assert logs[SYNC_LOG].recent is not None

    def test_nor_is_what_recovery_stores_of_a_log_that_nobody_reads(self) -> None:
        driver = ShardDriver()
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), seal_epoch=1)))
        state = driver.machines.shard.logs[SYNC_LOG]
        assert state.recent is None
        assert state.in_memory_from == lsn(1, 2)
        driver.turn(*stores([lsn(2, 1)]))
        assert state.recent is not None
        assert state.recent.complete_from == lsn(1, 2)


class TestDurability:
    def test_stores_of_a_turn_are_one_synced_batch_and_are_answered_after_it(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(*stores(lsn(1, esn) for esn in range(1, 6)))
        [(effect, _)] = driver.held
        assert isinstance(effect, WriteShard)
        assert effect.sync
        assert len(effect.batch.entries) == 5
        assert not driver.take(Stored)
        driver.let_go()
        assert statuses(driver) == [Status.OK] * 5

    def test_a_log_without_sync_is_synced_only_until_its_soft_seal_is_durable(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(*stores([lsn(1, 1)], log=ASYNC_LOG))
        driver.turn(*stores([lsn(1, 2)], log=ASYNC_LOG))
        assert [effect.sync for effect, _ in driver.held] == [True, True]
        driver.let_go()
        driver.hold = True
        driver.turn(*stores([lsn(1, 3)], log=ASYNC_LOG))
        assert [effect.sync for effect, _ in driver.held] == [False]

    def test_the_sync_flag_overrides_the_log(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)], log=ASYNC_LOG))
        driver.hold = True
        driver.turn(
            (SEQUENCER, store(lsn(1, 2), log=ASYNC_LOG, flags=StoreFlags.SYNC)), *stores([lsn(1, 3)], log=ASYNC_LOG)
        )
        assert [effect.sync for effect, _ in driver.held] == [False, True]

    def test_metadata_logs_are_always_synced(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(*stores([lsn(1, 1)], log=metadata_log_of(ASYNC_LOG)))
        assert driver.held[0][0].sync

    def test_an_acknowledged_store_survives_a_power_cut(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
        driver.power_cut()
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)]


class TestAwaited:
    def flags(self, driver: ShardDriver) -> list[int]:
        return [message.flags for message in driver.take(Stored)]

    def test_stored_says_that_a_reader_waits_for_the_entry(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)]))
        assert self.flags(driver) == [0]
        driver.turn(start(lsn(1, 1)))
        driver.turn(*stores([lsn(1, 2)]))
        assert self.flags(driver) == [StoredFlags.AWAITED]

    def test_of_a_single_copy_reader_only_where_it_gets_the_entry_from(self) -> None:
        driver = ShardDriver()
        driver.turn(start(lsn(1, 1), single_copy=True))
        others = tuple(shard for shard in SHARDS[:3] if shard != ME)
        driver.turn((SEQUENCER, store(lsn(1, 1), copyset=(ME, *others))))
        assert self.flags(driver) == [StoredFlags.AWAITED]
        driver.turn((SEQUENCER, store(lsn(1, 2), copyset=(*others, ME))))
        assert self.flags(driver) == [0]


class TestRefusals:
    @pytest.mark.parametrize("state", [ShardState.READ_ONLY, ShardState.DISABLED])
    def test_a_shard_that_is_not_read_write_takes_no_store(self, state: ShardState) -> None:
        driver = ShardDriver(shard_state=state)
        driver.turn(*stores([lsn(1, 1)]))
        assert statuses(driver) == [Status.DISABLED]

    def test_another_generation_is_rebuilding(self) -> None:
        driver = ShardDriver(generation=2)
        driver.turn((SEQUENCER, store(lsn(1, 1), generation=1)), (SEQUENCER, store(lsn(1, 2), generation=2)))
        assert statuses(driver) == [Status.REBUILDING, Status.OK]
        assert driver.stored() == [lsn(1, 2)]

    def test_a_shard_of_another_node_is_not_storage(self) -> None:
        driver = ShardDriver()
        message = store(lsn(1, 1))
        message.shard = SHARDS[3]
        driver.turn((SEQUENCER, message))
        assert statuses(driver) == [Status.NOTSTORAGE]

    def test_damage_of_header_or_body_is_found(self) -> None:
        driver = ShardDriver()
        for at in (5, -1):
            message = store(lsn(1, 1))
            damaged = bytearray(message.image)
            damaged[at] ^= 1
            message.image = bytes(damaged)
            driver.turn((SEQUENCER, message))
        assert statuses(driver) == [Status.BADPAYLOAD] * 2
        assert driver.stored() == []

    def test_an_image_of_another_entry_is_refused(self) -> None:
        driver = ShardDriver()
        wrong = [image(lsn(1, 2)), image(lsn(1, 1), log=LogId(8)), image(lsn(1, 1), copyset=SHARDS[1:4])]
        for other in wrong:
            message = store(lsn(1, 1))
            message.image = other
            driver.turn((SEQUENCER, message))
        assert statuses(driver) == [Status.BADPAYLOAD] * 3

    @pytest.mark.parametrize("position", [Lsn(5), lsn(3, 0)])
    def test_positions_that_cannot_hold_an_entry_are_refused(self, position: Lsn) -> None:
        driver = ShardDriver()
        driver.turn((SEQUENCER, store(position)))
        assert statuses(driver) == [Status.BADPAYLOAD]

    def test_too_much_waiting_for_the_disk_is_overload(self) -> None:
        driver = ShardDriver(StorageSettings(write_bytes_in_flight_max=1 << 20))
        driver.hold = True
        big = b"x" * (1 << 20)
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)], payload=big))
        assert statuses(driver) == [Status.OVERLOADED]
        driver.let_go()
        assert statuses(driver) == [Status.OK]
        driver.turn(*stores([lsn(1, 3)]))
        assert statuses(driver) == [Status.OK]
        assert driver.node.metrics.write_bytes_in_flight == 0

    def test_a_stopping_node_refuses(self) -> None:
        driver = ShardDriver()
        driver.node.shut_down(driver.now)
        driver.turn(*stores([lsn(1, 1)]))
        assert statuses(driver) == [Status.SHUTDOWN]

    def test_a_failed_sync_is_final(self) -> None:
        driver = ShardDriver()
        driver.disk.fail_sync = True
        driver.turn(*stores([lsn(1, 1)]))
        assert statuses(driver) == [Status.FAILED]
        driver.disk.fail_sync = False
        driver.turn(*stores([lsn(1, 2)]))
        assert statuses(driver) == [Status.FAILED]

    def test_a_full_disk_refuses_entries_and_the_copy_is_not_shown(self) -> None:
        driver = ShardDriver()
        driver.disk.free = 0
        driver.turn(*stores([lsn(1, 1)]))
        assert statuses(driver) == [Status.NOSPC]
        assert list(driver.log().recent.between(lsn(1, 1), lsn(1, 9))) == []

    def test_what_recovery_and_the_cluster_itself_store_passes_when_a_disk_is_nearly_full(self) -> None:
        driver = ShardDriver()
        driver.disk.free = driver.store_settings.free_space_min * 3 // 4
        driver.turn(*stores([lsn(1, 1)]))
        driver.turn(
            *stores([lsn(1, 2)]),
            (SEQUENCER, recovery_store(lsn(1, 3), seal_epoch=1)),
            *stores([lsn(1, 1)], log=metadata_log_of(SYNC_LOG)),
            *stores([lsn(1, 4)]),
            *stores([lsn(1, 1)], log=EVENT_LOG_DELTAS),
        )
        told = {(message.log, message.lsn): message.status for message in driver.take(Stored)}
        assert told == {
            (SYNC_LOG, lsn(1, 1)): Status.NOSPC,
            (SYNC_LOG, lsn(1, 2)): Status.NOSPC,
            (SYNC_LOG, lsn(1, 4)): Status.NOSPC,
            (metadata_log_of(SYNC_LOG), lsn(1, 1)): Status.OK,
            (EVENT_LOG_DELTAS, lsn(1, 1)): Status.OK,
        }
        assert [message.status for message in driver.take(Mutated)] == [Status.OK]
        driver.disk.free = driver.disk.total
        driver.turn(*stores([lsn(1, 5)]))
        assert statuses(driver) == [Status.OK]

    def test_nothing_passes_when_it_is_full(self) -> None:
        driver = ShardDriver()
        driver.disk.free = 0
        driver.turn(*stores([lsn(1, 1)]))
        driver.turn((SEQUENCER, recovery_store(lsn(1, 3), seal_epoch=1)))
        assert [message.status for message in driver.take(Mutated)] == [Status.NOSPC]


class TestSeals:
    def test_a_sealed_epoch_takes_no_store(self) -> None:
        driver = ShardDriver()
        driver.turn(seal(3))
        driver.turn(*stores([lsn(3, 1), lsn(4, 1)]))
        refused, taken = driver.take(Stored)
        assert (refused.status, refused.seal_epoch, refused.seal_node) == (Status.PREEMPTED, 3, 2)
        assert not refused.flags & StoredFlags.SOFT_PREEMPTED
        assert taken.status is Status.OK

    def test_the_first_store_of_a_later_epoch_is_a_soft_seal_that_survives_a_power_cut(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(5, 1)]))
        driver.power_cut()
        driver.turn(*stores([lsn(4, 9), lsn(5, 2)]))
        refused, taken = driver.take(Stored)
        assert (refused.status, refused.seal_epoch, refused.seal_node) == (Status.PREEMPTED, 4, 1)
        assert refused.flags & StoredFlags.SOFT_PREEMPTED
        assert taken.status is Status.OK

    def test_the_soft_seal_is_in_the_batch_of_its_store(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(*stores([lsn(5, 1), lsn(5, 2)]))
        [(effect, _)] = driver.held
        assert len(effect.batch.log_metadata) == 1
        assert driver.log().soft_durable < 4
        driver.let_go()
        assert driver.log().soft_durable == 4

    def test_a_refused_soft_seal_is_written_with_the_next_store(self) -> None:
        driver = ShardDriver()
        driver.disk.overloaded = True
        driver.turn(*stores([lsn(5, 1)], log=ASYNC_LOG))
        driver.disk.overloaded = False
        driver.turn(*stores([lsn(5, 2)], log=ASYNC_LOG))
        assert statuses(driver) == [Status.OVERLOADED, Status.OK]
        driver.power_cut()
        driver.turn(*stores([lsn(4, 1)], log=ASYNC_LOG))
        assert statuses(driver) == [Status.PREEMPTED]

    def test_a_draining_sequencer_passes_soft_seals_only(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(5, 1)]))
        draining = StoreFlags.DRAINING
        driver.turn((SEQUENCER, store(lsn(4, 1), flags=draining)))
        driver.turn(seal(4))
        driver.turn((SEQUENCER, store(lsn(4, 2), flags=draining)))
        assert statuses(driver) == [Status.OK, Status.OK, Status.PREEMPTED]

    def test_recovery_passes_its_own_and_lower_seals(self) -> None:
        driver = ShardDriver()
        driver.turn(seal(4))
        for seal_epoch in (3, 4, 5):
            driver.turn((SEQUENCER, recovery_store(lsn(2, 1), seal_epoch)))
        answers = driver.take(Mutated)
        assert [answer.status for answer in answers] == [Status.PREEMPTED, Status.OK, Status.OK]
        assert (answers[0].recovery_id, answers[0].seal_epoch, answers[0].seal_node) == (9, 4, 2)

    def test_an_amend_of_recovery_replaces_the_header(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)]))
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1, flags=EntryFlags.AMEND, copyset=(*SHARDS[3:], ME))))
        assert driver.take_one(Mutated).status is Status.OK
        [(_, held)] = driver.log().recent.between(lsn(1, 1), lsn(1, 1))
        assert held == image(lsn(1, 1), wave=1, flags=EntryFlags.WRITTEN_BY_RECOVERY, copyset=(*SHARDS[3:], ME))

    @pytest.mark.parametrize("recent_bytes", [0, 1 << 20])
    def test_an_amend_of_the_same_rank_keeps_the_body(self, recent_bytes: int) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=recent_bytes))
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1)))
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1, flags=EntryFlags.AMEND, copyset=(*SHARDS[3:], ME))))
        assert [answer.status for answer in driver.take(Mutated)] == [Status.OK] * 2
        assert driver.stored() == [lsn(1, 1)]

    def test_an_amend_that_waits_for_its_body_meets_seals_that_come_meanwhile(self) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=0))
        driver.turn(*stores([lsn(1, 1)]))
        driver.hold = True
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1, flags=EntryFlags.AMEND)))
        driver.turn(seal(4))
        driver.let_go()
        assert driver.take_one(Mutated).status is Status.PREEMPTED

    @pytest.mark.parametrize("recent_bytes", [0, 1 << 20])
    def test_an_amend_of_what_is_not_here_does_not_count_as_a_copy(self, recent_bytes: int) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=recent_bytes))
        driver.turn(*stores([lsn(1, 2)]))
        driver.take(Stored)
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1, flags=EntryFlags.AMEND)))
        assert driver.take_one(Mutated).status is Status.BADPAYLOAD
        assert driver.stored() == [lsn(1, 2)]

    def test_an_amend_does_not_take_the_body_of_something_else(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 2)]))
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1, flags=EntryFlags.HOLE)))
        held = list(driver.log().recent.between(lsn(1, 1), lsn(1, 1)))
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1, flags=EntryFlags.AMEND)))
        assert [answer.status for answer in driver.take(Mutated)] == [Status.OK, Status.BADPAYLOAD]
        assert list(driver.log().recent.between(lsn(1, 1), lsn(1, 1))) == held

    def test_a_store_accepted_before_a_seal_is_written_before_it(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(*stores([lsn(3, 1)]), seal(3), *stores([lsn(3, 2)]))
        assert statuses(driver) == [Status.PREEMPTED]
        first, second = (effect.batch for effect, _ in driver.held)
        assert first.entries
        assert not second.entries
        driver.complete()
        assert statuses(driver) == [Status.OK]
        assert not driver.take(Sealed)
        driver.let_go()
        assert driver.take_one(Sealed)

    def test_unsynced_stores_before_a_seal_are_answered_before_it(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(3, 1)], log=ASYNC_LOG))
        driver.take(Stored)
        driver.hold = True
        driver.turn(*stores([lsn(3, 2)], log=ASYNC_LOG), seal(3, log=ASYNC_LOG))
        assert [bool(effect.batch.entries) for effect, _ in driver.held] == [True, False]
        driver.let_go()
        order = [type(message) for _, message in driver.sent]
        assert order == [Stored, Sealed]

    def test_epochs_known_to_be_recovered_are_fenced(self) -> None:
        driver = ShardDriver()
        driver.turn(release(lsn(6, 1)))
        driver.turn(*stores([lsn(5, 1), lsn(6, 2)]))
        assert statuses(driver) == [Status.PREEMPTED, Status.OK]
        driver.turn((SEQUENCER, recovery_store(lsn(5, 1), 4)))
        assert driver.take_one(Mutated).status is Status.PREEMPTED

    def test_clean_epochs_take_no_store_even_when_the_seal_never_came(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)]))
        driver.turn(clean(1, 1, lng=1, last=2))
        driver.take(Stored)
        driver.turn(*stores([lsn(1, 3)]))
        assert statuses(driver) == [Status.PREEMPTED]

    def test_metadata_logs_are_sealed_by_later_epochs_only(self) -> None:
        driver = ShardDriver()
        log = metadata_log_of(SYNC_LOG)
        driver.turn(*stores([lsn(4, 1)], log=log))
        driver.turn(*stores([lsn(3, 1), lsn(5, 1)], log=log))
        assert statuses(driver) == [Status.OK, Status.PREEMPTED, Status.OK]
        assert driver.log(log).epochs is None


class TestLng:
    def test_the_lng_is_written_once_a_turn_and_only_when_it_grew(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(*[event for esn in range(1, 4) for event in stores([lsn(1, esn)], lng=esn - 1)])
        assert [value[1:2] for value in driver.held[0][0].batch.epoch_metadata] == [(1,)]
        driver.let_go()
        driver.hold = True
        driver.turn(*stores([lsn(1, 4)], lng=2))
        assert driver.held[0][0].batch.epoch_metadata == []
        driver.let_go()
        assert driver.log().epochs == {1: 2}
        driver.power_cut()
        assert driver.log().epochs == {1: 2}

    def test_an_lng_in_a_refused_batch_is_written_later(self) -> None:
        driver = ShardDriver()
        driver.disk.overloaded = True
        driver.hold = True
        driver.turn(*stores([lsn(1, 1)]))
        driver.disk.overloaded = False
        driver.turn(*stores([lsn(1, 2)]))
        driver.let_go()
        assert statuses(driver) == [Status.OVERLOADED, Status.OK]
        driver.restart()
        assert driver.log().epochs == {1: 0}
