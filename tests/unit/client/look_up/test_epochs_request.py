"""What epochs hold, from what shards answer, and the segments that follow from it."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from google_crc32c import value as crc32c

from client.links import Links
from client.look_up.epochs_request import EpochsRequest, KnownEpochs
from client.look_up.segments import EpochInProgress, SegmentState, listed_segments
from client.look_up.survey import LogParts, SurveyContext
from client.settings import ClientSettings
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.epoch_summary import EpochCounts, EpochSummary, SummaryFlags, encode_rows
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import ESN_MAX, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.machine import Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import EpochsListed, ListEpochs
from logdevice_py.protocol.requests import Requests
from tests.unit.client.fakes import LOG, cluster

SHARDS = [shard_id(NodeId(node)) for node in range(3)]
COUNTED = int(SummaryFlags.COUNTED | SummaryFlags.AUTHORITATIVE | SummaryFlags.LISTED)


def summary(records: int, *, seal: int = 9, last: int = 5) -> EpochSummary:
    return EpochSummary(
        COUNTED if records else int(SummaryFlags.AUTHORITATIVE), Epoch(seal), Esn(1), Esn(last), 5, 0, records, 100
    )


class AskedShards:
    """Shards that know of some epochs, and one question to them."""

    def __init__(self, *known: dict[int, EpochSummary]) -> None:
        self.known = dict(zip(SHARDS, known, strict=True))
        self.trimmed = 0
        self.most: dict[ShardId, int] = {}
        self.silent: set[ShardId] = set()
        self.damaged: set[ShardId] = set()
        self.flipped: set[ShardId] = set()
        """Whose next answer arrives with other bits than it was sent with."""
        self.outcome: Any = None

    def answer(self, asked: ListEpochs) -> EpochsListed:
        rows = [
            (Epoch(epoch), each.encode())
            for epoch, each in sorted(self.known[asked.shard].items())
            if asked.first <= epoch <= asked.last
        ][: self.most.get(asked.shard, 100)]
        cut = len(rows) == self.most.get(asked.shard, 100)
        sent = arrived = encode_rows(rows)
        if asked.shard in self.flipped:
            self.flipped.remove(asked.shard)
            arrived = bytes((*sent[:-1], sent[-1] ^ 1))
        return EpochsListed(
            request_id=asked.request_id,
            shard=asked.shard,
            log=asked.log,
            status=Status.OK,
            covered=rows[-1][0] if cut else asked.last,
            through=Lsn(1 << 62),
            trim_point=Lsn(self.trimmed),
            generation=Generation(1),
            crc=0 if asked.shard in self.damaged else crc32c(sent),
            rows=b"damaged" if asked.shard in self.damaged else arrived,
        )

    def ask(self, first: int, last: int) -> KnownEpochs:
        timers, links = TimerQueue(), Links()
        requests = Requests(itertools.count(1), timers)
        for node in range(3):
            links.on_peer_up(PeerId(node))
        interval = EpochInterval(
            Epoch(1), tuple((shard, Generation(1)) for shard in SHARDS), ReplicationProperty.parse("node:2")
        )
        parts = LogParts([interval], compose_lsn(Epoch(last), ESN_MAX), cluster(3))
        context = SurveyContext(links, timers, random.Random(1), requests, ClientSettings())

        def done(outcome: Any, now: Micros) -> None:
            self.outcome = outcome

        request = EpochsRequest(context, LogId(LOG), parts, Epoch(first), Epoch(last), 5 * SECOND, done)
        now = Micros(0)
        request.start(now)
        while self.outcome is None and now < 10 * SECOND:
            for effect in links.take():
                if isinstance(effect, Send) and effect.message.shard not in self.silent:
                    requests.on_answer(effect.to, self.answer(effect.message), now)
            now = Micros(now + 10_000)
            timers.advance(now)
        outcome, self.outcome = self.outcome, None
        return outcome  # type: ignore[no-any-return]


def test_shards_that_say_the_same_and_ones_that_know_less_are_put_together() -> None:
    whole = {1: summary(3), 2: summary(4), 3: summary(5)}
    known = AskedShards(whole, {1: summary(3)}, whole).ask(1, 3)
    assert known.covered == 3
    assert known.summaries == whole


def test_who_sent_rows_that_arrived_otherwise_is_asked_again() -> None:
    whole = {1: summary(3), 2: summary(4)}
    shards = AskedShards(whole, whole, whole)
    shards.flipped = set(SHARDS)
    assert shards.ask(1, 2).summaries == whole
    assert not shards.flipped


def test_the_last_recovery_counts() -> None:
    first, second = {1: summary(3, seal=1)}, {1: summary(4, seal=2)}
    orders = list(itertools.permutations((first, second, {})))
    assert len(orders) == 6
    for known in orders:
        shards = AskedShards(*known)
        assert shards.ask(1, 1).summaries in ({1: summary(4, seal=2)}, {1: summary(3, seal=1)})
    assert AskedShards(first, second, second).ask(1, 1).summaries == second


def test_one_of_three_shards_does_not_suffice() -> None:
    shards = AskedShards({}, {}, {})
    shards.silent = {SHARDS[0], SHARDS[2]}
    assert set(shards.ask(1, 1)) == {SHARDS[0], SHARDS[2]}  # type: ignore[call-overload]


def test_an_answer_that_was_cut_short_says_up_to_where_all_is_told() -> None:
    whole = {epoch: summary(epoch) for epoch in range(1, 10)}
    shards = AskedShards(whole, whole, whole)
    shards.most = dict.fromkeys(SHARDS, 4)
    known = shards.ask(1, 9)
    assert known.covered == 4
    assert list(known.summaries) == [1, 2, 3, 4]


def test_rows_that_cannot_be_read_are_passed_over() -> None:
    whole = {1: summary(3)}
    shards = AskedShards(whole, whole, whole)
    shards.damaged = {SHARDS[0]}
    assert shards.ask(1, 1).summaries == whole


class TestSegments:
    def test_empty_and_trimmed_epochs_are_left_out_and_unknown_ones_are_not(self) -> None:
        known = KnownEpochs(
            Epoch(6),
            {Epoch(2): summary(3), Epoch(3): summary(0, last=0), Epoch(4): summary(7), Epoch(6): summary(0)},
            compose_lsn(Epoch(4), 2),
        )
        segments = listed_segments(known, Epoch(1), Lsn(0))
        assert [(each.epoch, each.state) for each in segments] == [
            (4, SegmentState.COMPLETED),
            (5, SegmentState.UNKNOWN),
            (6, SegmentState.COMPLETED),
        ]
        partly, unknown, uncounted = segments
        assert (partly.records, partly.bytes, partly.trimmed_to) == (7, 100, compose_lsn(Epoch(4), 2))
        assert (unknown.first_lsn, unknown.last_lsn, unknown.records) == (compose_lsn(Epoch(5), 1), None, None)
        assert (uncounted.last_lsn, uncounted.records, uncounted.authoritative) == (
            compose_lsn(Epoch(6), 5),
            None,
            True,
        )
        assert repr(partly) == "<LogSegment e4n1..e4n5: completed, 7 records, 100 bytes>"

    def test_segments_before_the_start_are_left_out(self) -> None:
        known = KnownEpochs(Epoch(2), {Epoch(1): summary(1), Epoch(2): summary(2)}, Lsn(0))
        assert len(listed_segments(known, Epoch(1), compose_lsn(Epoch(1), 5))) == 2
        assert len(listed_segments(known, Epoch(1), compose_lsn(Epoch(1), 6))) == 1

    @pytest.mark.parametrize(("tail", "there"), [((2, 3), True), ((2, 0), False), ((1, 9), False)])
    def test_the_one_in_progress_is_there_when_something_of_it_is_released(
        self, tail: tuple[int, int], there: bool
    ) -> None:
        counts = EpochCounts(9, 90, Timestamp(5), 3, 4)
        end = EpochInProgress(Epoch(2), compose_lsn(Epoch(tail[0]), tail[1]), Timestamp(7), counts)
        segment = end.segment(Lsn(0))
        assert (segment is not None) == there
        if there:
            assert segment is not None
            assert (segment.records, segment.bytes, segment.first_txid, segment.last_txid) == (9, 90, 3, 4)
            assert (segment.state, segment.completed) == (SegmentState.IN_PROGRESS, None)
            assert end.segment(compose_lsn(Epoch(2), 3)) is None, "it is trimmed"
