"""Donors, and shards that take copies from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from client.log_tree.state import LogTreeState
from client.log_tree.view import LogTreeView
from logdevice_py.config.logs import LogTree
from logdevice_py.core.entry import EntryFlags, body_of, encode_header, parse_header
from logdevice_py.core.ids import (
    EVENT_LOG_DELTAS,
    Generation,
    LogId,
    PeerId,
    ShardId,
    metadata_log_of,
    node_of,
    node_peer,
)
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.event_log.events import (
    DonorFlags,
    Event,
    RebuildMode,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardUnrecoverable,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingMetrics, RebuildingSettings
from logdevice_py.metadata.epoch_metadata import HISTORY_MAX, EpochInterval
from logdevice_py.protocol.messages import Fetch, RebuildStore, RebuildStored, Records, SeqStateFlags, Stored
from storage_node.log_store.interface import DamageFound, ReadShard
from storage_node.rebuilding.context import SequencerAnswered
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import (
    ME,
    PLENTY,
    SHARDS,
    SYNC_LOG,
    THREE_COPIES,
    EverybodyIsAlive,
    ShardDriver,
    clean,
    image,
    interval,
    lsn,
    release,
    seal,
    start,
    store,
    stores,
)
from tests.unit.storage_node.repair.test_repair import fetched

FIRST = Generation(1)
DONOR = PeerId(1)
LOST = SHARDS[4]


_LOG_BEGUN_US: Final = 200_000
"""After a donor began with a log, it goes on with it within this time, also at its minimum."""


class RebuildingDriver(ShardDriver):
    """A shard that takes part in rebuilding; `asked` collects what its donor wants of sequencers."""

    def open(self) -> None:
        super().open()
        self.asked: list[tuple[LogId, Epoch, SeqStateFlags, SequencerAnswered]] = []
        self.metrics = RebuildingMetrics()
        self.node.enable_rebuilding(
            RebuildingSettings(tries_max=2),
            self.metrics,
            lambda log, epoch, flags, done, now: self.asked.append((log, epoch, flags, done)),
        )
        self.set = RebuildingSet()

    def apply(self, *events: Event) -> None:
        for event in events:
            self.set.apply(event, Lsn(self.set.version + 1))
        self.node.on_rebuilding_set(self.set, self.now)
        self.turn()

    def lose(self, *shards: ShardId, mode: RebuildMode = RebuildMode.RESTORE) -> None:
        for shard in shards:
            self.apply(ShardNeedsRebuild(shard, FIRST, mode, tuple((each, FIRST) for each in SHARDS)))
            self.advance(_LOG_BEGUN_US)

    def leave_out(self, *shards: ShardId) -> None:
        """New epochs do without them."""
        self.config = replace(self.config, version=self.config.version + 1, excluded=frozenset(shards))
        self.node.on_config(self.config, self.now)
        self.turn()

    def remove_logs(self) -> None:
        """Go by a cluster file without any."""
        self.go_by(LogTree())

    def go_by(self, logs: LogTree) -> None:
        """Go by a newer cluster file with these logs."""
        self.config = replace(self.config, version=self.config.version + 1, logs=logs)
        self.node.on_config(self.config, self.now)
        self.turn()

    def answer_sequencer(self, status: Status = Status.OK) -> None:
        self.asked.pop(0)[3](status, self.now)
        self.turn()

    def answer(self, message: RebuildStore, status: Status = Status.OK, lacking: Sequence[int] = ()) -> None:
        stored = RebuildStored(
            request_id=message.request_id,
            log=message.log,
            shard=message.shard,
            status=status,
            lacking=list(lacking),
        )
        self.turn((node_peer(message.shard), stored))

    @property
    def donor(self):  # type: ignore[no-untyped-def]
        return self.machines.donor

    def copyset(self, position: Lsn) -> tuple[ShardId, ...]:
        result = self.store.read(ReadShard(0, ME, SYNC_LOG, position, position, PLENTY))
        return parse_header(result.entries[0][1]).copyset


def history(*epochs: tuple[int, Sequence[ShardId]]) -> list[EpochInterval]:
    return [
        EpochInterval(Epoch(since), tuple((shard, FIRST) for shard in shards), THREE_COPIES) for since, shards in epochs
    ]


WITHOUT_IT = history((1, SHARDS), (2, SHARDS[:4]))


def rebuild_store(
    images: Sequence[bytes], *, generation: int = 1, shard: ShardId = ME, log: LogId = SYNC_LOG
) -> tuple[PeerId, RebuildStore]:
    entries = [(int(parse_header(each).lsn), len(each)) for each in images]
    message = RebuildStore(
        request_id=7,
        shard=shard,
        generation=Generation(generation),
        log=log,
        entries=entries,
        images=b"".join(images),
    )
    return (DONOR, message)


def amend(whole: bytes, copyset: Sequence[ShardId]) -> bytes:
    header = parse_header(whole)
    return encode_header(replace(header, copyset=tuple(copyset), flags=header.flags | EntryFlags.AMEND))


def is_amend(message: RebuildStore) -> bool:
    return all(parse_header(each).is_amend for each in images_of(message))


def images_of(message: RebuildStore) -> list[bytes]:
    at, found = 0, []
    for _, length in message.entries:
        found.append(message.images[at : at + length])
        at += length
    return found


class TestTakingCopies:
    def test_a_copy_of_a_clean_epoch_is_taken_whatever_seals_say_and_answered_after_the_sync(self) -> None:
        driver = RebuildingDriver()
        driver.turn(seal(5), clean(1, 5))
        driver.hold = True
        driver.turn(rebuild_store([image(lsn(1, 3))]))
        assert not driver.take(RebuildStored)
        driver.let_go()
        assert driver.take_one(RebuildStored).status is Status.OK
        driver.power_cut()
        assert driver.stored() == [lsn(1, 3)]

    def test_an_epoch_that_is_not_clean_here_is_purged_first_so_that_the_purge_does_not_take_the_copy(self) -> None:
        driver = RebuildingDriver()
        driver.turn((PeerId(1), store(lsn(1, 1))))
        driver.turn(rebuild_store([image(lsn(1, 3))]))
        assert driver.take_one(RebuildStored).status is Status.AGAIN
        assert driver.stored() == [lsn(1, 1)]
        assert driver.machines.purges.is_purging(driver.log())
        driver.turn((PeerId(1), store(lsn(1, 2))))
        assert driver.take(Stored)[-1].status is Status.PREEMPTED

    @pytest.mark.parametrize("what", ["is_alive", "serves"])
    def test_how_an_epoch_ended_is_not_asked_of_a_shard_that_is_gone_and_whose_data_nobody_waits_for(
        self, what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        driver = RebuildingDriver()
        is_unrecoverable = driver.machines.purges.lost.is_unrecoverable
        driver.lose(LOST)
        gone = node_of(LOST) if what == "is_alive" else LOST
        monkeypatch.setattr(EverybodyIsAlive, what, lambda _, each: each != gone)
        assert not is_unrecoverable(LOST, FIRST), "its data may come back"
        driver.apply(ShardUnrecoverable(LOST, FIRST))
        assert is_unrecoverable(LOST, FIRST)
        assert not is_unrecoverable(LOST, Generation(2))
        monkeypatch.undo()
        assert not is_unrecoverable(LOST, FIRST), "it is back"

    def test_a_shard_that_never_heard_of_the_log_takes_it_at_the_second_try(self) -> None:
        driver = RebuildingDriver()
        driver.turn(rebuild_store([image(lsn(1, 3))]))
        assert driver.take_one(RebuildStored).status is Status.AGAIN
        driver.turn(rebuild_store([image(lsn(1, 3))]))
        assert driver.take_one(RebuildStored).status is Status.OK

    def test_another_generation_is_refused(self) -> None:
        driver = RebuildingDriver(generation=2)
        driver.turn(clean(1, 5), rebuild_store([image(lsn(1, 3))]))
        assert driver.take_one(RebuildStored).status is Status.REBUILDING
        assert not driver.stored()

    @pytest.mark.parametrize(
        "bad",
        [
            image(lsn(1, 3))[:-1],
            image(lsn(1, 3), copyset=SHARDS[1:4]),
            image(lsn(1, 3), log=LogId(8)),
        ],
    )
    def test_a_copy_that_is_damaged_or_not_for_this_shard_is_refused(self, bad: bytes) -> None:
        driver = RebuildingDriver()
        message = RebuildStore(
            request_id=7, shard=ME, generation=FIRST, log=SYNC_LOG, entries=[(int(lsn(1, 3)), len(bad))], images=bad
        )
        driver.turn(clean(1, 5), (DONOR, message))
        assert driver.take_one(RebuildStored).status is Status.BADPAYLOAD

    def test_an_amend_gives_the_copy_another_copyset_and_keeps_its_body(self) -> None:
        driver = RebuildingDriver()
        whole = image(lsn(1, 1))
        driver.turn((PeerId(1), store(lsn(1, 1))), clean(1, 5, lng=1))
        driver.turn(rebuild_store([amend(whole, SHARDS[:2])]))
        assert driver.take_one(RebuildStored).lacking == []
        result = driver.store.read(ReadShard(0, ME, SYNC_LOG, lsn(1, 1), lsn(1, 1), PLENTY))
        assert parse_header(result.entries[0][1]).copyset == SHARDS[:2]
        assert body_of(result.entries[0][1]) == body_of(whole)

    def test_an_amend_of_a_large_entry_writes_its_header_alone(self) -> None:
        driver = RebuildingDriver()
        large = b"large " * 1000
        whole = image(lsn(1, 1), payload=large)
        driver.turn((PeerId(1), store(lsn(1, 1), payload=large)), clean(1, 5, lng=1))
        before = dict(driver.disk.rows)
        driver.turn(rebuild_store([amend(whole, SHARDS[:2])]))
        assert driver.take_one(RebuildStored).lacking == []
        changed = [value for key, value in driver.disk.rows.items() if before.get(key) != value]
        assert 0 < sum(map(len, changed)) < 300
        result = driver.store.read(ReadShard(0, ME, SYNC_LOG, lsn(1, 1), lsn(1, 1), PLENTY))
        assert parse_header(result.entries[0][1]).copyset == SHARDS[:2]
        assert body_of(result.entries[0][1]) == body_of(whole)

    def test_readers_of_recent_entries_see_the_copyset_of_an_amend(self) -> None:
        driver = RebuildingDriver()
        whole = image(lsn(1, 1))
        driver.turn((PeerId(1), store(lsn(1, 1))), clean(1, 5, lng=1))
        driver.turn(rebuild_store([amend(whole, SHARDS[:2])]))
        recent = driver.log().recent
        assert recent is not None
        assert parse_header(recent.images[lsn(1, 1)]).copyset == SHARDS[:2]
        assert body_of(recent.images[lsn(1, 1)]) == body_of(whole)

    def test_an_amend_of_a_copy_of_another_wave_is_told_of(self) -> None:
        driver = RebuildingDriver()
        driver.turn((PeerId(1), store(lsn(1, 1))), clean(1, 5, lng=1))
        driver.turn(rebuild_store([amend(image(lsn(1, 1), wave=2), SHARDS[:2])]))
        assert driver.take_one(RebuildStored).lacking == [lsn(1, 1)]

    def test_an_amend_of_what_is_not_here_is_told_of(self) -> None:
        driver = RebuildingDriver()
        driver.turn((PeerId(1), store(lsn(1, 1))), clean(1, 5, lng=1))
        driver.turn(rebuild_store([amend(image(lsn(1, at)), SHARDS[:2]) for at in (1, 2)]))
        assert driver.take_one(RebuildStored).lacking == [lsn(1, 2)]

    def test_what_is_trimmed_is_not_stored(self) -> None:
        driver = RebuildingDriver()
        driver.turn(clean(1, 5))
        driver.log().trim_point = lsn(1, 3)
        driver.turn(rebuild_store([image(lsn(1, at)) for at in (3, 4)]))
        assert driver.take_one(RebuildStored).status is Status.OK
        assert driver.stored() == [lsn(1, 4)]

    def test_the_answer_says_how_long_appends_take_here(self) -> None:
        driver = RebuildingDriver()
        driver.turn(clean(1, 5))
        driver.turn(rebuild_store([image(lsn(1, 3))]))
        assert driver.take_one(RebuildStored).append_percent == 0, "there are none"
        driver.turn((PeerId(1), store(lsn(6, 1))))
        driver.turn(rebuild_store([image(lsn(1, 4))]))
        assert driver.take_one(RebuildStored).append_percent == 100, "too few to tell"
        for esn in range(2, 200):
            driver.turn((PeerId(1), store(lsn(6, esn))))
            driver.advance(20_000)
        driver.hold = True
        for esn in range(200, 300):
            driver.turn((PeerId(1), store(lsn(6, esn))))
        driver.advance(19_000)
        driver.let_go()
        for esn in range(300, 327):
            driver.turn((PeerId(1), store(lsn(6, esn))))
            driver.advance(20_000)
        driver.turn(rebuild_store([image(lsn(1, 5))]))
        assert driver.take_one(RebuildStored).append_percent > 300

    def test_a_copy_is_refused_while_there_is_still_room_for_appends(self) -> None:
        driver = RebuildingDriver()
        driver.turn(clean(1, 5))
        driver.disk.free = driver.store_settings.free_space_min * 3 // 2
        driver.turn(*stores([lsn(6, 1)]), rebuild_store([image(lsn(1, 3))]), *stores([lsn(6, 2)]))
        assert driver.take_one(RebuildStored).status is Status.NOSPC
        assert [message.status for message in driver.take(Stored)] == [Status.OK, Status.OK]
        assert driver.stored() == [lsn(6, 1), lsn(6, 2)]
        driver.disk.free = driver.disk.total // 2
        driver.turn(rebuild_store([image(lsn(1, 3))]))
        assert driver.take_one(RebuildStored).status is Status.OK

    @pytest.mark.parametrize("log", [metadata_log_of(SYNC_LOG), EVENT_LOG_DELTAS])
    def test_copies_of_what_the_cluster_keeps_for_itself_are_taken_as_long_as_they_can_be(self, log: LogId) -> None:
        driver = RebuildingDriver()
        driver.turn(clean(1, 5), clean(1, 5, log=log))
        for free, told in ((3 / 2, Status.OK), (3 / 4, Status.OK), (1 / 4, Status.NOSPC)):
            driver.disk.free = int(driver.store_settings.free_space_min * free)
            driver.turn(rebuild_store([image(lsn(1, 3))]), rebuild_store([image(lsn(1, 3), log=log)], log=log))
            answers = {answer.log: answer.status for answer in driver.take(RebuildStored)}
            assert answers == {SYNC_LOG: Status.NOSPC, log: told}

    def test_what_takes_no_room_is_not_refused_with_what_does(self) -> None:
        driver = RebuildingDriver()
        whole, bridge = image(lsn(1, 1)), image(lsn(1, 2), flags=int(EntryFlags.HOLE))
        driver.turn((PeerId(1), store(lsn(1, 1))), clean(1, 5, lng=1))
        driver.disk.free = driver.store_settings.free_space_min * 3 // 2
        driver.turn(
            rebuild_store([amend(whole, SHARDS[:2])]), rebuild_store([image(lsn(1, 3))]), rebuild_store([bridge])
        )
        assert [answer.status for answer in driver.take(RebuildStored)] == [Status.NOSPC, Status.OK, Status.OK]
        assert driver.copyset(lsn(1, 1)) == SHARDS[:2]

    def test_readers_get_it_also_from_memory(self) -> None:
        driver = RebuildingDriver()
        driver.turn((PeerId(1), store(lsn(1, 1))), clean(1, 5, lng=3), release(lsn(2, 1)))
        driver.turn(rebuild_store([image(lsn(1, 2))]))
        driver.turn(start(single_copy=False))
        assert [each[0] for message in driver.take(Records) for each in message.entries] == [lsn(1, 1), lsn(1, 2)]

    def test_a_range_that_is_about_to_be_replaced_takes_none(self) -> None:
        driver = RebuildingDriver(StorageSettings(scrub_bytes_per_s=0))
        driver.turn(*stores([lsn(1, esn) for esn in (1, 2, 3, 4, 6, 7)]))
        driver.turn(seal(2), clean(1, 2, lng=7, last=8))
        driver.turn(release(lsn(2, 0)))
        # what lies between the damaged copies cannot be read either
        driver.node.on_damage(DamageFound(ME, [(SYNC_LOG, lsn(1, 4), lsn(1, 6))]), driver.now)
        driver.turn()
        driver.tell_history([interval()])
        *first, last = driver.take(Fetch)
        driver.turn(*(fetched(fetch, lsn(1, 4), lsn(1, 6)) for fetch in first))
        # the donor answered before it had the new copyset
        given = image(lsn(1, 5), copyset=(SHARDS[1], SHARDS[3], ME))
        beside = image(lsn(1, 3), copyset=(SHARDS[1], SHARDS[3], ME))
        driver.turn(rebuild_store([given]), rebuild_store([beside]))
        assert [answer.status for answer in driver.take(RebuildStored)] == [Status.AGAIN, Status.OK]
        driver.turn(fetched(last))
        driver.turn(rebuild_store([given]))
        assert driver.take_one(RebuildStored).status is Status.OK
        assert driver.stored() == [lsn(1, esn) for esn in range(1, 8)]

    def test_a_range_in_which_a_donor_stored_a_copy_is_replaced_when_others_know_of_that(self) -> None:
        driver = RebuildingDriver(StorageSettings(scrub_bytes_per_s=0))
        driver.turn(*stores([lsn(1, esn) for esn in (1, 2, 3, 4, 6, 7)]))
        driver.turn(seal(2), clean(1, 2, lng=7, last=8))
        driver.turn(release(lsn(2, 0)))
        driver.turn(rebuild_store([image(lsn(1, 5), copyset=(SHARDS[1], SHARDS[3], ME))]))
        assert driver.take_one(RebuildStored).status is Status.OK
        driver.node.on_damage(DamageFound(ME, [(SYNC_LOG, lsn(1, 4), lsn(1, 6))]), driver.now)
        driver.turn()
        driver.tell_history([interval()])
        # all that others have by now names this shard for 4 and 6 only
        assert not driver.take(Fetch)
        driver.advance(60 * SECOND)
        driver.tell_history([interval()])
        for fetch in driver.take(Fetch):
            driver.turn(fetched(fetch, lsn(1, 4), lsn(1, 5), lsn(1, 6)))
        assert driver.stored() == [lsn(1, esn) for esn in range(1, 8)]
        assert not driver.machines.repairs.damaged


class TestGiving:
    def stored(self, *copysets: Sequence[ShardId]) -> RebuildingDriver:
        """A clean epoch 1 with entries of these copysets."""
        driver = RebuildingDriver()
        for esn, copyset in enumerate(copysets, 1):
            driver.turn((PeerId(1), store(lsn(1, esn), copyset=copyset)))
        driver.turn(clean(1, 5, lng=len(copysets)))
        driver.sent.clear()
        return driver

    def test_the_first_that_is_left_stores_whole_copies_then_amends_the_others_and_itself_last(self) -> None:
        driver = self.stored((LOST, ME, SHARDS[1]))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        whole = driver.take_one(RebuildStore)
        assert whole.shard in SHARDS[2:4]
        new = (ME, SHARDS[1], whole.shard)
        assert [parse_header(each).copyset for each in images_of(whole)] == [new]
        assert body_of(images_of(whole)[0]) == body_of(image(lsn(1, 1)))
        assert driver.copyset(lsn(1, 1)) == (LOST, ME, SHARDS[1])
        driver.answer(whole)
        amended = driver.take_one(RebuildStore)
        assert amended.shard == SHARDS[1]
        header = parse_header(images_of(amended)[0])
        assert header.is_amend
        assert header.copyset == new
        assert driver.copyset(lsn(1, 1)) == (LOST, ME, SHARDS[1])
        driver.answer(amended)
        assert driver.copyset(lsn(1, 1)) == new
        assert driver.donor.result is DonorFlags.NONE

    def test_what_is_anothers_to_give_and_what_lost_nothing_is_left_alone(self) -> None:
        driver = self.stored((SHARDS[1], ME, LOST), SHARDS[:3])
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        assert not driver.take(RebuildStore)
        assert driver.donor.result is DonorFlags.NONE

    def test_with_the_first_lost_too_the_next_one_gives(self) -> None:
        driver = self.stored((SHARDS[3], ME, LOST))
        driver.lose(SHARDS[3], LOST)
        driver.tell_history(history((1, SHARDS), (2, SHARDS[:3])))
        targets = {message.shard for message in driver.take(RebuildStore)}
        assert targets == {SHARDS[1], SHARDS[2]}

    def test_a_copy_that_one_that_is_left_does_not_have_is_sent_to_it_whole(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        driver.answer(driver.take_one(RebuildStore))
        driver.answer(driver.take_one(RebuildStore), lacking=[lsn(1, 1)])
        again = driver.take_one(RebuildStore)
        assert again.shard == SHARDS[1]
        assert not parse_header(images_of(again)[0]).is_amend
        driver.answer(again)
        assert driver.donor.result is DonorFlags.NONE

    def test_a_shard_that_does_not_take_a_copy_is_avoided(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        first = driver.take_one(RebuildStore)
        driver.answer(first, Status.NOSPC)
        driver.advance(1_000_000)
        assert driver.take_one(RebuildStore).shard == ({SHARDS[2], SHARDS[3]} - {first.shard}).pop()

    def test_when_all_shards_are_full_the_donor_comes_back_until_they_have_space(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        asked = []
        while refused := driver.take(RebuildStore):
            asked += [message.shard for message in refused]
            for message in refused:
                driver.answer(message, Status.NOSPC)
        assert sorted(asked) == [SHARDS[2], SHARDS[3]], "each once"
        assert driver.donor.lacking_space == [SYNC_LOG]
        assert driver.donor.logs_left == 1
        for _ in range(30):
            driver.advance(60 * SECOND)
            driver.tell_history(WITHOUT_IT)
            sent = 0
            while refused := driver.take(RebuildStore):
                sent += len(refused)
                for message in refused:
                    driver.answer(message, Status.NOSPC)
            assert sent <= 2
        assert driver.donor.result is None
        assert driver.metrics.records_unplaced == 0
        driver.advance(80 * SECOND)
        driver.tell_history(WITHOUT_IT)
        for _ in ("stored", "amended"):
            driver.answer(driver.take_one(RebuildStore))
        assert driver.donor.result is DonorFlags.NONE
        assert driver.donor.logs_left == 0

    def test_a_full_shard_does_not_hold_up_what_has_a_place(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST), (ME, SHARDS[2], LOST))
        driver.lose(LOST)
        driver.tell_history(history((1, (ME, SHARDS[1], SHARDS[2], LOST)), (2, SHARDS[:4])))
        for _ in range(6):
            for message in driver.take(RebuildStore):
                driver.answer(
                    message, Status.NOSPC if message.shard == SHARDS[2] and not is_amend(message) else Status.OK
                )
        assert driver.copyset(lsn(1, 1)) == (ME, SHARDS[1], LOST)
        assert driver.copyset(lsn(1, 2)) == (ME, SHARDS[2], SHARDS[1])
        assert driver.donor.lacking_space == [SYNC_LOG]

    def test_a_new_round_does_not_wait_for_the_space_that_one_before_lacked(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        while refused := driver.take(RebuildStore):
            for message in refused:
                driver.answer(message, Status.NOSPC)
        driver.lose(SHARDS[3])
        assert driver.donor.lacking_space == []
        driver.tell_history(history((1, SHARDS), (2, SHARDS[:3])))
        for _ in ("stored", "amended"):
            driver.answer(driver.take_one(RebuildStore))
        assert driver.donor.result is DonorFlags.NONE
        driver.advance(600 * SECOND)
        assert not driver.take(RebuildStore)
        assert not driver.donor.running

    def test_a_donor_gives_way_where_a_shard_says_that_appends_take_long(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        first = driver.take_one(RebuildStore)
        driver.advance(1_000_000)
        before = driver.donor.pace.rate
        driver.turn(
            (
                node_peer(first.shard),
                RebuildStored(
                    request_id=first.request_id,
                    log=first.log,
                    shard=first.shard,
                    status=Status.OK,
                    append_percent=300,
                ),
            )
        )
        assert "appends take 300 % of the usual" in driver.donor.pace.explain()
        assert driver.donor.pace.rate <= before

    def test_so_is_one_that_does_not_answer(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        first = driver.take_one(RebuildStore)
        driver.advance(11_000_000)
        assert driver.take_one(RebuildStore).shard == ({SHARDS[2], SHARDS[3]} - {first.shard}).pop()

    def test_a_shard_that_is_left_and_cannot_be_told_keeps_its_copyset_and_nobody_waits_for_it(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        driver.answer(driver.take_one(RebuildStore))
        driver.node.on_peer_down(node_peer(SHARDS[1]), driver.now)
        driver.turn()
        assert driver.donor.result is DonorFlags.NONE
        assert driver.metrics.amends_skipped == 1

    def test_the_epoch_is_ended_first_and_what_is_not_final_waits(self) -> None:
        driver = RebuildingDriver()
        driver.turn((PeerId(1), store(lsn(1, 1), copyset=(ME, SHARDS[1], LOST))))
        driver.lose(LOST)
        driver.tell_history(history((1, SHARDS)))
        assert driver.asked[0][:3] == (SYNC_LOG, Epoch(0), SeqStateFlags.WAIT_FOR_RECOVERY)
        driver.answer_sequencer()
        driver.advance(1_000_000)
        driver.tell_history(WITHOUT_IT)
        assert driver.asked[0][:3] == (SYNC_LOG, Epoch(2), SeqStateFlags.WAIT_FOR_RECOVERY), (
            "one that knows of the later epoch"
        )
        driver.turn(clean(1, 5, lng=1))
        assert not driver.take(RebuildStore)
        driver.answer_sequencer()
        assert driver.take(RebuildStore)

    def test_a_donor_that_missed_the_recovery_learns_how_the_epoch_ended_first(self) -> None:
        driver = RebuildingDriver()
        driver.turn((PeerId(1), store(lsn(1, 1), copyset=(ME, SHARDS[1], LOST))))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        driver.answer_sequencer()
        assert driver.machines.purges.is_purging(driver.log())
        driver.advance(1_000_000)
        assert not driver.take(RebuildStore)

    NARROW = replace(history((1, (ME, SHARDS[1], LOST)))[0], labels=())
    WIDE = replace(history((1, (ME, SHARDS[1], SHARDS[2], LOST)))[0], labels=(), joined=(SHARDS[2],), widened=Epoch(3))
    AFTER = history((2, SHARDS[:3]))[0]

    def test_a_record_without_a_place_gets_one_when_the_nodeset_is_wider_and_that_is_certain(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history([self.NARROW, self.AFTER])
        assert driver.asked[0][:3] == (SYNC_LOG, Epoch(0), SeqStateFlags.WIDEN)
        assert driver.donor.running[SYNC_LOG].explain() == "asking for wider nodesets"
        driver.answer_sequencer()
        driver.advance(1_000_000)
        driver.tell_history([self.WIDE, self.AFTER])
        assert not driver.take(RebuildStore), "what was read may be on its way only"
        assert driver.asked[0][:3] == (SYNC_LOG, Epoch(3), SeqStateFlags.WAIT_FOR_RECOVERY)
        driver.answer_sequencer()
        assert self.give_all(driver) == {lsn(1, 1)}
        assert driver.copyset(lsn(1, 1)) == (ME, SHARDS[1], SHARDS[2])
        assert driver.donor.result is DonorFlags.NONE

    def test_wider_nodesets_are_asked_for_again_as_long_as_the_sequencer_does_not_answer(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history([self.NARROW, self.AFTER])
        driver.answer_sequencer(Status.TIMEDOUT)
        driver.advance(1_000_000)
        assert driver.asked[0][2] == SeqStateFlags.WIDEN
        driver.answer_sequencer()
        driver.advance(10_000_000)
        driver.tell_history([self.WIDE, self.AFTER])
        driver.answer_sequencer()
        assert self.give_all(driver) == {lsn(1, 1)}

    def test_a_sequencer_that_widens_nothing_is_not_asked_for_ever(self) -> None:
        """One of an earlier version does not know what is wanted of it."""
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        for _ in range(8):
            driver.tell_history([self.NARROW, self.AFTER])
            if driver.asked:
                driver.answer_sequencer()
            driver.advance(10_000_000)
        assert driver.donor.result is DonorFlags.UNPLACED
        assert driver.metrics.records_unplaced == 1

    def test_where_a_shard_is_dead_wider_nodesets_are_asked_for_when_it_does_not_come_back(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        wide = replace(self.WIDE, joined=(), widened=Epoch(0))
        driver.view.is_alive = lambda node: node != 2  # type: ignore[method-assign]
        driver.lose(LOST)
        driver.tell_history([wide, self.AFTER])
        assert not driver.asked
        driver.advance(30_000_000)
        assert driver.asked[0][2] == SeqStateFlags.WIDEN

    def test_in_a_log_that_was_removed_shards_that_joined_get_nothing_unless_that_was_certain(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.remove_logs()
        driver.lose(LOST)
        driver.tell_history([self.WIDE, self.AFTER])
        driver.answer_sequencer(Status.NOTFOUND)
        driver.advance(60_000_000)
        assert not driver.take(RebuildStore)
        assert driver.donor.result is DonorFlags.UNPLACED

    def test_a_nodeset_that_cannot_do_without_the_shard_is_said_to_be_short_of_places(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        for _ in range(4):
            driver.tell_history(history((1, (ME, SHARDS[1], LOST))))
            if driver.asked:
                driver.answer_sequencer()
            driver.advance(10_000_000)
        assert driver.donor.result is DonorFlags.UNPLACED
        assert driver.metrics.records_unplaced == 1

    def test_a_log_that_can_do_without_the_shard_is_awaited_however_late_its_sequencer_hears_of_that(self) -> None:
        """The node of the sequencer may have a long way to go in the event log; nobody drains the shard once more where the round ends unplaced."""
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.leave_out(LOST)
        driver.lose(LOST, mode=RebuildMode.RELOCATE)
        for _ in range(20):
            driver.tell_history(history((1, SHARDS)))
            driver.answer_sequencer()
            driver.advance(10_000_000)
        assert driver.donor.result is None
        driver.tell_history(WITHOUT_IT)
        assert driver.take(RebuildStore)
        assert not driver.donor.running[SYNC_LOG].flags

    @pytest.mark.parametrize("hindrance", ["it is needed", "too few are left", "metadata log", "history"])
    def test_nobody_is_awaited_where_the_log_may_never_do_without_the_shard(self, hindrance: str) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        seen = history((1, SHARDS))
        if hindrance != "it is needed":
            driver.leave_out(LOST, *(SHARDS[2:4] if hindrance == "too few are left" else ()))
        if hindrance == "metadata log":
            driver.view.is_alive = lambda node: node < 2  # type: ignore[method-assign]
        if hindrance == "history":
            seen = history(*((1 + each, SHARDS) for each in range(HISTORY_MAX)))
        driver.lose(LOST, mode=RebuildMode.RELOCATE)
        for _ in range(4):
            driver.tell_history(seen)
            if driver.asked:
                driver.answer_sequencer()
            driver.advance(10_000_000)
        assert DonorFlags.UNPLACED in {driver.donor._flags, *(each.flags for each in driver.donor.running.values())}

    def test_when_a_copyset_fits_on_the_lost_shards_alone_the_donor_says_so(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(*SHARDS[2:])
        driver.tell_history(history((1, SHARDS), (2, SHARDS[:2])))
        driver.advance(60_000_000)
        assert driver.donor.result is DonorFlags.UNPLACED | DonorFlags.UNCERTAIN

    @pytest.mark.parametrize("is_read", [True, False])
    def test_a_round_begins_when_the_log_tree_is_read_and_is_uncertain_when_that_takes_too_long(
        self, is_read: bool
    ) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        tree = LogTreeView()
        driver.config = replace(
            driver.config,
            version=driver.config.version + 1,
            settings={**driver.config.settings, "log_tree": {"enabled": True}},
            run_time_logs=tree,
        )
        driver.node.on_config(driver.config, driver.now)
        driver.lose(LOST)
        driver.advance(20_000_000)
        assert (driver.asked, driver.donor.result) == ([], None), "nothing is judged before"
        if is_read:
            tree.take(LogTreeState(), is_known=True)
        driver.advance(20_000_000)
        for _ in range(4):
            driver.tell_history(history((1, (ME, SHARDS[1], LOST))))
            if driver.asked:
                driver.answer_sequencer()
            driver.advance(10_000_000)
        assert driver.donor.result is DonorFlags.UNPLACED | (DonorFlags.NONE if is_read else DonorFlags.UNCERTAIN)

    def test_a_log_whose_history_cannot_be_read_to_its_end_is_done_as_far_as_it_is_known_and_that_is_said(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        while not driver.take(RebuildStore):
            driver.tell_history(WITHOUT_IT, complete=False)
            driver.advance(10_000_000)
            assert driver.now < 10_000_000_000
        assert driver.donor.running[SYNC_LOG].flags is DonorFlags.UNPLACED

    def damaged(self) -> RebuildingDriver:
        """A donor that begins to scan what it has to give, and cannot read it."""
        driver = self.stored((ME, SHARDS[1], LOST), (ME, SHARDS[1], LOST))
        driver.turn(release(lsn(1, 2)))
        driver.disk.corrupt(SYNC_LOG, lsn(1, 1))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        assert not driver.take(RebuildStore)
        return driver

    def test_a_copy_that_a_donor_cannot_read_is_repaired_and_then_given(self) -> None:
        driver = self.damaged()
        assert [notice.kind for notice in driver.notices] == ["damage"]
        driver.tell_history(WITHOUT_IT)
        asked = {fetch.shard: fetch for fetch in driver.take(Fetch)}
        whole = image(lsn(1, 1), copyset=(ME, SHARDS[1], LOST))
        for shard in SHARDS[1:4]:
            peer, answer = fetched(asked[shard], *([lsn(1, 1)] if shard == SHARDS[1] else []))
            if answer.entries:
                answer = replace(answer, entries=[(int(lsn(1, 1)), len(whole))], images=whole)
            driver.turn((peer, answer))
        driver.advance(10 * SECOND)
        assert [notice.kind for notice in driver.notices] == ["damage", "repaired"]
        assert [int(position) for position, _ in driver.take_one(RebuildStore).entries] == [lsn(1, 1), lsn(1, 2)]
        assert not driver.donor.running[SYNC_LOG].flags

    def test_a_donor_gives_the_rest_and_says_so_when_a_copy_cannot_be_repaired(self) -> None:
        driver = self.damaged()
        driver.advance(60 * SECOND)
        assert [int(position) for position, _ in driver.take(RebuildStore)[0].entries] == [lsn(1, 2)]
        assert driver.donor.running[SYNC_LOG].flags is DonorFlags.UNPLACED

    def test_a_donor_that_may_have_lost_entries_in_a_crash_says_so(self) -> None:
        driver = self.stored((SHARDS[1], ME, LOST))
        driver.log().dirty = [(lsn(1, 0), lsn(1, 9))]
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        assert driver.donor.result is None, "it waits until it has them back"
        driver.advance(600_000_000)
        assert driver.donor.result is DonorFlags.UNPLACED

    def test_a_donor_waits_for_what_a_crash_took_from_it(self) -> None:
        driver = self.stored((SHARDS[1], ME, LOST))
        driver.log().dirty = [(lsn(1, 0), lsn(1, 9))]
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        assert driver.donor.result is None
        driver.log().dirty = None
        driver.advance(60_000_000)
        assert driver.donor.result is DonorFlags.NONE

    def test_a_drained_shard_gives_what_nobody_else_has_and_keeps_its_own(self) -> None:
        driver = self.stored((ME, LOST, SHARDS[3]))
        driver.apply(ShardNeedsRebuild(ME, FIRST, RebuildMode.RELOCATE, tuple((each, FIRST) for each in SHARDS)))
        driver.tell_history(history((1, SHARDS), (2, SHARDS[1:])))
        assert not driver.take(RebuildStore), "it is for the first that stays to give"
        driver.apply(*(ShardIsRebuilt(shard, FIRST, driver.set.round) for shard in SHARDS))
        assert driver.copyset(lsn(1, 1)) == (ME, LOST, SHARDS[3])

    def test_what_a_drained_shard_and_another_one_get_before_its_epochs_have_ended_is_given_too(self) -> None:
        driver = RebuildingDriver()
        driver.lose(LOST, mode=RebuildMode.RELOCATE)
        assert driver.donor.result is None, "a sequencer may not have heard yet"
        driver.turn((PeerId(1), store(lsn(1, 1), copyset=(ME, SHARDS[1], LOST))), clean(1, 5, lng=1))
        driver.apply(ShardIsRebuilt(LOST, FIRST, driver.set.round))
        driver.advance(_LOG_BEGUN_US)
        driver.tell_history(WITHOUT_IT)
        for _ in ("stored", "amended"):
            driver.answer(driver.take_one(RebuildStore))
        assert driver.copyset(lsn(1, 1))[:2] == (ME, SHARDS[1])
        assert LOST not in driver.copyset(lsn(1, 1))
        assert driver.donor.result is DonorFlags.NONE

    def test_so_is_what_they_get_in_an_epoch_later_than_those_that_were_looked_at(self) -> None:
        driver = self.stored((ME, SHARDS[1], SHARDS[2]))
        driver.lose(LOST, mode=RebuildMode.RELOCATE)
        driver.tell_history(history((1, SHARDS[:4])))
        assert (driver.donor.logs_left, driver.donor.result) == (0, None)
        # a sequencer that has not heard of the drain takes the log over
        driver.turn((PeerId(1), store(lsn(3, 1), copyset=(ME, SHARDS[1], LOST))), clean(3, 5, lng=1))
        driver.apply(ShardIsRebuilt(LOST, FIRST, driver.set.round))
        driver.advance(_LOG_BEGUN_US)
        driver.tell_history(history((1, SHARDS[:4]), (3, SHARDS), (4, SHARDS[:4])))
        for _ in ("stored", "amended"):
            driver.answer(driver.take_one(RebuildStore))
        assert LOST not in driver.copyset(lsn(3, 1))
        assert driver.donor.result is DonorFlags.NONE

    def test_a_copy_of_a_donor_that_has_not_heard_of_a_drain_is_given_too(self) -> None:
        """The drained shard may be that donor, and leave it to this one to give: nobody else would."""
        driver = self.stored(SHARDS[:3])
        driver.lose(LOST)
        driver.lose(SHARDS[1], mode=RebuildMode.RELOCATE)
        without_them = history((1, SHARDS), (2, (ME, *SHARDS[2:4])))
        driver.tell_history(without_them)
        for _ in ("stored", "amended"):
            driver.answer(driver.take_one(RebuildStore))
        assert (driver.donor.logs_left, driver.donor.result) == (0, None), "it waits for the shard that is drained"
        known = driver.take(RebuildStored)
        driver.turn(rebuild_store([image(lsn(1, 2), copyset=(ME, SHARDS[2], SHARDS[3]))]))
        assert (known, driver.donor.logs_left) == ([], 0), "it is of this round"
        driver.turn(rebuild_store([image(lsn(1, 3), copyset=(SHARDS[1], ME, SHARDS[2]))]))
        assert driver.donor.logs_left == 1
        driver.advance(_LOG_BEGUN_US)
        driver.tell_history(without_them)
        whole = driver.take_one(RebuildStore)
        assert (whole.shard, [position for position, _ in whole.entries]) == (SHARDS[3], [lsn(1, 3)])

    def test_a_new_round_begins_from_the_start(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.lose(LOST)
        driver.tell_history(WITHOUT_IT)
        late = driver.take_one(RebuildStore)
        driver.lose(SHARDS[3])
        driver.answer(late)
        assert not driver.take(RebuildStore), "nothing more is done for the round before"
        driver.tell_history(history((1, SHARDS), (2, SHARDS[:3])))
        driver.advance(1_000)
        assert {message.shard for message in driver.take(RebuildStore)} >= {SHARDS[2]}

    def test_logs_begin_one_after_the_other_and_those_of_a_round_before_not_at_all(self) -> None:
        driver = RebuildingDriver()
        for log in range(1, 5):
            driver.machines.shard.log(LogId(log))

        def begun() -> int:
            return sum(each.reader is not None for each in driver.donor.running.values())

        everybody = tuple((each, FIRST) for each in SHARDS)
        driver.apply(ShardNeedsRebuild(LOST, FIRST, RebuildMode.RESTORE, everybody))
        assert begun() == 1
        driver.advance(150_000)
        assert begun() == 2
        driver.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RESTORE, everybody))
        assert begun() == 0, "what the round before has begun counts"
        driver.advance(1_000_000)
        assert begun() == len(driver.donor.running) == 4

    def test_a_donor_that_knows_of_nothing_but_metadata_logs_without_records_is_done(self) -> None:
        driver = RebuildingDriver()
        driver.machines.shard.log(metadata_log_of(SYNC_LOG))
        driver.lose(LOST)
        assert driver.donor.result is DonorFlags.NONE

    def test_a_log_that_is_not_in_the_cluster_file_is_looked_through_as_far_as_it_is_final(self) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.remove_logs()
        driver.lose(LOST)
        driver.tell_history(history((1, SHARDS)))
        driver.answer_sequencer(Status.NOTFOUND)
        assert driver.take(RebuildStore)

    def test_a_log_that_comes_back_to_the_cluster_file_while_others_are_looked_through_is_looked_through_again(
        self,
    ) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        driver.turn((PeerId(1), store(lsn(2, 1), copyset=(ME, SHARDS[1], LOST))))
        logs = driver.config.logs
        driver.remove_logs()
        driver.lose(LOST)
        driver.tell_history(history((1, SHARDS)))
        driver.answer_sequencer(Status.NOTFOUND)
        driver.go_by(logs)
        readers = len(driver.readers)
        self.give_all(driver)
        assert driver.donor.result is None
        driver.turn(clean(2, 6, lng=1))
        driver.advance(_LOG_BEGUN_US)
        assert len(driver.readers) == readers + 1
        driver.tell_history(history((1, SHARDS), (3, SHARDS[:4])))
        given = self.give_all(driver)
        assert given == {lsn(2, 1)}
        assert driver.donor.result is DonorFlags.NONE

    @staticmethod
    def give_all(driver: RebuildingDriver) -> set[Lsn]:
        """Store all that the donor gives; what new holders got."""
        given: set[Lsn] = set()
        while messages := driver.take(RebuildStore):
            for message in messages:
                headers = [parse_header(each) for each in images_of(message)]
                given |= {Lsn(header.lsn) for header in headers if not header.is_amend}
                driver.answer(message)
        return given

    @pytest.mark.parametrize("is_own_file_old", [False, True])
    def test_a_log_that_an_old_cluster_file_does_not_name_yet_is_looked_through_when_its_epoch_has_ended(
        self, is_own_file_old: bool
    ) -> None:
        driver = self.stored((ME, SHARDS[1], LOST))
        if is_own_file_old:
            driver.remove_logs()
            driver.view.config_version = driver.config.version + 1
        driver.lose(LOST)
        driver.tell_history(history((1, SHARDS)))
        driver.answer_sequencer(Status.NOTFOUND)
        driver.advance(10_000_000)
        assert driver.donor.result is None
        driver.answer_sequencer()
        driver.advance(10_000_000)
        driver.tell_history(WITHOUT_IT)
        assert driver.take(RebuildStore)

    def test_a_shard_that_is_drained_after_it_started_a_new_generation_still_lost_what_it_held_before(self) -> None:
        driver = self.stored((SHARDS[4], ME, SHARDS[2]))
        driver.lose(SHARDS[2], SHARDS[3])
        second = Generation(2)
        known = (*((each, FIRST) for each in SHARDS[:4]), (SHARDS[4], second))
        driver.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, known, False))
        driver.apply(ShardNeedsRebuild(SHARDS[4], second, RebuildMode.RELOCATE, known))
        driver.advance(2 * _LOG_BEGUN_US)
        driver.tell_history(WITHOUT_IT)
        assert driver.donor.running[SYNC_LOG].flags & DonorFlags.UNCERTAIN, "three copies may have been on these three"

    def test_a_shard_that_started_a_new_generation_and_is_drained_is_not_asked_to_give_what_it_lost(self) -> None:
        driver = self.stored((SHARDS[4], ME, SHARDS[2]))
        everybody = tuple((each, FIRST) for each in SHARDS)
        driver.apply(ShardNeedsRebuild(SHARDS[4], Generation(2), RebuildMode.RELOCATE, everybody))
        driver.lose(SHARDS[2], ME, mode=RebuildMode.RELOCATE)
        driver.tell_history(history((1, SHARDS), (2, (SHARDS[1], SHARDS[3]))))
        driver.advance(60_000_000)
        assert driver.donor.result is DonorFlags.UNPLACED, "it is this donor's, and has too few places"

    def test_what_was_rebuilt_before_it_was_drained_hides_no_records(self) -> None:
        driver = RebuildingDriver()
        everybody = tuple((each, FIRST) for each in SHARDS)
        for shard in SHARDS[2:]:
            driver.lose(shard)
            driver.apply(*(ShardIsRebuilt(each, FIRST, driver.set.round) for each in SHARDS))
        for shard in SHARDS[2:]:
            driver.apply(ShardNeedsRebuild(shard, Generation(2), RebuildMode.RELOCATE, everybody))
        driver.apply(*(ShardIsRebuilt(shard, Generation(2), driver.set.round) for shard in SHARDS[2:]))
        assert driver.donor.result is DonorFlags.NONE
