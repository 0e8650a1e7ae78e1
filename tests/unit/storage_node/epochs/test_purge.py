"""RELEASE, CLEAN and purging: what a shard does that missed a recovery."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.epoch_summary import EpochSummary
from logdevice_py.core.ids import EVENT_LOG_DELTAS, Generation, LogId, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import ESN_MAX, Epoch, Esn, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.framing import encode_frame
from logdevice_py.protocol.messages import (
    Cleaned,
    EpochEnd,
    EpochRecoveryMetadata,
    GetEpochRecoveryMetadata,
    Sealed,
    Stored,
    Trim,
)
from storage_node.epochs.purge import NoLostShards, PurgeState
from storage_node.settings import StorageSettings
from storage_node.stored_metadata import RecoveredEpoch
from tests.unit.storage_node.fakes import (
    ASYNC_LOG,
    ME,
    READER,
    SEQUENCER,
    SHARDS,
    SYNC_LOG,
    ShardDriver,
    clean,
    interval,
    lsn,
    recovery_store,
    release,
    seal,
    start,
    store,
    stores,
    told,
)


class KnownLosses(NoLostShards):
    """Some shards are, in their first generation."""

    def __init__(self, unrecoverable: Collection[ShardId] = (), taken_for_lost: Collection[ShardId] = ()) -> None:
        self.unrecoverable = unrecoverable
        self.taken_for_lost = taken_for_lost
        self.unheard: Collection[ShardId] = ()
        """Of which no generation was heard yet."""
        self.asked: set[tuple[ShardId, Generation]] = set()

    def is_unrecoverable(self, shard: ShardId, generation: Generation) -> bool:
        self.asked.add((shard, generation))
        return generation == 1 and shard in self.unrecoverable

    def is_taken_for_lost(self, shard: ShardId, generation: Generation) -> bool:
        return generation == 1 and shard in self.taken_for_lost

    def is_present(self, shard: ShardId, generation: Generation) -> bool:
        return generation == 1 and shard not in self.unheard


def answer(
    request: GetEpochRecoveryMetadata, known: dict[int, int], seal_epoch: int = 2
) -> tuple[PeerId, EpochRecoveryMetadata]:
    """What a peer answers that knows the LNG of some epochs."""
    epochs = []
    for epoch in range(request.first, request.last + 1):
        if epoch in known:
            lng = known[epoch]
            epochs.append(EpochEnd(epoch, Status.OK, seal_epoch, lng, lng + 2, lsn(epoch, lng), 5, 1))  # type: ignore[arg-type]
        else:
            epochs.append(EpochEnd(epoch, Status.NOTREADY, 0, 0, 0, 0, 0, 0))  # type: ignore[arg-type]
    message = EpochRecoveryMetadata(request_id=request.request_id, shard=request.shard, log=request.log, epochs=epochs)
    return (PeerId(request.shard >> 8), message)


def answers(driver: ShardDriver, known: dict[int, int]) -> list[tuple[PeerId, EpochRecoveryMetadata]]:
    """What all who were asked answer."""
    return [answer(request, known) for request in driver.take(GetEpochRecoveryMetadata)]


def missed(epochs: tuple[int, ...] = (1,), settings: StorageSettings | None = None) -> ShardDriver:
    """A shard with e*n1 to e*n4 of some epochs, whose recovery it missed."""
    driver = ShardDriver(settings)
    for epoch in epochs:
        driver.turn(*stores([lsn(epoch, esn) for esn in range(1, 5)]))
    driver.sent.clear()
    return driver


def lost_record() -> ShardDriver:
    """A shard with e1n1 to e1n4, in whose log's metadata it found no record of epoch 1 as often as it waits for one that is being written."""
    driver = missed()
    driver.turn(release(lsn(2, 1)))
    for read in range(1, 5):
        assert len(driver.readers) == read
        assert not driver.take(GetEpochRecoveryMetadata)
        driver.tell_history([])
        if read < 4:
            driver.advance(2_000_000)
    return driver


def cleaned(driver: ShardDriver) -> list[tuple[int, int]]:
    """(epoch, status) of what was answered."""
    return [(row.epoch, row.status) for message in driver.take(Cleaned) for row in message.logs]


class TestRelease:
    def test_the_pointer_never_goes_back(self) -> None:
        driver = ShardDriver()
        driver.turn(release(lsn(1, 5)), release(lsn(1, 3)))
        assert driver.log().last_released == lsn(1, 5)

    def test_a_store_releases_as_well_even_if_it_is_refused(self) -> None:
        driver = ShardDriver()
        driver.turn((SEQUENCER, replace(store(lsn(1, 6)), released=lsn(1, 5))))
        assert driver.log().last_released == lsn(1, 5)
        driver.turn((SEQUENCER, replace(store(lsn(1, 7), generation=2), released=lsn(1, 6))))
        assert driver.log().last_released == lsn(1, 6)
        assert [message.status for message in driver.take(Stored)] == [Status.OK, Status.REBUILDING]

    def test_a_release_beyond_unclean_epochs_is_held_until_they_are_purged(self) -> None:
        driver = missed()
        driver.turn(start())
        driver.turn(release(lsn(2, 1)))
        assert driver.log().last_released == 0
        assert told(driver) == []
        driver.tell_history([interval()])
        requests = driver.take(GetEpochRecoveryMetadata)
        assert [request.shard for request in requests] == list(SHARDS[1:])
        assert {(request.first, request.last) for request in requests} == {(1, 1)}
        driver.turn(answer(requests[0], {1: 2}), answer(requests[1], {1: 2}))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)]
        assert driver.log().last_released == lsn(2, 1)
        bridge = lsn(1, 4)
        assert told(driver) == [lsn(1, 1), lsn(1, 2), bridge, ("NO_RECORDS", lsn(1, 5), lsn(2, 1))]

    def test_a_shard_without_anything_stored_needs_no_purge(self) -> None:
        driver = ShardDriver()
        driver.turn(release(lsn(9, 1)))
        assert driver.log().last_released == lsn(9, 1)
        assert driver.log().clean_epoch == 8
        assert driver.readers == []
        driver.power_cut()
        assert driver.log().clean_epoch == 8

    def test_the_pointer_is_written_lazily_and_is_a_hint_after_a_restart(self) -> None:
        driver = ShardDriver()
        driver.turn(release(lsn(1, 5)))
        assert driver.disk.unsynced == 0
        driver.advance(2_000_000)
        driver.restart()
        assert driver.log().last_released == lsn(1, 5)

    def test_the_pointer_that_a_trim_carries_does_not_turn_back_a_later_one_of_the_same_turn(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, esn) for esn in range(1, 5)]), release(lsn(1, 3)))
        driver.now = Micros(driver.now + 2_000_000)
        trim = Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 2))
        for peer, message in ((READER, trim), release(lsn(1, 4))):
            driver.node.on_message(peer, message, driver.now)
        driver.timers.advance(driver.now)
        driver.turn()
        driver.restart()
        assert driver.log().last_released == lsn(1, 4)

    def test_a_hint_beyond_the_clean_epochs_only_fences(self) -> None:
        driver = missed()
        driver.turn(clean(1, 1, lng=4, last=5))
        driver.turn(release(lsn(2, 1)))
        driver.advance(2_000_000)
        key = next(key for key in driver.disk.rows if key[0] == ord("c"))
        del driver.disk.rows[key]
        driver.restart()
        state = driver.log()
        assert (state.last_released, state.fence, state.clean_epoch) == (0, 1, 0)


class TestClean:
    def test_recovery_metadata_and_clean_epoch_are_durable_before_the_answer(self) -> None:
        driver = missed()
        driver.hold = True
        driver.turn(clean(1, 1, lng=4, last=5))
        [(effect, _)] = driver.held
        assert effect.sync
        assert (len(effect.batch.epoch_metadata), len(effect.batch.log_metadata)) == (1, 1)
        assert driver.log().clean_epoch == 0
        driver.let_go()
        assert cleaned(driver) == [(1, Status.OK)]
        driver.power_cut()
        assert driver.log().clean_epoch == 1
        assert list(driver.log().recovered) == [1]

    def test_a_clean_epoch_is_cleaned_again_at_once(self) -> None:
        driver = missed()
        driver.turn(clean(1, 1))
        driver.turn(clean(1, 1))
        assert cleaned(driver) == [(1, Status.OK)] * 2

    def test_a_later_recovery_of_a_clean_epoch_takes_the_place_of_the_first(self) -> None:
        """Who purges goes by the last recovery, and may hear of it from this shard alone."""
        driver = missed()
        driver.turn(clean(1, 1, lng=1, last=5))
        driver.turn(clean(2, 2))
        driver.hold = True
        driver.turn(clean(1, 4, lng=3, last=5))
        assert cleaned(driver) == [(1, Status.OK), (2, Status.OK)]
        driver.let_go()
        assert cleaned(driver) == [(1, Status.OK)]
        assert driver.node.metrics.epochs_cleaned == 2
        driver.power_cut()
        state = driver.log()
        assert state.clean_epoch == 2
        assert state.recovered is not None
        ended = state.recovered.get(1)
        assert ended is not None
        assert (ended.seal_epoch, ended.lng) == (4, 3)

    def test_the_end_of_an_epoch_that_is_trimmed_meanwhile_stays_forgotten(self) -> None:
        driver = missed()
        driver.turn(clean(1, 1, lng=1, last=5))
        driver.turn(clean(2, 2), release(lsn(3, 1)))
        driver.hold = True
        driver.turn(clean(1, 4, lng=3, last=5))
        driver.turn((SEQUENCER, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(2, 2))))
        driver.let_go()
        assert list(driver.log().recovered) == [2]

    def test_a_later_recovery_that_proves_less_does_not(self) -> None:
        driver = missed()
        driver.turn(clean(1, 1, lng=1, last=5))
        driver.turn(clean(1, 4, lng=3, last=5, authoritative=False))
        assert cleaned(driver) == [(1, Status.OK)] * 2
        ended = driver.log().recovered.get(1)
        assert ended is not None
        assert (ended.seal_epoch, ended.lng, ended.authoritative) == (1, 1, True)

    def test_a_recovery_that_was_overtaken_is_preempted(self) -> None:
        driver = missed()
        driver.turn(seal(4))
        driver.turn(clean(1, 3))
        assert cleaned(driver) == [(1, Status.PREEMPTED)]
        driver.turn(clean(1, 4))
        driver.turn(clean(1, 3))
        assert cleaned(driver) == [(1, Status.OK), (1, Status.PREEMPTED)]

    def test_a_clean_waits_until_earlier_epochs_are_purged(self) -> None:
        driver = missed((1, 2))
        driver.turn(clean(2, 2, lng=4, last=5))
        assert cleaned(driver) == []
        driver.tell_history([interval()])
        driver.turn(*answers(driver, {1: 1}))
        assert cleaned(driver) == [(2, Status.OK)]
        assert driver.stored() == [lsn(1, 1), *(lsn(2, esn) for esn in range(1, 5))]

    def test_a_release_that_comes_while_a_clean_is_written_purges_nothing(self) -> None:
        driver = missed()
        driver.hold = True
        driver.turn(clean(1, 1, lng=1, last=5))
        driver.turn(release(lsn(2, 1)))
        driver.let_go()
        assert driver.readers == []
        assert driver.log().last_released == lsn(2, 1)
        assert len(driver.stored()) == 4

    def test_a_refused_write_is_answered_again_and_the_epoch_stays_unclean(self) -> None:
        driver = missed()
        driver.disk.overloaded = True
        driver.turn(clean(1, 1))
        assert cleaned(driver) == [(1, Status.AGAIN)]
        driver.disk.overloaded = False
        assert driver.log().clean_epoch == 0

    def test_a_clean_of_a_lower_epoch_does_not_turn_back_a_purge_that_is_written(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(clean(3, 3))
        driver.turn(clean(1, 3))
        driver.let_go()
        assert sorted(cleaned(driver)) == [(1, Status.OK), (3, Status.OK)]
        driver.power_cut()
        assert driver.log().clean_epoch == 3

    def test_a_clean_that_waits_is_answered_when_the_disk_fails(self) -> None:
        driver = missed((1, 2))
        driver.turn(clean(2, 2))
        driver.disk.fail_write = True
        driver.turn(*stores([lsn(3, 1)]))
        assert cleaned(driver) == [(2, Status.FAILED)]

    def test_lower_ranks_go_when_the_epoch_is_clean(self) -> None:
        driver = missed()
        for esn in (3, 4):
            driver.turn((SEQUENCER, recovery_store(lsn(1, esn), 1, flags=EntryFlags.AMEND)))
        rows = sum(1 for key in driver.disk.rows if key[0] == ord("d"))
        assert rows == 6
        driver.turn(clean(1, 1, lng=2, last=5))
        assert sum(1 for key in driver.disk.rows if key[0] == ord("d")) == 4

    def test_a_failed_shard_answers_failed(self) -> None:
        driver = missed()
        driver.disk.fail_sync = True
        driver.turn(clean(1, 1))
        driver.turn(clean(1, 1))
        assert cleaned(driver) == [(1, Status.FAILED)] * 2


class TestPurge:
    def test_only_epochs_with_something_stored_are_asked_about(self) -> None:
        driver = missed((2, 5))
        driver.turn(release(lsn(9, 1)))
        driver.tell_history([interval(1, SHARDS[:3]), interval(4, (ME, *SHARDS[3:]))])
        requests = {request.shard: (request.first, request.last) for request in driver.take(GetEpochRecoveryMetadata)}
        assert requests == {SHARDS[1]: (2, 2), SHARDS[2]: (2, 2), SHARDS[3]: (5, 5), SHARDS[4]: (5, 5)}

    def test_epochs_of_an_earlier_generation_are_left_alone(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval(generation=4)])
        assert len(driver.stored()) == 4
        assert driver.log().last_released == lsn(2, 1)

    def test_silent_peers_are_asked_again(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        first = driver.take(GetEpochRecoveryMetadata)
        driver.turn(*[answer(request, {}) for request in first[:3]])
        driver.advance(300_000)
        [again] = driver.take(GetEpochRecoveryMetadata)
        assert again.shard == first[3].shard
        driver.turn(answer(again, {1: 3}))
        assert len(driver.stored()) == 3

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_of_two_recoveries_that_ended_the_last_one_counts(self, order: tuple[int, int]) -> None:
        """The first ended on some shards only; the last relies on what lies below its higher LNG, here as well."""
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        requests = driver.take(GetEpochRecoveryMetadata)
        told = [answer(requests[0], {1: 1}, seal_epoch=1), answer(requests[1], {1: 3}, seal_epoch=4)]
        first, last = (told[at] for at in order)
        driver.turn(first)
        assert len(driver.stored()) == 4, "others may know of a later recovery"
        assert driver.log().last_released < lsn(2, 1)
        driver.turn(last)
        assert driver.stored() == [lsn(1, 1), lsn(1, 2), lsn(1, 3)]
        assert driver.log().last_released == lsn(2, 1)

    def test_who_does_not_know_how_an_epoch_ended_has_answered_as_well(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        requests = driver.take(GetEpochRecoveryMetadata)
        driver.turn(answer(requests[0], {1: 2}))
        driver.advance(5_000_000)
        assert len(driver.stored()) == 4
        driver.turn(answer(requests[1], {}))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)]

    def test_who_is_unrecoverable_does_not_count_as_having_answered(self) -> None:
        driver = missed()
        driver.machines.purges.lost = KnownLosses(SHARDS[2:4])
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        known, other = driver.take(GetEpochRecoveryMetadata)
        assert {known.shard, other.shard} == {SHARDS[1], SHARDS[4]}
        driver.turn(answer(known, {1: 2}))
        assert len(driver.stored()) == 4
        driver.turn(answer(other, {}))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)]

    @pytest.mark.parametrize(
        ("lost", "answering", "is_enough"),
        [
            (SHARDS[4:], 3, True),
            (SHARDS[3:], 2, True),
            (SHARDS[2:], 1, False),  # a copyset is of three: a recovery that ended may have missed these two
            (SHARDS[4:], 2, False),  # who is merely away is waited for
            ((), 3, False),
        ],
    )
    def test_a_shard_whose_rebuilding_waits_for_the_purge_is_not_waited_for(
        self, lost: Sequence[ShardId], answering: int, is_enough: bool
    ) -> None:
        """Epoch 1 is of seven shards, of which two have left the cluster: all others have to answer otherwise."""
        driver = missed()
        driver.machines.purges.lost = KnownLosses((), lost)
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval(shards=(*SHARDS, shard_id(NodeId(76)), shard_id(NodeId(77))))])
        requests = driver.take(GetEpochRecoveryMetadata)
        driver.turn(*[answer(request, {1: 2}) for request in requests[:answering]])
        assert len(driver.stored()) == (2 if is_enough else 4)
        assert (driver.log().last_released == lsn(2, 1)) == is_enough

    def test_shards_that_joined_the_nodeset_when_the_epoch_was_clean_are_not_asked(self) -> None:
        """They took no part in any recovery of it: their answers are none of an f-majority of those that did."""
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([replace(interval(), joined=SHARDS[3:], widened=Epoch(2))])
        requests = driver.take(GetEpochRecoveryMetadata)
        assert [request.shard for request in requests] == list(SHARDS[1:3])

    def test_one_of_them_keeps_the_copies_that_donors_gave_it(self) -> None:
        driver = missed()
        stored = driver.stored()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([replace(interval(), joined=(ME,), widened=Epoch(2))])
        assert not driver.take(GetEpochRecoveryMetadata)
        assert (driver.stored(), driver.log().last_released) == (stored, lsn(2, 1))

    def test_who_began_anew_does_not_count_as_having_answered(self) -> None:
        """It may have been the only one here that took part in the last recovery."""
        driver = missed()
        driver.machines.purges.lost = KnownLosses((), SHARDS[2:3])
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        first, anew, third, _ = driver.take(GetEpochRecoveryMetadata)
        driver.turn(answer(first, {1: 1}, seal_epoch=1), answer(anew, {}))
        assert len(driver.stored()) == 4
        driver.turn(answer(third, {1: 3}, seal_epoch=4))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2), lsn(1, 3)]

    def test_who_was_away_when_it_should_be_asked_has_not_answered(self) -> None:
        """A drained shard that is restarted, say: nobody waits for it, and it may have been the only one here that took part in the last recovery."""
        driver = missed()
        lost = driver.machines.purges.lost = KnownLosses(SHARDS[1:2])
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        requests = driver.take(GetEpochRecoveryMetadata)
        assert [request.shard for request in requests] == list(SHARDS[2:])
        lost.unrecoverable = ()
        driver.turn(answer(requests[0], {1: 1}, seal_epoch=1))
        assert len(driver.stored()) == 4
        driver.advance(20_000_000)
        back = [each for each in driver.take(GetEpochRecoveryMetadata) if each.shard == SHARDS[1]]
        driver.turn(answer(back[-1], {1: 3}, seal_epoch=4))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2), lsn(1, 3)]

    @pytest.mark.parametrize(
        ("log", "unheard", "is_enough"),
        [(EVENT_LOG_DELTAS, (), True), (EVENT_LOG_DELTAS, SHARDS[1:2], False), (SYNC_LOG, (), False)],
    )
    def test_logs_of_the_cluster_itself_do_not_wait_until_they_tell_of_a_loss(
        self, log: LogId, unheard: Collection[ShardId], is_enough: bool
    ) -> None:
        """Of six shards one has left, one began anew, and one is dead, which only the event log can say. Who may have begun anew as well does not count."""
        driver = ShardDriver()
        lost = driver.machines.purges.lost = KnownLosses((), SHARDS[2:3])
        lost.unheard = unheard
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)], log=log))
        driver.turn(release(lsn(2, 1), log=log))
        driver.tell_history([interval(shards=(*SHARDS, shard_id(NodeId(77))))])
        requests = {request.shard: request for request in driver.take(GetEpochRecoveryMetadata)}
        driver.turn(*[answer(requests[shard], {1: 1}) for shard in (SHARDS[1], SHARDS[4])])
        assert (driver.log(log).clean_epoch == 1) == is_enough

    def test_what_lies_below_any_lng_that_is_told_stays(self) -> None:
        """A later recovery that had lost most of the shards may know of less."""
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        requests = driver.take(GetEpochRecoveryMetadata)
        driver.turn(answer(requests[0], {1: 1}, seal_epoch=4), answer(requests[1], {1: 3}, seal_epoch=1))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2), lsn(1, 3)]
        ended = driver.log().recovered.get(1)
        assert ended is not None
        assert ended.seal_epoch == 4

    def test_an_epoch_that_nobody_knows_is_left_as_it_is(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        driver.turn(*[answer(request, {}) for request in driver.take(GetEpochRecoveryMetadata)])
        assert len(driver.stored()) == 4
        assert driver.log().last_released == lsn(2, 1)
        assert driver.node.metrics.purge_epochs_skipped == 1

    def test_who_is_unrecoverable_is_not_waited_for(self) -> None:
        driver = missed()
        lost_shards = driver.machines.purges.lost = KnownLosses()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        lost, *others = driver.take(GetEpochRecoveryMetadata)
        driver.turn(*[answer(request, {}) for request in others])
        driver.advance(5_000_000)
        assert driver.log().last_released < lsn(2, 1)
        lost_shards.unrecoverable = [lost.shard]
        driver.advance(10_000_000)
        assert driver.log().last_released == lsn(2, 1)
        assert len(driver.stored()) == 4

    def test_a_trimmed_epoch_is_left_as_it_is_without_waiting_for_who_is_silent(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        request = driver.take(GetEpochRecoveryMetadata)[0]
        row = EpochEnd(1, Status.EMPTY, 0, 0, 0, 0, 0, 0)  # type: ignore[arg-type]
        message = EpochRecoveryMetadata(request_id=request.request_id, shard=request.shard, log=SYNC_LOG, epochs=[row])
        driver.turn((PeerId(request.shard >> 8), message))
        assert driver.log().last_released < lsn(2, 1), "the others get the time to answer"
        driver.advance(5_000_000)
        assert driver.log().last_released == lsn(2, 1)
        assert len(driver.stored()) == 4

    def test_how_a_trimmed_epoch_ended_is_learnt_from_who_still_knows(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        trimmed, knows, *_ = driver.take(GetEpochRecoveryMetadata)
        row = EpochEnd(1, Status.EMPTY, 0, 0, 0, 0, 0, 0)  # type: ignore[arg-type]
        message = EpochRecoveryMetadata(request_id=trimmed.request_id, shard=trimmed.shard, log=SYNC_LOG, epochs=[row])
        driver.turn((PeerId(trimmed.shard >> 8), message))
        driver.turn(answer(knows, {1: 2}))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)]

    def test_a_shard_that_a_later_cluster_file_brought_may_know_and_is_waited_for(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        brought = replace(interval(1, (ME, ShardId(9 << 8))), config_version=2)
        driver.tell_history([brought])
        driver.advance(5_000_000)
        assert driver.log().last_released < lsn(2, 1)
        driver.node.on_config(replace(driver.config, version=2), driver.now)
        driver.advance(5_000_000)
        assert driver.log().last_released == lsn(2, 1)
        assert driver.node.metrics.purge_epochs_skipped == 1

    def test_a_history_without_the_epoch_is_read_again(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([])
        driver.advance(300_000)
        assert len(driver.readers) == 2
        driver.tell_history([interval()])
        assert driver.take(GetEpochRecoveryMetadata)

    def test_a_record_that_stays_away_is_made_up_for_by_the_answers_of_all_shards(self) -> None:
        driver = lost_record()
        *requests, last = driver.take(GetEpochRecoveryMetadata)
        assert {request.shard for request in [*requests, last]} == set(SHARDS[1:])
        driver.turn(*[answer(request, {1: 2}, 2) for request in requests])
        assert len(driver.stored()) == 4, "the last one may know of a later recovery"
        driver.turn(answer(last, {1: 3}, 3))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2), lsn(1, 3)]
        assert driver.log().last_released == lsn(2, 1)

    def test_of_an_epoch_without_a_record_that_nobody_knows_nothing_is_deleted(self) -> None:
        driver = lost_record()
        driver.turn(*answers(driver, {}))
        assert len(driver.stored()) == 4
        assert driver.log().last_released == lsn(2, 1)

    def test_while_a_shard_is_silent_the_record_is_looked_for_as_before(self) -> None:
        driver = lost_record()
        *requests, _silent = driver.take(GetEpochRecoveryMetadata)
        driver.turn(*[answer(request, {1: 2}) for request in requests])
        read = len(driver.readers)
        driver.advance(5_000_000)
        assert len(driver.readers) > read
        driver.tell_history([interval()])
        driver.turn(*answers(driver, {1: 2}))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)]

    def test_once_the_record_is_found_its_nodeset_alone_decides_who_is_waited_for(self) -> None:
        driver = lost_record()
        driver.take(GetEpochRecoveryMetadata)
        driver.advance(5_000_000)
        driver.tell_history([interval()])
        first, second, *_silent = driver.take(GetEpochRecoveryMetadata)
        driver.turn(answer(first, {1: 2}), answer(second, {1: 2}))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)], "an f-majority of it has answered"

    def test_an_epoch_before_the_history_is_trimmed_and_holds_nothing_up(self) -> None:
        driver = missed()
        driver.turn(release(lsn(4, 1)))
        driver.tell_history([interval(3)])
        driver.advance(1_000_000)
        assert driver.log().last_released == lsn(4, 1)
        assert not driver.take(GetEpochRecoveryMetadata)

    def test_with_a_history_that_may_be_incomplete_everybody_is_asked(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval(1, SHARDS[:3])], complete=False)
        requests = driver.take(GetEpochRecoveryMetadata)
        assert [request.shard for request in requests] == list(SHARDS[1:])
        driver.turn(answer(requests[-1], {1: 2}))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)]

    def test_a_later_release_while_purging_is_applied_after_another_purge(self) -> None:
        driver = missed((1, 2))
        driver.turn(release(lsn(2, 1)))
        driver.turn(release(lsn(3, 1)))
        for lng in (1, 2):
            driver.tell_history([interval()])
            driver.turn(*answers(driver, {1: lng, 2: lng}))
        assert driver.stored() == [lsn(1, 1), lsn(2, 1), lsn(2, 2)]
        assert driver.log().last_released == lsn(3, 1)

    def test_what_was_deleted_is_not_served_from_memory_and_not_after_a_power_cut(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        driver.turn(*answers(driver, {1: 2}))
        assert [at for at, _ in driver.log().recent.between(lsn(1, 1), lsn(1, 9))] == [lsn(1, 1), lsn(1, 2)]
        driver.power_cut()
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)]
        assert driver.log().clean_epoch == 1

    def test_stores_in_flight_before_the_purge_are_deleted_with_the_rest(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        driver.turn((SEQUENCER, recovery_store(lsn(1, 9), 7)), *answers(driver, {1: 2}))
        assert driver.stored() == [lsn(1, 1), lsn(1, 2)]

    def test_a_refused_write_is_tried_again(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        driver.disk.overloaded = True
        driver.turn(*answers(driver, {1: 2}))
        assert driver.log().last_released == 0
        driver.disk.overloaded = False
        driver.advance(10_000)
        assert driver.log().last_released == 0, "not at once: the disk is busy"
        driver.advance(1_000_000)
        assert driver.log().last_released == lsn(2, 1)

    def test_a_peer_that_is_back_is_asked_at_once_and_nobody_else(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.node.on_peer_up(PeerId(2), driver.now)
        driver.tell_history([interval()])
        asked = driver.take(GetEpochRecoveryMetadata)
        assert len(asked) == 4
        driver.turn(answer(asked[0], {}))
        for peer in (1, 2):
            driver.node.on_peer_up(PeerId(peer), driver.now)
            driver.turn()
        assert [request.shard for request in driver.take(GetEpochRecoveryMetadata)] == [SHARDS[2]]

    def test_the_only_peer_that_has_not_answered_is_asked_when_it_is_back(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        asked = driver.take(GetEpochRecoveryMetadata)
        driver.turn(*[answer(each, {}) for each in asked if each.shard != SHARDS[2]])
        driver.node.on_peer_up(PeerId(2), driver.now)
        driver.turn()
        assert [request.shard for request in driver.take(GetEpochRecoveryMetadata)] == [SHARDS[2]]

    def test_the_last_clean_epoch_is_not_asked_about(self) -> None:
        driver = missed((1, 2))
        driver.turn(clean(1, 1, lng=4, last=5))
        driver.power_cut()
        assert driver.log().clean_epoch == 1
        assert list(driver.log().epochs) == [1, 2], "that it is forgotten was not synced"
        driver.turn(release(lsn(3, 1)))
        driver.tell_history([interval()])
        assert {(each.first, each.last) for each in driver.take(GetEpochRecoveryMetadata)} == {(2, 2)}

    def test_one_question_is_about_no_more_epochs_than_one_answer_tells_of(self) -> None:
        driver = missed((1, 1500))
        driver.turn(release(lsn(1501, 1)))
        driver.tell_history([interval()])
        request = driver.take(GetEpochRecoveryMetadata)[0]
        assert (request.first, request.last) == (1, 1024)

    def test_whether_a_shard_is_unrecoverable_is_asked_for_the_generation_that_stored_the_epoch(self) -> None:
        driver = missed()
        lost = driver.machines.purges.lost = KnownLosses()
        driver.turn(release(lsn(2, 1)))
        nodeset = ((ME, Generation(1)), (SHARDS[1], Generation(7)), (SHARDS[2], Generation(8)))
        driver.tell_history([replace(interval(), nodeset=nodeset)])
        assert lost.asked == {(SHARDS[1], 7), (SHARDS[2], 8)}
        lost.asked.clear()
        other = missed()
        other.machines.purges.lost = lost
        other.turn(release(lsn(2, 1)))
        other.tell_history([], complete=False)
        assert lost.asked == {(shard, 1) for shard in SHARDS[1:]}

    def test_an_epoch_that_was_released_to_its_end_loses_nothing(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        requests = driver.take(GetEpochRecoveryMetadata)
        row = EpochEnd(Epoch(1), Status.OK, Epoch(2), ESN_MAX, ESN_MAX, lsn(1, ESN_MAX), 5, 1)
        for request in requests:
            message = EpochRecoveryMetadata(
                request_id=request.request_id, shard=request.shard, log=SYNC_LOG, epochs=[row]
            )
            driver.turn((PeerId(request.shard >> 8), message))
        assert (len(driver.stored()), driver.log().last_released) == (4, lsn(2, 1))

    def test_a_purge_that_is_queued_goes_as_far_as_the_last_that_asked(self) -> None:
        driver = ShardDriver(StorageSettings(purges_max=1))
        driver.turn(*stores([lsn(1, 1)], log=LogId(1)), *stores([lsn(1, 1), lsn(2, 1)], log=LogId(2)))
        driver.turn(*stores([lsn(2, 1)], log=LogId(2)))
        driver.turn(*(release(lsn(2, 1), log=LogId(log)) for log in (1, 2)))
        assert driver.node.metrics.purges_running == 2
        driver.turn(release(lsn(3, 1), log=LogId(2)))
        driver.tell_history([interval()])
        driver.turn(*answers(driver, {1: 1}))
        driver.tell_history([interval()])
        assert driver.node.metrics.purges_running == 1
        driver.turn(*answers(driver, {1: 1, 2: 1}))
        assert driver.log(LogId(2)).last_released == lsn(3, 1)
        assert (len(driver.readers), driver.node.metrics.purges_running) == (2, 0)
        assert (driver.node.metrics.purges_started, driver.node.metrics.purge_epochs) == (2, 3)

    def test_a_reader_that_has_told_the_history_is_not_cancelled(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        [reader] = driver.readers
        driver.tell_history([interval()])
        driver.turn(*answers(driver, {1: 2}))
        assert not reader.cancelled

    def test_purges_are_bounded(self) -> None:
        driver = ShardDriver(StorageSettings(purges_max=1))
        for log in (1, 2):
            driver.turn(*stores([lsn(1, 1)], log=log))
        driver.turn(*[release(lsn(2, 1), log=log) for log in (1, 2)])  # type: ignore[arg-type]
        assert len(driver.readers) == 1
        driver.tell_history([interval()])
        driver.turn(*answers(driver, {1: 1}))
        assert len(driver.readers) == 2

    def test_logs_of_the_cluster_itself_are_purged_beside_all_others(self) -> None:
        """Others may wait until the event log says that a shard is lost."""
        driver = ShardDriver(StorageSettings(purges_max=1))
        driver.turn(*stores([lsn(1, 1)]), *stores([lsn(1, 1)], log=EVENT_LOG_DELTAS))
        driver.turn(release(lsn(2, 1)), release(lsn(2, 1), log=EVENT_LOG_DELTAS))
        assert len(driver.readers) == 2

    def test_more_begin_when_more_may_run(self) -> None:
        driver = ShardDriver(StorageSettings(purges_max=1))
        for log in (1, 2):
            driver.turn(*stores([lsn(1, 1)], log=log))
        driver.turn(*[release(lsn(2, 1), log=log) for log in (1, 2)])  # type: ignore[arg-type]
        driver.node.use_settings(StorageSettings(purges_max=2))
        driver.turn()
        assert len(driver.readers) == 2

    def test_a_failed_disk_ends_purges(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        purge = driver.machines.purges.find(SYNC_LOG)
        assert driver.node.metrics.purges_running == 1
        driver.disk.fail_write = True
        driver.turn(*stores([lsn(2, 1)]))
        assert purge.state is PurgeState.DONE
        assert driver.readers[0].cancelled
        assert (driver.node.metrics.purges_running, driver.machines.purges.purges()) == (0, [])
        assert driver.log().last_released == 0

    def test_a_purged_epoch_can_be_told_to_the_next_shard(self) -> None:
        driver = missed()
        driver.turn(release(lsn(2, 1)))
        driver.tell_history([interval()])
        driver.turn(*answers(driver, {1: 2}))
        question = GetEpochRecoveryMetadata(request_id=3, shard=ME, log=SYNC_LOG, first=Epoch(1), last=Epoch(2))
        driver.turn((PeerId(3), question))
        assert driver.take_one(EpochRecoveryMetadata).epochs == [
            (1, Status.OK, 2, 2, 4, lsn(1, 2), 5, 1, b""),
            (2, Status.NOTREADY, 0, 0, 0, 0, 0, 0, b""),
        ]


class TestEpochRecoveryMetadata:
    def ask(self, driver: ShardDriver, first: int, last: int, shard: ShardId = ME) -> list[tuple[int, int]]:
        question = GetEpochRecoveryMetadata(
            request_id=3, shard=shard, log=SYNC_LOG, first=Epoch(first), last=Epoch(last)
        )
        driver.turn((PeerId(3), question))
        return [epoch[:2] for epoch in driver.take_one(EpochRecoveryMetadata).epochs]

    def test_more_than_a_frame_holds_is_asked_for_again(self) -> None:
        driver = ShardDriver()
        summary = EpochSummary(1, Epoch(2), Esn(1), Esn(1)).encode()
        state = driver.machines.shard.log(SYNC_LOG)
        for epoch in range(1, 1001):
            ended = RecoveredEpoch(Epoch(2000), Esn(1), Esn(2), lsn(epoch, 1), Timestamp(5), True, summary)
            state.note_recovered(Epoch(epoch), ended.encode())
        question = GetEpochRecoveryMetadata(request_id=3, shard=ME, log=SYNC_LOG, first=Epoch(1), last=Epoch(1000))
        driver.turn((PeerId(3), question))
        answer = driver.take_one(EpochRecoveryMetadata)
        encode_frame(answer)
        assert [each.epoch for each in answer.epochs] == list(range(1, len(answer.epochs) + 1))
        assert 400 < len(answer.epochs) < 1000
        assert answer.epochs[-1].summary == summary

    def test_epochs_that_were_passed_without_metadata_are_not_called_empty(self) -> None:
        driver = ShardDriver()
        driver.turn(release(lsn(4, 1)))
        assert self.ask(driver, 1, 3) == [(epoch, Status.NOTREADY) for epoch in (1, 2, 3)]

    def test_epochs_before_that_of_the_trim_point_are_called_empty_and_that_one_is_not(self) -> None:
        driver = ShardDriver()
        driver.turn(release(lsn(4, 1)))
        driver.turn((PeerId(3), Trim(request_id=1, shard=ME, log=SYNC_LOG, lsn=lsn(3, 2))))
        driver.sent.clear()
        assert self.ask(driver, 1, 3) == [(1, Status.EMPTY), (2, Status.EMPTY), (3, Status.NOTREADY)]

    def test_a_huge_range_is_answered_in_part(self) -> None:
        assert len(self.ask(ShardDriver(), 1, 2**30)) == 1024

    def test_a_failed_shard_keeps_silent(self) -> None:
        driver = ShardDriver()
        driver.disk.fail_sync = True
        driver.turn(seal(1))
        driver.take(Sealed)
        question = GetEpochRecoveryMetadata(request_id=3, shard=ME, log=SYNC_LOG, first=Epoch(1), last=Epoch(1))
        driver.turn((PeerId(3), question))
        assert driver.sent == []


def test_dirty_ranges_are_not_claimed_to_be_empty_by_read_streams() -> None:
    driver = ShardDriver()
    driver.turn(*stores([lsn(1, 1)], log=ASYNC_LOG))
    driver.power_cut()
    driver.turn(*stores([lsn(1, 3)], log=ASYNC_LOG))
    driver.turn(release(lsn(1, 4), log=ASYNC_LOG), start(Lsn(lsn(1, 1)), log=ASYNC_LOG))
    assert told(driver) == [
        lsn(1, 1),
        ("UNDER_REPLICATED", lsn(1, 2), lsn(1, 2)),
        lsn(1, 3),
        ("UNDER_REPLICATED", lsn(1, 4), lsn(1, 4)),
    ]
