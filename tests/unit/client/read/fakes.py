"""A read stream without a network: entries, a configuration, and what the stream asked of the shards."""

from __future__ import annotations

import random
from typing import Any

from google_crc32c import value as crc32c

from client.read.hedge_budget import HedgeBudget
from client.read.hedging import HedgeContext, HedgeMessages
from client.read.items import CorruptRecord, Gap, Item, Record
from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.read.read_stream import ReadStream
from client.read.settings import ReadSettings
from client.read.shard_delays import KnownDelays
from logdevice_py.config.cluster import ClusterConfig, MetadataLogConfig, NodeConfig
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.entry import (
    Constituent,
    EntryFlags,
    EntryHeader,
    encode_body,
    encode_entry,
)
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import EPOCH_MAX, LSN_OLDEST, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import GapReason, Records, ShardGap, Start, Started, StartFlags, Stop, Window

LOG = LogId(7)
HEDGES = 77
"""Id of the hedges of a stream."""
HOLE = int(EntryFlags.HOLE | EntryFlags.WRITTEN_BY_RECOVERY)
BRIDGE = int(EntryFlags.HOLE | EntryFlags.BRIDGE | EntryFlags.WRITTEN_BY_RECOVERY)


def lsn(epoch: int, esn: int) -> Lsn:
    return compose_lsn(epoch, esn)


def shard(node: int) -> ShardId:
    return shard_id(NodeId(node))


def make_config(nodes: int, version: int = 1) -> ClusterConfig:
    replication = ReplicationProperty.parse("node:1")
    return ClusterConfig(
        name="test",
        uuid=b"u" * 16,
        version=version,
        nodes={NodeId(n): NodeConfig(node=NodeId(n), host="127.0.0.1", port=4000 + n) for n in range(nodes)},
        logs=LogTree(),
        metadata_log=MetadataLogConfig((shard(0),), replication),
        epoch_store="memory:",
    )


def make_interval(
    since: int, nodes: list[int], copies: int, generations: dict[int, int] | None = None
) -> EpochInterval:
    given = generations or {}
    return EpochInterval(
        Epoch(since),
        tuple((shard(node), Generation(given.get(node, 1))) for node in nodes),
        ReplicationProperty.parse(f"node:{copies}"),
    )


def make_image(
    at: int,
    payloads: list[bytes] | None = None,
    *,
    flags: int = 0,
    wave: int = 1,
    copyset: tuple[int, ...] = (),
    extensions: bytes = b"",
) -> bytes:
    body = b""
    if not flags & EntryFlags.HOLE:
        parts = [Constituent(payload, 1, crc32c(payload)) for payload in payloads or [b"payload"]]
        body = encode_body(parts)
    header = EntryHeader(
        LOG,
        Lsn(at),
        Timestamp(1_000_000 + (at & 0xFFFF)),
        wave,
        tuple(ShardId(member) for member in copyset),
        Esn(0),
        len(payloads or [b""]) if body else 0,
        flags,
        len(body),
        crc32c(body),
        extensions,
    )
    return encode_entry(header, body)


def damaged(image: bytes) -> bytes:
    return image[:-1] + bytes([image[-1] ^ 1])


class Harness:
    """One stream; shards are played by the test."""

    def __init__(
        self,
        nodes: int = 3,
        copies: int = 2,
        *,
        first: int = LSN_OLDEST,
        until: int = compose_lsn(100, 0),
        single_copy: bool = True,
        settings: ReadSettings | None = None,
        intervals: tuple[EpochInterval, ...] | None = None,
        near: bool = True,
        hedged: bool = False,
        at: Location | None = None,
        config: ClusterConfig | None = None,
    ) -> None:
        self.now = Micros(0)
        self.out = Outbox()
        self.timers = TimerQueue()
        self.metrics = ReadMetrics()
        self.history_requests = 0
        self.wakes = 0
        self.intervals = (make_interval(1, list(range(nodes)), copies),) if intervals is None else intervals
        settings = settings or ReadSettings()
        self.delays = KnownDelays(settings)
        self.budget = HedgeBudget(settings.hedge_budget_percent)
        self.hedges: HedgeMessages | None = None
        self.hedge_starts: dict[int, Start] = {}
        """By node: the STARTs of the last attempt."""
        self.hedge_stops: list[int] = []
        self.stream = ReadStream(
            ReadRequest(
                log=LOG,
                stream=5,
                first=Lsn(first),
                until=Lsn(until),
                single_copy=single_copy,
                near=near,
                hedged=hedged,
            ),
            config=config or make_config(nodes),
            settings=settings,
            outbox=self.out,
            timers=self.timers,
            rng=random.Random(1),
            metrics=self.metrics,
            request_history=self._on_request,
            on_ready=self._on_ready,
            request_turn_end=lambda: None,
            at=at,
            hedges=HedgeContext(
                delays=self.delays, budget=self.budget, open=self._on_open, close=lambda stream: self._on_open(None)
            ),
        )
        self.starts: dict[ShardId, Start] = {}
        self.stopped: list[ShardId] = []
        self.windows: list[Window] = []
        self.stream.start(self.now)
        self.turn()

    def _on_request(self, now: Micros) -> None:
        self.history_requests += 1

    def _on_open(self, hedges: HedgeMessages | None) -> int:
        self.hedges = hedges
        return HEDGES

    def _on_ready(self) -> None:
        self.wakes += 1

    def begin(self) -> Harness:
        """Answer with the history and start every shard."""
        self.history()
        for member in sorted(self.starts):
            self.started(member)
        return self

    def history(self, intervals: tuple[EpochInterval, ...] | None = None, certain: int = EPOCH_MAX) -> None:
        self.stream.on_history(self.intervals if intervals is None else intervals, self.now, Epoch(certain))
        self.turn()

    def turn(self) -> None:
        self.stream.on_turn_end(self.now)
        for effect in self.out.take():
            assert type(effect) is Send
            message: Any = effect.message
            if getattr(message, "stream", 5) == HEDGES:
                self._on_hedge(message)
            elif type(message) is Start:
                assert effect.to == message.shard >> 8
                self.starts[message.shard] = message
            elif type(message) is Stop:
                self.stopped.append(message.shard)
            elif type(message) is Window:
                self.windows.append(message)
        self.stream.check()

    def _on_hedge(self, message: Any) -> None:
        if type(message) is Start:
            if any(each.filter_version != message.filter_version for each in self.hedge_starts.values()):
                self.hedge_starts.clear()
            self.hedge_starts[message.shard >> 8] = message
        else:
            assert type(message) is Stop
            self.hedge_stops.append(message.shard >> 8)

    def _hedge(self, node: int, kind: type[Any], **fields: Any) -> None:
        assert self.hedges is not None
        start = self.hedge_starts[node]
        message = kind(log=LOG, stream=HEDGES, shard=shard(node), filter_version=start.filter_version, **fields)
        handlers: dict[type[Any], Any] = {
            Records: self.hedges.on_records,
            ShardGap: self.hedges.on_gap,
            Started: self.hedges.on_started,
        }
        handlers[kind](message, self.now)
        self.turn()

    def hedge_started(self, node: int, status: Status = Status.OK) -> None:
        """A shard takes the last hedge, or refuses it."""
        self._hedge(node, Started, status=status, last_released=Lsn(0))

    def hedge_records(self, node: int, *entries: tuple[int, bytes]) -> None:
        """A shard sends entries to the last hedge."""
        images = b"".join(image for _, image in entries)
        self._hedge(node, Records, entries=[(at, len(image)) for at, image in entries], images=images)

    def hedge_gap(self, node: int, last: int, reason: GapReason = GapReason.NO_RECORDS) -> None:
        """A shard has nothing, from where the last hedge begins."""
        first = self.hedge_starts[node].first
        self._hedge(node, ShardGap, first=first, last=Lsn(last), reason=int(reason), last_released=Lsn(last))

    def advance(self, micros: int) -> None:
        """Let time pass, with every timer at its moment."""
        end = self.now + micros
        while (deadline := self.timers.next_deadline()) is not None and deadline <= end:
            self.now = Micros(max(self.now, deadline))
            self.timers.advance(self.now)
            self.turn()
        self.now = Micros(end)

    def version(self, node: int) -> int:
        return self.starts[shard(node)].filter_version

    def started(
        self,
        member: ShardId,
        status: Status = Status.OK,
        last_released: int = 0,
        *,
        ordered: bool | None = None,
    ) -> None:
        """The shard answers its latest START. `ordered`: whether it knows what an order is; None: it does."""
        self.stream.answers.on_started(
            Started(
                log=LOG,
                stream=5,
                shard=member,
                status=status,
                filter_version=self.starts[member].filter_version,
                last_released=Lsn(last_released),
                ordered=bool(self.starts[member].order) if ordered is None else ordered,
            ),
            self.now,
        )
        self.turn()

    def restarted(self) -> None:
        """Every shard takes its latest START."""
        for member in sorted(self.starts):
            self.started(member)

    def records(self, node: int, *entries: tuple[int, bytes], version: int | None = None) -> None:
        self.stream.answers.on_records(
            Records(
                log=LOG,
                stream=5,
                shard=shard(node),
                filter_version=self.version(node) if version is None else version,
                entries=[(at, len(image)) for at, image in entries],
                images=b"".join(image for _, image in entries),
            ),
            self.now,
        )
        self.turn()

    def gap(
        self, node: int, first: int, last: int, reason: GapReason = GapReason.NO_RECORDS, *, released: int = 0
    ) -> None:
        self.stream.answers.on_gap(
            ShardGap(
                log=LOG,
                stream=5,
                shard=shard(node),
                filter_version=self.version(node),
                first=Lsn(first),
                last=Lsn(last),
                reason=int(reason),
                last_released=Lsn(released),
            ),
            self.now,
        )
        self.turn()

    def down(self, node: int) -> None:
        self.stream.on_peer_down(node, self.now)  # type: ignore[arg-type]
        self.turn()

    def up(self, node: int) -> None:
        self.stream.on_peer_up(node, self.now)  # type: ignore[arg-type]
        self.turn()

    def is_single_copy(self, node: int) -> bool:
        return bool(self.starts[shard(node)].flags & StartFlags.SINGLE_COPY)

    def order(self, node: int) -> dict[int, int]:
        """Tiers by node, of the last START to a node."""
        return {member >> 8: tier for member, tier in self.starts[shard(node)].order}

    def known_down(self, node: int) -> list[int]:
        return [member >> 8 for member in self.starts[shard(node)].known_down]

    def take(self, records_max: int = 1000) -> list[Item]:
        items = list(self.stream.take(records_max, self.now))
        self.turn()
        return items


def text(items: list[Item]) -> list[str]:
    """Items in short: ``e1n2:payload``, ``HOLE e1n3-e1n4``."""
    lines = []
    for item in items:
        if type(item) is Gap:
            lines.append(f"{item.kind.name} {item.lo}-{item.hi}")
        elif type(item) is CorruptRecord:
            lines.append(f"{item.lsn}.{item.batch_offset}:corrupt")
        else:
            assert type(item) is Record
            offset = f".{item.batch_offset}" if item.batch_offset else ""
            lines.append(f"{item.lsn}{offset}:{item.payload.decode()}")
    return lines
