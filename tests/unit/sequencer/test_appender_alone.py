"""One appender and a made-up epoch: every answer at every moment."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from google_crc32c import value as crc32c

from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.machine import Send
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, Micros, Timestamp
from logdevice_py.protocol.messages import Store, Stored, StoredFlags, StoreFlags
from sequencer.appender import Appender, AppenderState
from sequencer.settings import SequencerSettings
from sequencer.store_availability import Reason
from tests.unit.sequencer.fakes import LOG, ME, World, make_config

LSN = compose_lsn(1, 7)
WALL = Timestamp(1_700_000_000_000_000)
SHARDS = tuple(shard_id(NodeId(node)) for node in range(1, 7))
FIRST, SECOND = SHARDS[:3], SHARDS[3:]
A, B, C = FIRST
BODY = b"body"
INITIAL_US = SequencerSettings().store_timeout_initial_us
SEALED_BY = NodeId(5)


class MadeUpEpoch:
    """An `AppenderOwner` whose copysets are those that the test lists."""

    def __init__(self, *copysets: tuple[ShardId, ...] | None, settings: SequencerSettings | None = None) -> None:
        world = World(make_config(8), settings=settings)
        self.context = world.node.context
        self.log: LogId = LOG
        self.generations: Mapping[ShardId, Generation] = dict.fromkeys(SHARDS, Generation(1))
        self.store_flags = 0
        self.lng = Esn(3)
        self.released = Lsn(5)
        self.copysets = list(copysets)
        self.tried: list[tuple[int, tuple[ShardId, ...] | None]] = []
        self.replicated = 0
        self.sealed: list[tuple[int, int]] = []
        self.lost: list[ShardId] = []
        self.aborted = 0

    def pick_copyset(self, size: int, tried: tuple[ShardId, ...] | None, now: Micros) -> tuple[ShardId, ...] | None:
        self.tried.append((size, tried))
        return self.copysets.pop(0)

    def on_replicated(self, appender: Appender, now: Micros) -> None:
        assert appender.state is AppenderState.REPLICATED
        self.replicated += 1

    def on_sealed(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        self.sealed.append((epoch, node))

    def on_shard_lost(self, shard: ShardId) -> None:
        self.lost.append(shard)

    def on_aborted(self, appender: Appender, now: Micros) -> None:
        assert appender.state in (AppenderState.PREEMPTED, AppenderState.ABORTED)
        self.aborted += 1


class Bench:
    """An appender whose first wave is out."""

    def __init__(
        self,
        *later: tuple[ShardId, ...] | None,
        copyset: tuple[ShardId, ...] = FIRST,
        settings: SequencerSettings | None = None,
        flags: int = 0,
    ) -> None:
        self.epoch = MadeUpEpoch(*later, settings=settings)
        self.epoch.store_flags = flags
        self.context = self.epoch.context
        self.now = Micros(1_000_000)
        self.appender = Appender(self.epoch, LSN, WALL, [], 1, 0, 44)
        self.appender.start(copyset, BODY, crc32c(BODY), self.now)

    def stores(self) -> dict[ShardId, Store]:
        """What was sent since last asked."""
        sent = [(each.to, each.message) for each in self.context.outbox.take() if isinstance(each, Send)]
        assert all(to == PeerId(message.shard >> 8) for to, message in sent)
        return {message.shard: message for _, message in sent}

    def amends(self) -> set[ShardId]:
        """Those of the newest wave that are sent no body."""
        return {shard for shard, store in self.stores().items() if parse_header(store.image).is_amend}

    def answer(
        self,
        shard: ShardId,
        status: Status = Status.OK,
        *,
        wave: int | None = None,
        flags: int = 0,
        seal_node: NodeId = SEALED_BY,
    ) -> None:
        preempted = status is Status.PREEMPTED
        self.appender.on_stored(
            Stored(
                log=LOG,
                lsn=LSN,
                shard=shard,
                wave=self.appender.wave if wave is None else wave,
                status=status,
                flags=flags,
                seal_epoch=Epoch(2 if preempted else 0),
                seal_node=seal_node if preempted else NodeId(-1),
            ),
            self.now,
        )

    def time_out(self) -> None:
        self.now = Micros(self.appender.deadline)
        self.appender.on_timeout(self.now)

    @property
    def state(self) -> AppenderState:
        return self.appender.state


class TestOneWave:
    def test_each_member_is_sent_the_entry_with_what_the_epoch_knows(self) -> None:
        bench = Bench()
        sent = bench.stores()
        assert tuple(sent) == FIRST
        for store in sent.values():
            assert (store.lsn, store.generation, store.wave, store.released) == (LSN, 1, 1, 5)
            header = parse_header(store.image)
            assert (header.lng, header.copyset, header.is_amend, header.timestamp) == (3, FIRST, False, WALL)
        assert bench.appender.deadline == bench.now + INITIAL_US

    def test_it_is_replicated_when_the_last_member_has_it(self) -> None:
        bench = Bench()
        appender = bench.appender
        assert appender.not_replicated is False
        bench.answer(B)
        assert (appender.unanswered, appender.missing) == ((A, C), (A, C))
        bench.answer(A)
        assert bench.state is AppenderState.STORING
        bench.answer(C)
        assert (bench.state, bench.epoch.replicated, appender.running) == (AppenderState.REPLICATED, 1, False)
        assert (appender.deadline, appender.image) == (0, b"")
        bench.answer(C)
        assert bench.epoch.replicated == 1

    def test_only_members_of_the_copyset_count(self) -> None:
        bench = Bench()
        for shard in (A, B, SECOND[0]):
            bench.answer(shard)
        assert bench.state is AppenderState.STORING

    def test_latency_of_an_answer_is_noted(self) -> None:
        bench = Bench()
        bench.now = Micros(bench.now + 7)
        bench.answer(A)
        assert bench.context.store_timeouts.recent()[A][7] == 1

    def test_its_age_is_that_of_its_first_wave_then_goes_by_the_wall_clock(self) -> None:
        bench = Bench(SECOND)
        assert bench.appender.age(Micros(bench.now + 250)) == 250
        bench.time_out()
        bench.context.wall = lambda: Timestamp(WALL + 9_000_000)
        assert bench.appender.age(bench.now) == 9_000_000
        bench.context.wall = lambda: Timestamp(WALL - 1)
        assert bench.appender.age(bench.now) == 0

    def test_a_member_that_stores_but_is_overloaded_gets_no_new_entries(self) -> None:
        bench = Bench()
        bench.answer(A, flags=int(StoredFlags.OVERLOADED))
        bench.answer(B)
        reasons = [bench.context.availability.reason(shard) for shard in (A, B)]
        assert reasons == [Reason.OVERLOADED, None]
        assert bench.appender.missing == (C,)


class TestLaterWaves:
    def test_a_time_out_takes_other_members_and_blames_the_silent_ones(self) -> None:
        bench = Bench(SECOND)
        bench.stores()
        bench.answer(A)
        bench.time_out()
        assert bench.epoch.tried == [(44, FIRST)]
        assert [bench.context.availability.reason(shard) for shard in FIRST] == [None, Reason.SLOW, Reason.SLOW]
        assert tuple(bench.stores()) == SECOND
        assert (bench.appender.wave, bench.appender.deadline) == (2, bench.now + 2 * INITIAL_US)
        assert bench.context.metrics.stores_timed_out == 1
        assert bench.context.metrics.waves_repeated == 1
        latencies = bench.context.store_timeouts.recent()
        assert sum(latencies[B]) == sum(latencies[C]) == 1

    def test_with_all_silent_nobody_is_blamed(self) -> None:
        bench = Bench(SECOND)
        bench.time_out()
        assert bench.context.availability.blocked() == []
        assert bench.appender.copyset == SECOND

    def test_a_late_answer_spares_the_body_and_completes_nothing(self) -> None:
        bench = Bench(SECOND, FIRST)
        bench.time_out()
        bench.answer(A, wave=1)
        assert bench.appender.missing == SECOND
        bench.stores()
        bench.time_out()
        assert bench.amends() == {A}

    def test_who_has_no_body_for_an_amend_gets_it_also_when_that_is_heard_late(self) -> None:
        bench = Bench(SECOND, FIRST)
        bench.answer(A)
        bench.answer(B)
        bench.time_out()
        bench.answer(A, Status.BADPAYLOAD, wave=1)
        bench.stores()
        bench.time_out()
        assert bench.amends() == {B}

    def test_a_member_that_lost_its_connection_after_it_stored_gets_the_body_again(self) -> None:
        bench = Bench(SECOND, FIRST)
        bench.answer(A)
        bench.answer(B)
        bench.time_out()
        bench.appender.on_peer_down(NodeId(A >> 8), bench.now)
        bench.stores()
        bench.time_out()
        assert bench.amends() == {B}

    def test_two_members_on_a_node_that_is_lost_both_get_the_body_again(self) -> None:
        node = NodeId(1)
        copyset = (shard_id(node), shard_id(node, 1), C)
        generations = dict.fromkeys(copyset, Generation(1))
        bench = Bench(copyset, settings=SequencerSettings(immediate_waves=0))
        bench.epoch.generations = generations
        bench.appender.copyset = copyset
        for shard in copyset[:2]:
            bench.answer(shard)
        bench.appender.on_peer_down(node, bench.now)
        assert bench.appender.missing == (C,)
        bench.stores()
        bench.time_out()
        assert bench.amends() == set()

    def test_without_a_copyset_it_waits_and_looks_again(self) -> None:
        bench = Bench(None, SECOND)
        bench.time_out()
        assert (bench.state, bench.appender.running, bench.appender.missing) == (AppenderState.BLOCKED, True, ())
        assert bench.appender.deadline == bench.now + 2 * INITIAL_US
        bench.time_out()
        assert (bench.state, bench.appender.wave) == (AppenderState.STORING, 2)
        assert bench.context.metrics.stores_timed_out == 1

    @pytest.mark.parametrize(("immediate", "waves"), [(0, 1), (1, 2), (2, 3)])
    def test_only_so_many_waves_follow_a_refusal_at_once(self, immediate: int, waves: int) -> None:
        bench = Bench(SECOND, FIRST, SECOND, settings=SequencerSettings(immediate_waves=immediate))
        for _ in range(3):
            bench.answer(bench.appender.unanswered[0], Status.NOSPC)
        assert bench.appender.wave == waves

    def test_a_slow_member_cuts_the_first_wave_short_and_no_other(self) -> None:
        bench = Bench(SECOND)
        appender, began = bench.appender, bench.now
        appender.on_shard_slow(SECOND[0])
        assert appender.deadline == began + INITIAL_US
        appender.on_shard_slow(A)
        assert appender.deadline == began + INITIAL_US // 4
        appender.on_shard_slow(B)
        assert appender.deadline == began + INITIAL_US // 4
        bench.answer(B)
        bench.time_out()
        assert bench.context.availability.blocked() == [], "the others were not late"
        assert bench.context.metrics.stores_timed_out == 0
        appender.on_shard_slow(SECOND[0])
        assert appender.deadline == bench.now + 2 * INITIAL_US

    def test_a_member_that_has_answered_does_not_cut_it_short(self) -> None:
        bench = Bench()
        bench.answer(A)
        bench.appender.on_shard_slow(A)
        assert bench.appender.deadline == bench.now + INITIAL_US

    def test_a_wave_after_one_that_was_cut_short_blames_who_is_late(self) -> None:
        bench = Bench(SECOND, FIRST)
        bench.appender.on_shard_slow(A)
        bench.time_out()
        bench.answer(SECOND[0])
        bench.time_out()
        assert [shard for shard, _ in bench.context.availability.blocked()] == list(SECOND[1:])


class TestWhatMayBeStored:
    """`not_replicated` may be told to a client only where no copy can exist."""

    def refused(self, *statuses: Status) -> Bench:
        """One wave, refused by each member."""
        bench = Bench(settings=SequencerSettings(immediate_waves=0))
        for shard, status in zip(FIRST, statuses, strict=True):
            bench.answer(shard, status)
        return bench

    @pytest.mark.parametrize("status", [Status.NOSPC, Status.OVERLOADED, Status.DISABLED, Status.PREEMPTED])
    def test_a_plain_refusal_left_no_copy(self, status: Status) -> None:
        assert self.refused(status, status, status).appender.not_replicated

    @pytest.mark.parametrize("status", [Status.FAILED, Status.SHUTDOWN, Status.INTERNAL, Status.OK])
    def test_a_failure_may_have_come_after_the_write(self, status: Status) -> None:
        assert not self.refused(Status.NOSPC, status, Status.NOSPC).appender.not_replicated

    @pytest.mark.parametrize("status", [Status.FAILED, Status.SHUTDOWN, Status.INTERNAL, Status.OK, Status.NOSPC])
    def test_so_may_a_failure_that_is_heard_of_late(self, status: Status) -> None:
        bench = Bench(SECOND, settings=SequencerSettings(immediate_waves=0))
        bench.time_out()
        for shard in SECOND:
            bench.answer(shard, Status.NOSPC)
        for shard in FIRST[:2]:
            bench.answer(shard, Status.NOSPC, wave=1)
        assert not bench.appender.not_replicated, "a STORE of the first wave is not answered"
        bench.answer(C, status, wave=1)
        assert bench.appender.not_replicated is (status is Status.NOSPC)

    @pytest.mark.parametrize("late", [False, True])
    def test_a_broken_connection_may_have_taken_a_store_or_its_answer(self, late: bool) -> None:
        bench = Bench(SECOND, settings=SequencerSettings(immediate_waves=0))
        if late:
            bench.time_out()
        bench.appender.on_peer_down(NodeId(A >> 8), bench.now)
        for shard in bench.appender.unanswered:
            bench.answer(shard, Status.NOSPC)
        for shard in FIRST if late else ():
            bench.answer(shard, Status.NOSPC, wave=1)
        assert not bench.appender.not_replicated

    def test_a_broken_connection_to_somebody_else_is_nothing(self) -> None:
        bench = self.refused(Status.NOSPC, Status.NOSPC, Status.NOSPC)
        bench.appender.on_peer_down(NodeId(A >> 8), bench.now)
        assert bench.appender.not_replicated
        assert bench.appender.wave == 1


class TestEnds:
    def test_a_seal_ends_it_when_all_have_answered_and_no_copy_is_known(self) -> None:
        bench = Bench()
        bench.answer(A, Status.PREEMPTED)
        bench.answer(B, Status.NOSPC)
        assert (bench.state, bench.epoch.sealed) == (AppenderState.STORING, [(2, SEALED_BY)])
        bench.answer(C, Status.NOSPC)
        assert (bench.state, bench.epoch.aborted) == (AppenderState.PREEMPTED, 1)
        assert (bench.appender.preempted_by, bench.appender.deadline, bench.appender.image) == (SEALED_BY, 0, b"")
        assert bench.context.metrics.entries_aborted == 1
        assert bench.appender.wave == 1

    @pytest.mark.parametrize("order", [(Status.OK, Status.PREEMPTED), (Status.PREEMPTED, Status.OK)])
    def test_with_a_copy_a_seal_ends_it_at_once(self, order: tuple[Status, Status]) -> None:
        bench = Bench()
        for shard, status in zip(FIRST[:2], order, strict=True):
            bench.answer(shard, status)
        assert (bench.state, bench.epoch.aborted) == (AppenderState.PREEMPTED, 1)
        assert not bench.appender.not_replicated

    def test_with_a_seal_the_rest_is_waited_for_no_longer_than_a_wave(self) -> None:
        bench = Bench()
        bench.answer(A, Status.PREEMPTED)
        bench.time_out()
        assert (bench.state, bench.appender.wave) == (AppenderState.PREEMPTED, 1)

    def test_a_seal_that_only_a_late_answer_tells_of_ends_it_too(self) -> None:
        bench = Bench(SECOND)
        bench.answer(A)
        bench.time_out()
        bench.answer(B, Status.PREEMPTED, wave=1)
        assert (bench.state, bench.epoch.sealed) == (AppenderState.PREEMPTED, [(2, SEALED_BY)])

    def test_after_a_late_seal_without_a_copy_the_wave_is_waited_for(self) -> None:
        bench = Bench(SECOND)
        bench.time_out()
        bench.answer(A, Status.PREEMPTED, wave=1)
        assert bench.appender.running
        bench.answer(B, wave=1)
        assert bench.state is AppenderState.PREEMPTED

    def test_while_it_waits_for_a_copyset_a_seal_ends_it(self) -> None:
        bench = Bench(None)
        bench.time_out()
        bench.answer(A, Status.PREEMPTED, wave=1)
        assert (bench.state, bench.epoch.aborted) == (AppenderState.PREEMPTED, 1)

    @pytest.mark.parametrize("late", [False, True])
    def test_while_the_epoch_drains_a_soft_seal_is_no_end(self, late: bool) -> None:
        bench = Bench(SECOND, SECOND, flags=int(StoreFlags.DRAINING))
        if late:
            bench.time_out()
        bench.answer(A, Status.PREEMPTED, flags=int(StoredFlags.SOFT_PREEMPTED), wave=1)
        assert (bench.state, bench.epoch.sealed, bench.appender.wave) == (AppenderState.STORING, [], 2)

    @pytest.mark.parametrize(("flags", "stored_flags"), [(0, StoredFlags.SOFT_PREEMPTED), (StoreFlags.DRAINING, 0)])
    def test_any_other_seal_is(self, flags: int, stored_flags: int) -> None:
        bench = Bench(flags=int(flags))
        for shard in FIRST:
            bench.answer(shard, Status.PREEMPTED, flags=int(stored_flags))
        assert bench.state is AppenderState.PREEMPTED

    def test_a_seal_of_nobody_known_is_told_as_ours(self) -> None:
        bench = Bench()
        bench.answer(A, Status.PREEMPTED, seal_node=NodeId(-1))
        assert bench.appender.preempted_by == ME

    def test_its_owner_may_end_it_once(self) -> None:
        bench = Bench()
        bench.appender.abort(bench.now)
        bench.appender.abort(bench.now)
        assert (bench.state, bench.epoch.aborted) == (AppenderState.ABORTED, 1)
        bench.appender.on_timeout(bench.now)
        bench.appender.on_peer_down(NodeId(A >> 8), bench.now)
        bench.appender.on_shard_slow(A)
        assert (bench.appender.wave, bench.appender.deadline, bench.epoch.tried) == (1, 0, [])

    def test_an_answer_after_the_end_still_tells_that_there_is_a_copy(self) -> None:
        bench = Bench()
        bench.appender.abort(bench.now)
        bench.answer(A)
        assert (bench.state, bench.appender.stored) == (AppenderState.ABORTED, True)
        bench.answer(B, Status.PREEMPTED)
        assert (bench.epoch.sealed, bench.epoch.aborted) == ([], 1)

    def test_a_member_that_lost_its_data_is_told_to_the_epoch(self) -> None:
        bench = Bench(SECOND)
        bench.answer(A, Status.REBUILDING)
        assert (bench.epoch.lost, bench.appender.wave) == ([A], 2)

    def test_a_member_that_finds_the_entry_damaged_is_avoided(self) -> None:
        bench = Bench(SECOND)
        bench.answer(A, Status.BADPAYLOAD)
        assert (bench.context.availability.reason(A), bench.appender.wave) == (Reason.SLOW, 2)

    def test_an_entry_that_is_damaged_here_is_not_spread(self) -> None:
        bench = Bench(SECOND)
        image = bytearray(bench.appender.image)
        image[-1] ^= 1
        bench.appender.image = bytes(image)
        with pytest.raises(Exception, match="checksum"):
            bench.answer(A, Status.BADPAYLOAD)


def test_deadlines_are_kept_to_a_tick() -> None:
    bench = Bench(SECOND, settings=SequencerSettings(store_timeout_initial_us=100 * MILLISECOND))
    bench.context.timers.advance(Micros(bench.appender.deadline - 1))
    assert bench.appender.wave == 1
    bench.context.timers.advance(Micros(bench.appender.deadline + 4_096))
    assert bench.appender.wave == 2
