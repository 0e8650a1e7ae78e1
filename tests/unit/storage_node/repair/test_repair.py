"""Unreadable and missing copies are repaired from other shards; the scrubber finds what nobody reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.ids import PeerId, ShardId, metadata_log_of, node_peer
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.protocol.messages import Compare, Compared, Digested, Fetch, Fetched
from storage_node.log_store import keys
from storage_node.log_store.interface import WriteShard
from storage_node.lsn_ranges import add_range, remove_range
from storage_node.repair.copies import EntriesDigest
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import (
    ME,
    SEQUENCER,
    SHARDS,
    SYNC_LOG,
    ShardDriver,
    digest,
    image,
    interval,
    lsn,
    release,
    start,
    store,
    stores,
    told,
)

OTHERS = SHARDS[1:]
COPIES = (ME, SHARDS[1], SHARDS[2])
SETTINGS = StorageSettings(recent_entries_bytes_max=0, scrub_interval_us=SECOND)


@pytest.fixture
def driver() -> ShardDriver:
    """A shard that holds ten entries, all released."""
    return filled(SETTINGS)


def filled(settings: StorageSettings) -> ShardDriver:
    """The same, with other settings."""
    made = ShardDriver(settings)
    made.turn(*stores([lsn(1, esn) for esn in range(1, 11)]))
    made.turn(release(lsn(1, 10)))
    made.sent.clear()
    return made


def fetched(
    request: Fetch, *positions: Lsn, status: Status = Status.OK, through: int | None = None
) -> tuple[PeerId, Fetched]:
    """The answer to a FETCH."""
    images = [image(position) for position in positions]
    answer = Fetched(
        request_id=request.request_id,
        shard=request.shard,
        log=request.log,
        status=status,
        through=Lsn(request.last if through is None else through),
        entries=[(int(position), len(each)) for position, each in zip(positions, images, strict=True)],
        images=b"".join(images),
    )
    return node_peer(request.shard), answer


def find_damage(driver: ShardDriver, *esns: int) -> dict[ShardId, Fetch]:
    """Damage copies, and read them: what the others are asked then."""
    for esn in esns:
        driver.disk.corrupt(SYNC_LOG, lsn(1, esn))
    driver.turn(start(until=lsn(1, 10)))
    driver.tell_history([interval()])
    return {fetch.shard: fetch for fetch in driver.take(Fetch)}


class TestDamagedCopies:
    def test_a_reader_gets_no_damaged_copy_and_the_shard_gets_it_again(self, driver: ShardDriver) -> None:
        asked = find_damage(driver, 4)
        assert "e1n4" not in told(driver)
        assert sorted(asked) == sorted(OTHERS)
        assert all((fetch.first, fetch.last, fetch.holder) == (lsn(1, 4), lsn(1, 4), ME) for fetch in asked.values())
        driver.turn(*(fetched(asked[shard], *([lsn(1, 4)] if shard in COPIES else [])) for shard in OTHERS))
        assert driver.stored() == [lsn(1, esn) for esn in range(1, 11)]
        assert driver.machines.repairs.damaged == {} or driver.machines.repairs.damaged[SYNC_LOG].empty
        assert [notice.kind for notice in driver.notices] == ["damage", "repaired"]
        assert "1 re-replicated from" in driver.notices[-1].text

    def test_nothing_is_replaced_as_long_as_copies_may_be_missed(self) -> None:
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=0))  # else it may be the scrubber that reads the history
        asked = find_damage(driver, 4)
        answers = [fetched(asked[shard]) for shard in OTHERS[:2]]
        driver.turn(*answers, *(fetched(asked[shard], status=Status.AGAIN, through=0) for shard in OTHERS[2:]))
        assert SYNC_LOG in driver.machines.repairs.damaged
        driver.advance(2 * SECOND)
        driver.tell_history([interval()])
        assert len(driver.take(Fetch)) == len(OTHERS), "they are asked again"

    def test_shards_that_were_lost_and_rebuilt_are_left_out_of_account(self) -> None:
        """They are authoritative for nothing, for good; without that, damage would stay where two disks were replaced one after the other."""
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=0))
        driver.machines.repairs.re_replicated_by_now = lambda: (
            lambda shard, generation: shard in OTHERS[2:] and generation == 1
        )
        asked = find_damage(driver, 4)
        driver.turn(*(fetched(asked[shard], status=Status.REBUILDING, through=0) for shard in OTHERS[2:]))
        driver.turn(*(fetched(asked[shard], lsn(1, 4)) for shard in OTHERS[:2]))
        driver.advance(3 * SECOND)
        assert [notice.kind for notice in driver.notices] == ["damage", "repaired"]
        assert driver.stored() == [lsn(1, esn) for esn in range(1, 11)]

    def test_what_nobody_has_stays_as_it_is(self, driver: ShardDriver) -> None:
        before = len(driver.disk.rows)
        asked = find_damage(driver, 4)
        driver.turn(*(fetched(asked[shard]) for shard in OTHERS))
        assert SYNC_LOG in driver.machines.repairs.damaged
        assert len(driver.disk.rows) >= before, "damage is no reason to delete"

    def test_what_can_be_read_after_all_is_kept_though_nobody_else_knows_of_it(self) -> None:
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=0))
        unreadable = {keys.data_key(SYNC_LOG, lsn(1, esn), False, 1) for esn in (4, 5)}
        driver.disk.unreadable.update(unreadable)
        assert unreadable <= driver.disk.rows.keys()
        asked = find_damage(driver)
        assert {(fetch.first, fetch.last) for fetch in asked.values()} == {(lsn(1, 3), lsn(1, 5))}
        driver.disk.unreadable.clear()
        driver.turn(*(fetched(asked[shard], lsn(1, 5)) for shard in OTHERS))
        assert driver.stored() == [lsn(1, esn) for esn in range(1, 11)]
        assert not driver.machines.repairs.damaged
        assert "3 can be read, and stay" in driver.notices[-1].text

    def test_nothing_is_replaced_as_long_as_it_is_not_certain_who_may_have_copies(self) -> None:
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=0))
        driver.disk.corrupt(SYNC_LOG, lsn(1, 4))
        driver.turn(start(until=lsn(1, 10)))
        driver.tell_history([interval()], complete=False)
        assert not driver.take(Fetch)

    @pytest.mark.parametrize("complete", [True, False], ids=["certain", "uncertain"])
    def test_without_any_history_nothing_is_asked_for_until_there_is_one(self, complete: bool) -> None:
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=0))
        driver.disk.corrupt(SYNC_LOG, lsn(1, 4))
        driver.turn(start(until=lsn(1, 10)))
        driver.tell_history([], complete)
        assert not driver.take(Fetch)
        driver.advance(2 * SECOND)
        driver.tell_history([interval()])
        assert len(driver.take(Fetch)) == len(OTHERS)

    def test_a_damaged_answer_is_not_stored(self, driver: ShardDriver) -> None:
        asked = find_damage(driver, 4)
        answers = [fetched(asked[shard], *([lsn(1, 4)] if shard == SHARDS[1] else [])) for shard in OTHERS]
        bad = bytearray(answers[0][1].images)
        bad[-1] ^= 1
        answers[0][1].images = bytes(bad)
        driver.turn(*answers)
        assert lsn(1, 4) not in driver.stored()

    def test_who_sends_a_damaged_copy_is_not_authoritative_that_there_is_none(self) -> None:
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=0))
        for esn in (3, 4):
            driver.disk.corrupt(SYNC_LOG, lsn(1, esn))
        driver.turn(start(until=lsn(1, 10)))
        driver.tell_history([interval()])
        asked = {fetch.shard: fetch for fetch in driver.take(Fetch)}
        answers = [fetched(asked[shard], *([lsn(1, 3), lsn(1, 4)] if shard in COPIES[:2] else [])) for shard in OTHERS]
        bad = bytearray(answers[0][1].images)
        bad[-1] ^= 1
        answers[0][1].images = bytes(bad)
        driver.turn(*answers)
        assert lsn(1, 3) in driver.stored()
        assert (lsn(1, 4), lsn(1, 4)) in list(driver.machines.repairs.damaged[SYNC_LOG].unreadable)

    def test_what_the_disk_has_no_room_for_is_tried_again_later(self) -> None:
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=0))
        asked = find_damage(driver, 4)
        free, driver.disk.free = driver.disk.free, 0
        answers = [fetched(asked[shard], *([lsn(1, 4)] if shard in COPIES else [])) for shard in OTHERS]
        driver.turn(*answers)
        assert SYNC_LOG in driver.machines.repairs.damaged
        driver.disk.free = free
        driver.advance(2 * SECOND)
        driver.tell_history([interval()])
        asked = {fetch.shard: fetch for fetch in driver.take(Fetch)}
        driver.turn(*(fetched(asked[shard], *([lsn(1, 4)] if shard in COPIES else [])) for shard in OTHERS))
        assert driver.stored() == [lsn(1, esn) for esn in range(1, 11)]

    def test_what_is_trimmed_meanwhile_needs_no_repair(self, driver: ShardDriver) -> None:
        find_damage(driver, 4)
        driver.log().trim_point = lsn(1, 5)
        driver.advance(3 * SECOND)
        assert SYNC_LOG not in driver.machines.repairs.damaged

    @pytest.mark.parametrize("ended", [True, False], ids=["of a copy", "in vain"])
    def test_what_is_found_missing_during_an_attempt_is_looked_for_in_the_next_one(self, ended: bool) -> None:
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=0))
        repairs, state = driver.machines.repairs, driver.machines.shard.logs[SYNC_LOG]
        for esn in (2, 7):
            driver.disk.remove(SYNC_LOG, lsn(1, esn))
        repairs.note_missing(state, [lsn(1, 2)])
        driver.turn()
        driver.tell_history([interval()])
        asked = driver.take(Fetch)
        assert {fetch.first for fetch in asked} == {lsn(1, 2)}
        repairs.note_missing(state, [lsn(1, 7)])
        driver.turn(*(fetched(fetch, *([lsn(1, 2)] if ended else [])) for fetch in asked))
        driver.tell_history([interval()])
        asked = driver.take(Fetch)
        assert {fetch.first for fetch in asked} == {lsn(1, 7)}, (
            "what nobody has is not asked for again until somebody says so"
        )
        driver.turn(*(fetched(fetch, lsn(1, 7)) for fetch in asked))
        assert lsn(1, 7) in driver.stored()
        assert not repairs.damaged


class TestScrubber:
    def begin(self, driver: ShardDriver) -> dict[ShardId, Compare]:
        driver.machines.scrubber.hurry(driver.now)
        driver.tell_history([interval()])
        driver.advance(SECOND // 10)
        return {compare.shard: compare for compare in driver.take(Compare)}

    def compared(self, request: Compare, *positions: Lsn, status: Status = Status.OK) -> tuple[PeerId, Compared]:
        answer = Compared(
            request_id=request.request_id,
            shard=request.shard,
            log=request.log,
            status=status,
            equal=not positions,
            lsns=list(map(int, positions)),
        )
        return node_peer(request.shard), answer

    def test_each_other_shard_is_asked_about_what_both_should_have(self, driver: ShardDriver) -> None:
        asked = self.begin(driver)
        digest = EntriesDigest()
        for esn in range(1, 11):
            digest.add(lsn(1, esn), image(lsn(1, esn)))
        for shard in OTHERS:
            compared = (asked[shard].count, asked[shard].digest == digest.value)
            assert compared == ((10, True) if shard in COPIES else (0, False))

    @pytest.mark.parametrize("complete", [True, False], ids=["certain", "uncertain"])
    def test_a_copy_that_vanished_is_fetched_also_when_part_of_the_history_may_be_lost(
        self, driver: ShardDriver, complete: bool
    ) -> None:
        for key in list(driver.disk.rows.irange(*keys.data_bounds(SYNC_LOG, lsn(1, 6), lsn(1, 6)), (True, False))):
            del driver.disk.rows[key]
        asked = self.begin(driver)
        driver.turn(self.compared(asked[SHARDS[1]], lsn(1, 6), lsn(1, 7)))
        driver.tell_history([interval()], complete)
        fetches = {fetch.shard: fetch for fetch in driver.take(Fetch)}
        assert {(fetch.first, fetch.last) for fetch in fetches.values()} == {(lsn(1, 6), lsn(1, 6))}
        driver.turn(fetched(fetches[SHARDS[1]], lsn(1, 6)))
        assert driver.stored() == [lsn(1, esn) for esn in range(1, 11)]

    def test_a_pass_goes_on_without_those_that_are_silent_and_counts_what_was_not_compared(
        self, driver: ShardDriver
    ) -> None:
        asked = self.begin(driver)
        driver.turn(*(self.compared(asked[shard]) for shard in OTHERS[:-1]))
        assert driver.machines.scrubber.passes == 0
        driver.advance(5 * SECOND)
        scrubber = driver.machines.scrubber
        assert (scrubber.passes, scrubber.uncompared_before) == (1, 1)

    def test_the_age_of_a_verification_is_that_of_the_pass_and_before_the_first_that_of_the_run(
        self, driver: ShardDriver
    ) -> None:
        scrubber, opened = driver.machines.scrubber, Micros(1_000_000)
        asked, began = self.begin(driver), driver.now - SECOND // 10
        before = scrubber.coverage(driver.now)
        assert (before.verified, before.verification_age) == (0, driver.now - opened)
        driver.turn(*(self.compared(asked[shard]) for shard in OTHERS[:-1]))
        driver.advance(5 * SECOND)
        assert scrubber.passes == 1
        after = scrubber.coverage(driver.now)
        assert (after.verified, after.verification_age, after.uncompared_ranges) == (1, driver.now - began, 1)

    def test_the_age_grows_while_the_scrubber_is_turned_off(self) -> None:
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=0))
        age = driver.machines.scrubber.coverage(driver.now).verification_age
        driver.advance(3600 * SECOND)
        coverage = driver.machines.scrubber.coverage(driver.now)
        assert (coverage.verified, coverage.verification_age) == (0, age + 3600 * SECOND)

    def answer_after(self, driver: ShardDriver, micros: int) -> bool:
        """A pass in which all answers but one come at once; whether that one was waited for."""
        scrubber = driver.machines.scrubber
        asked, passes = self.begin(driver), scrubber.passes
        driver.turn(*(self.compared(asked[shard]) for shard in OTHERS[:-1]))
        driver.advance(micros)
        driver.turn(self.compared(asked[OTHERS[-1]]))
        driver.advance(8 * SECOND)
        assert scrubber.passes == passes + 1
        return not scrubber.uncompared_before

    def test_who_is_slow_is_waited_for_longer_the_next_time_and_shorter_when_everybody_is_quick(
        self, driver: ShardDriver
    ) -> None:
        assert not self.answer_after(driver, 3 * SECOND)
        assert self.answer_after(driver, 3 * SECOND)
        assert self.answer_after(driver, 3 * SECOND), "a slow answer does not shorten it"
        assert self.answer_after(driver, 0)
        assert not self.answer_after(driver, 3 * SECOND)

    def test_a_pass_stalls_while_the_rate_is_set_to_nothing_and_then_goes_on(self, driver: ShardDriver) -> None:
        driver.node.use_settings(replace(SETTINGS, scrub_bytes_per_s=0))
        assert self.begin(driver) == {}
        driver.advance(10 * SECOND)
        assert driver.take(Compare) == []
        driver.node.use_settings(SETTINGS)
        driver.advance(2 * SECOND)
        assert {compare.shard for compare in driver.take(Compare)} == set(OTHERS)


class TestAnswers:
    def ask(self, driver: ShardDriver, last: Lsn, **fields: Any) -> Compared:
        request = Compare(
            request_id=7,
            shard=ME,
            generation=fields.pop("generation", 1),
            holder=SHARDS[1],
            log=SYNC_LOG,
            first=lsn(1, 1),
            last=last,
            count=fields.pop("count", 0),
            digest=fields.pop("digest", 0),
        )
        driver.turn((SEQUENCER, request))
        return driver.take_one(Compared)

    def test_equal_digests_are_told_without_a_list(self, driver: ShardDriver) -> None:
        digest = EntriesDigest()
        for esn in range(1, 11):
            digest.add(lsn(1, esn), image(lsn(1, esn)))
        answer = self.ask(driver, lsn(1, 10), count=10, digest=digest.value)
        assert (answer.status, answer.equal, answer.lsns) == (Status.OK, True, [])

    def test_a_difference_is_told_with_what_is_here(self, driver: ShardDriver) -> None:
        answer = self.ask(driver, lsn(1, 10))
        assert (answer.equal, answer.lsns) == (False, [int(lsn(1, esn)) for esn in range(1, 11)])

    def test_of_what_is_not_released_nothing_is_told(self, driver: ShardDriver) -> None:
        driver.turn(*stores([lsn(1, 11)]))
        driver.sent.clear()
        answer = self.ask(driver, lsn(1, 11))
        assert (answer.status, len(answer.lsns)) == (Status.AGAIN, 10)

    def test_another_generation_is_authoritative_for_nothing(self, driver: ShardDriver) -> None:
        assert self.ask(driver, lsn(1, 10), generation=2).status == Status.REBUILDING

    def test_who_cannot_read_a_copy_is_not_authoritative_and_repairs_it(self, driver: ShardDriver) -> None:
        driver.disk.corrupt(SYNC_LOG, lsn(1, 3))
        answer = self.ask(driver, lsn(1, 10))
        assert answer.status == Status.REBUILDING
        assert int(lsn(1, 3)) not in answer.lsns
        assert SYNC_LOG in driver.machines.repairs.damaged


class TestMetadataLogs:
    LOG = metadata_log_of(SYNC_LOG)

    def damaged(self, *epochs: int) -> tuple[ShardDriver, dict[ShardId, Fetch]]:
        """A shard that cannot read a range with the records of these epochs for a while, and what it asks the others."""
        driver = ShardDriver(replace(SETTINGS, scrub_bytes_per_s=0))
        metadata = int(EntryFlags.METADATA)
        for epoch in epochs:
            driver.turn((SEQUENCER, store(lsn(epoch, 1), log=self.LOG, flags=metadata)))
        driver.disk.unreadable.update(keys.data_key(self.LOG, lsn(epoch, 1), False, 1) for epoch in epochs)
        state = driver.machines.shard.logs[self.LOG]
        driver.machines.repairs.note_unreadable(state, Lsn(1), lsn(epochs[-1], 1))
        driver.turn()
        return driver, {fetch.shard: fetch for fetch in driver.take(Fetch)}

    def record(self, position: Lsn) -> bytes:
        return image(position, log=self.LOG, flags=int(EntryFlags.METADATA))

    def answer(self, fetch: Fetch, *positions: Lsn, status: Status = Status.OK) -> tuple[PeerId, Fetched]:
        images = [self.record(position) for position in positions]
        message = Fetched(
            request_id=fetch.request_id,
            shard=fetch.shard,
            log=fetch.log,
            status=status,
            through=fetch.last,
            entries=[(int(position), len(each)) for position, each in zip(positions, images, strict=True)],
            images=b"".join(images),
        )
        return node_peer(fetch.shard), message

    def test_one_sound_record_is_enough_though_most_lost_theirs(self) -> None:
        """They get theirs back only when this one is authoritative again: each would wait for the other."""
        driver, asked = self.damaged(1, 2)
        answers = [self.answer(asked[shard], status=Status.REBUILDING) for shard in OTHERS[:3]]
        driver.turn(*answers, self.answer(asked[OTHERS[3]], lsn(2, 1)))
        assert driver.stored(self.LOG) == [lsn(2, 1)]
        assert driver.machines.repairs.damaged_ranges == 0, "nothing is below epoch 1"

    def test_its_copyset_need_not_name_the_shard_which_may_have_got_it_back(self) -> None:
        driver, asked = self.damaged(1)
        others = self.answer(asked[OTHERS[0]], lsn(1, 1))
        held = image(lsn(1, 1), log=self.LOG, flags=int(EntryFlags.METADATA), copyset=SHARDS[1:4])
        others[1].images, others[1].entries = held, [(int(lsn(1, 1)), len(held))]
        driver.turn(others, *(self.answer(asked[shard], status=Status.REBUILDING) for shard in OTHERS[1:]))
        driver.disk.unreadable.clear()
        assert driver.stored(self.LOG) == [lsn(1, 1)]
        assert driver.machines.repairs.damaged_ranges == 0

    def test_it_is_stored_before_anything_below_it_goes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its shard may be gone when the rest of the range is taken up."""
        monkeypatch.setattr("storage_node.repair.log_repair._ENTRIES_MAX", 1)
        driver, asked = self.damaged(1, 2, 3)
        driver.disk.unreadable.discard(keys.data_key(self.LOG, lsn(1, 1), False, 1))
        driver.hold = True
        answers = [self.answer(asked[shard], status=Status.REBUILDING) for shard in OTHERS[:3]]
        driver.turn(*answers, self.answer(asked[OTHERS[3]], lsn(3, 1)))
        driver.complete()
        assert isinstance(driver.held[0][0], WriteShard)
        assert lsn(3, 1) in driver.stored(self.LOG)

    def test_what_comes_back_meanwhile_is_not_taken_away(self) -> None:
        driver, asked = self.damaged(1, 2)
        driver.hold = True
        driver.turn(*(self.answer(asked[shard]) for shard in OTHERS))
        driver.disk.unreadable.clear()
        driver.machines.repairs.store_begins(self.LOG)  # as who gets back what the disk held says
        driver.let_go()
        assert driver.take(Fetch), "the others are asked anew"
        assert driver.stored(self.LOG) == [lsn(1, 1), lsn(2, 1)]

    def test_what_lies_above_it_is_not_replaced(self) -> None:
        driver, asked = self.damaged(1, 2, 3)
        answers = [self.answer(asked[shard], status=Status.REBUILDING) for shard in OTHERS[:3]]
        driver.turn(*answers, self.answer(asked[OTHERS[3]], lsn(2, 1)))
        driver.disk.unreadable.clear()
        assert driver.stored(self.LOG) == [lsn(2, 1), lsn(3, 1)]
        assert driver.machines.repairs.damaged_ranges == 1

    def test_without_any_it_takes_the_word_of_an_f_majority(self) -> None:
        driver, asked = self.damaged(1, 2)
        driver.turn(*(self.answer(asked[shard], status=Status.REBUILDING) for shard in OTHERS))
        assert driver.machines.repairs.damaged_ranges == 1

    def test_what_a_sequencer_stores_while_the_range_is_read_again_stays(self) -> None:
        driver, asked = self.damaged(1, 2)
        driver.hold = True
        driver.turn(*(self.answer(asked[shard]) for shard in OTHERS))
        assert len(driver.held) == 1, "the range is read once more"
        driver.disk.unreadable.clear()
        driver.turn((SEQUENCER, store(lsn(2, 1), log=self.LOG, flags=int(EntryFlags.METADATA), wave=2)))
        driver.let_go()
        asked = {fetch.shard: fetch for fetch in driver.take(Fetch)}
        driver.turn(*(self.answer(asked[shard]) for shard in OTHERS))
        assert lsn(2, 1) in driver.stored(self.LOG)


def test_ranges_are_merged_and_cut() -> None:
    ranges: list[tuple[Lsn, Lsn]] = []
    assert add_range(ranges, Lsn(5), Lsn(7))
    assert not add_range(ranges, Lsn(6), Lsn(6))
    assert add_range(ranges, Lsn(8), Lsn(9))
    assert add_range(ranges, Lsn(20), Lsn(30))
    assert ranges == [(5, 9), (20, 30)]
    remove_range(ranges, Lsn(9), Lsn(22))
    assert ranges == [(5, 8), (23, 30)]


def test_a_metadata_record_that_is_stored_again_replaces_what_cannot_be_read_whatever_its_wave(
    driver: ShardDriver,
) -> None:
    log, position = metadata_log_of(SYNC_LOG), lsn(1, 1)
    driver.turn((SEQUENCER, store(position, log=log, wave=3)))
    driver.disk.corrupt(log, position)
    driver.turn(digest(position, position, log=log))
    assert driver.machines.repairs.is_unreadable(log, position)
    driver.turn((SEQUENCER, store(position, log=log, wave=1)))
    assert not driver.machines.repairs.is_unreadable(log, position)
    driver.turn(digest(position, position, log=log))
    assert [length > 0 for _, _, length in driver.take(Digested)[-1].entries] == [True]
