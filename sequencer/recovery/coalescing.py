"""Merges the requests that many recoveries make of one shard in one turn into few frames, and splits the answers again."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, node_peer
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.machine import Outbox
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
    DigestRange,
    Seal,
    Sealed,
    SealedLog,
    SealLog,
)
from logdevice_py.protocol.requests import Requests

Row = TypeVar("Row")

_PAIRS_PER_FRAME: Final = 3000
"""Generations in one SEAL at most, so that its fields stay below 64 KiB."""


class AnswerSink(Protocol):
    """Who asked, and gets the answer."""

    def on_sealed(self, shard: ShardId, generation: Generation, row: SealedLog, now: Micros) -> None:
        """The log's part of a SEALED; the generation of the shard, 0 if it did not tell."""

    def on_digested(
        self, shard: ShardId, status: Status, covered: Lsn, images: list[tuple[Lsn, bytes]], now: Micros
    ) -> None:
        """The log's part of a DIGESTED: what is stored up to `covered`."""

    def on_cleaned(self, shard: ShardId, row: CleanedLog, now: Micros) -> None:
        """The log's part of a CLEANED."""


class _Kind(enum.IntEnum):
    SEAL = 0
    DIGEST = 1
    CLEAN = 2


@dataclass(slots=True)
class _Awaited:
    """A request of a log at a shard. `request_id` is 0 until its frame is sent."""

    sink: AnswerSink
    request_id: int = 0


class RequestCoalescer:
    """The SEAL, DIGEST and CLEAN requests of all recoveries of a node.

    A log has at most one request of a kind at a shard: a later one replaces it, whose answer is then ignored. So is one that comes after the
    connection to the node was lost.
    """

    __slots__ = ("_answers", "_awaited", "_cleans", "_digests", "_node", "_outbox", "_requests", "_rows", "_seals")

    def __init__(self, node: NodeId, outbox: Outbox, requests: Requests) -> None:
        """
        Args:
            node: who seals.
            outbox: where requests go.
            requests: those of the process.
        """
        self._node = node
        self._outbox = outbox
        self._requests = requests
        self._answers: Final[dict[_Kind, tuple[type[Any], Callable[[Any, Micros], None]]]] = {
            _Kind.SEAL: (Sealed, self._on_sealed),
            _Kind.DIGEST: (Digested, self._on_digested),
            _Kind.CLEAN: (Cleaned, self._on_cleaned),
        }
        self._rows: dict[int, int] = {}
        """By request: how many of its rows are still awaited."""
        self._awaited: dict[LogId, dict[tuple[_Kind, ShardId], _Awaited]] = {}
        self._seals: dict[ShardId, dict[LogId, SealLog]] = {}
        self._digests: dict[tuple[ShardId, int], dict[LogId, DigestRange]] = {}
        self._cleans: dict[tuple[ShardId, Epoch], dict[LogId, CleanLog]] = {}

    def seal(self, sink: AnswerSink, shard: ShardId, row: SealLog) -> None:
        """Ask at the end of the turn; `row` is an element of SEAL's logs."""
        log = row.log
        self._await(_Kind.SEAL, shard, log, sink)
        self._seals.setdefault(shard, {})[log] = row

    def digest(self, sink: AnswerSink, shard: ShardId, bytes_max: int, row: DigestRange) -> None:
        """Ask at the end of the turn; `row` is an element of DIGEST's ranges."""
        log = row.log
        self._await(_Kind.DIGEST, shard, log, sink)
        self._digests.setdefault((shard, bytes_max), {})[log] = row

    def clean(self, sink: AnswerSink, shard: ShardId, seal_epoch: Epoch, row: CleanLog) -> None:
        """Ask at the end of the turn; `row` is an element of CLEAN's logs."""
        log = row.log
        self._await(_Kind.CLEAN, shard, log, sink)
        self._cleans.setdefault((shard, seal_epoch), {})[log] = row

    def _await(self, kind: _Kind, shard: ShardId, log: LogId, sink: AnswerSink) -> None:
        requests = self._awaited.setdefault(log, {})
        before = requests.get((kind, shard))
        requests[kind, shard] = _Awaited(sink)
        if before is not None:
            self._row_is_done(before)

    def withdraw_cleans(self, log: LogId) -> None:
        """Send no CLEAN that was not sent yet, and ignore answers to those that were: the recovery of the epoch begins anew."""
        requests = self._awaited.get(log, {})
        for key in [key for key in requests if key[0] is _Kind.CLEAN]:
            self._row_is_done(requests.pop(key))
        for queue in self._cleans.values():
            queue.pop(log, None)

    def forget(self, log: LogId) -> None:
        """The log's recovery is over: nothing more is asked or answered for it."""
        for awaited in self._awaited.pop(log, {}).values():
            self._row_is_done(awaited)
        for queues in (self._seals, self._digests, self._cleans):
            for queue in queues.values():
                queue.pop(log, None)

    def on_peer_down(self, peer: PeerId) -> None:
        """What was asked of the node's shards will not be answered."""
        for requests in self._awaited.values():
            for key in [key for key in requests if node_peer(key[1]) == peer]:
                self._row_is_done(requests.pop(key))
        for shard in [shard for shard in self._seals if node_peer(shard) == peer]:
            del self._seals[shard]
        for digest_key in [key for key in self._digests if node_peer(key[0]) == peer]:
            del self._digests[digest_key]
        for clean_key in [key for key in self._cleans if node_peer(key[0]) == peer]:
            del self._cleans[clean_key]

    def on_turn_end(self) -> None:
        """Send everything that the turn asked for."""
        if self._seals:
            seals, self._seals = self._seals, {}
            for shard, rows in sorted(seals.items()):
                for frame in _seal_frames(rows.values()):
                    request = self._request(_Kind.SEAL, shard, [row.log for row in frame])
                    self._outbox.send(
                        node_peer(shard), Seal(request_id=request, shard=shard, node=self._node, logs=frame)
                    )
        if self._digests:
            digests, self._digests = self._digests, {}
            for (shard, bytes_max), ranges in sorted(digests.items()):
                for part in _split(list(ranges.values())):
                    request = self._request(_Kind.DIGEST, shard, [row.log for row in part])
                    self._outbox.send(
                        node_peer(shard), Digest(request_id=request, shard=shard, bytes_max=bytes_max, ranges=part)
                    )
        if self._cleans:
            cleans, self._cleans = self._cleans, {}
            for (shard, seal_epoch), marks in sorted(cleans.items()):
                for chunk in _split(list(marks.values())):
                    request = self._request(_Kind.CLEAN, shard, [row.log for row in chunk])
                    self._outbox.send(
                        node_peer(shard),
                        Clean(request_id=request, shard=shard, seal_epoch=seal_epoch, node=self._node, logs=chunk),
                    )

    def _request(self, kind: _Kind, shard: ShardId, logs: Iterable[LogId]) -> int:
        answer, answered = self._answers[kind]
        request = self._requests.ask_shard(shard, answer, answered, once=False)
        for log in logs:
            self._awaited[log][kind, shard].request_id = request
            self._rows[request] = self._rows.get(request, 0) + 1
        return request

    def _row_is_done(self, awaited: _Awaited) -> None:
        request = awaited.request_id
        if request:
            self._rows[request] -= 1
            if not self._rows[request]:
                del self._rows[request]
                self._requests.forget(request)

    def _answered(self, kind: _Kind, shard: ShardId, log: LogId, request_id: int) -> AnswerSink | None:
        requests = self._awaited.get(log)
        if requests is None:
            return None
        awaited = requests.get((kind, shard))
        if awaited is None or awaited.request_id != request_id:
            return None
        del requests[kind, shard]
        self._row_is_done(awaited)
        return awaited.sink

    def _on_sealed(self, message: Sealed, now: Micros) -> None:
        """Hand each log's part to its recovery. One request may be answered by several frames."""
        for row in message.logs:
            sink = self._answered(_Kind.SEAL, message.shard, row.log, message.request_id)
            if sink is not None:
                sink.on_sealed(message.shard, message.generation, row, now)

    def _on_digested(self, message: Digested, now: Micros) -> None:
        """Hand each log's part to its recovery."""
        by_log: dict[LogId, list[tuple[Lsn, bytes]]] = {}
        at = 0
        images = message.images
        for log, lsn, length in message.entries:
            by_log.setdefault(log, []).append((lsn, bytes(images[at : at + length])))
            at += length
        for each in message.ranges:
            sink = self._answered(_Kind.DIGEST, message.shard, each.log, message.request_id)
            if sink is not None:
                sink.on_digested(message.shard, each.status, each.through, by_log.get(each.log, []), now)

    def _on_cleaned(self, message: Cleaned, now: Micros) -> None:
        """Hand each log's part to its recovery."""
        for row in message.logs:
            sink = self._answered(_Kind.CLEAN, message.shard, row.log, message.request_id)
            if sink is not None:
                sink.on_cleaned(message.shard, row, now)


def _split(rows: list[Row]) -> list[list[Row]]:
    return [rows[at : at + LOGS_PER_FRAME] for at in range(0, len(rows), LOGS_PER_FRAME)]


def _seal_frames(rows: Iterable[SealLog]) -> list[list[SealLog]]:
    frames: list[list[SealLog]] = []
    pairs = 0
    for row in rows:
        pairs += len(row.generations)
        if not frames or len(frames[-1]) == LOGS_PER_FRAME or pairs > _PAIRS_PER_FRAME:
            frames.append([])
            pairs = len(row.generations)
        frames[-1].append(row)
    return frames
