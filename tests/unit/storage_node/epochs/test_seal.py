"""SEAL and CHECK_SEAL."""

from __future__ import annotations

from typing import Any

import pytest

from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.extensions import Condition, TailState, encode_extensions
from logdevice_py.core.ids import Generation, metadata_log_of
from logdevice_py.core.lsn import EPOCH_MAX, ESN_MAX, Epoch
from logdevice_py.core.status import Status
from logdevice_py.protocol.framing import encode_frame
from logdevice_py.protocol.messages import (
    EPOCHS_PER_SEALED,
    CheckSeal,
    Cleaned,
    CleanLog,
    SealChecked,
    Sealed,
    SealLog,
    Trim,
)
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import (
    ASYNC_LOG,
    ME,
    READER,
    SEQUENCER,
    SYNC_LOG,
    ShardDriver,
    clean,
    lsn,
    recovery_store,
    release,
    seal,
    stores,
)


def sealed(driver: ShardDriver) -> tuple[Any, ...]:
    """(status, epoch of the seal, node, trim point, epochs) of the only log."""
    [described] = driver.take_one(Sealed).logs
    return described[1:]


@pytest.fixture(params=["from memory", "from disk"])
def recent(request: pytest.FixtureRequest) -> StorageSettings:
    return StorageSettings(recent_entries_bytes_max=1 << 20 if request.param == "from memory" else 0)


class TestAnswer:
    def test_each_epoch_with_something_stored_is_described(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 1), lsn(1, 2), lsn(1, 5)], lng=3), *stores([lsn(3, 1)], lng=0))
        driver.turn(seal(3))
        assert sealed(driver) == (
            Status.OK,
            3,
            2,
            0,
            [(1, Status.OK, 3, 5, 1005, lsn(1, 2), 1002, 1, b""), (3, Status.OK, 0, 1, 1001, 0, 0, 0, b"")],
        )

    def test_what_lies_in_memory_is_not_read(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)], lng=1))
        driver.turn(seal(1))
        assert (sealed(driver)[4][0][3], driver.reads) == (2, 0)

    def test_epochs_outside_the_asked_range_are_left_out(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(epoch, 1) for epoch in (1, 2, 3, 4)]))
        driver.turn(seal(3, clean=1))
        assert [epoch[0] for epoch in sealed(driver)[4]] == [2, 3]

    def test_what_is_known_survives_a_restart(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)], lng=1))
        driver.restart()
        driver.turn(seal(1))
        assert sealed(driver)[4] == [(1, Status.OK, 1, 2, 1002, lsn(1, 1), 1001, 1, b"")]

    def test_what_was_trimmed_was_replicated_though_it_is_not_stored_any_more(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)], lng=0))
        driver.turn(release(lsn(1, 2)))
        driver.turn((READER, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 2))))
        driver.restart()
        driver.turn(seal(1))
        assert sealed(driver)[4] == [(1, Status.OK, 2, 0, 0, 0, 0, 0, b"")]

    def test_holes_count_as_stored(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)]), (SEQUENCER, recovery_store(lsn(1, 2), 1, flags=EntryFlags.HOLE)))
        driver.turn(seal(2))
        assert sealed(driver)[4][0][3] == 2

    def test_a_recovered_epoch_tells_the_lng_that_recovery_agreed_on(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
        driver.turn(clean(1, 1, lng=2, last=3))
        driver.turn(seal(1))
        assert sealed(driver)[4][0][:3] == (1, Status.OK, 2)

    def test_a_damaged_entry_makes_no_whole_epoch_doubtful(self) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=0))
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
        driver.disk.corrupt(SYNC_LOG, lsn(1, 2))
        driver.turn(seal(1))
        epoch, status, _, last, *_ = sealed(driver)[4][0]
        assert (epoch, status, last) == (1, Status.OK, 2)


class TestSealing:
    def test_sealed_is_sent_after_the_sync_and_the_seal_survives(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(seal(3))
        assert driver.held[0][0].sync
        assert not driver.take(Sealed)
        driver.let_go()
        driver.power_cut()
        assert (driver.log().seal_epoch, driver.log().seal_node) == (3, 2)

    def test_the_same_epoch_is_sealed_again_by_a_write_of_its_own(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(seal(3))
        driver.turn(seal(3))
        assert len(driver.held) == 2
        driver.let_go()
        assert [answer.logs[0].status for answer in driver.take(Sealed)] == [Status.OK] * 2

    def test_a_lower_seal_is_preempted_by_normal_and_soft_seals(self) -> None:
        driver = ShardDriver()
        driver.turn(seal(5))
        driver.take(Sealed)
        driver.hold = True
        driver.turn(seal(4, node=3))
        assert sealed(driver)[:3] == (Status.PREEMPTED, 5, 2)
        assert not driver.held, "nothing is written for it"
        driver.let_go()
        metrics = driver.machines.shard.metrics
        assert (metrics.seals, metrics.seals_preempted) == (1, 1)
        driver.turn(*stores([lsn(9, 1)]))
        driver.turn(seal(7, node=3))
        assert sealed(driver)[:3] == (Status.PREEMPTED, 8, SEQUENCER)

    def test_a_soft_seal_that_comes_while_the_seal_is_written_preempts_it(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(seal(3), *stores([lsn(6, 1)]))
        driver.let_go()
        assert sealed(driver)[:3] == (Status.PREEMPTED, 5, SEQUENCER)

    def test_so_does_one_that_comes_while_the_epochs_are_read(self) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=0))
        driver.turn(*stores([lsn(1, 1)]))
        driver.hold = True
        driver.turn(seal(3))
        driver.complete()
        driver.turn(*stores([lsn(6, 1)]))
        assert not driver.take(Sealed)
        driver.let_go()
        assert sealed(driver) == (Status.PREEMPTED, 5, SEQUENCER, 0, [])

    def test_a_seal_that_could_not_be_written_says_so_even_where_it_would_be_preempted(self) -> None:
        driver = ShardDriver()
        driver.disk.overloaded = True
        driver.turn(seal(3), *stores([lsn(6, 1)]))
        assert sealed(driver)[:2] == (Status.OVERLOADED, 5)

    def test_recovery_that_ended_elsewhere_preempts(self) -> None:
        driver = ShardDriver()
        driver.turn(release(lsn(7, 1)))
        driver.turn(seal(5))
        assert sealed(driver)[:3] == (Status.PREEMPTED, 6, -1)

    def test_of_a_seal_and_a_soft_seal_of_the_same_epoch_the_node_of_the_seal_is_told(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(4, 1)]))
        driver.turn(seal(3, node=7))
        assert (driver.log().soft_epoch, driver.log().soft_node) == (3, SEQUENCER)
        assert sealed(driver)[:3] == (Status.OK, 3, 7)

    def test_a_failed_disk_says_so(self) -> None:
        driver = ShardDriver()
        driver.disk.fail_sync = True
        driver.turn(seal(3))
        assert sealed(driver)[0] == Status.FAILED
        driver.turn(seal(3))
        answer = driver.take_one(Sealed)
        assert (answer.logs, answer.generation) == ([(SYNC_LOG, Status.FAILED, 0, -1, 0, [])], 0)

    def test_an_overloaded_disk_refuses_and_stores_stay_fenced(self) -> None:
        driver = ShardDriver()
        driver.disk.overloaded = True
        driver.turn(seal(3))
        assert sealed(driver)[0] == Status.OVERLOADED
        assert driver.log().seal_epoch == 3


class TestAuthority:
    def test_epochs_of_another_generation_are_rebuilding_even_with_nothing_stored(self) -> None:
        driver = ShardDriver(generation=2)
        driver.turn(seal(4, generations=[(1, 1), (4, 2)]))
        assert [epoch[:2] for epoch in sealed(driver)[4]] == [(e, Status.REBUILDING) for e in (1, 2, 3)]

    @pytest.mark.parametrize(
        ("generations", "clean", "doubtful"),
        [
            ([(1, 2), (4, 1)], 0, [4, 5, 6]),
            ([(1, 1), (6, 2)], 3, [4, 5]),
            ([(1, 1), (9, 2)], 4, [5, 6]),
            ([(1, 2), (3, 1), (4, 2)], 0, [3]),
            ([(1, 2)], 0, []),
        ],
    )
    def test_only_epochs_of_another_generation_that_were_asked_for_are_doubtful(
        self, generations: list[tuple[int, int]], clean: int, doubtful: list[int]
    ) -> None:
        driver = ShardDriver(generation=2)
        driver.turn(seal(6, clean=clean, generations=generations))
        assert [epoch[:2] for epoch in sealed(driver)[4]] == [(epoch, Status.REBUILDING) for epoch in doubtful]

    def test_epochs_that_lost_unsynced_entries_are_doubtful_but_tell_what_they_have(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(2, 1)], log=ASYNC_LOG))
        driver.turn(*stores([lsn(2, 2)], log=ASYNC_LOG))
        driver.power_cut()
        driver.turn(seal(2, log=ASYNC_LOG))
        [first, second] = sealed(driver)[4]
        assert first[:2] == (1, Status.REBUILDING)
        assert second[:4] == (2, Status.REBUILDING, 0, 1)

    def test_an_epoch_begun_after_the_power_cut_is_not_doubtful(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(2, 1)], log=ASYNC_LOG))
        driver.power_cut()
        driver.turn(*stores([lsn(3, 1)], log=ASYNC_LOG))
        driver.turn(seal(3, clean=2, log=ASYNC_LOG))
        assert sealed(driver)[4][0][:2] == (3, Status.OK)

    def test_entries_after_a_refused_soft_seal_are_answered_only_with_a_durable_one(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)], log=ASYNC_LOG))
        driver.disk.overloaded = True
        driver.turn(*stores([lsn(3, 1)], log=ASYNC_LOG))
        driver.disk.overloaded = False
        driver.turn(*stores([lsn(3, 2)], log=ASYNC_LOG))
        driver.turn(*stores([lsn(3, 3)], log=ASYNC_LOG))
        driver.power_cut()
        assert driver.stored(ASYNC_LOG) == [lsn(1, 1), lsn(3, 2)]
        assert driver.log(ASYNC_LOG).is_dirty(lsn(3, 1), lsn(3, 1))

    def test_a_dirty_epoch_stays_doubtful_after_an_orderly_restart(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(2, 1)], log=ASYNC_LOG))
        driver.power_cut()
        driver.restart()
        assert driver.log(ASYNC_LOG).is_dirty(lsn(2, 1), lsn(2, 1))

    def test_synced_logs_and_orderly_stops_lose_nothing(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(2, 1)]))
        driver.power_cut()
        assert driver.log().dirty is None
        driver.turn(*stores([lsn(2, 1)], log=ASYNC_LOG))
        driver.restart()
        assert driver.log(ASYNC_LOG).dirty is None

    def test_clean_epochs_are_not_doubtful_because_clean_is_synced(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)], log=ASYNC_LOG))
        driver.turn(clean(1, 1, lng=1, last=2, log=ASYNC_LOG))
        driver.turn(*stores([lsn(2, 1)], log=ASYNC_LOG))
        driver.power_cut()
        state = driver.log(ASYNC_LOG)
        assert state.dirty == [(lsn(2, 0), lsn(2, ESN_MAX))]


def test_check_seal_tells_the_greater_of_both_seals() -> None:
    driver = ShardDriver()
    driver.turn(seal(3))
    driver.turn((SEQUENCER, CheckSeal(request_id=1, shard=ME, logs=[SYNC_LOG, 8])))
    assert driver.take_one(SealChecked).logs == [(SYNC_LOG, 3, 2), (8, 0, -1)]
    driver.turn(*stores([lsn(9, 1)]))
    driver.turn((SEQUENCER, CheckSeal(request_id=1, shard=ME, logs=[SYNC_LOG])))
    assert driver.take_one(SealChecked).logs == [(SYNC_LOG, 8, SEQUENCER)]


def test_answers_that_are_larger_than_what_was_asked_take_more_frames() -> None:
    driver = ShardDriver()
    log = metadata_log_of(SYNC_LOG)
    driver.turn(seal(EPOCH_MAX, log=log))
    driver.sent.clear()
    driver.turn((SEQUENCER, CheckSeal(request_id=1, shard=ME, logs=[log] * 4096)))
    answers = driver.take(SealChecked)
    for each in answers:
        encode_frame(each)
    assert [row for each in answers for row in each.logs] == [(log, EPOCH_MAX, 2)] * 4096

    peer, message = clean(EPOCH_MAX, EPOCH_MAX - 1, log=log)
    message.logs = [CleanLog(log, EPOCH_MAX, 0, 0, 0, 0, 0)] * 2900
    driver.turn((peer, message))
    cleaned = driver.take(Cleaned)
    for told in cleaned:
        encode_frame(told)
    assert sum(len(told.logs) for told in cleaned) == 2900


def test_an_answer_that_no_frame_could_hold_is_split_by_logs() -> None:
    """Many logs of one node, each with several epochs that were not recovered before its sequencer died again."""
    driver = ShardDriver()
    logs = [SYNC_LOG, ASYNC_LOG]
    for log in logs:
        for epoch in range(1, 1201):
            driver.turn(*stores([lsn(epoch, 1)], log=log))
    peer, message = seal(2**30)
    message.logs = [SealLog(log, 2**30, 0, [(1, 1)]) for log in logs]
    driver.turn((peer, message))
    answers = driver.take(Sealed)
    assert [[row.log for row in answer.logs] for answer in answers] == [[log] for log in logs]
    for answer in answers:
        encode_frame(answer)
        assert len(answer.logs[0].epochs) == 1200


class TestMuchAtOnce:
    """Epochs of another generation are listed, each of them, though nothing is stored: a few bytes ask for a thousand rows."""

    @staticmethod
    def much(logs: int, number: int = 1) -> tuple[Any, Any]:
        peer, message = seal(2**30)
        message.request_id = number
        message.logs = [SealLog(SYNC_LOG, 2**30, 0, [(1, 2)])] * logs
        return peer, message

    def test_is_answered_over_several_turns_and_in_turns(self) -> None:
        driver = ShardDriver()
        driver.turn(self.much(3, 1), self.much(2, 2))
        told = [(each.request_id, len(each.logs), len(each.logs[0].epochs)) for each in driver.take(Sealed)]
        assert told == [(1, 1, EPOCHS_PER_SEALED)]
        peer, little = seal(5, log=ASYNC_LOG)
        little.request_id = 3
        driver.turn((peer, little))
        assert driver.take(Sealed) == []
        driver.advance(1_000_000)
        assert [each.request_id for each in driver.take(Sealed)] == [1, 2, 3, 1, 2]

    def test_leaves_others_ten_milliseconds_between(self) -> None:
        driver = ShardDriver()
        driver.turn(self.much(3))
        assert len(driver.take(Sealed)) == 1
        for _ in range(2):
            driver.advance(9_999)
            assert not driver.take(Sealed)
            driver.advance(1)
            assert len(driver.take(Sealed)) == 1

    def test_is_refused_when_too_much_is_queued(self) -> None:
        driver = ShardDriver()
        for number in range(70):
            driver.turn(self.much(2, number))
        refused = [each for each in driver.take(Sealed) if each.logs[0].status is Status.AGAIN]
        assert [each.request_id for each in refused] == [64, 65, 66, 67, 68, 69]
        driver.advance(3_000_000)
        answered = driver.take(Sealed)
        assert {each.logs[0].status for each in answered} == {Status.OK}
        driver.turn(self.much(1, 99))
        assert driver.take_one(Sealed).logs[0].status is Status.OK

    def test_a_disk_that_fails_meanwhile_is_told(self) -> None:
        driver = ShardDriver()
        driver.turn(self.much(2))
        assert driver.take_one(Sealed).logs[0].status is Status.OK
        driver.machines.fail(driver.now)
        driver.advance(1_000_000)
        assert driver.take_one(Sealed).logs[0].status is Status.FAILED

    def test_generations_without_number_list_no_more(self) -> None:
        driver = ShardDriver()
        peer, message = seal(2**30)
        message.logs = [
            SealLog(SYNC_LOG, 2**30, 0, [(Epoch(10_000 * i), Generation(2 + i % 2)) for i in range(1, 257)])
        ]
        driver.turn((peer, message))
        epochs = sealed(driver)[4]
        assert [each[0] for each in epochs] == list(range(10_000, 10_000 + EPOCHS_PER_SEALED))


def test_of_too_many_epochs_the_earliest_are_told_and_count() -> None:
    driver = ShardDriver()
    for epoch in range(1, EPOCHS_PER_SEALED + 11):
        driver.turn(*stores([lsn(epoch, 1)]))
    driver.turn(seal(2**30))
    status, *_, epochs = sealed(driver)
    assert status is Status.OK, "a shard that has everything must not be taken for one that lost its data"
    assert [epoch[0] for epoch in epochs] == list(range(1, EPOCHS_PER_SEALED + 1))
    driver.turn(seal(2**30, clean=EPOCHS_PER_SEALED))
    assert len(sealed(driver)[4]) == 10


class TestTrimmedEntries:
    """Only their LNG told how far the epoch was replicated: without it recovery would end the epoch before what was acknowledged."""

    @pytest.mark.parametrize("crash", [False, True])
    def test_what_was_released_stays_part_of_the_epoch(self, crash: bool) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, esn) for esn in range(1, 6)], lng=0), release(lsn(1, 5)))
        driver.turn((READER, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 5))))
        if crash:
            driver.power_cut()
        driver.turn(seal(1))
        assert sealed(driver)[4] == [(1, Status.OK, 5, 0, 0, 0, 0, 0, b"")]

    def test_a_release_of_a_later_epoch_says_nothing_of_an_earlier_one(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)], lng=0), release(lsn(3, 7)))
        driver.turn(seal(3))
        assert [epoch[:3] for epoch in sealed(driver)[4]] == [(1, Status.OK, 0)]


class TestTailsOfGuardedLogs:
    @pytest.mark.parametrize(("trimmed", "crash"), [(False, False), (True, False), (True, True)])
    def test_the_last_released_entry_is_told_also_when_all_of_the_log_is_trimmed(
        self, trimmed: bool, crash: bool
    ) -> None:
        driver = ShardDriver()
        states = [encode_extensions(TailState(esn, 3)) for esn in (1, 2)]
        driver.turn(*stores([lsn(1, 1)], extensions=states[0]), *stores([lsn(1, 2)], lng=1, extensions=states[1]))
        driver.turn(release(lsn(1, 2)))
        if trimmed:
            driver.turn((READER, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 2))))
        if crash:
            driver.power_cut()
        driver.turn(seal(1))
        [told] = sealed(driver)[4]
        assert (told.lng, told.tail_lsn, told.tail_timestamp, told.tail_records) == (2, lsn(1, 2), 1002, 1)
        assert told.tail_extensions == states[1]

    def test_what_is_not_released_is_left_to_the_digest(self) -> None:
        driver = ShardDriver()
        state = encode_extensions(TailState(1, 3))
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)], lng=1, extensions=state))
        driver.turn(seal(1))
        [told] = sealed(driver)[4]
        assert (told.lng, told.tail_lsn, told.last_esn) == (1, lsn(1, 1), 2)

    def test_where_not_all_tails_have_room_the_latest_are_told(self) -> None:
        driver = ShardDriver()
        state = (
            encode_extensions(TailState(2**63 - 1, 2**63 - 1), Condition(2**63 - 1, lsn(1, 1), 0))
            + bytes([9, 250])
            + bytes(250)
        )
        for epoch in range(1, 401):
            driver.turn(*stores([lsn(epoch, 1)], lng=1, extensions=state))
        driver.turn(seal(400))
        told = sealed(driver)[4]
        assert [each.epoch for each in told] == list(range(1, 401))
        with_tail = [each.epoch for each in told if each.tail_extensions]
        assert with_tail == list(range(401 - len(with_tail), 401))
        assert 100 < len(with_tail) < 400
