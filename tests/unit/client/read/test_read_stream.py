from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from client.read.items import DataLoss, Gap, GapKind
from client.read.settings import ReadSettings
from client.read.shard_statuses import ShardStatuses
from logdevice_py.core.extensions import TailFlags, TailState, encode_extensions
from logdevice_py.core.ids import PeerId
from logdevice_py.core.lsn import EPOCH_MAX, LSN, LSN_MAX, Epoch, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import GapReason, ShardStatus, ShardStatusRow
from tests.unit.client.read.fakes import (
    BRIDGE,
    HOLE,
    Harness,
    damaged,
    lsn,
    make_config,
    make_image,
    make_interval,
    shard,
    text,
)

SECOND = 1_000_000


def entry(epoch: int, esn: int, payload: bytes = b"x", **options: object) -> tuple[int, bytes]:
    at = lsn(epoch, esn)
    return at, make_image(at, [payload], **options)  # type: ignore[arg-type]


def hole(epoch: int, esn: int) -> tuple[int, bytes]:
    return lsn(epoch, esn), make_image(lsn(epoch, esn), flags=HOLE, wave=9)


def bridge(epoch: int, esn: int) -> tuple[int, bytes]:
    return lsn(epoch, esn), make_image(lsn(epoch, esn), flags=BRIDGE, wave=9)


def at_first_epoch(**options: object) -> Harness:
    """A stream that reads from e1n1 on."""
    return Harness(first=lsn(1, 1), **options).begin()  # type: ignore[arg-type]


class TestDelivery:
    def test_entries_of_several_shards_come_in_order(self) -> None:
        h = at_first_epoch()
        h.records(1, entry(1, 2, b"b"), entry(1, 3, b"c"))
        assert not h.stream.ready
        h.records(0, entry(1, 1, b"a"))
        assert text(h.take()) == ["e1n1:a", "e1n2:b", "e1n3:c"]
        assert h.wakes

    def test_a_second_copy_is_dropped(self) -> None:
        h = at_first_epoch(single_copy=False)
        h.records(0, entry(1, 1))
        h.records(1, entry(1, 1), entry(1, 3))
        h.records(2, entry(1, 3))
        h.records(0, entry(1, 2))
        assert len(h.take()) == 3
        assert h.metrics.duplicate_copies == 2

    def test_of_two_copies_that_wait_the_higher_rank_is_delivered(self) -> None:
        h = at_first_epoch(single_copy=False)
        h.records(0, entry(1, 2, b"wave 1", wave=1))
        h.records(1, entry(1, 2, b"wave 2", wave=2))
        h.records(2, entry(1, 1, b"first"), entry(1, 2, b"wave 0", wave=0))
        assert text(h.take()) == ["e1n1:first", "e1n2:wave 2"]

    def test_reading_ends_at_until(self) -> None:
        h = Harness(first=lsn(1, 1), until=lsn(1, 2)).begin()
        h.records(0, entry(1, 1), entry(1, 2))
        assert not h.stream.finished
        assert len(h.take()) == 2
        assert h.stream.finished
        assert not h.stream.log_ended
        assert not h.take()
        assert sorted(h.stopped) == [shard(0), shard(1), shard(2)]

    def test_who_follows_a_log_comes_to_its_end(self) -> None:
        h = Harness(first=lsn(1, 1), until=LSN_MAX).begin()
        ended = encode_extensions(TailState(flags=int(TailFlags.ENDED)))
        h.records(0, entry(1, 1, extensions=encode_extensions(TailState(fence=3))), entry(1, 2, extensions=ended))
        assert not h.stream.log_ended
        assert text(h.take()) == ["e1n1:x", "e1n2:x"]
        assert h.stream.finished
        assert h.stream.log_ended
        assert sorted(h.stopped) == [shard(0), shard(1), shard(2)]

    def test_who_named_another_end_gets_what_was_asked_for(self) -> None:
        h = Harness(first=lsn(1, 1), until=lsn(2, 0)).begin()
        ended = encode_extensions(TailState(flags=int(TailFlags.ENDED)))
        h.records(0, entry(1, 1, extensions=ended))
        h.take()
        assert h.stream.log_ended
        assert not h.stream.finished
        h.records(0, bridge(1, 2))
        assert text(h.take()) == ["BRIDGE e1n2-e2n0"]
        assert h.stream.finished

    def test_an_empty_range_is_finished_at_once(self) -> None:
        h = Harness(first=lsn(1, 5), until=lsn(1, 4))
        assert h.stream.finished
        assert h.stream.ready

    def test_positions_before_the_first_epoch_are_a_bridge(self) -> None:
        h = Harness(intervals=(make_interval(1, [0, 1, 2], 2),)).begin()
        assert text(h.take()) == ["BRIDGE e0n1-e1n0"]

    def test_what_lies_before_a_history_that_begins_later_is_trimmed(self) -> None:
        h = Harness(intervals=(make_interval(3, [0, 1, 2], 2),)).begin()
        assert text(h.take()) == ["TRIM e0n1-e2n4294967295", "BRIDGE e3n0-e3n0"]

    def test_who_reads_a_nodeset_that_is_left_out_meanwhile_is_told_that_it_is_trimmed(self) -> None:
        first, second = make_interval(1, [0, 1], 2), make_interval(3, [1, 2], 2)
        h = Harness(intervals=(first, second), until=lsn(9, 5)).begin()
        h.take()
        h.records(0, entry(1, 1))
        assert text(h.take()) == ["e1n1:x"]
        h.stream._lookup._asked = None
        h.stream._lookup.ask(h.now)
        h.history((second, make_interval(7, [0, 2], 2)))
        assert text(h.take()) == ["TRIM e1n2-e2n4294967295", "BRIDGE e3n0-e3n0"]
        assert h.stream._lookup.history.interval(h.stream._position.interval) == second

    def test_a_bridge_entry_leads_to_the_next_epoch(self) -> None:
        h = at_first_epoch()
        h.records(0, entry(1, 1), bridge(1, 2))
        assert text(h.take()) == ["e1n1:x", "BRIDGE e1n2-e2n0"]
        h.records(1, bridge(1, 2), bridge(2, 1))
        h.history()
        h.records(2, bridge(2, 1), entry(3, 1, b"c"))
        h.history()
        assert text(h.take()) == ["BRIDGE e2n1-e3n0", "e3n1:c"]

    def test_reading_may_begin_right_behind_a_bridge(self) -> None:
        h = Harness(first=lsn(1, 6)).begin()
        assert h.starts[shard(0)].first == lsn(1, 5)
        h.records(0, bridge(1, 5))
        assert text(h.take()) == ["BRIDGE e1n6-e2n0"]

    def test_an_entry_right_before_the_first_lsn_is_not_delivered(self) -> None:
        h = Harness(first=lsn(1, 6)).begin()
        h.records(0, entry(1, 5), entry(1, 6, b"first"))
        assert text(h.take()) == ["e1n6:first"]

    def test_reading_may_begin_far_behind_a_bridge(self) -> None:
        h = Harness(first=lsn(1, 1000), single_copy=False).begin()
        while not h.stream.ready:
            for node in range(3):
                if h.starts[shard(node)].first <= lsn(1, 5) and node < 2:
                    h.records(node, bridge(1, 5))
                h.gap(node, h.starts[shard(node)].first, lsn(2, 0) - 1)
            h.history()
            h.advance(100_000)
            h.restarted()
        assert text(h.take()) == ["BRIDGE e1n1000-e2n0"]

    def test_a_bridge_before_the_first_lsn_is_looked_for_ever_further_back(self) -> None:
        h = Harness(first=lsn(1, 10_000), single_copy=False).begin()
        begins = []
        for _ in range(20):
            begins += [first for first in {start.first for start in h.starts.values()} if first not in begins]
            for node in range(3):
                h.gap(node, h.starts[shard(node)].first, lsn(1, 10_000))
            h.advance(100_000)
            h.restarted()
        assert begins == [lsn(1, 10_000 - 1), lsn(1, 10_000 - 64), lsn(1, 10_000 - 64 * 64), lsn(1, 1)]

    @pytest.mark.parametrize("damage", [GapReason.CHECKSUM_FAIL, GapReason.UNDER_REPLICATED, None])
    def test_a_copy_before_the_first_lsn_that_cannot_be_read_may_be_the_bridge(self, damage: GapReason | None) -> None:
        """Its holder does not count among those that have nothing while the others that may have it are away."""
        h = Harness(first=lsn(1, 1000), single_copy=False).begin()
        h.down(2)
        for _ in range(30):
            for node in (0, 1):
                first = h.starts[shard(node)].first
                if node == 1 and first <= lsn(1, 5):
                    h.gap(1, first, lsn(1, 4))
                    if damage is None:
                        at, image = bridge(1, 5)
                        h.records(1, (at, damaged(image)))
                    else:
                        h.gap(1, lsn(1, 5), lsn(1, 5), damage)
                    first = lsn(1, 6)
                h.gap(node, first, lsn(2, 0) - 1)
            h.advance(SECOND)
            h.history()
            for node in (0, 1):
                h.started(shard(node))
        assert h.starts[shard(0)].first == lsn(1, 1)
        assert not h.stream.ready
        h.up(2)
        h.started(shard(2))
        h.records(2, bridge(1, 5))
        h.gap(2, lsn(1, 6), lsn(2, 0) - 1)
        assert text(h.take()) == ["BRIDGE e1n1000-e2n0"]

    def test_what_cannot_be_read_far_ahead_says_nothing_of_what_lies_before(self) -> None:
        """Otherwise a stream that looks for a bridge would wait for the node that is away for ever."""
        h = Harness(nodes=4, copies=2, first=lsn(1, 6), single_copy=False).begin()
        h.down(3)
        for _ in range(10):
            for node in range(3):
                first = h.starts[shard(node)].first
                if node != 1 and first <= lsn(1, 2):
                    h.records(node, bridge(1, 2))
                    first = lsn(1, 3)
                h.gap(node, first, lsn(2, 0))
                h.gap(node, lsn(2, 1), lsn(2, 1), GapReason.CHECKSUM_FAIL)
                h.gap(node, lsn(2, 2), lsn(3, 0) - 1)
            h.advance(SECOND)
            h.history()
            for node in range(3):
                h.started(shard(node))
        assert text(h.take()) == ["BRIDGE e1n6-e2n0"]

    def test_of_several_stretches_that_cannot_be_read_each_counts_where_it_is(self) -> None:
        h = at_first_epoch(single_copy=False)
        said = [
            (1, 2, GapReason.UNDER_REPLICATED),
            (3, 4, GapReason.NO_RECORDS),
            (5, 5, GapReason.CHECKSUM_FAIL),
            (6, 9, GapReason.NO_RECORDS),
        ]

        heard: dict[int, int] = {}

        def let_speak(*of_third: int) -> list[str]:
            """Two shards have nothing, as far as they can tell; the third one sends these entries and says nothing else."""
            for _ in range(4):
                for node in (0, 1):
                    first, version = h.starts[shard(node)].first, h.version(node)
                    if heard.get(node) != version:
                        heard[node] = version
                        h.started(shard(node))
                        for low, high, reason in said:
                            if lsn(1, high) >= first:
                                h.gap(node, max(first, lsn(1, low)), lsn(1, high), reason)
                if h.version(2) != heard.get(2) or of_third:
                    heard[2] = h.version(2)
                    h.started(shard(2))
                    h.records(2, *(entry(1, esn) for esn in of_third if lsn(1, esn) >= h.starts[shard(2)].first))
                    of_third = ()
                h.advance(SECOND)
            return text(h.take())

        assert let_speak() == [], "the third may have e1n1"
        assert let_speak(1, 2) == ["e1n1:x", "e1n2:x", "DATALOSS e1n3-e1n4"], "it may have e1n5"
        assert let_speak(5) == ["e1n5:x", "DATALOSS e1n6-e1n9"]

    def test_who_is_silent_is_given_time_once_however_often_others_cannot_tell(self) -> None:
        h = Harness(nodes=5, copies=3, first=lsn(1, 1), until=lsn(1, 40), single_copy=False).begin()
        h.down(4)
        heard: dict[int, int] = {}
        for _ in range(4):
            for node in range(4):
                if heard.get(node) != h.version(node):
                    heard[node] = h.version(node)
                    h.started(shard(node))
                    for esn in range(1, 41):
                        reason = GapReason.NO_RECORDS if node or esn % 4 else GapReason.CHECKSUM_FAIL
                        h.gap(node, lsn(1, esn), lsn(1, esn), reason)
            h.advance(SECOND)
        assert text(h.take()) == ["DATALOSS e1n1-e1n40"]

    def test_a_bridge_is_cut_at_until(self) -> None:
        h = Harness(first=lsn(1, 1), until=lsn(1, 10)).begin()
        h.records(0, bridge(1, 1))
        assert text(h.take()) == ["BRIDGE e1n1-e1n10"]
        assert h.stream.finished

    def test_a_plug_is_a_hole(self) -> None:
        h = at_first_epoch()
        h.records(0, hole(1, 1), hole(1, 2), entry(1, 3))
        assert text(h.take()) == ["HOLE e1n1-e1n2", "e1n3:x"]

    def test_a_partly_taken_entry_goes_on_where_it_was_left(self) -> None:
        h = at_first_epoch()
        h.records(0, (lsn(1, 1), make_image(lsn(1, 1), [b"a", b"b", b"c"])), entry(1, 2, b"d"))
        assert text(h.take(2)) == ["e1n1:a", "e1n1.1:b"]
        assert h.stream.proof().entries == 0
        assert text(h.take(1)) == ["e1n1.2:c"]
        assert text(h.take(5)) == ["e1n2:d"]
        assert h.stream.proof().records == 4

    def test_nothing_is_delivered_before_everything_ahead_is_accounted_for(self) -> None:
        h = at_first_epoch()
        h.records(0, entry(1, 2))
        h.gap(1, lsn(1, 1), lsn(1, 2))
        assert not h.take()


class TestTrim:
    def test_the_greatest_trim_point_is_one_gap(self) -> None:
        h = at_first_epoch()
        h.records(1, entry(1, 5, b"trimmed"), entry(1, 9))
        h.gap(0, lsn(1, 1), lsn(1, 7), GapReason.TRIM)
        h.gap(2, lsn(1, 1), lsn(1, 8), GapReason.TRIM)
        assert text(h.take()) == ["TRIM e1n1-e1n8", "e1n9:x"]

    def test_it_is_cut_at_until(self) -> None:
        h = Harness(first=lsn(1, 1), until=lsn(1, 3)).begin()
        h.gap(0, lsn(1, 1), lsn(1, 7), GapReason.TRIM)
        assert text(h.take()) == ["TRIM e1n1-e1n3"]
        assert h.stream.finished

    def test_it_is_reported_with_single_copy_delivery_and_shards_down(self) -> None:
        h = at_first_epoch()
        h.down(1)
        h.restarted()
        h.gap(0, lsn(1, 1), lsn(2, 7), GapReason.TRIM)
        assert text(h.take()) == ["TRIM e1n1-e2n7"]


class TestLaterHistory:
    """Rule Later history: who joined a nodeset since it was read may have what its lost shards had (`logdevice_py/metadata/widening.py`)."""

    WIDE = (
        replace(make_interval(1, [0, 1, 2, 3], 2), joined=(shard(3),), widened=Epoch(2)),
        make_interval(2, [0, 1, 2, 3], 2),
    )

    def told(self, *nodes: int, says: Authority = Authority.AUTHORITATIVE_EMPTY, at: int = 0) -> ShardStatuses:
        statuses = ShardStatuses()
        rows = [ShardStatusRow(int(shard(node)), 1, says.value) for node in nodes]
        assert statuses.take(PeerId(0), ShardStatus(version=LSN(1), shards=rows, part=0, parts=1), Micros(at))
        return statuses

    def reading(self, **given: Any) -> Harness:
        """Of three shards, with another one in the cluster."""
        narrow = (make_interval(1, [0, 1, 2], 2), make_interval(2, [0, 1, 2, 3], 2))
        h = Harness(4, intervals=narrow, first=lsn(1, 1), until=lsn(1, 3), single_copy=False, **given)
        h.begin()
        h.advance(SECOND)
        return h

    def pass_over(self, h: Harness, *nodes: int) -> None:
        for _ in range(3):
            for node in nodes:
                h.started(shard(node), last_released=lsn(2, 1))
                h.gap(node, lsn(1, 1), lsn(1, 3))
            h.advance(200_000)

    def test_what_was_re_replicated_on_a_shard_that_joined_is_read_there(self) -> None:
        h = self.reading()
        for node in (0, 1):
            h.down(node)
        h.stream.on_shard_statuses(self.told(0, 1, at=h.now), h.now)
        asked = h.history_requests
        assert asked == 2, "when others are said to have it, the nodesets are read"
        self.pass_over(h, 2)
        h.advance(100 * SECOND)
        assert not h.take(), "shard 2 alone was never enough"
        h.history(self.WIDE)
        h.started(shard(2), last_released=lsn(2, 1))
        h.started(shard(3), last_released=lsn(2, 1))
        h.records(3, entry(1, 1), entry(1, 2), entry(1, 3))
        assert text(h.take()) == ["e1n1:x", "e1n2:x", "e1n3:x"]

    def test_so_they_are_when_it_was_said_while_they_were_read(self) -> None:
        h = Harness(4, first=lsn(1, 1), single_copy=False)
        h.advance(SECOND)
        h.stream.on_shard_statuses(self.told(0, at=h.now), h.now)
        assert h.history_requests == 1
        h.history()
        assert h.history_requests == 2

    def test_shards_that_began_anew_prove_no_loss_before_the_nodesets_are_read_again(self) -> None:
        h = self.reading()
        for node in (0, 1):
            h.started(shard(node), Status.REBUILDING)
        self.pass_over(h, 2)
        assert (h.take(), h.history_requests) == ([], 2)
        h.history(h.intervals)
        assert text(h.take()) == ["DATALOSS e1n1-e1n3"]

    def test_a_reading_that_began_before_a_loss_was_heard_of_does_not_count(self) -> None:
        h = self.reading()
        h.started(shard(0), Status.REBUILDING)
        h.stream.on_shard_statuses(self.told(0, at=h.now), h.now)
        assert h.history_requests == 2
        h.advance(SECOND)
        h.started(shard(1), Status.REBUILDING)
        self.pass_over(h, 2)
        h.history(h.intervals)
        assert not h.take()
        h.advance(10 * SECOND)
        assert h.history_requests == 3
        h.history(h.intervals)
        self.pass_over(h, 2)
        assert text(h.take()) == ["DATALOSS e1n1-e1n3"]

    @pytest.mark.parametrize("is_ever_certain", [True, False])
    def test_nor_does_one_that_may_have_missed_a_later_record_unless_all_may(self, is_ever_certain: bool) -> None:
        h = self.reading()
        for node in (0, 1):
            h.started(shard(node), Status.REBUILDING)
        self.pass_over(h, 2)
        for asked in (3, 4):
            h.stream.on_history(h.intervals, h.now, EPOCH_MAX, is_whole=False)
            h.turn()
            h.advance(10 * SECOND)
            assert (h.take(), h.history_requests) == ([], asked)
        if is_ever_certain:
            h.history(h.intervals)
        else:
            h.stream.on_history(h.intervals, h.now, EPOCH_MAX, is_whole=False)
            h.turn()
        self.pass_over(h, 2)
        assert text(h.take()) == ["DATALOSS e1n1-e1n3"]

    def test_an_earlier_record_does_not_take_a_shard_out_of_a_nodeset(self) -> None:
        h = self.reading()
        h.started(shard(0), Status.REBUILDING)
        h.stream.on_shard_statuses(self.told(0, at=h.now), h.now)
        h.history(self.WIDE)
        assert shard(3) in h.starts
        h.advance(SECOND)
        h.stream.on_shard_statuses(self.told(0, 1, at=h.now), h.now)
        h.history((make_interval(1, [0, 1, 2], 2), self.WIDE[1]))
        assert shard(3) not in h.stopped

    def test_without_a_loss_nothing_is_read_again(self) -> None:
        h = self.reading()
        self.pass_over(h, 0, 1, 2)
        assert (text(h.take()), h.history_requests) == (["DATALOSS e1n1-e1n3"], 1)


class TestDataLoss:
    def confirm(self, h: Harness, first: int, last: int) -> None:
        """All shards say that they have nothing, whatever they are asked."""
        for _ in range(3):
            h.restarted()
            for node in range(3):
                if h.stream.next_lsn <= last:
                    h.gap(node, first, last)
            h.advance(200_000)

    def test_it_is_reported_only_after_everyone_was_asked_for_everything(self) -> None:
        h = at_first_epoch()
        for node in range(3):
            h.gap(node, lsn(1, 1), lsn(1, 3))
        assert not h.take()
        h.advance(100_000)
        assert not any(h.is_single_copy(node) for node in range(3))
        self.confirm(h, lsn(1, 1), lsn(1, 3))
        assert text(h.take()) == ["DATALOSS e1n1-e1n3"]

    def test_the_search_for_the_next_entry_goes_beyond_the_window(self) -> None:
        h = at_first_epoch(single_copy=False, settings=ReadSettings(window_lsns=10))
        assert h.starts[shard(0)].window_high == lsn(1, 10)
        for node in range(3):
            h.gap(node, lsn(1, 1), lsn(1, 10))
        h.advance(100_000)
        assert h.starts[shard(0)].window_high > lsn(2, 0)
        h.restarted()
        for node in range(2):
            h.records(node, entry(2, 1))
        h.records(2, entry(2, 1))
        h.history()
        assert text(h.take()) == [f"DATALOSS e1n1-e1n{2**32 - 1}", "BRIDGE e2n0-e2n0", "e2n1:x"]

    def test_an_f_majority_waits_the_grace_period_for_the_others(self) -> None:
        h = at_first_epoch(single_copy=False, settings=ReadSettings(gap_grace_period_us=SECOND))
        h.down(2)
        h.advance(200_000)
        for _ in range(2):
            for node in range(2):
                h.started(shard(node))
                h.gap(node, lsn(1, 1), lsn(1, 3))
            h.advance(100_000)
        h.advance(SECOND - 100_001)
        assert not h.take()
        h.advance(1)
        assert text(h.take()) == ["DATALOSS e1n1-e1n3"]

    @pytest.mark.parametrize("order", ["unreachable first", "said to be lost first"])
    def test_a_shard_is_waited_for_until_it_cannot_be_reached_and_is_said_to_be_lost(self, order: str) -> None:
        h = at_first_epoch(copies=1, single_copy=False)

        def let_others_speak() -> None:
            for _ in range(3):
                for node in range(2):
                    h.started(shard(node))
                    h.gap(node, lsn(1, 1), lsn(1, 3))
                h.advance(100_000)

        statuses = ShardStatuses()
        rows = [ShardStatusRow(int(shard(2)), 1, Authority.UNDERREPLICATION.value)]
        assert statuses.take(PeerId(0), ShardStatus(version=LSN(1), shards=rows, part=0, parts=1))
        let_others_speak()
        assert not h.take()
        if order == "unreachable first":
            h.down(2)
        h.stream.on_shard_statuses(statuses, h.now)
        h.turn()
        if order == "said to be lost first":
            let_others_speak()
            assert not h.take()
            h.down(2)
        let_others_speak()
        (gap,) = h.take()
        assert text([gap]) == ["DATALOSS e1n1-e1n3"]
        assert isinstance(gap, Gap)
        assert gap.loss == DataLoss(False, (shard(2),))

    def test_a_shard_that_may_hold_the_only_copy_is_waited_for(self) -> None:
        h = at_first_epoch(single_copy=False)
        h.down(1)
        h.down(2)
        h.gap(0, lsn(1, 1), lsn(1, 3))
        h.advance(100 * SECOND)
        assert not h.take()
        assert "N1:S0" in h.stream.waiting_for()

    def test_shards_that_lost_their_data_are_not_waited_for(self) -> None:
        h = at_first_epoch(single_copy=False)
        h.started(shard(1), Status.REBUILDING)
        h.started(shard(2), Status.REBUILDING)
        h.gap(0, lsn(1, 1), lsn(1, 3))
        h.advance(100_000)
        h.started(shard(0))
        h.gap(0, lsn(1, 1), lsn(1, 3))
        assert text(h.take()) == ["DATALOSS e1n1-e1n3"]

    def test_a_shard_that_left_the_cluster_file_is_not_waited_for(self) -> None:
        h = at_first_epoch(single_copy=False)
        h.gap(0, lsn(1, 1), lsn(1, 3))
        h.stream.on_config(make_config(1, version=2), h.now)
        h.advance(200_000)
        for _ in range(2):
            h.started(shard(0))
            h.gap(0, lsn(1, 1), lsn(1, 3))
            h.advance(200_000)
        assert text(h.take()) == ["DATALOSS e1n1-e1n3"]

    def test_a_shard_that_a_later_cluster_file_brought_is_waited_for(self) -> None:
        brought = (replace(make_interval(1, [0, 3], 2), config_version=2),)
        h = Harness(copies=2, first=lsn(1, 1), single_copy=False, intervals=brought)
        h.history()
        h.started(shard(0), last_released=lsn(1, 3))
        h.gap(0, lsn(1, 1), lsn(1, 3))
        h.advance(100 * SECOND)
        assert not h.take()
        h.history()
        h.stream.on_config(make_config(3, version=2), h.now)
        h.advance(200_000)
        for _ in range(2):
            h.started(shard(0), last_released=lsn(1, 3))
            h.gap(0, lsn(1, 1), lsn(1, 3))
            h.advance(200_000)
        assert not h.take(), "others may have joined the nodeset since, and have it"
        h.history()
        assert text(h.take()) == ["DATALOSS e1n1-e1n3"]

    def test_a_damaged_copy_is_no_proof_that_there_is_none(self) -> None:
        h = at_first_epoch(single_copy=False)
        h.down(2)
        h.gap(0, lsn(1, 1), lsn(1, 1), GapReason.CHECKSUM_FAIL)
        h.gap(1, lsn(1, 1), lsn(1, 1))
        h.advance(60 * SECOND)
        assert not h.take()

    def test_it_ends_with_the_epoch_whoever_reads(self) -> None:
        h = at_first_epoch(single_copy=False)
        for _ in range(2):
            for node in range(3):
                h.started(shard(node))
                h.gap(node, lsn(1, 1), lsn(2, 4))
            h.history()
            h.advance(100_000)
        assert text(h.take()) == [f"DATALOSS e1n1-e1n{2**32 - 1}", "BRIDGE e2n0-e2n0", "DATALOSS e2n1-e2n4"]

    def test_a_whole_nodeset_that_is_gone_loses_its_epochs(self) -> None:
        old, new = make_interval(1, [0, 1], 2), make_interval(3, [2, 3, 4], 2)
        h = Harness(5, first=lsn(1, 1), intervals=(old, new))
        h.history()
        h.started(shard(0), Status.REBUILDING)
        h.started(shard(1), Status.REBUILDING)
        kinds = [item.kind for item in h.take()]  # type: ignore[union-attr]
        assert kinds == [GapKind.DATALOSS, GapKind.BRIDGE, GapKind.DATALOSS, GapKind.BRIDGE]
        assert h.stream.next_lsn == lsn(3, 1)
        assert sorted(h.starts) == [shard(node) for node in range(5)]


class TestWhatSpeaksForALoss:
    def loss_of(self, h: Harness) -> DataLoss:
        """Of the only gap."""
        (gap,) = h.take()
        assert isinstance(gap, Gap)
        assert gap.kind is GapKind.DATALOSS
        assert gap.loss is not None
        return gap.loss

    def confirmed(self, *lost: int, reasons: dict[int, GapReason] | None = None) -> DataLoss:
        """The loss of e1n1, with some shards that lost their data; the others say for what reason they send nothing."""
        h = at_first_epoch(single_copy=False)
        for _ in range(2):
            for node in range(3):
                if node in lost:
                    h.started(shard(node), Status.REBUILDING)
                else:
                    h.started(shard(node))
                    h.gap(node, lsn(1, 1), lsn(1, 1), (reasons or {}).get(node, GapReason.NO_RECORDS))
            h.advance(200_000)
        h.advance(2 * SECOND)
        return self.loss_of(h)

    def test_shards_that_lost_nothing_have_no_copy(self) -> None:
        loss = self.confirmed()
        assert loss.authoritative
        assert str(loss) == "no copy is left"

    def test_one_shard_that_lost_its_data_cannot_have_held_it_alone(self) -> None:
        loss = self.confirmed(1)
        assert loss.authoritative
        assert loss.shards == (shard(1),)

    def test_two_shards_that_lost_their_data_may_have_held_it(self) -> None:
        loss = self.confirmed(0, 2)
        assert not loss.authoritative
        assert str(loss) == "too many shards cannot tell what they held (N0:S0, N2:S0)"

    def test_damaged_copies_were_there(self) -> None:
        loss = self.confirmed(reasons={0: GapReason.CHECKSUM_FAIL, 1: GapReason.UNDER_REPLICATED})
        assert not loss.authoritative
        assert loss.shards == (shard(0), shard(1))

    def test_a_whole_nodeset_that_is_gone_can_tell_nothing(self) -> None:
        h = Harness(
            5, first=lsn(1, 1), until=lsn(1, 9), intervals=(make_interval(1, [0, 1], 2), make_interval(3, [2], 1))
        )
        h.history()
        h.started(shard(0), Status.REBUILDING)
        h.started(shard(1), Status.REBUILDING)
        loss = self.loss_of(h)
        assert not loss.authoritative
        assert loss.shards == (shard(0), shard(1))

    def test_of_losses_that_touch_all_shards_are_named_and_the_weaker_proof_counts(self) -> None:
        one = Gap(GapKind.DATALOSS, LSN(lsn(1, 1)), LSN(lsn(1, 2)), DataLoss(True, (shard(2),)))
        two = Gap(GapKind.DATALOSS, LSN(lsn(1, 3)), LSN(lsn(1, 3)), DataLoss(False, (shard(0), shard(2))))
        both = one.joined(two)
        assert both is not None
        assert (int(both.lo), int(both.hi), both.loss) == (lsn(1, 1), lsn(1, 3), DataLoss(False, (shard(0), shard(2))))

    def test_two_readers_that_found_the_same_loss_for_other_reasons_saw_the_same(self) -> None:
        bounds = LSN(lsn(1, 1)), LSN(lsn(1, 2))
        assert Gap(GapKind.DATALOSS, *bounds, DataLoss(True, ())) == Gap(GapKind.DATALOSS, *bounds)


class TestSingleCopy:
    def test_a_shard_that_cannot_be_reached_is_left_out(self) -> None:
        h = Harness(first=lsn(1, 1))
        h.history()
        h.down(1)
        h.advance(100_000)
        assert h.known_down(0) == [1]
        assert h.is_single_copy(0)

    def test_when_the_rest_cannot_replicate_everyone_sends_everything(self) -> None:
        h = at_first_epoch()
        h.down(1)
        h.down(2)
        h.advance(100_000)
        assert not h.is_single_copy(0)
        assert h.known_down(0) == []

    def test_a_missing_entry_that_everyone_passed_makes_everyone_send(self) -> None:
        h = at_first_epoch()
        for node in range(3):
            h.gap(node, lsn(1, 1), lsn(1, 1))
        h.advance(100_000)
        assert not h.is_single_copy(0)
        h.restarted()
        h.records(2, entry(1, 1))
        assert text(h.take()) == ["e1n1:x"]

    def test_single_copies_are_sent_again_when_nothing_is_missing_any_more(self) -> None:
        h = at_first_epoch(settings=ReadSettings(single_copy_retry_us=10 * SECOND))
        for node in range(3):
            h.gap(node, lsn(1, 1), lsn(1, 1))
        h.advance(100_000)
        h.restarted()
        h.records(2, entry(1, 1))
        assert not h.is_single_copy(0)
        h.advance(10 * SECOND + 100_000)
        assert h.is_single_copy(0)
        h.restarted()
        rewinds = h.metrics.rewinds
        h.advance(100 * SECOND)
        assert h.metrics.rewinds == rewinds, "nothing is in trouble"

    def test_the_shards_that_hold_the_stream_up_are_left_out_after_a_second(self) -> None:
        h = at_first_epoch()
        h.records(0, entry(1, 2))
        h.gap(1, lsn(1, 1), lsn(1, 2))
        h.advance(SECOND - 1)
        assert h.known_down(0) == []
        h.advance(1)
        assert h.known_down(0) == [2]
        h.restarted()
        h.records(0, entry(1, 1), entry(1, 2))
        assert len(h.take()) == 2

    def test_that_second_begins_when_the_stream_last_got_further(self) -> None:
        h = at_first_epoch()
        h.advance(400_000)
        h.records(0, entry(1, 1), entry(1, 3))
        h.gap(1, lsn(1, 1), lsn(1, 3))
        h.advance(SECOND - 1)
        assert h.known_down(0) == []
        h.advance(1)
        assert h.known_down(0) == [2]

    def test_time_at_the_tail_does_not_count_against_those_that_then_have_to_send(self) -> None:
        h = at_first_epoch()
        h.records(0, entry(1, 1))
        h.advance(100 * SECOND)
        h.records(0, entry(1, 3))
        h.gap(1, lsn(1, 1), lsn(1, 3))
        h.advance(SECOND - 1)
        assert h.known_down(0) == []
        h.advance(1)
        assert h.known_down(0) == [2]

    def test_waiting_at_the_tail_blames_nobody(self) -> None:
        h = at_first_epoch()
        h.records(0, entry(1, 1))
        h.advance(100 * SECOND)
        assert h.metrics.failovers == 0
        assert h.metrics.rewinds == 1

    def test_a_consumer_that_does_not_read_blames_nobody(self) -> None:
        h = at_first_epoch(settings=ReadSettings(buffer_bytes=3000, shard_buffer_bytes_min=1))
        h.records(0, *[entry(1, esn, b"y" * 900) for esn in (1, 2)])
        h.started(shard(1), last_released=lsn(1, 50))
        assert not h.stream._read_set.senders[shard(0)].has_credit
        h.gap(1, lsn(1, 1), lsn(1, 50))
        h.gap(2, lsn(1, 1), lsn(1, 50))
        h.advance(100 * SECOND)
        assert h.metrics.failovers == 0

    def test_a_damaged_copy_makes_the_next_shard_send(self) -> None:
        h = at_first_epoch()
        at, image = entry(1, 1, b"good")
        h.records(0, (at, damaged(image)))
        h.advance(100_000)
        assert h.known_down(1) == [0]
        h.restarted()
        h.records(1, (at, image))
        assert text(h.take()) == ["e1n1:good"]
        assert h.metrics.corrupt_copies == 1

    def test_a_shard_is_trusted_again_when_it_keeps_up(self) -> None:
        h = at_first_epoch(settings=ReadSettings(single_copy_retry_us=10 * SECOND))
        h.down(1)
        h.advance(200_000)
        assert h.known_down(0) == [1]
        h.up(1)
        h.restarted()
        h.records(0, entry(1, 1))
        h.gap(1, lsn(1, 1), lsn(1, 1))
        h.advance(13 * SECOND)
        assert h.known_down(0) == []
        assert h.is_single_copy(0)

    def test_messages_of_an_earlier_filter_are_ignored(self) -> None:
        h = at_first_epoch()
        old = h.version(0)
        h.down(1)
        h.advance(200_000)
        h.records(0, entry(1, 1), version=old)
        assert not h.take()
        assert h.metrics.stale_messages == 1

    def test_causes_within_a_short_time_share_a_rewind(self) -> None:
        h = Harness(6, 2, first=lsn(1, 1)).begin()
        h.advance(SECOND)
        for node in (1, 2, 3):
            h.down(node)
        h.advance(100_000)
        assert h.metrics.rewinds == 3
        assert h.known_down(0) == [1, 2, 3]

    def test_a_log_without_single_copy_delivery_never_asks_for_it(self) -> None:
        h = at_first_epoch(single_copy=False)
        h.down(1)
        h.advance(100 * SECOND)
        assert not h.is_single_copy(0)
        assert h.metrics.rewinds == 1


class TestNodesets:
    def test_a_log_without_nodesets_is_looked_up_again(self) -> None:
        h = Harness(intervals=())
        h.history()
        h.advance(SECOND)
        assert h.history_requests == 2
        assert not h.starts
        h.history((make_interval(1, [0, 1, 2], 2),))
        assert len(h.starts) == 3

    def test_an_epoch_is_read_only_after_its_nodeset_is_known(self) -> None:
        h = at_first_epoch()
        assert h.history_requests == 1
        h.records(0, bridge(1, 1))
        h.records(0, entry(2, 1))
        assert h.history_requests == 2
        assert text(h.take()) == ["BRIDGE e1n1-e2n0"]
        h.history((make_interval(1, [0, 1, 2], 2), make_interval(2, [1, 2], 2)))
        assert h.stopped == [shard(0)]
        assert h.starts[shard(1)].first == lsn(2, 1)
        h.started(shard(1))
        h.records(1, entry(2, 1, b"from the nodeset"))
        assert text(h.take()) == ["e2n1:from the nodeset"]

    def test_shards_are_asked_for_no_epoch_of_another_interval(self) -> None:
        h = Harness(first=lsn(1, 1), intervals=(make_interval(1, [0, 1], 2), make_interval(4, [1, 2], 2)))
        h.history()
        assert {start.until for start in h.starts.values()} == {lsn(4, 0) - 1}
        assert sorted(h.starts) == [shard(0), shard(1)]

    def test_a_wiped_shard_takes_part_again_in_later_epochs(self) -> None:
        h = Harness(first=lsn(1, 1), intervals=(make_interval(1, [0, 1], 2), make_interval(2, [0, 1], 2, {0: 2})))
        h.history()
        h.started(shard(0), Status.REBUILDING)
        h.started(shard(1))
        h.advance(200_000)
        h.started(shard(1))
        h.records(1, entry(1, 1), bridge(1, 2))
        assert h.starts[shard(0)].generation == 2
        assert h.starts[shard(0)].first == lsn(2, 1)
        assert text(h.take()) == ["e1n1:x", "BRIDGE e1n2-e2n0"]

    def test_the_last_release_heard_of_makes_the_nodesets_be_read_once(self) -> None:
        h = Harness(first=lsn(1, 1))
        h.history()
        for node in range(3):
            h.started(shard(node), last_released=lsn(9, 4))
        assert h.history_requests == 2
        h.history()
        assert h.history_requests == 2

    def test_one_gap_tells_of_many_epochs_so_that_their_nodesets_are_read_once(self) -> None:
        """The window ends within an epoch: what shards have to say within it would tell of one epoch after the other."""
        h = at_first_epoch()
        h.gap(0, lsn(1, 1), lsn(1, 100), released=lsn(9, 4))
        assert h.history_requests == 2
        h.history()
        for epoch in range(1, 9):
            h.records(1, bridge(epoch, 1))
        assert h.history_requests == 2
        assert text(h.take()) == ["BRIDGE e1n1-e9n0"]

    def test_epochs_of_which_the_nodesets_cannot_be_read_are_waited_for(self) -> None:
        h = at_first_epoch()
        h.started(shard(0), last_released=lsn(5, 1))
        assert h.history_requests == 2
        h.history(certain=1)
        h.records(0, bridge(1, 1))
        for node in range(3):
            h.gap(node, lsn(1, 1), lsn(5, 1))
        assert text(h.take()) == ["BRIDGE e1n1-e2n0"]
        for asked in range(3, 8):
            h.advance(2 * SECOND)
            assert h.history_requests == asked
            assert h.take() == []
            assert "metadata log" in h.stream.waiting_for()
            h.history(certain=1)
        h.advance(2 * SECOND)
        h.history()
        h.restarted()
        h.records(1, bridge(2, 1))
        assert text(h.take()) == ["BRIDGE e2n1-e3n0"]

    def test_a_reader_of_a_vanished_nodeset_looks_for_a_new_one(self) -> None:
        h = at_first_epoch()
        h.started(shard(0), last_released=lsn(1, 3))
        for node in range(3):
            h.down(node)
        h.advance(6 * SECOND)
        assert h.history_requests > 1


class TestFlowControl:
    def test_the_credit_is_split_over_the_shards(self) -> None:
        h = at_first_epoch(settings=ReadSettings(buffer_bytes=3000, shard_buffer_bytes_min=1))
        assert {start.bytes_credit for start in h.starts.values()} == {1000}

    def test_a_shard_that_is_alone_gets_all_of_it(self) -> None:
        h = at_first_epoch(nodes=1, copies=1, settings=ReadSettings(buffer_bytes=3000, shard_buffer_bytes_min=1))
        assert h.starts[shard(0)].bytes_credit == 3000

    def test_a_shard_that_is_far_away_gets_what_a_round_trip_takes(self) -> None:
        h = at_first_epoch(
            settings=ReadSettings(buffer_bytes=15_000, shard_buffer_bytes_min=1, far_buffer_bytes=30_000)
        )
        assert h.starts[shard(0)].bytes_credit == 5000
        h.stream._read_set.senders[shard(0)].round_trip_us = 80_000
        h.records(0, entry(1, 1))
        assert [(w.shard, w.bytes_credit) for w in h.windows] == [(shard(0), 10_000)]

    def test_taking_gives_credit(self) -> None:
        h = at_first_epoch(settings=ReadSettings(buffer_bytes=3000, shard_buffer_bytes_min=1))
        sent = [entry(1, esn, b"y" * 400) for esn in (1, 2)]
        h.records(0, *sent)
        assert not h.windows
        h.take()
        assert [(w.shard, w.bytes_credit) for w in h.windows] == [(shard(0), 1000 + sum(len(i) for _, i in sent))]

    def test_the_window_follows_what_was_taken(self) -> None:
        h = at_first_epoch(settings=ReadSettings(window_lsns=10))
        h.records(0, *[entry(1, esn) for esn in range(1, 9)])
        assert not h.windows
        h.take()
        assert {(w.shard, w.high) for w in h.windows} == {(shard(n), lsn(1, 18)) for n in range(3)}

    def test_a_shard_that_sends_beyond_its_credit_is_not_listened_to(self) -> None:
        h = at_first_epoch(settings=ReadSettings(buffer_bytes=3000, shard_buffer_bytes_min=1))
        h.records(0, *[entry(1, esn, b"y" * 500) for esn in range(1, 5)])
        assert h.metrics.protocol_violations == 1
        assert h.stopped == [shard(0)]
        assert len(h.take()) == 2

    def test_a_shard_that_sends_beyond_the_window_is_not_listened_to(self) -> None:
        h = at_first_epoch(settings=ReadSettings(window_lsns=10))
        h.records(0, entry(1, 11))
        assert h.metrics.protocol_violations == 1

    def test_lengths_that_do_not_fit_the_payload_are_a_violation(self) -> None:
        h = at_first_epoch()
        at, image = entry(1, 1)
        h.records(0, (at, image), (at + 1, b""))
        assert h.metrics.protocol_violations + h.metrics.corrupt_copies == 1

    def test_stopping_lets_everything_go(self) -> None:
        h = at_first_epoch()
        h.records(0, entry(1, 1), entry(1, 3))
        h.stream.stop()
        h.turn()
        assert h.metrics.bytes_buffered == 0
        assert len(h.stopped) == 3
        assert h.timers.next_deadline() is None


class TestConnections:
    def test_a_shard_is_asked_again_after_a_pause(self) -> None:
        h = at_first_epoch(single_copy=False)
        first = h.version(1)
        h.down(1)
        assert h.version(1) == first
        h.advance(20_000)
        assert h.version(1) > first

    def test_a_connection_makes_it_be_asked_at_once(self) -> None:
        h = at_first_epoch(single_copy=False)
        for _ in range(8):
            h.down(1)
            h.advance(5 * SECOND)
        h.down(1)
        first = h.version(1)
        h.up(1)
        assert h.version(1) > first

    def test_a_start_that_is_not_answered_is_sent_again(self) -> None:
        h = Harness(first=lsn(1, 1), single_copy=False)
        h.history()
        first = h.version(1)
        h.advance(10 * SECOND)
        assert h.version(1) > first

    def test_a_shard_that_is_not_ready_is_asked_again(self) -> None:
        h = Harness(first=lsn(1, 1), single_copy=False)
        h.history()
        first = h.version(1)
        h.started(shard(1), Status.AGAIN)
        h.advance(SECOND)
        assert h.version(1) > first


def test_until_may_be_the_greatest_lsn() -> None:
    h = Harness(first=lsn(1, 1), until=LSN_MAX).begin()
    h.records(0, entry(1, 1))
    assert len(h.take()) == 1
    assert compose_lsn(1, 2) == h.stream.next_lsn
