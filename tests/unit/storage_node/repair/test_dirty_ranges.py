"""What a power cut took of asynchronous logs is marked, got back from other shards, and the mark goes no sooner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from logdevice_py.core.ids import LogId, NodeId, PeerId, ShardId, node_peer
from logdevice_py.core.lsn import ESN_MAX, Epoch, Lsn
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.protocol.messages import Fetch, Fetched, GetSeqState, Sealed, SeqState
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import LogMetadataKind
from storage_node.log_store.memory import MemoryLogStore
from storage_node.lsn_ranges import Range, alike_until, join_nearest, overlaps
from storage_node.settings import StorageSettings
from storage_node.stored_metadata import SoftSealValue, decode_ranges
from tests.unit.storage_node.fakes import (
    ASYNC_LOG,
    ME,
    SEQUENCER,
    SHARDS,
    ShardDriver,
    clean,
    image,
    interval,
    lsn,
    release,
    seal,
    start,
    stores,
    told,
)

OTHERS = SHARDS[1:]
SETTINGS = StorageSettings(scrub_bytes_per_s=0)
LOST = (lsn(1, 3), lsn(1, 4), lsn(1, 5))
ALL = [lsn(1, esn) for esn in range(1, 6)]


def cut_off(settings: StorageSettings = SETTINGS) -> ShardDriver:
    """A shard that stored five entries of an asynchronous log, and lost the last three with the machine."""
    driver = ShardDriver(settings)
    driver.turn(*stores(ALL[:2], log=ASYNC_LOG))  # synced, because of the soft seal
    driver.turn(*stores(LOST, log=ASYNC_LOG))
    driver.power_cut()
    assert driver.stored(ASYNC_LOG) == ALL[:2]
    return driver


def seq_state(
    question: GetSeqState, next_lsn: Lsn, *, epoch: int = 1, status: Status = Status.OK, redirect: int = -1
) -> tuple[PeerId, SeqState]:
    """A sequencer's answer."""
    answer = SeqState(
        request_id=question.request_id,
        log=question.log,
        status=status,
        redirect=NodeId(redirect),
        epoch=Epoch(epoch),
        last_released=Lsn(0),
        next_lsn=next_lsn,
        tail_lsn=Lsn(0),
        tail_timestamp=Timestamp(0),
    )
    return SEQUENCER, answer


def released(driver: ShardDriver, until: Lsn = LOST[-1]) -> dict[ShardId, Fetch]:
    """The end of the range is found, and everything is released: what the other shards are asked."""
    for question in driver.take(GetSeqState):
        driver.turn(seq_state(question, Lsn(LOST[-1] + 1)))
    driver.turn(release(until, log=ASYNC_LOG))
    return asked(driver)


def asked(driver: ShardDriver, wait: int = 2 * SECOND) -> dict[ShardId, Fetch]:
    """What the other shards are asked in the next attempt."""
    before = len(driver.readers)
    driver.advance(wait)
    for question in driver.take(GetSeqState):
        driver.turn(seq_state(question, Lsn(0), epoch=2))
        driver.advance(1)
    assert len(driver.readers) > before, "the metadata history is not read"
    driver.tell_history([interval()])
    driver.advance(1000)
    return {fetch.shard: fetch for fetch in driver.take(Fetch)}


def fetched(
    request: Fetch,
    positions: Sequence[Lsn] = (),
    *,
    status: Status = Status.OK,
    through: Lsn | None = None,
    lossy: bool = False,
    wave: int = 1,
) -> tuple[PeerId, Fetched]:
    """An answer to FETCH."""
    images = [image(position, log=request.log, wave=wave) for position in positions]
    answer = Fetched(
        request_id=request.request_id,
        shard=request.shard,
        log=request.log,
        status=status,
        through=request.last if through is None else through,
        entries=[(int(position), len(each)) for position, each in zip(positions, images, strict=True)],
        images=b"".join(images),
        lossy=lossy,
    )
    return node_peer(request.shard), answer


def holders_answer(driver: ShardDriver, questions: dict[ShardId, Fetch]) -> None:
    """Two of the others hold everything, two nothing; all are authoritative."""
    for shard, fetch in questions.items():
        driver.turn(fetched(fetch, ALL if shard in SHARDS[1:3] else ()))
    driver.advance(1000)


def dirty(driver: ShardDriver, log: LogId = ASYNC_LOG) -> list[Range] | None:
    """The marks of a log."""
    ranges: list[Range] | None = driver.log(log).dirty
    return ranges


class TestMarks:
    def test_they_begin_behind_the_release_pointer_on_disk(self) -> None:
        driver = ShardDriver(SETTINGS)
        driver.turn(*stores(ALL[:3], log=ASYNC_LOG))
        driver.turn(release(ALL[1], log=ASYNC_LOG))
        driver.advance(2 * SECOND)
        driver.power_cut(surviving=100)
        assert dirty(driver) == [(lsn(1, 3), lsn(1, ESN_MAX))]

    def test_a_release_pointer_that_the_crash_took_proves_nothing(self) -> None:
        driver = ShardDriver(SETTINGS)
        driver.turn(*stores(ALL[:1], log=ASYNC_LOG))
        driver.turn(*stores(ALL[1:], log=ASYNC_LOG))
        driver.turn(release(ALL[-1], log=ASYNC_LOG))
        driver.advance(2 * SECOND)
        driver.power_cut()
        assert dirty(driver) == [(lsn(1, 0), lsn(1, ESN_MAX))]

    def test_they_begin_behind_the_last_clean_epoch(self) -> None:
        driver = ShardDriver(SETTINGS)
        driver.turn(*stores([lsn(1, 1)], log=ASYNC_LOG))
        driver.turn(clean(1, 1, lng=1, last=2, log=ASYNC_LOG))
        driver.turn(*stores([lsn(2, 1)], log=ASYNC_LOG))
        driver.power_cut()
        assert dirty(driver) == [(lsn(2, 0), lsn(2, ESN_MAX))]

    def test_they_stay_when_the_shard_is_stopped_in_order_and_add_up_when_it_is_cut_off_again(self) -> None:
        driver = cut_off()
        [question] = driver.take(GetSeqState)
        driver.turn(seq_state(question, lsn(1, 6)))
        assert dirty(driver) == [(lsn(1, 0), lsn(1, 5))]
        driver.restart()
        assert dirty(driver) == [(lsn(1, 0), lsn(1, 5))]
        driver.turn(*stores([lsn(1, 6), lsn(1, 7)], log=ASYNC_LOG), release(lsn(1, 6), log=ASYNC_LOG))
        driver.advance(2 * SECOND)
        driver.power_cut(surviving=100)
        assert dirty(driver) == [(lsn(1, 0), lsn(1, 5)), (lsn(1, 7), lsn(1, ESN_MAX))]

    def test_whole_epochs_that_an_earlier_version_marked_are_taken_over_once(self) -> None:
        driver = cut_off()
        driver.restart()
        rows = driver.disk.rows
        [key] = [key for key in rows if key[0] == LogMetadataKind.SOFT_SEAL and key.endswith(bytes([ASYNC_LOG]))]
        [mark] = [key for key in rows if key[0] == LogMetadataKind.DIRTY]
        value = SoftSealValue.decode(rows[key])
        value.lossy_first, value.lossy_last = Epoch(1), Epoch(2)
        rows[key] = value.encode()
        del rows[mark]
        driver.restart()
        assert dirty(driver) == [(lsn(1, 0), lsn(2, ESN_MAX))]
        assert SoftSealValue.decode(rows[key]).lossy_last == 0
        driver.restart()
        assert dirty(driver) == [(lsn(1, 0), lsn(2, ESN_MAX))]

    def test_a_disk_that_does_not_keep_up_takes_them_all_the_same(self) -> None:
        driver = cut_off()
        driver.disk.crash(0)
        rows = driver.disk.rows
        [mark] = [key for key in rows if key[0] == LogMetadataKind.DIRTY]
        del rows[mark]
        driver.disk.overloaded = True
        driver.open()
        assert decode_ranges(rows[mark]) == [(lsn(1, 0), lsn(1, ESN_MAX))]

    @pytest.mark.parametrize("in_order", [False, True])
    def test_a_start_that_ends_before_they_are_written_leaves_them_to_the_next(self, in_order: bool) -> None:
        driver = ShardDriver(SETTINGS)
        driver.turn(*stores(ALL[:2], log=ASYNC_LOG))
        driver.turn(*stores(LOST, log=ASYNC_LOG))
        driver.disk.crash()
        store = MemoryLogStore(driver.disk, driver.store_settings)
        marker = ShardMarker(b"u" * 16, ME, driver.generation)
        store.adopt(marker, boot=driver.disk.boot, now=Timestamp(driver.now))
        store.load()
        if in_order:
            store.close()
        driver.open()
        assert dirty(driver) == [(lsn(1, 0), lsn(1, ESN_MAX))]

    @pytest.mark.parametrize("value", [b"", b"\1" + bytes(15), b"\2" + bytes(16)])
    def test_a_row_that_is_none_is_not_taken_for_one(self, value: bytes) -> None:
        with pytest.raises(CorruptEntryError):
            decode_ranges(value)

    def test_ranges_are_joined_where_there_are_too_many(self) -> None:
        ranges = [(Lsn(1), Lsn(2)), (Lsn(10), Lsn(11)), (Lsn(14), Lsn(20))]
        join_nearest(ranges, 2)
        assert ranges == [(1, 2), (10, 20)]

    def test_what_is_so_of_neighbouring_lsns(self) -> None:
        ranges = [(Lsn(5), Lsn(7)), (Lsn(10), Lsn(11))]
        assert alike_until(ranges, Lsn(1), Lsn(20)) == (False, 4)
        assert alike_until(ranges, Lsn(6), Lsn(20)) == (True, 7)
        assert alike_until(ranges, Lsn(8), Lsn(9)) == (False, 9)
        assert alike_until(ranges, Lsn(12), Lsn(20)) == (False, 20)
        assert [overlaps(ranges, first, last) for first, last in ((1, 4), (7, 8), (8, 9))] == [False, True, False]


class TestEndOfTheRange:
    def test_the_sequencer_of_the_open_epoch_tells_it(self) -> None:
        driver = cut_off()
        [question] = driver.take(GetSeqState, SEQUENCER)
        assert question.min_epoch == 1
        driver.turn(seq_state(question, lsn(1, 6)))
        assert dirty(driver) == [(lsn(1, 0), lsn(1, 5))]
        driver.advance(60 * SECOND)
        assert driver.take(GetSeqState) == [], "it is not asked again"

    def test_an_answer_to_something_else_is_ignored(self) -> None:
        driver = cut_off()
        [question] = driver.take(GetSeqState)
        driver.turn(seq_state(replace(question, request_id=question.request_id + 1), lsn(1, 6)))
        assert dirty(driver) == [(lsn(1, 0), lsn(1, ESN_MAX))]

    def test_a_redirect_is_followed(self) -> None:
        driver = cut_off()
        [question] = driver.take(GetSeqState)
        driver.turn(seq_state(question, Lsn(0), status=Status.REDIRECTED, redirect=3))
        [question] = driver.take(GetSeqState, PeerId(3))
        answer = seq_state(question, lsn(1, 6))[1]
        driver.turn((SEQUENCER, answer))
        assert dirty(driver) == [(lsn(1, 0), lsn(1, ESN_MAX))], "it was not asked"
        driver.turn((PeerId(3), answer))
        assert dirty(driver) == [(lsn(1, 0), lsn(1, 5))]

    def test_of_an_epoch_that_is_over_nothing_is_told_until_it_is_released(self) -> None:
        driver = cut_off()
        [question] = driver.take(GetSeqState)
        driver.turn(seq_state(question, lsn(2, 1), epoch=2))
        assert dirty(driver) == [(lsn(1, 0), lsn(1, ESN_MAX))]
        driver.turn(clean(1, 2, lng=5, last=6, log=ASYNC_LOG))
        driver.turn(release(lsn(2, 0), log=ASYNC_LOG))
        driver.advance(2 * SECOND)
        driver.tell_history([interval()])
        driver.advance(1000)
        assert {fetch.last for fetch in driver.take(Fetch)} == {lsn(1, ESN_MAX)}

    @pytest.mark.parametrize("lost", ["answer", "connection"])
    def test_a_sequencer_that_does_not_answer_is_asked_again(self, lost: str) -> None:
        driver = cut_off()
        assert len(driver.take(GetSeqState)) == 1
        if lost == "connection":
            driver.node.on_peer_down(SEQUENCER, driver.now)
        driver.advance(5 * SECOND)
        assert driver.take(GetSeqState)


class TestRepair:
    def test_what_is_gone_is_fetched_and_the_mark_goes(self) -> None:
        driver = cut_off()
        questions = released(driver)
        assert sorted(questions) == sorted(OTHERS)
        assert {(fetch.first, fetch.last, fetch.holder) for fetch in questions.values()} == {(lsn(1, 0), LOST[-1], ME)}
        holders_answer(driver, questions)
        assert driver.stored(ASYNC_LOG) == ALL
        assert dirty(driver) is None
        metrics = driver.node.metrics
        assert (metrics.dirty_logs, metrics.dirty_copies_restored) == (0, len(LOST)), "what is here is not stored again"
        assert [notice.kind for notice in driver.notices] == ["dirty ranges", "dirty ranges repaired"]
        driver.power_cut(surviving=0)
        assert driver.stored(ASYNC_LOG) == ALL, "it is synced"

    def test_readers_are_told_that_there_is_nothing_only_when_that_is_true(self) -> None:
        driver = cut_off()
        questions = released(driver, lsn(1, 7))
        driver.turn(start(Lsn(lsn(1, 1)), lsn(1, 7), log=ASYNC_LOG))
        assert told(driver) == [*ALL[:2], ("UNDER_REPLICATED", LOST[0], LOST[-1]), ("NO_RECORDS", lsn(1, 6), lsn(1, 7))]
        holders_answer(driver, questions)
        driver.turn(start(Lsn(lsn(1, 1)), lsn(1, 7), log=ASYNC_LOG, stream=2))
        assert told(driver, stream=2) == [*ALL, ("NO_RECORDS", lsn(1, 6), lsn(1, 7))]

    def test_the_mark_is_here_until_the_copies_are_on_disk(self) -> None:
        driver = cut_off()
        questions = released(driver)
        driver.hold = True
        for shard, fetch in questions.items():
            driver.turn(fetched(fetch, ALL if shard in SHARDS[1:3] else ()))
        driver.complete()  # the read
        assert driver.held
        assert dirty(driver) is not None
        driver.turn(seal(1, log=ASYNC_LOG))
        driver.power_cut()
        driver.let_go()
        assert dirty(driver) is not None

    def test_only_what_is_released_is_repaired(self) -> None:
        driver = cut_off()
        questions = released(driver, lsn(1, 3))
        assert {fetch.last for fetch in questions.values()} == {lsn(1, 3)}
        for shard, fetch in questions.items():
            driver.turn(fetched(fetch, ALL[:3] if shard in SHARDS[1:3] else ()))
        driver.advance(1000)
        assert dirty(driver) == [(lsn(1, 4), lsn(1, 5))]
        driver.turn(release(lsn(1, 5), log=ASYNC_LOG))
        for shard, fetch in asked(driver).items():
            driver.turn(fetched(fetch, ALL[3:] if shard in SHARDS[1:3] else ()))
        driver.advance(1000)
        assert dirty(driver) is None
        assert driver.stored(ASYNC_LOG) == ALL

    def test_an_answer_that_covers_a_part_repairs_that_part(self) -> None:
        driver = cut_off()
        for shard, fetch in released(driver).items():
            short = shard == SHARDS[1]
            driver.turn(fetched(fetch, ALL[:3] if short else (), through=lsn(1, 3) if short else None))
        driver.advance(2)
        assert dirty(driver) == [(lsn(1, 4), lsn(1, 5))]
        driver.advance(1000)
        assert {fetch.first for fetch in driver.take(Fetch)} == {lsn(1, 4)}, "and it goes on from there"

    def test_while_somebody_is_silent_who_may_have_the_only_copy_the_mark_stays(self) -> None:
        driver = cut_off()
        questions = released(driver)
        for shard in SHARDS[1:3]:
            driver.turn(fetched(questions[shard], ALL if shard == SHARDS[1] else ()))
        driver.advance(2 * SECOND)
        assert driver.stored(ASYNC_LOG) == ALL, "what is found is stored all the same"
        assert dirty(driver) == [(lsn(1, 0), lsn(1, 5))]
        assert driver.machines.repairs.explain(driver.log(ASYNC_LOG)) == "waits for N3:S0, N4:S0"
        driver.turn(start(Lsn(lsn(1, 1)), LOST[-1], log=ASYNC_LOG))
        holders_answer(driver, asked(driver))
        assert dirty(driver) is None

    def test_those_who_are_authoritative_are_enough_when_no_copyset_fits_on_the_rest(self) -> None:
        driver = cut_off()
        questions = released(driver)
        for shard in OTHERS[:3]:
            driver.turn(fetched(questions[shard], ALL if shard == SHARDS[1] else ()))
        assert dirty(driver) is not None
        driver.node.on_peer_down(node_peer(OTHERS[3]), driver.now)
        driver.turn()
        assert dirty(driver) is None

    @pytest.mark.parametrize("status", [Status.REBUILDING, Status.AGAIN, Status.OVERLOADED, Status.FAILED])
    def test_who_is_not_authoritative_is_waited_for(self, status: Status) -> None:
        driver = cut_off()
        for shard, fetch in released(driver).items():
            authoritative = shard in OTHERS[:2]
            driver.turn(fetched(fetch, ALL[:4] if authoritative else (), status=Status.OK if authoritative else status))
        driver.advance(1000)
        assert dirty(driver) == [(lsn(1, 0), lsn(1, 5))]
        assert lsn(1, 4) in driver.stored(ASYNC_LOG)

    def test_what_several_lost_at_once_is_reported_as_lost_when_all_have_answered(self) -> None:
        driver = cut_off()
        questions = released(driver)
        for shard, fetch in questions.items():
            if shard != OTHERS[3]:
                lossy = shard in OTHERS[:2]
                status = Status.REBUILDING if lossy else Status.OK
                driver.turn(fetched(fetch, ALL[:4] if lossy else (), status=status, lossy=lossy))
        assert dirty(driver) is not None, "one has not answered"
        driver.turn(fetched(questions[OTHERS[3]]))
        driver.advance(1000)
        assert driver.stored(ASYNC_LOG) == ALL[:4]
        assert dirty(driver) is None
        assert driver.node.metrics.crash_losses == 1
        kinds = [notice.kind for notice in driver.notices]
        assert kinds == ["dirty ranges", "lost in a crash", "dirty ranges repaired"]
        assert "e1n0 to e1n5" in driver.notices[1].text
        assert "of 1 logs some may be gone" in driver.notices[2].text

    def test_a_shard_whose_copies_were_all_re_replicated_is_not_waited_for(self) -> None:
        driver = cut_off()
        driver.machines.repairs.re_replicated_by_now = lambda: (
            lambda shard, generation: (shard, generation) == (OTHERS[3], 1)
        )
        for shard, fetch in released(driver).items():
            if shard in OTHERS[:2]:
                driver.turn(fetched(fetch, ALL if shard == OTHERS[0] else ()))
            elif shard == OTHERS[2]:
                driver.turn(fetched(fetch, status=Status.REBUILDING, lossy=True))
            else:
                driver.turn(fetched(fetch, status=Status.REBUILDING))
        driver.advance(1000)
        assert dirty(driver) is None
        assert driver.node.metrics.crash_losses == 0, "a copyset of three does not fit on two"

    def test_what_has_no_room_is_tried_again(self) -> None:
        driver = cut_off()
        questions = released(driver)
        free, driver.disk.free = driver.disk.free, 0
        holders_answer(driver, questions)
        assert dirty(driver) is not None
        driver.disk.free = free
        holders_answer(driver, asked(driver))
        assert (dirty(driver), driver.stored(ASYNC_LOG)) == (None, ALL)

    def test_without_the_whole_history_nothing_is_decided(self) -> None:
        driver = cut_off()
        for question in driver.take(GetSeqState):
            driver.turn(seq_state(question, lsn(1, 6)))
        driver.turn(release(LOST[-1], log=ASYNC_LOG))
        driver.advance(2 * SECOND)
        driver.tell_history([interval()], complete=False)
        driver.advance(1000)
        assert driver.take(Fetch) == []
        assert dirty(driver) is not None
        assert driver.machines.repairs.explain(driver.log(ASYNC_LOG)) == "waits for the metadata log to be readable"

    def test_logs_take_turns(self) -> None:
        driver = ShardDriver(replace(SETTINGS, repair_logs_max=1))
        logs = [LogId(ASYNC_LOG + number) for number in range(3)]
        for log in logs:
            driver.turn(*stores(ALL[:2], log=log))
        driver.power_cut()
        assert driver.node.metrics.dirty_logs == len(logs)
        assert "3 logs may lack records here (log 107 from e1n0 to " in driver.notices[0].text
        for log in logs:
            [question] = driver.take(GetSeqState)
            assert question.log == log
            driver.turn(seq_state(question, lsn(1, 3)))
            driver.advance(1)
            assert dirty(driver, log) == [(lsn(1, 0), lsn(1, 2))]
        driver.turn(*(release(lsn(1, 2), log=log) for log in logs))
        driver.node.on_peer_up(SEQUENCER, driver.now)
        for number in range(len(logs)):
            driver.advance(SECOND)
            assert len(driver.readers) == number + 1, "one at a time"
            driver.tell_history([interval()])
            driver.advance(1000)
            for fetch in driver.take(Fetch):
                driver.turn(fetched(fetch))
        assert driver.node.metrics.dirty_logs == 0
        assert [notice.kind for notice in driver.notices] == ["dirty ranges", "dirty ranges repaired"]

    def test_where_the_shard_was_given_nothing_there_is_nothing_to_lose(self) -> None:
        driver = cut_off()
        for question in driver.take(GetSeqState):
            driver.turn(seq_state(question, lsn(1, 6)))
        driver.turn(release(LOST[-1], log=ASYNC_LOG))
        driver.advance(2 * SECOND)
        driver.tell_history([interval(shards=OTHERS)])
        driver.advance(1000)
        assert driver.take(Fetch) == []
        assert dirty(driver) is None

    def test_what_is_trimmed_meanwhile_is_not_wanted(self) -> None:
        driver = cut_off()
        for question in driver.take(GetSeqState):
            driver.turn(seq_state(question, lsn(1, 6)))
        driver.turn(release(LOST[-1], log=ASYNC_LOG))
        driver.log(ASYNC_LOG).trim_point = lsn(1, 5)
        driver.advance(2 * SECOND)
        assert dirty(driver) is None
        assert driver.machines.repairs.dirty_logs == 0
        assert driver.notices[-1].kind == "dirty ranges repaired"

    def test_a_copy_that_cannot_be_read_is_left_to_repair(self) -> None:
        driver = cut_off()
        questions = released(driver)
        driver.disk.corrupt(ASYNC_LOG, lsn(1, 2))
        holders_answer(driver, questions)
        assert driver.machines.repairs.is_unreadable(ASYNC_LOG, lsn(1, 2))
        assert set(LOST) <= set(driver.stored(ASYNC_LOG))

    def test_copies_of_a_higher_wave_replace_those_that_are_here(self) -> None:
        driver = cut_off()
        for shard, fetch in released(driver).items():
            driver.turn(fetched(fetch, ALL if shard == OTHERS[0] else (), wave=2))
        driver.advance(1000)
        assert driver.node.metrics.dirty_copies_restored == len(ALL)

    def test_a_failed_disk_ends_it(self) -> None:
        driver = cut_off()
        driver.machines.fail(driver.now)
        driver.advance(60 * SECOND)
        assert driver.take(Fetch) == []
        assert driver.node.metrics.dirty_logs == 0


class TestAnswers:
    def ask(self, driver: ShardDriver, first: Lsn, last: Lsn) -> Fetched:
        request = Fetch(
            request_id=7,
            shard=ME,
            generation=driver.generation,
            holder=OTHERS[0],
            log=ASYNC_LOG,
            first=first,
            last=last,
            bytes_max=1 << 20,
        )
        driver.turn((SEQUENCER, request))
        return driver.take_one(Fetched)

    def test_an_answer_is_of_what_is_dirty_or_of_what_is_not(self) -> None:
        driver = cut_off()
        driver.turn(*stores([lsn(1, 6)], log=ASYNC_LOG), release(lsn(1, 6), log=ASYNC_LOG))
        driver.log(ASYNC_LOG).dirty = [(lsn(1, 2), lsn(1, 5))]
        answer = self.ask(driver, lsn(1, 1), lsn(1, 6))
        assert (answer.status, answer.lossy, answer.through) == (Status.OK, False, lsn(1, 1))
        answer = self.ask(driver, lsn(1, 2), lsn(1, 6))
        assert (answer.status, answer.lossy, answer.through) == (Status.REBUILDING, True, lsn(1, 5))
        assert [position for position, _ in answer.entries] == [lsn(1, 2)]
        answer = self.ask(driver, lsn(1, 6), lsn(1, 6))
        assert (answer.status, answer.lossy) == (Status.OK, False)

    def test_who_cannot_read_what_is_left_may_have_more(self) -> None:
        driver = cut_off()
        driver.turn(release(lsn(1, 5), log=ASYNC_LOG))
        driver.disk.corrupt(ASYNC_LOG, lsn(1, 2))
        answer = self.ask(driver, lsn(1, 1), lsn(1, 5))
        assert (answer.status, answer.lossy) == (Status.REBUILDING, False)


def test_an_epoch_that_is_repaired_is_not_doubtful_to_recovery() -> None:
    driver = cut_off()
    holders_answer(driver, released(driver))
    driver.turn(seal(1, log=ASYNC_LOG))
    [[_, _, _, _, _, epochs]] = driver.take_one(Sealed).logs
    assert [epoch[:2] for epoch in epochs] == [(1, Status.OK)]
