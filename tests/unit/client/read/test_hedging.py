"""Hedges: when others are asked, whom, how often, and that nothing but entries counts of what they say."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from client.read.hedge_budget import BYTES_PER_HEDGE, ENTRIES_PER_HEDGE, HedgeBudget
from client.read.settings import ReadSettings
from client.read.shard_delays import KnownDelays, ShardDelays
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.core.lsn import Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import GapReason, Records, StartFlags
from tests.simulation import deliberate_client
from tests.simulation.deliberate_fault import FAULTS
from tests.unit.client.read.fakes import Harness, damaged, lsn, make_config, make_image, shard, text

MILLISECOND = 1000
SETTINGS = ReadSettings(hedge_delay_us_initial=50 * MILLISECOND)
T = 50 * MILLISECOND
NOW = Micros(1)


def e(esn: int) -> Lsn:
    return lsn(1, esn)


def entry(esn: int, *copyset: int) -> tuple[int, bytes]:
    return e(esn), make_image(e(esn), [b"%d" % esn], copyset=tuple(map(shard, copyset)))


class LateShard(Harness):
    """Three shards of which 0 owes e1n1 and has said nothing, while 1 and 2 have spoken up to `released`."""

    def __init__(self, *, released: int = 1, settings: ReadSettings = SETTINGS, config: ClusterConfig | None = None):
        nodes = 3 if config is None else len(config.nodes)
        super().__init__(nodes, first=e(1), until=compose_lsn(2, 0), hedged=True, settings=settings, config=config)
        self.begin()
        for node in range(1, nodes):
            self.gap(node, 1, e(released), released=e(released))

    def got(self) -> list[str]:
        return text(self.take())


class TestWhen:
    def test_others_are_asked_when_a_shard_is_late_and_not_before(self) -> None:
        h = LateShard()
        h.advance(T - 1)
        assert not h.hedge_starts
        h.advance(1)
        assert sorted(h.hedge_starts) == [1, 2]
        start = h.hedge_starts[1]
        assert (start.first, start.until, start.window_high) == (e(1), e(1), e(1))
        assert start.known_down == [shard(0)]
        assert start.flags == StartFlags.SINGLE_COPY | StartFlags.HEDGE
        assert 0 < start.bytes_credit <= BYTES_PER_HEDGE

    def test_nobody_is_asked_while_the_entry_may_be_of_a_shard_that_is_in_time(self) -> None:
        h = Harness(4, first=e(1), hedged=True, settings=SETTINGS).begin()
        h.gap(2, 1, e(1), released=e(1))
        h.advance(T // 2)
        h.gap(3, 1, e(1), released=e(1))
        h.records(1, entry(1, 1, 2))
        h.gap(2, e(2), e(2), released=e(2))
        h.advance(T - 1)
        assert not h.hedge_starts, "shard 0 is late, the others are not"
        h.gap(1, e(2), e(2), released=e(2))
        h.gap(3, e(2), e(2), released=e(2))
        assert sorted(h.hedge_starts) == [1, 2, 3], "nobody else is left"
        assert h.hedge_starts[1].first == e(2)

    def test_distant_shards_do_not_count_while_a_near_one_is_late(self) -> None:
        config = make_config(3)
        places = ("us.d.c.r.p", "us.d.c.r.q", "eu.d.c.r.p")
        nodes = {node: replace(each, location=Location.parse(places[node])) for node, each in config.nodes.items()}
        config = replace(config, nodes=nodes)
        at = Location.parse("us.d.c.r.p")
        h = Harness(3, first=e(1), hedged=True, settings=SETTINGS, config=config, at=at).begin()
        for _ in range(100):
            h.delays.of(shard(2)).note_answer(100 * MILLISECOND)
        h.gap(1, 1, e(1), released=e(1))
        h.advance(T)
        assert sorted(h.hedge_starts) == [1, 2]

    def test_a_shard_is_late_with_the_last_entry_of_its_window_too(self) -> None:
        h = LateShard(settings=replace(SETTINGS, window_lsns=1))
        assert h.stream._read_set.senders[shard(0)].window_high == e(1)
        h.advance(T)
        assert sorted(h.hedge_starts) == [1, 2]

    def test_a_shard_is_not_late_with_an_entry_beyond_its_window(self) -> None:
        h = LateShard(released=2, settings=replace(SETTINGS, window_lsns=1))
        h.records(0, entry(1, 0, 1))
        assert h.stream.next_lsn == e(2)
        h.advance(10 * T)
        assert not h.hedge_starts, "nobody takes e1n1, so nobody may send e1n2"

    def test_nobody_is_asked_while_nothing_is_released(self) -> None:
        h = Harness(first=e(1), hedged=True, settings=SETTINGS).begin()
        h.advance(10 * T)
        assert not h.hedge_starts

    def test_nobody_is_asked_when_the_reader_does_not_want_hedges(self) -> None:
        h = Harness(first=e(1), settings=SETTINGS).begin()
        h.gap(1, 1, e(1), released=e(1))
        h.advance(10 * T)
        assert not h.hedge_starts

    def test_nobody_is_asked_where_everyone_sends_everything(self) -> None:
        h = Harness(first=e(1), single_copy=False, hedged=True, settings=SETTINGS).begin()
        h.gap(1, 1, e(1), released=e(1))
        h.advance(10 * T)
        assert not h.hedge_starts

    def test_a_shard_that_answers_in_time_is_left_alone(self) -> None:
        h = LateShard()
        h.advance(T - 1)
        h.records(0, entry(1, 0, 1))
        h.advance(10 * T)
        assert not h.hedge_starts
        assert h.got()[-1] == "e1n1:1"
        assert h.delays.of(shard(0)).p95_us == T - 1

    def test_a_shard_that_sends_a_long_run_of_entries_is_left_alone(self) -> None:
        h = LateShard(released=500)
        for esn in range(1, 201):
            h.advance(MILLISECOND)
            h.records(0, entry(esn, 0, 1))
            h.take()
        assert h.stream.next_lsn == e(201)
        assert h.metrics.hedges_sent == 0
        known = h.delays.of(shard(0))
        assert (known.samples, known.p95_us) == (100, MILLISECOND)
        h.advance(known.hedge_delay_us(SETTINGS))
        assert h.hedge_starts[1].first == e(201), "and is late when it stops"

    def test_attempts_follow_one_another_ever_later(self) -> None:
        h = LateShard()
        h.advance(T)
        first = h.hedge_starts[1].filter_version
        h.advance(2 * T - 1)
        assert h.hedge_starts[1].filter_version == first
        h.advance(1)  # 3 T: nobody is left but those that did not answer, so all copies are asked for
        second = h.hedge_starts[1]
        assert second.filter_version > first
        assert second.flags == StartFlags.HEDGE
        assert second.known_down == []
        assert set(h.hedge_stops) == {1, 2}
        h.advance(100 * T)
        assert h.metrics.hedges_sent == 2, "and that was all"

    def test_the_second_attempt_leaves_out_who_did_not_answer_the_first(self) -> None:
        h = LateShard(config=make_config(4))
        h.advance(T)
        h.hedge_gap(2, e(1))
        h.hedge_gap(3, e(1))
        h.advance(2 * T)
        assert sorted(h.hedge_starts) == [2, 3]
        assert h.hedge_starts[2].known_down == [shard(0), shard(1)]
        h.advance(4 * T)
        assert sorted(h.hedge_starts) == [1, 2, 3]
        assert h.hedge_starts[1].flags == StartFlags.HEDGE

    @pytest.mark.parametrize("answer", ["a gap", "a refusal", "a broken connection", "a bad checksum"])
    def test_when_nobody_has_it_the_next_attempt_begins_at_once(self, answer: str) -> None:
        h = LateShard()
        h.advance(T)
        first = h.hedge_starts[1].filter_version
        h.hedge_gap(2, e(1))
        assert h.metrics.hedges_sent == 1
        if answer == "a gap":
            h.hedge_gap(1, e(1), GapReason.UNDER_REPLICATED)
        elif answer == "a refusal":
            h.hedge_started(1, Status.AGAIN)
        elif answer == "a broken connection":
            h.down(1)
        else:
            h.hedge_records(1, (e(1), damaged(entry(1, 0, 1)[1])))
            assert h.metrics.corrupt_copies == 1
        assert h.metrics.hedges_sent == (1 if answer == "a broken connection" else 2)
        assert not h.hedge_starts or max(s.filter_version for s in h.hedge_starts.values()) >= first


class TestWhom:
    PLACES = ("us.d.c.r.p", "us.d.c.r.p", "us.d.c.r.q", "eu.d.c.r.p")

    def placed(self) -> LateShard:
        config = make_config(4)
        nodes = {node: replace(each, location=Location.parse(self.PLACES[node])) for node, each in config.nodes.items()}
        return LateShard(config=replace(config, nodes=nodes))

    def test_first_another_rack_then_another_region(self) -> None:
        h = self.placed()
        h.advance(T)
        tiers = {member >> 8: tier for member, tier in h.hedge_starts[1].order}
        assert tiers[2] == tiers[3] < tiers[0] == tiers[1]
        h.hedge_gap(2, e(1))
        h.hedge_gap(3, e(1))
        h.advance(2 * T)
        tiers = {member >> 8: tier for member, tier in h.hedge_starts[2].order}
        assert tiers[3] < tiers[0] == tiers[1] == tiers[2]

    def test_only_what_is_missing_is_asked_for(self) -> None:
        h = LateShard(released=100)
        h.advance(T)
        assert h.hedge_starts[1].until == e(ENTRIES_PER_HEDGE)
        behind = Harness(first=e(1), hedged=True, settings=SETTINGS).begin()
        behind.records(1, entry(4, 1, 0))
        behind.gap(2, 1, e(100), released=e(100))
        behind.advance(T)
        assert (behind.hedge_starts[2].first, behind.hedge_starts[2].until) == (e(1), e(3))


class TestAnswers:
    def test_entries_are_taken_and_the_stream_goes_on(self) -> None:
        h = LateShard(released=3)
        h.advance(T)
        h.hedge_records(1, entry(1, 0, 1), entry(2, 0, 1))
        assert h.got()[-2:] == ["e1n1:1", "e1n2:2"]
        assert (h.metrics.hedges_won, h.metrics.hedge_entries) == (1, 2)

    def test_what_hedges_bring_counts_as_received(self) -> None:
        h = LateShard(released=3)
        h.advance(T)
        entries = [entry(1, 0, 1), entry(2, 0, 1)]
        h.hedge_records(1, *entries)
        size = sum(len(image) for _, image in entries)
        assert (h.metrics.entries_received, h.metrics.bytes_received) == (2, size)
        assert (h.metrics.hedge_entries, h.metrics.hedge_bytes) == (2, size)

    def test_what_is_behind_what_came_is_asked_for_again_when_nothing_more_comes(self) -> None:
        h = LateShard(released=3)
        h.advance(T)
        h.hedge_records(1, entry(1, 0, 1))
        h.hedge_gap(1, e(3))
        h.hedge_gap(2, e(3))
        assert h.hedge_starts[1].first == e(2)
        assert h.hedge_starts[1].flags & StartFlags.SINGLE_COPY

    def test_those_that_are_asked_for_what_follows_have_as_long_as_others(self) -> None:
        h = LateShard(released=3)
        h.advance(T)
        h.advance(2 * T - MILLISECOND)
        h.hedge_records(1, entry(1, 0, 1))
        h.hedge_gap(1, e(3))
        h.hedge_gap(2, e(3))
        again = h.hedge_starts[1]
        assert again.first == e(2)
        h.advance(2 * T - 1)
        assert h.hedge_starts[1] == again
        h.advance(1)
        assert h.hedge_starts[1].filter_version > again.filter_version

    def test_those_that_are_not_needed_any_more_are_stopped(self) -> None:
        h = LateShard()
        h.advance(T)
        h.hedge_records(1, entry(1, 0, 1))
        assert h.hedge_stops == [2]

    def test_the_late_copy_is_a_duplicate(self) -> None:
        h = LateShard()
        h.advance(T)
        h.hedge_records(1, entry(1, 0, 1))
        h.records(0, entry(1, 0, 1))
        assert h.got() == ["BRIDGE e1n0-e1n0", "e1n1:1"] or h.got() == []
        assert h.metrics.duplicate_copies == 1

    def test_answers_to_an_earlier_attempt_are_not_taken(self) -> None:
        h = LateShard()
        h.advance(T)
        old = dict(h.hedge_starts)
        h.advance(2 * T)
        h.hedge_starts = old
        h.hedge_records(1, entry(1, 0, 1))
        assert h.metrics.stale_messages == 1
        assert not h.take()

    @pytest.mark.parametrize("what", ["beyond its end", "before its begin", "out of order", "longer than the message"])
    def test_a_shard_that_sends_what_nobody_asked_for_is_not_listened_to(self, what: str) -> None:
        h = LateShard(released=3)
        h.advance(T)
        if what == "beyond its end":
            h.hedge_records(1, entry(4, 0, 1))
        elif what == "before its begin":
            h.hedge_records(1, (lsn(1, 0), make_image(lsn(1, 0))))
        elif what == "out of order":
            h.hedge_records(1, entry(2, 0, 1), entry(2, 0, 1))
        else:
            at, image = entry(1, 0, 1)
            h._hedge(1, Records, entries=[(at, len(image) + 1)], images=image)
        assert h.metrics.protocol_violations == 1
        assert h.hedge_stops == [1], "its stream is closed there as well"
        h.stream.stop()
        h.turn()
        assert h.hedge_stops == [1, 2]

    def test_a_shard_whose_copy_is_damaged_closes_its_stream(self) -> None:
        h = LateShard(released=3)
        h.advance(T)
        h.hedge_records(1, (e(1), damaged(entry(1, 0, 1)[1])))
        assert h.hedge_stops == [1]

    def test_what_follows_used_up_credit_is_asked_for_at_once(self) -> None:
        h = LateShard(released=64)
        h.budget.earn(100_000, 1 << 30)
        h.advance(T)
        large = [(e(esn), make_image(e(esn), [b"x" * BYTES_PER_HEDGE], copyset=(shard(0), shard(1)))) for esn in (1,)]
        h.hedge_gap(2, e(64))
        h.hedge_records(1, *large)
        assert h.hedge_stops == [1]
        assert h.hedge_starts[1].first == e(2)


class TestNothingIsProven:
    @pytest.mark.parametrize("reason", list(GapReason))
    def test_that_all_others_have_nothing_is_no_gap(self, reason: GapReason) -> None:
        h = LateShard(released=3)
        before = {node: sender.next_lsn for node, sender in h.stream._read_set.senders.items()}
        h.advance(T)
        h.hedge_gap(1, e(3), reason)
        h.hedge_gap(2, e(3), reason)
        assert {node: sender.next_lsn for node, sender in h.stream._read_set.senders.items()} == before
        assert not h.stream._read_set.senders[shard(1)].unable
        assert h.stream.next_lsn == e(1)
        assert h.stream._delivery.trim_point == 0
        assert h.is_single_copy(0)

    def test_a_shard_that_lost_its_data_is_not_lost_by_a_hedge(self) -> None:
        h = LateShard()
        h.advance(T)
        h.hedge_started(1, Status.REBUILDING)
        assert not h.stream._read_set.senders[shard(1)].lost

    def test_hedges_do_not_nurse_a_dead_shard(self) -> None:
        assert self.is_found_dead()
        with FAULTS[deliberate_client.hedges_nurse_dead_shards.__name__].planted():
            assert not self.is_found_dead()

    def is_found_dead(self) -> bool:
        """Whether a shard that says nothing is counted as down while hedges bring what it owes."""
        h = LateShard(released=40, settings=replace(SETTINGS, single_copy_failover_us=1_000_000))
        esn = 1
        while h.now < 1_100_000 and h.known_down(1) == []:
            h.advance(T)
            if 1 in h.hedge_starts and h.hedge_starts[1].first == e(esn):
                h.hedge_records(1, entry(esn, 0, 1))
                esn += 1
                h.delays.of(shard(0)).forgive()
        assert 1 < esn < 40
        return h.known_down(1) == [0]


class TestSlowShards:
    def overtaken(self, h: LateShard, esn: int) -> None:
        if esn > 1:
            h.gap(1, e(esn), e(esn), released=e(esn))
            h.gap(2, e(esn), e(esn), released=e(esn))
        h.advance(2 * T)
        assert h.hedge_starts[1].first == e(esn)
        h.hedge_records(1, entry(esn, 0, 1))

    def test_a_shard_that_hedges_overtake_comes_last_for_a_while_and_then_back(self) -> None:
        h = LateShard()
        self.answer(h.delays, 100, 0, 1, 2)
        for esn in (1, 2):
            self.overtaken(h, esn)
            assert h.order(1) == {}
        self.overtaken(h, 3)
        h.advance(200 * MILLISECOND)
        tiers = h.order(1)
        assert tiers[0] > tiers[1] == tiers[2]
        assert h.known_down(1) == [], "it still sends what no other one can"
        assert h.metrics.shards_left_to_the_end == 1
        h.restarted()
        h.advance(59_000_000)
        assert h.order(1) == tiers
        h.restarted()
        h.advance(1_200_000)
        assert h.order(1) == {}

    @pytest.mark.parametrize("is_at_tail", [True, False])
    def test_a_shard_comes_back_at_the_tail_though_an_earlier_rewind_is_not_paid_for(self, is_at_tail: bool) -> None:
        h = LateShard(settings=replace(SETTINGS, hedge_penalty_us=300 * MILLISECOND))
        h.delays.leave_to_the_end(shard(0), h.now)
        h.stream._fail_over.want_rewind()
        h.take()
        h.turn()
        h.advance(200 * MILLISECOND)
        h.restarted()
        assert h.order(1) != {}
        h.budget.spend(0, 16 << 20)
        if is_at_tail:
            h.records(0, entry(1, 0, 1))
            h.take()
        h.advance(300 * MILLISECOND)
        assert (h.order(1) == {}) is is_at_tail

    times = count(1)

    def lose(self, delays: KnownDelays, node: int, times: int) -> None:
        for _ in range(times):
            delays.of(shard(node)).note_lost(Micros(2 * T * next(self.times)), T)

    def answer(self, delays: KnownDelays, times: int, *nodes: int) -> None:
        for node in nodes:
            for _ in range(times):
                delays.of(shard(node)).note_answer(0)

    def test_three_of_a_hundred_answers_are_enough_where_others_lose_none(self) -> None:
        delays, shards = KnownDelays(SETTINGS), list(map(shard, range(5)))
        self.answer(delays, 100, 0, 1, 2, 3, 4)
        self.lose(delays, 0, 2)
        assert not delays.is_slow(shards[0], shards, NOW)
        self.lose(delays, 0, 1)
        assert delays.of(shards[0]).lost == 3
        assert delays.is_slow(shards[0], shards, NOW)
        self.answer(delays, 98, 0)
        assert not delays.is_slow(shards[0], shards, NOW)

    def test_where_all_are_overtaken_now_and_then_one_has_to_be_much_worse(self) -> None:
        delays, shards = KnownDelays(SETTINGS), list(map(shard, range(5)))
        self.answer(delays, 100, 0, 1, 2, 3, 4)
        for node in range(5):
            self.lose(delays, node, 2)
        self.lose(delays, 0, 6)
        assert not delays.is_slow(shards[0], shards, NOW)
        self.lose(delays, 0, 1)
        assert delays.is_slow(shards[0], shards, NOW)

    def test_while_little_is_known_of_others_more_is_needed(self) -> None:
        delays, shards = KnownDelays(SETTINGS), list(map(shard, range(3)))
        self.answer(delays, 10, 0, 1, 2)
        self.lose(delays, 0, 20)
        assert not delays.is_slow(shards[0], shards, NOW)
        self.lose(delays, 0, 10)
        assert delays.is_slow(shards[0], shards, NOW)

    def test_a_slow_shard_is_found_out_when_there_is_nothing_left_to_spend(self) -> None:
        h = LateShard()
        self.answer(h.delays, 100, 0, 1, 2)
        h.budget.spend(1000, 0)
        h.take()
        h.turn()
        h.advance(3 * h.delays.of(shard(0)).hedge_delay_us(SETTINGS) - 1)
        assert not h.hedge_starts
        assert (h.metrics.hedges_refused, h.delays.of(shard(0)).lost) == (1, 0)
        h.advance(1)
        assert h.delays.of(shard(0)).lost == 1

    def test_what_a_shard_loses_at_about_one_time_counts_once(self) -> None:
        known = ShardDelays()
        for at in (1, 1000, 2 * T):
            known.note_lost(Micros(at), T)
        assert known.lost == 1
        known.note_lost(Micros(1 + 2 * T), T)
        assert known.lost == 2

    def test_who_was_late_is_told_by_the_copyset(self) -> None:
        h = Harness(4, first=e(1), hedged=True, settings=SETTINGS).begin()
        h.gap(2, 1, e(1), released=e(1))
        h.gap(3, 1, e(1), released=e(1))
        h.advance(T)
        assert h.hedge_starts[2].known_down == [shard(0), shard(1)]
        h.hedge_records(2, entry(1, 1, 2))
        assert (h.delays.of(shard(0)).lost, h.delays.of(shard(1)).lost) == (0, 1)

    def test_most_shards_are_never_left_to_the_end(self) -> None:
        h = LateShard()
        self.answer(h.delays, 100, 0, 1, 2)
        h.delays.leave_to_the_end(shard(2), h.now)
        for esn in (1, 2, 3):
            self.overtaken(h, esn)
        h.advance(200 * MILLISECOND)
        assert h.metrics.shards_left_to_the_end == 0


class TestDelay:
    def test_it_is_longer_than_usual_delays_and_the_way_there_and_back(self) -> None:
        known, settings = ShardDelays(), ReadSettings()
        assert known.hedge_delay_us(settings) == settings.hedge_delay_us_initial
        for _ in range(19):
            known.note_answer(20 * MILLISECOND)
        assert known.hedge_delay_us(settings) == settings.hedge_delay_us_initial
        known.note_answer(20 * MILLISECOND)
        assert known.hedge_delay_us(settings) == 30 * MILLISECOND
        known.note_round_trip(80 * MILLISECOND)
        assert known.hedge_delay_us(settings) == 80 * MILLISECOND
        for _ in range(100):
            known.note_answer(2_000 * MILLISECOND)
        assert known.hedge_delay_us(settings) == settings.hedge_delay_us_max
        quick = ShardDelays()
        for _ in range(100):
            quick.note_answer(0)
        assert quick.hedge_delay_us(settings) == settings.hedge_delay_us_min

    def test_a_few_long_delays_do_not_count(self) -> None:
        known = ShardDelays()
        for number in range(100):
            known.note_answer(200 * MILLISECOND if number < 4 else 0)
        assert known.p95_us == 0

    def test_round_trips_that_are_longer_count_little_by_little(self) -> None:
        known = ShardDelays()
        known.note_round_trip(1000)
        known.note_round_trip(9000)
        assert known.round_trip_us == 2000
        known.note_round_trip(500)
        assert known.round_trip_us == 500


class TestMemory:
    def test_hedges_bring_what_the_buffer_has_room_for(self) -> None:
        """While the application takes nothing, whatever they may cost."""
        share = 64 << 10
        settings = replace(SETTINGS, buffer_bytes=3 * share, shard_buffer_bytes_min=1, hedge_budget_percent=100)
        h = LateShard(released=100, settings=settings)
        h.budget.earn(10_000, 100 << 20)
        h.advance(T)
        image = [make_image(e(esn), [b"x" * 100_000], copyset=(shard(0), shard(1))) for esn in range(1, 4)]
        credits = []
        for esn in (1, 2):
            assert h.hedge_starts[1].first == e(esn)
            credits.append(h.hedge_starts[1].bytes_credit)
            h.hedge_records(1, (e(esn), image[esn - 1]))
            h.hedge_gap(1, e(100))
            h.hedge_gap(2, e(100))
            h.advance(T)
        assert credits == [3 * share, 3 * share - len(image[0])]
        h.advance(10 * T)
        assert not h.hedge_starts or h.hedge_starts[1].first == e(2), "there is no room left, and no hedge"
        assert len(h.take()) == 2
        h.turn()
        h.advance(10 * T)
        assert h.hedge_starts[1].first == e(3)
        assert h.hedge_starts[1].bytes_credit == 3 * share


class TestBudget:
    def test_hedges_stop_when_they_cost_too_much_and_go_on_when_more_was_read(self) -> None:
        budget = HedgeBudget(5)
        assert budget.allows
        budget.spend(ENTRIES_PER_HEDGE, 10)
        assert not budget.allows
        budget.earn(19, 1000)
        assert not budget.allows
        budget.earn(1, 1000)
        assert (budget.allows, budget.entries) == (True, 1)

    def test_a_large_entry_has_to_be_earned_before_the_next_one(self) -> None:
        budget = HedgeBudget(5)
        budget.spend(1, BYTES_PER_HEDGE + 1000)
        budget.earn(100, 20_000)
        assert not budget.allows
        budget.earn(100, 20)
        assert budget.allows

    def test_little_is_saved_up(self) -> None:
        budget = HedgeBudget(5)
        budget.earn(10**6, 10**9)
        assert (budget.entries, budget.bytes) == (ENTRIES_PER_HEDGE, BYTES_PER_HEDGE)
        for _ in range(4):
            budget.spend(ENTRIES_PER_HEDGE, BYTES_PER_HEDGE)
        assert not budget.allows

    def test_none_may_be_sent(self) -> None:
        h = LateShard(settings=replace(SETTINGS, hedge_budget_percent=0))
        h.advance(10 * T)
        assert not h.hedge_starts
        assert h.metrics.hedges_refused == 1

    def test_what_comes_too_late_has_its_price_as_well(self) -> None:
        h = LateShard(released=8)
        h.advance(3 * T)
        assert h.hedge_starts[1].flags == StartFlags.HEDGE, "all copies are asked for"
        entries = [entry(esn, 0, 1, 2) for esn in range(1, 9)]
        h.hedge_records(1, *entries)
        before = h.budget.entries
        h.hedge_records(2, *entries)
        assert h.metrics.stale_messages == 1
        assert h.budget.entries == before - 8

    def test_all_slow_shards_cost_no_more_than_a_twentieth(self) -> None:
        h = Harness(first=e(1), until=lsn(1, 5000), hedged=True, settings=SETTINGS).begin()
        hedged = 0
        for esn in range(1, 2001):
            h.gap(1, e(esn), e(esn), released=e(esn))
            h.gap(2, e(esn), e(esn), released=e(esn))
            h.advance(2 * T)
            start = h.hedge_starts.get(1)
            if start is not None and start.first == e(esn) and h.hedges is not None:
                h.hedge_records(1, entry(esn, 0, 1))
                hedged += 1
            h.records(0, entry(esn, 0, 1))
            h.restarted()
            h.take()
        assert h.stream.next_lsn == e(2001)
        assert h.metrics.hedge_entries <= 0.05 * h.metrics.entries_received + ENTRIES_PER_HEDGE
        assert hedged > 0


def test_a_stream_that_is_stopped_needs_its_hedges_no_more() -> None:
    h = LateShard()
    h.advance(T)
    h.stream.stop()
    h.turn()
    assert sorted(h.hedge_stops) == [1, 2]
    assert h.hedges is None


def test_when_all_begin_anew_hedges_do_too() -> None:
    h = LateShard()
    h.advance(T)
    h.stream._fail_over.want_rewind()
    h.take()
    h.turn()
    assert sorted(h.hedge_stops) == [1, 2]
    h.hedge_gap(1, e(1))
    assert h.metrics.stale_messages == 1
