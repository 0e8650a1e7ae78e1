"""Requests of many recoveries at one shard share frames, and each recovery gets its own answer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, node_peer, shard_id
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import (
    LOGS_PER_FRAME,
    Clean,
    Cleaned,
    CleanedLog,
    CleanLog,
    Digest,
    Digested,
    DigestedRange,
    DigestRange,
    LogEntry,
    Seal,
    Sealed,
    SealedLog,
    SealLog,
)
from logdevice_py.protocol.requests import Requests
from sequencer.recovery.coalescing import RequestCoalescer

A, B = shard_id(NodeId(1)), shard_id(NodeId(2))
NOW = Micros(1)


class AnsweredRequests:
    """A recovery that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def on_sealed(self, shard: ShardId, generation: Generation, row: SealedLog, now: Micros) -> None:
        self.told.append((shard, generation, row))

    def on_digested(
        self, shard: ShardId, status: Status, covered: Lsn, images: list[tuple[Lsn, bytes]], now: Micros
    ) -> None:
        self.told.append((shard, status, covered, images))

    def on_cleaned(self, shard: ShardId, row: CleanedLog, now: Micros) -> None:
        self.told.append((shard, row))


class Asking:
    def __init__(self) -> None:
        self.outbox = Outbox()
        self.open = Requests(itertools.count(1), TimerQueue())
        self.requests = RequestCoalescer(NodeId(9), self.outbox, self.open)
        self.sink = AnsweredRequests()

    def seal(self, shard: ShardId = A, log: int = 7, pairs: int = 1, sink: AnsweredRequests | None = None) -> None:
        self.requests.seal(
            sink or self.sink, shard, SealLog(LogId(log), Epoch(5), Epoch(0), [(Epoch(1), Generation(1))] * pairs)
        )

    def digest(self, shard: ShardId = A, log: int = 7, bytes_max: int = 100) -> None:
        self.requests.digest(self.sink, shard, bytes_max, DigestRange(LogId(log), Lsn(1), Lsn(9), Generation(1)))

    def clean(self, shard: ShardId = A, log: int = 7, seal_epoch: int = 5) -> None:
        self.requests.clean(self.sink, shard, Epoch(seal_epoch), CleanLog(LogId(log), 1, 0, 0, 0, 0, 1))

    def sent(self) -> list[Any]:
        self.requests.on_turn_end()
        effects = self.outbox.take()
        assert all(effect.to == node_peer(effect.message.shard) for effect in effects)
        return [effect.message for effect in effects]

    def sealed(self, seal: Seal, log: int = 7) -> None:
        row = SealedLog(LogId(log), Status.OK, Epoch(5), NodeId(9), Lsn(0), [])
        self.answer(Sealed(request_id=seal.request_id, shard=seal.shard, logs=[row], generation=Generation(3)))

    def answer(self, message: Any) -> None:
        self.open.on_answer(node_peer(message.shard), message, NOW)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_what_a_turn_asks_of_a_shard_goes_in_one_frame_of_each_kind(asking: Asking) -> None:
    for log in (7, 8):
        for shard in (A, B):
            asking.seal(shard, log)
            asking.digest(shard, log)
            asking.clean(shard, log)
    sent = asking.sent()
    assert [(type(message), message.shard) for message in sent] == [
        (kind, shard) for kind in (Seal, Digest, Clean) for shard in (A, B)
    ]
    rows = [message.ranges if isinstance(message, Digest) else message.logs for message in sent]
    assert [[row[0] for row in each] for each in rows] == [[7, 8]] * 6
    assert len({message.request_id for message in sent}) == 6
    assert asking.sent() == []


def test_what_differs_for_the_whole_frame_needs_one_of_its_own(asking: Asking) -> None:
    for bytes_max in (100, 200):
        asking.digest(log=bytes_max, bytes_max=bytes_max)
    for seal_epoch in (5, 6):
        asking.clean(log=seal_epoch, seal_epoch=seal_epoch)
    sent = asking.sent()
    assert [each.bytes_max for each in sent if isinstance(each, Digest)] == [100, 200]
    assert [each.seal_epoch for each in sent if isinstance(each, Clean)] == [5, 6]


@pytest.mark.parametrize(("logs", "frames"), [(LOGS_PER_FRAME, 1), (LOGS_PER_FRAME + 1, 2)])
def test_a_frame_holds_so_many_logs(asking: Asking, logs: int, frames: int) -> None:
    for log in range(1, logs + 1):
        asking.seal(log=log)
        asking.digest(log=log)
        asking.clean(log=log)
    assert len(asking.sent()) == 3 * frames


@pytest.mark.parametrize(("pairs", "frames"), [(1500, 1), (1501, 2)])
def test_and_so_many_generations(asking: Asking, pairs: int, frames: int) -> None:
    for log in (7, 8):
        asking.seal(log=log, pairs=pairs)
    assert len(asking.sent()) == frames


def test_each_log_gets_its_part_once(asking: Asking) -> None:
    other = AnsweredRequests()
    asking.seal()
    asking.seal(log=8, sink=other)
    [seal] = asking.sent()
    for _ in range(2):
        asking.sealed(seal, 8)
    assert (len(other.told), asking.sink.told) == (1, [])
    asking.sealed(seal)
    assert asking.sink.told == [(A, 3, (7, Status.OK, 5, 9, 0, []))]


def test_a_digest_is_taken_apart(asking: Asking) -> None:
    asking.digest()
    asking.digest(log=8)
    [digest] = asking.sent()
    message = Digested(
        request_id=digest.request_id,
        shard=A,
        ranges=[DigestedRange(LogId(7), Status.OK, Lsn(9)), DigestedRange(LogId(8), Status.REBUILDING, Lsn(4))],
        entries=[LogEntry(7, 1, 2), LogEntry(8, 3, 1), LogEntry(7, 2, 3)],
        images=b"aabccc",
    )
    asking.answer(message)
    assert asking.sink.told == [(A, Status.OK, 9, [(1, b"aa"), (2, b"ccc")]), (A, Status.REBUILDING, 4, [(3, b"b")])]


def test_only_the_answer_to_the_latest_request_counts(asking: Asking) -> None:
    asking.seal()
    [first] = asking.sent()
    asking.seal()
    asking.sealed(first)
    [second] = asking.sent()
    asking.sealed(first)
    assert asking.sink.told == []
    asking.sealed(second)
    assert len(asking.sink.told) == 1
    assert len(asking.open) == 0


def test_with_a_connection_go_its_requests_sent_or_not_and_no_others(asking: Asking) -> None:
    for shard in (A, B):
        asking.seal(shard)
    sent = asking.sent()
    for shard in (A, B):
        asking.seal(shard, 8)
        asking.digest(shard)
        asking.clean(shard)
    asking.requests.on_peer_down(PeerId(1))
    assert [(type(message), message.shard) for message in asking.sent()] == [(Seal, B), (Digest, B), (Clean, B)]
    for seal in sent:
        asking.sealed(seal)
    assert [told[0] for told in asking.sink.told] == [B]
    assert len(asking.open) == 3, "SEAL of log 8, DIGEST and CLEAN of B"


def test_a_log_whose_recovery_is_over_asks_nothing_more(asking: Asking) -> None:
    asking.seal()
    [seal] = asking.sent()
    asking.seal(log=8)
    asking.digest()
    asking.clean()
    asking.requests.forget(LogId(7))
    assert [(type(message), message.logs[0][0]) for message in asking.sent()] == [(Seal, 8)]
    assert len(asking.open) == 1, "SEAL of log 8"
    asking.sealed(seal)
    assert asking.sink.told == []


@pytest.mark.parametrize("was_sent", [False, True])
def test_cleans_are_withdrawn_sent_or_not_and_nothing_else(asking: Asking, was_sent: bool) -> None:
    asking.seal()
    asking.clean()
    sent = asking.sent() if was_sent else []
    asking.requests.withdraw_cleans(LogId(7))
    sent += asking.sent()
    assert [type(message) for message in sent] == ([Seal, Clean] if was_sent else [Seal])
    row = CleanedLog(LogId(7), Epoch(1), Status.OK, Epoch(5), NodeId(9))
    asking.answer(Cleaned(request_id=sent[-1].request_id, shard=A, logs=[row]))
    assert asking.sink.told == []
    asking.sealed(sent[0])
    assert len(asking.sink.told) == 1


def test_cleaned_is_handed_on(asking: Asking) -> None:
    asking.clean()
    [clean] = asking.sent()
    row = CleanedLog(LogId(7), Epoch(1), Status.OK, Epoch(5), NodeId(9))
    asking.answer(Cleaned(request_id=clean.request_id, shard=A, logs=[row]))
    assert asking.sink.told == [(A, row)]
