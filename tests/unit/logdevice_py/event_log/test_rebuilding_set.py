"""The state machine of the event log."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.core.ids import NODE_ID_MAX, Generation, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import LSN_MAX, Lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.event_log.events import (
    DONORS_MAX,
    ENCODED_MAX,
    GENERATION_MAX,
    LSN_LAST,
    DonorFlags,
    Event,
    RebuildMode,
    ShardAbortRebuild,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardsNeverUsed,
    ShardTookRecords,
    ShardUnrecoverable,
    decode_event,
    encode_event,
)
from logdevice_py.event_log.rebuilding_set import SHARDS_MAX, RebuildingSet
from logdevice_py.placement.failure_domains import Authority

SHARDS = tuple(shard_id(NodeId(node)) for node in range(5))
FIRST = Generation(1)
ALL = tuple((shard, FIRST) for shard in SHARDS)


def lost(node: int, generation: int = 1, *, recoverable: bool = True) -> ShardNeedsRebuild:
    return ShardNeedsRebuild(SHARDS[node], Generation(generation), RebuildMode.RESTORE, ALL, recoverable)


def drained(node: int, generation: int = 1) -> ShardNeedsRebuild:
    return ShardNeedsRebuild(SHARDS[node], Generation(generation), RebuildMode.RELOCATE, ALL)


def back(node: int) -> ShardAbortRebuild:
    return ShardAbortRebuild(SHARDS[node], FIRST, RebuildMode.RESTORE)


class Log:
    """Applies events, one LSN after the other."""

    def __init__(self) -> None:
        self.state = RebuildingSet()

    def apply(self, *events: Event) -> RebuildingSet:
        for event in events:
            self.state.apply(decode_event(encode_event(event)), Lsn(self.state.version + 1))
        return self.state

    def finish(self, *nodes: int, flags: DonorFlags = DonorFlags.NONE) -> RebuildingSet:
        return self.apply(*(ShardIsRebuilt(SHARDS[node], FIRST, self.state.round, flags) for node in nodes))

    def authority(self, node: int, generation: int = 1) -> Authority:
        return self.state.authority(SHARDS[node], Generation(generation))


def test_a_lost_shard_is_waited_for_until_all_donors_have_finished_and_then_left_out_of_account() -> None:
    log = Log()
    log.apply(lost(4))
    assert log.authority(4) is Authority.FULLY_AUTHORITATIVE
    log.finish(0, 1, 2)
    assert log.authority(4) is Authority.FULLY_AUTHORITATIVE
    assert log.state.awaits(SHARDS[3])
    log.finish(3)
    assert log.authority(4) is Authority.AUTHORITATIVE_EMPTY
    assert not log.state.awaits(SHARDS[3])


def test_a_later_generation_of_the_shard_is_another_shard() -> None:
    log = Log()
    log.apply(lost(4, 2))
    log.finish(0, 1, 2, 3)
    assert log.authority(4, 1) is log.authority(4, 2) is Authority.AUTHORITATIVE_EMPTY
    assert log.authority(4, 3) is Authority.FULLY_AUTHORITATIVE


def test_what_is_said_again_changes_nothing() -> None:
    log = Log()
    log.apply(lost(4))
    round_ = log.state.round
    assert not log.state.apply(lost(4), Lsn(log.state.version + 1))
    assert log.state.round == round_
    log.finish(0)
    assert not log.state.apply(ShardIsRebuilt(SHARDS[0], FIRST, round_), Lsn(log.state.version + 1))


def test_a_further_loss_begins_another_round_without_it_and_answers_to_the_one_before_do_not_count() -> None:
    log = Log()
    log.apply(lost(4))
    before = log.state.round
    log.finish(0, 1)
    log.apply(lost(3))
    log.apply(*(ShardIsRebuilt(SHARDS[node], FIRST, before) for node in (0, 1, 2)))
    assert [shard for shard in SHARDS if log.state.awaits(shard)] == list(SHARDS[:3])
    log.finish(0, 1, 2)
    assert log.authority(3) is log.authority(4) is Authority.AUTHORITATIVE_EMPTY


def test_a_shard_without_a_place_for_its_records_goes_on_to_count_against_those_that_may_be_missing() -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2)
    log.finish(3, flags=DonorFlags.UNPLACED)
    assert log.authority(4) is Authority.FULLY_AUTHORITATIVE
    log.apply(ShardUnrecoverable(SHARDS[4], FIRST))
    assert log.authority(4) is Authority.UNDERREPLICATION


def test_what_was_left_undone_is_tried_once_more_when_somebody_asks() -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2, 3, flags=DonorFlags.UNPLACED)
    log.apply(lost(4))
    assert log.state.awaits(SHARDS[0])
    log.finish(0, 1, 2, 3)
    assert log.authority(4) is Authority.AUTHORITATIVE_EMPTY


def test_when_records_may_be_gone_readers_wait_until_nobody_hopes_for_them_any_more() -> None:
    log = Log()
    log.apply(lost(3), lost(4))
    log.finish(0, 1, 2, flags=DonorFlags.UNCERTAIN)
    assert log.authority(3) is log.authority(4) is Authority.FULLY_AUTHORITATIVE
    log.apply(ShardUnrecoverable(SHARDS[3], FIRST), ShardUnrecoverable(SHARDS[4], FIRST))
    assert log.authority(3) is log.authority(4) is Authority.UNDERREPLICATION


def test_an_unrecoverable_shard_is_not_waited_for_while_it_is_rebuilt() -> None:
    log = Log()
    log.apply(lost(4, recoverable=False))
    assert log.authority(4) is Authority.UNDERREPLICATION


def test_a_shard_that_is_back_leaves_the_set_and_those_that_are_still_lost_are_looked_for_again_with_its_help() -> None:
    log = Log()
    log.apply(lost(3), lost(4))
    log.finish(0)
    log.apply(back(3))
    assert log.authority(3) is Authority.FULLY_AUTHORITATIVE
    assert [shard for shard in SHARDS if log.state.awaits(shard)] == list(SHARDS[:4])


def test_a_rebuilt_shard_that_is_back_begins_no_round() -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2, 3)
    log.apply(back(4))
    assert not log.state.shards
    assert not any(log.state.awaits(shard) for shard in SHARDS)


def test_an_abort_of_an_earlier_generation_is_ignored() -> None:
    log = Log()
    log.apply(lost(4, 2), back(4))
    assert SHARDS[4] in log.state.shards


def test_a_drained_shard_gives_and_counts_until_it_is_empty() -> None:
    log = Log()
    log.apply(drained(4))
    assert log.state.awaits(SHARDS[4])
    assert log.authority(4) is Authority.FULLY_AUTHORITATIVE
    log.finish(0, 1, 2, 3, 4)
    assert log.authority(4) is Authority.AUTHORITATIVE_EMPTY


def test_a_drained_shard_with_records_that_have_no_other_place_still_counts() -> None:
    log = Log()
    log.apply(drained(4))
    log.finish(0, 1, 2, 3, 4, flags=DonorFlags.UNPLACED)
    assert log.authority(4) is Authority.FULLY_AUTHORITATIVE


def test_a_drained_shard_that_took_records_is_drained_once_more_whoever_says_it_how_often() -> None:
    log = Log()
    log.apply(drained(4))
    log.finish(0, 1, 2, 3, 4)
    took = ShardTookRecords(SHARDS[4], FIRST, log.state.shards[SHARDS[4]].since)
    log.apply(took)
    assert log.authority(4) is Authority.FULLY_AUTHORITATIVE
    assert all(log.state.awaits(shard) for shard in SHARDS)
    round_ = log.state.round
    log.apply(took)
    assert log.state.round == round_
    log.finish(0, 1, 2, 3, 4)
    assert log.authority(4) is Authority.AUTHORITATIVE_EMPTY
    log.apply(took)
    assert log.authority(4) is Authority.AUTHORITATIVE_EMPTY, "it was said of the drain before"
    lost_one = Log()
    lost_one.apply(lost(4), ShardTookRecords(SHARDS[4], FIRST, Lsn(1)))
    assert lost_one.state.shards[SHARDS[4]].mode is RebuildMode.RESTORE


def test_a_shard_that_dies_while_it_is_drained_is_lost() -> None:
    log = Log()
    log.apply(drained(4), lost(4))
    assert log.state.shards[SHARDS[4]].mode is RebuildMode.RESTORE
    assert not log.state.awaits(SHARDS[4])
    log.finish(0, 1, 2, 3)
    assert log.authority(4) is Authority.AUTHORITATIVE_EMPTY


def test_a_shard_that_was_lost_while_it_was_drained_and_is_back_is_drained_further() -> None:
    log = Log()
    log.apply(drained(4), lost(4), back(4))
    assert log.state.shards[SHARDS[4]].mode is RebuildMode.RELOCATE
    assert log.state.awaits(SHARDS[4])
    log.finish(0, 1, 2, 3, 4)
    assert log.authority(4) is Authority.AUTHORITATIVE_EMPTY


def test_a_lost_shard_that_is_to_be_drained_is_when_it_is_back() -> None:
    log = Log()
    log.apply(lost(4), drained(4))
    assert log.state.shards[SHARDS[4]].mode is RebuildMode.RESTORE
    log.apply(back(4))
    assert log.state.shards[SHARDS[4]].mode is RebuildMode.RELOCATE


def test_that_it_is_not_to_be_drained_after_all_is_said_twice_of_one_that_was_lost_meanwhile() -> None:
    log = Log()
    log.apply(drained(4), lost(4), back(4), ShardAbortRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE))
    assert not log.state.shards


def test_who_says_twice_that_it_is_back_does_not_end_its_draining() -> None:
    log = Log()
    log.apply(lost(4), drained(4), back(4), back(4))
    assert log.state.shards[SHARDS[4]].mode is RebuildMode.RELOCATE
    assert log.state.awaits(SHARDS[4])


def test_a_record_that_does_not_say_what_is_called_off_calls_off_what_there_is() -> None:
    log = Log()
    log.apply(drained(4), ShardAbortRebuild(SHARDS[4], FIRST, None))
    assert not log.state.shards


def test_a_shard_that_started_a_new_generation_gives_what_it_holds_since() -> None:
    log = Log()
    known = (*ALL[:4], (SHARDS[4], Generation(2)))
    log.apply(
        ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, known, False),
        ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RESTORE, known),
    )
    assert [shard for shard in SHARDS if log.state.awaits(shard)] == [*SHARDS[:3], SHARDS[4]]


def test_a_round_does_not_wait_for_a_shard_that_was_lost_and_rebuilt_before() -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2, 3)
    log.apply(drained(3))
    log.finish(0, 1, 2, 3)
    assert log.authority(3) is Authority.AUTHORITATIVE_EMPTY


def test_a_generation_that_the_writer_of_an_event_does_not_know_is_known_from_earlier_ones() -> None:
    log = Log()
    known = (*ALL[:4], (SHARDS[4], Generation(2)))
    log.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, known, False))
    unknown = tuple((shard, Generation(0)) for shard in SHARDS)
    log.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RELOCATE, unknown))
    assert [shard for shard in SHARDS if log.state.awaits(shard)] == list(SHARDS)


def test_a_donor_that_lost_what_it_was_to_give_does_not_end_the_round() -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2)
    log.apply(ShardIsRebuilt(SHARDS[3], Generation(2), log.state.round))
    assert log.state.awaits(SHARDS[3])
    assert log.authority(4) is Authority.FULLY_AUTHORITATIVE
    known = (*ALL[:3], (SHARDS[3], Generation(2)), ALL[4])
    log.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RESTORE, known, False))
    log.finish(0, 1, 2)
    log.apply(ShardIsRebuilt(SHARDS[3], Generation(2), log.state.round))
    assert log.authority(3) is log.authority(4) is Authority.AUTHORITATIVE_EMPTY


def test_nobody_waits_for_a_donor_that_left_the_cluster() -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2)
    log.apply(ShardIsRebuilt(SHARDS[3], Generation(0), log.state.round))
    assert log.authority(4) is Authority.AUTHORITATIVE_EMPTY


def test_one_that_left_with_what_it_held_is_asked_no_more_in_later_rounds() -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2)
    log.apply(ShardIsRebuilt(SHARDS[3], Generation(0), log.state.round, DonorFlags.UNPLACED))
    assert log.state.shards[SHARDS[4]].status == "unplaced"
    log.apply(ShardNeedsRebuild(SHARDS[4], FIRST, RebuildMode.RESTORE, (*ALL[:3], ALL[4])))
    assert sorted(log.state.donors) == list(SHARDS[:3])


def test_without_donors_there_is_nothing_to_wait_for() -> None:
    log = Log()
    log.apply(ShardNeedsRebuild(SHARDS[0], FIRST, RebuildMode.RESTORE, ALL[:1]))
    assert log.state.shards[SHARDS[0]].rebuilt


def test_without_donors_nothing_was_stored_again() -> None:
    log = Log()
    log.apply(*map(lost, range(5)))
    assert log.authority(0) is Authority.FULLY_AUTHORITATIVE
    log.apply(back(0))
    assert log.authority(1) is Authority.FULLY_AUTHORITATIVE
    assert log.state.awaits(SHARDS[0])
    log.apply(ShardUnrecoverable(SHARDS[1], FIRST))
    assert log.authority(1) is Authority.UNDERREPLICATION


def test_a_shard_that_is_back_is_asked_in_later_rounds_too_whoever_begins_them() -> None:
    log = Log()
    log.apply(lost(0), lost(4), back(0), lost(1))
    assert [shard for shard in SHARDS if log.state.awaits(shard)] == [SHARDS[0], *SHARDS[2:4]]
    log.apply(back(1))
    assert [shard for shard in SHARDS if log.state.awaits(shard)] == list(SHARDS[:4])


def test_a_rebuilt_shard_that_is_back_helps_when_another_one_is_back() -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2, 3)
    log.apply(lost(3), lost(2), back(4), back(3))
    assert [shard for shard in SHARDS if log.state.awaits(shard)] == [*SHARDS[:2], *SHARDS[3:]]


def test_a_drained_donor_that_lost_its_disk_does_not_end_the_round() -> None:
    log = Log()
    log.apply(drained(3), drained(4))
    log.finish(0, 1, 2, 3)
    log.apply(ShardIsRebuilt(SHARDS[4], Generation(2), log.state.round))
    assert log.state.awaits(SHARDS[4])
    assert log.authority(4) is Authority.FULLY_AUTHORITATIVE


def test_to_empty_a_shard_that_started_a_new_generation_says_that_what_it_held_before_is_lost() -> None:
    log = Log()
    log.apply(lost(4), drained(4, 2))
    assert log.authority(4, 1) is Authority.UNDERREPLICATION
    assert log.authority(4, 2) is Authority.FULLY_AUTHORITATIVE
    assert log.state.speaks_for(SHARDS[4], Generation(2))
    log.finish(0, 1, 2, 3, flags=DonorFlags.UNCERTAIN)
    log.apply(ShardIsRebuilt(SHARDS[4], Generation(2), log.state.round))
    assert log.authority(4, 1) is Authority.UNDERREPLICATION
    assert log.authority(4, 2) is Authority.FULLY_AUTHORITATIVE


def test_what_an_earlier_generation_held_stays_rebuilt_when_a_later_one_is_drained_or_lost() -> None:
    for later in (drained(4, 2), lost(4, 2)):
        log = Log()
        log.apply(lost(4))
        log.finish(0, 1, 2, 3)
        log.apply(later)
        assert log.authority(4, 1) is Authority.AUTHORITATIVE_EMPTY
        assert log.authority(4, 2) is Authority.FULLY_AUTHORITATIVE


@pytest.mark.parametrize("mode", RebuildMode)
@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_what_an_earlier_generation_held_stays_rebuilt_when_the_later_one_is_used_again(
    mode: RebuildMode, is_rebuilt: bool
) -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2, 3)
    log.apply(lost(4, 2) if mode is RebuildMode.RESTORE else drained(4, 2))
    if is_rebuilt:
        log.finish(0, 1, 2, 3, *([4] if mode is RebuildMode.RELOCATE else []))
    log.apply(ShardAbortRebuild(SHARDS[4], Generation(2), mode))
    assert log.authority(4, 1) is Authority.AUTHORITATIVE_EMPTY
    assert log.authority(4, 2) is Authority.FULLY_AUTHORITATIVE
    assert not log.state.open_shards
    log.apply(lost(3))
    assert log.state.awaits(SHARDS[4]), "it gives what it holds now"


def test_so_it_does_when_the_later_one_is_drained_further() -> None:
    log = Log()
    log.apply(lost(4, 2), drained(4, 2))
    log.finish(0, 1, 2, 3)
    log.apply(ShardAbortRebuild(SHARDS[4], Generation(2), RebuildMode.RESTORE))
    assert log.state.shards[SHARDS[4]].mode is RebuildMode.RELOCATE
    assert log.authority(4, 1) is Authority.AUTHORITATIVE_EMPTY


def test_that_an_earlier_generation_is_lost_says_nothing_new_of_a_shard_that_is_drained() -> None:
    log = Log()
    log.apply(drained(4, 2))
    assert not log.state.says_something_new(lost(4))
    log.apply(lost(4))
    assert log.state.shards[SHARDS[4]].mode is RebuildMode.RELOCATE


def test_a_shard_that_loses_its_disk_while_it_is_drained_and_then_dies_is_drained_further_when_it_is_back() -> None:
    log = Log()
    log.apply(drained(4), lost(4, 2), ShardAbortRebuild(SHARDS[4], Generation(2), RebuildMode.RESTORE))
    assert log.state.shards[SHARDS[4]].mode is RebuildMode.RELOCATE


def test_a_drained_shard_that_could_not_be_emptied_may_be_lost() -> None:
    log = Log()
    log.apply(drained(4))
    log.finish(0, 1, 2, 3, 4, flags=DonorFlags.UNPLACED)
    log.apply(lost(4))
    assert log.state.shards[SHARDS[4]].mode is RebuildMode.RESTORE


def test_rebuilding_once_more_does_not_forget_that_nobody_waits() -> None:
    log = Log()
    log.apply(lost(4))
    log.finish(0, 1, 2, 3, flags=DonorFlags.UNPLACED)
    log.apply(ShardUnrecoverable(SHARDS[4], FIRST), lost(4))
    assert log.state.awaits(SHARDS[0])
    assert log.authority(4) is Authority.UNDERREPLICATION


def test_with_a_shard_that_is_back_everyone_looks_again_where_records_were_left_undone() -> None:
    log = Log()
    log.apply(lost(3), lost(4))
    log.finish(0, 1, 2, flags=DonorFlags.UNCERTAIN)
    log.apply(back(4))
    assert [shard for shard in SHARDS if log.state.awaits(shard)] == [*SHARDS[:3], SHARDS[4]]
    log.finish(0, 1, 2, 4)
    assert log.authority(3) is Authority.AUTHORITATIVE_EMPTY


def test_a_snapshot_of_before_there_were_generations_that_are_rebuilt_is_read() -> None:
    log = Log()
    log.apply(lost(4))
    fields = msgpack.unpackb(log.state.encode())
    for row in fields[3]:
        del row[9:]
    assert RebuildingSet.decode(msgpack.packb(fields)).encode() == log.state.encode()


EVENTS = st.one_of(
    st.builds(
        ShardNeedsRebuild,
        st.sampled_from(SHARDS),
        st.integers(1, 3).map(Generation),
        st.sampled_from(RebuildMode),
        st.dictionaries(st.sampled_from(SHARDS), st.integers(0, 3).map(Generation)).map(
            lambda shards: tuple(sorted(shards.items()))
        ),
        st.booleans(),
        st.text(max_size=20),
    ),
    st.builds(
        ShardIsRebuilt,
        st.sampled_from(SHARDS),
        st.integers(0, 3).map(Generation),
        st.integers(1, 30).map(Lsn),
        st.integers(0, 3).map(DonorFlags),
    ),
    st.builds(
        ShardAbortRebuild,
        st.sampled_from(SHARDS),
        st.integers(1, 3).map(Generation),
        st.none() | st.sampled_from(RebuildMode),
    ),
    st.builds(ShardUnrecoverable, st.sampled_from(SHARDS), st.integers(1, 3).map(Generation)),
    st.builds(
        ShardTookRecords,
        st.sampled_from(SHARDS),
        st.integers(1, 3).map(Generation),
        st.integers(1, 30).map(Lsn),
    ),
)


@given(st.lists(EVENTS, max_size=30), st.integers(0, 30))
def test_a_snapshot_at_any_point_and_the_events_behind_it_give_the_same_state(events: list[Event], at: int) -> None:
    at = min(at, len(events))
    whole, restored = RebuildingSet(), RebuildingSet()
    for number, event in enumerate(events, 1):
        if number == at:
            restored = RebuildingSet.decode(whole.encode())
        whole.apply(decode_event(encode_event(event)), Lsn(number))
        if number >= at:
            restored.apply(event, Lsn(number))
    assert restored.encode() == whole.encode()
    assert [entry for entry in whole.shards.values() if entry.rebuilt and entry in whole.open_shards] == []
    assert not whole.open_shards or None in whole.donors.values(), "somebody is waited for"


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_and_do_no_harm(data: bytes) -> None:
    for decode in (decode_event, RebuildingSet.decode):
        with contextlib.suppress(CorruptEntryError):
            decode(data)


def test_an_event_of_a_later_version_is_passed_over() -> None:
    assert decode_event(b"\x92\x7f\x01") is None


@pytest.mark.parametrize("shard", [-1, 1 << 40])
def test_a_shard_that_cannot_be_is_refused(shard: int) -> None:
    with pytest.raises(CorruptEntryError):
        decode_event(encode_event(ShardAbortRebuild(ShardId(shard), FIRST, None)))


def invented(number: int) -> ShardNeedsRebuild:
    """Of a shard that nobody has."""
    shard = shard_id(NodeId(1000 + number // 128), number % 128)
    return ShardNeedsRebuild(shard, FIRST, RebuildMode.RESTORE, ((shard, FIRST),), False, "\N{SNOWMAN}" * 300)


class TestWhatAnybodyMaySay:
    def test_an_event_of_a_shard_that_it_does_not_name_among_all_is_refused(self) -> None:
        log = Log()
        stranger = shard_id(NodeId(77))
        for mode in RebuildMode:
            event = ShardNeedsRebuild(stranger, FIRST, mode, ALL)
            assert not log.state.says_something_new(event)
            log.apply(event)
        assert (log.state.shards, log.state.round) == ({}, 0)

    def test_invented_shards_are_bounded_and_make_room_for_those_of_the_cluster(self) -> None:
        log = Log()
        log.apply(lost(4))
        log.finish(0, 1, 2, 3)
        gone = ShardNeedsRebuild(shard_id(NodeId(9)), FIRST, RebuildMode.RESTORE, (*ALL, (shard_id(NodeId(9)), FIRST)))
        log.apply(gone)
        log.finish(0, 1, 2, 3)
        log.apply(*map(invented, range(SHARDS_MAX + 500)))
        assert len(log.state.shards) == SHARDS_MAX
        log.apply(drained(0))
        assert len(log.state.shards) == SHARDS_MAX
        assert {SHARDS[0], SHARDS[4], gone.shard} <= set(log.state.shards), "what was there before stays"
        log.apply(ShardsNeverUsed(tuple(shard for shard in log.state.candidates if shard not in SHARDS)))
        log.finish(0, 1, 2, 3)
        assert log.state.shards[SHARDS[0]].status == "rebuilt"
        assert log.authority(4) is Authority.AUTHORITATIVE_EMPTY

    def test_a_snapshot_of_the_largest_state_is_an_event_log_record(self) -> None:
        every = tuple(
            (shard_id(NodeId(NODE_ID_MAX - number // 128), number % 128), Generation(GENERATION_MAX))
            for number in range(DONORS_MAX)
        )
        state = RebuildingSet()
        state.version = Lsn(LSN_LAST - 2 * SHARDS_MAX)
        for shard, _ in every[: SHARDS_MAX + 10]:
            last = len(state.shards) >= SHARDS_MAX - 1
            named = every if last else ((shard, Generation(GENERATION_MAX)),)
            event = ShardNeedsRebuild(shard, Generation(GENERATION_MAX), RebuildMode.RELOCATE, named, True, "x" * 256)
            state.apply(event, Lsn(state.version + 1))
        assert len(state.shards) == SHARDS_MAX
        encoded = state.encode()
        assert len(encoded) <= ENCODED_MAX
        assert RebuildingSet.decode(encoded).shards == state.shards

    def test_inventions_are_forgotten_and_those_that_are_left_look_again(self) -> None:
        log = Log()
        log.apply(lost(4))
        log.apply(*map(invented, range(10)))
        log.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RESTORE, (*ALL, (invented(0).shard, FIRST))))
        log.finish(*range(5), flags=DonorFlags.UNCERTAIN)
        log.apply(ShardsNeverUsed(tuple(invented(number).shard for number in range(20))))
        assert set(log.state.shards) == {SHARDS[3], SHARDS[4]}
        assert sorted(log.state.donors) == list(SHARDS[:3])
        log.finish(0, 1, 2)
        assert log.authority(3) is log.authority(4) is Authority.AUTHORITATIVE_EMPTY

    def test_shards_that_come_back_do_not_make_the_candidates_more_than_a_snapshot_lists(self) -> None:
        log = Log()
        every = [(shard_id(NodeId(number // 128), number % 128), FIRST) for number in range(DONORS_MAX)]
        stranger = invented(10_000).shard
        log.apply(ShardNeedsRebuild(stranger, FIRST, RebuildMode.RESTORE, ((stranger, FIRST), ALL[0])))
        log.finish(0)
        log.apply(ShardNeedsRebuild(every[0][0], FIRST, RebuildMode.RESTORE, tuple(every)))
        assert len(log.state.candidates) == DONORS_MAX
        log.apply(ShardAbortRebuild(stranger, FIRST, RebuildMode.RESTORE))
        assert RebuildingSet.decode(log.state.encode()).candidates == log.state.candidates

    def test_who_has_to_give_is_not_forgotten_because_somebody_names_others(self) -> None:
        log = Log()
        log.apply(drained(0), invented(0), lost(4), invented(1), back(4))
        log.apply(ShardsNeverUsed((invented(0).shard, invented(1).shard)))
        assert sorted(log.state.donors) == list(SHARDS)
        log.finish(4)
        assert not log.state.shards[SHARDS[0]].rebuilt

    def test_nor_when_what_was_left_undone_is_tried_once_more(self) -> None:
        log = Log()
        log.apply(drained(0), lost(4))
        log.finish(*range(4), flags=DonorFlags.UNPLACED)
        log.apply(invented(0), back(4), ShardsNeverUsed((invented(0).shard,)))
        assert sorted(log.state.donors) == list(SHARDS)

    def test_an_event_that_names_more_than_fit_beside_those_who_have_to_give_is_refused(self) -> None:
        log = Log()
        log.apply(lost(4))
        named = tuple((invented(number).shard, FIRST) for number in range(DONORS_MAX))
        log.apply(ShardNeedsRebuild(named[0][0], FIRST, RebuildMode.RESTORE, named))
        assert (set(log.state.shards), sorted(log.state.donors)) == ({SHARDS[4]}, list(SHARDS[:4]))

    @pytest.mark.parametrize("lsn", [LSN_LAST + 1, LSN_MAX, 2**64 - 1])
    def test_no_event_tells_of_an_lsn_that_cannot_be(self, lsn: int) -> None:
        for event in (ShardIsRebuilt(SHARDS[0], FIRST, Lsn(lsn)), ShardTookRecords(SHARDS[0], FIRST, Lsn(lsn))):
            with pytest.raises(CorruptEntryError):
                decode_event(encode_event(event))

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            pytest.param((1,), int(LSN_MAX), id="a version at the end of all"),
            pytest.param((1,), 0, id="entries later than the version"),
            pytest.param((2,), 100, id="a round later than the version"),
            pytest.param((3, 0, 3), 100, id="an entry later than the version"),
            pytest.param((3, 0, 0), int(SHARDS[4]), id="an entry twice"),
            pytest.param((4, 0, 0), int(SHARDS[1]), id="a donor twice"),
            pytest.param((5, 0, 0), int(SHARDS[1]), id="a candidate twice"),
            pytest.param((3, 0, 7), 7, id="a text that is a number"),
        ],
    )
    def test_a_snapshot_whose_content_does_not_hold_is_none(self, field: tuple[int, ...], value: object) -> None:
        log = Log()
        log.apply(lost(4), lost(3))
        fields = msgpack.unpackb(log.state.encode())
        RebuildingSet.decode(msgpack.packb(fields))
        row = fields
        for index in field[:-1]:
            row = row[index]
        row[field[-1]] = value
        with pytest.raises(CorruptEntryError):
            RebuildingSet.decode(msgpack.packb(fields))
