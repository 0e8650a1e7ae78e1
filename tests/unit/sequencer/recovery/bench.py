"""A node with recoveries whose every peer is played by the test."""

from __future__ import annotations

import itertools
import random
from typing import Any

from google_crc32c import value as crc32c

from epoch_store.interface import GetLastCleanEpoch, LastCleanEpoch, Result, SetLastCleanEpoch
from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.entry import Constituent, EntryFlags, EntryHeader, encode_body, encode_entry, parse_header
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, node_of, node_peer, shard_id
from logdevice_py.core.lsn import ESN_MAX, Epoch, Esn, Lsn, compose_lsn, epoch_of, esn_of
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData, TailRecord
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import (
    Clean,
    Cleaned,
    CleanedLog,
    CleanLog,
    Digest,
    Digested,
    DigestedRange,
    EpochState,
    LogEntry,
    Mutated,
    Seal,
    Sealed,
    SealedLog,
    Store,
)
from logdevice_py.protocol.requests import Requests
from logdevice_py.protocol.routing import handlers_of
from logdevice_py.tables.waits import WaitCause
from sequencer.effects import EpochStoreRequest
from sequencer.recovery.digest import kind_of
from sequencer.recovery.metrics import RecoveryMetrics
from sequencer.recovery.node_recoveries import NodeRecoveries
from sequencer.recovery.result import RecoveryResult
from sequencer.recovery.settings import RecoverySettings
from sequencer.waits import wait_of_epoch

LOG = LogId(7)
ENTRY, STREAM, HOLE, BRIDGE = "entry", "stream", "hole", "bridge"


def shard(node: int) -> ShardId:
    """The only shard of a node."""
    return shard_id(NodeId(node))


def metadata(nodes: int, replication: str, next_epoch: int, since: int = 1, config_version: int = 0) -> EpochMetaData:
    """A nodeset of the first `nodes` nodes."""
    nodeset = tuple((shard(node), Generation(1)) for node in range(nodes))
    interval = EpochInterval(Epoch(since), nodeset, ReplicationProperty.parse(replication), config_version)
    return EpochMetaData(Epoch(next_epoch + 1), (interval,), True, False, NodeId(0))


def image(
    esn: int,
    kind: str = ENTRY,
    *,
    epoch: int = 1,
    wave: int = 1,
    seal: int = 0,
    copyset: tuple[int, ...] = (0, 1),
    log: int = LOG,
) -> bytes:
    """A copy of an entry; `seal`: written by the recovery of that seal epoch."""
    flags = EntryFlags.NONE
    if seal:
        flags |= EntryFlags.WRITTEN_BY_RECOVERY
    if kind in (HOLE, BRIDGE):
        flags |= EntryFlags.HOLE
    if kind == BRIDGE:
        flags |= EntryFlags.BRIDGE
    if kind == STREAM:
        flags |= EntryFlags.WRITE_STREAM
    body = encode_body([Constituent(f"{epoch}.{esn}".encode(), 1, 0)]) if kind in (ENTRY, STREAM) else b""
    members = tuple(shard(node) for node in copyset)
    lsn = compose_lsn(epoch, esn)
    header = EntryHeader(
        LogId(log), lsn, Timestamp(1000 + esn), seal or wave, members, Esn(0), 1 if body else 0, int(flags)
    )
    header.body_length, header.body_crc = len(body), crc32c(body)
    return encode_entry(header, body)


class Bench:
    """Drives `NodeRecoveries`; `stores`, `cleans` and so on hold what was sent and not yet looked at."""

    def __init__(self, nodes: int = 3, replication: str = "node:2", next_epoch: int = 2, **settings: Any) -> None:
        self.now = Micros(0)
        self.outbox = Outbox()
        self.timers = TimerQueue()
        self.metrics = RecoveryMetrics()
        self.results: list[RecoveryResult] = []
        self.told_sealed: list[Epoch] = []
        self.sent: list[Any] = []
        self.requests: list[EpochStoreRequest] = []
        self.missing: set[ShardId] = set()
        self.config_version = 1
        self.read_only: set[ShardId] = set()
        self.dead: set[NodeId] = set()
        self.lost: dict[ShardId, Authority] = {}
        self.nodes = nodes
        self.replication = replication
        self.next_epoch = next_epoch
        tokens = itertools.count(1)
        self.asked = Requests(itertools.count(1), self.timers)
        self.recoveries = NodeRecoveries(
            NodeId(50),
            outbox=self.outbox,
            timers=self.timers,
            rng=random.Random(1),
            settings=RecoverySettings(**settings),
            metrics=self.metrics,
            cluster=self,
            wall=lambda: Timestamp(5),
            next_token=lambda: next(tokens),
            requests=self.asked,
        )

    def location(self, shard: ShardId) -> Location | None:
        return None if shard in self.missing else Location.parse(f"k{node_of(shard)}")

    def has_left(self, shard: ShardId, since: int) -> bool:
        return shard in self.missing and self.config_version >= since

    def in_cluster(self, shard: ShardId) -> bool:
        return shard not in self.missing

    def is_writable(self, shard: ShardId) -> bool:
        return shard not in self.read_only

    def authority(self, log: LogId, shard: ShardId, generation: Generation) -> Authority:
        return self.lost.get(shard, Authority.FULLY_AUTHORITATIVE)

    def is_alive(self, node: NodeId) -> bool:
        return node not in self.dead

    def start(
        self,
        *,
        last_clean: int | None = 0,
        tail: TailRecord | None = None,
        log: LogId = LOG,
        since: int = 1,
        config_version: int = 0,
    ) -> None:
        """Begin, and answer the epoch store's first question unless `last_clean` is None."""
        meta = metadata(self.nodes, self.replication, self.next_epoch, since, config_version)
        self.recoveries.start(
            log,
            Epoch(self.next_epoch),
            meta,
            lambda result, now: self.results.append(result),
            self.now,
            on_sealed=lambda next_epoch, now: self.told_sealed.append(next_epoch),
        )
        self.end_turn()
        if last_clean is not None and self.requests:
            request = self.requests.pop()
            assert isinstance(request.operation, GetLastCleanEpoch)
            self.store_answers(request, Result(Status.OK, LastCleanEpoch(Epoch(last_clean), tail)))

    def store_answers(self, request: EpochStoreRequest, result: Result) -> None:
        assert self.recoveries.on_epoch_store(request.token, result, self.now)
        self.end_turn()

    def end_turn(self) -> None:
        self.timers.advance(self.now)
        self.recoveries.on_turn_end(self.now)
        for effect in self.outbox.take():
            if isinstance(effect, Send):
                assert effect.to == node_peer(effect.message.shard)
                self.sent.append(effect.message)
            else:
                self.requests.append(effect)

    def advance(self, micros: int) -> None:
        """Let time pass."""
        self.now = Micros(self.now + micros)
        self.end_turn()

    def take(self, kind: type[Any], node: int | None = None) -> list[Any]:
        """What was sent of a kind, to a node; taken out of `sent`."""
        taken = [m for m in self.sent if type(m) is kind and (node is None or m.shard == shard(node))]
        self.sent = [m for m in self.sent if not any(m is t for t in taken)]
        return taken

    def deliver(self, message: Any, peer: int | None = None) -> None:
        source = node_peer(message.shard) if peer is None else PeerId(peer)
        handlers_of(self.asked, self.recoveries)[type(message)](source, message, self.now)
        self.end_turn()

    def sealed(
        self,
        node: int,
        *,
        lng: int = 0,
        tail: int = 0,
        status: Status = Status.OK,
        epochs: tuple[int, ...] = (1,),
        generation: int = 1,
    ) -> None:
        """The shard answers its last SEAL; `status` is that of each epoch."""
        seal = self.take(Seal, node)[-1]
        states = [
            EpochState(epoch, status, lng, lng, 0, compose_lsn(epoch, tail) if tail else 0, 1000 + tail)  # type: ignore[arg-type]
            for epoch in epochs
        ]
        row = SealedLog(LOG, Status.OK, Epoch(self.next_epoch - 1), NodeId(50), Lsn(0), states)
        self.deliver(
            Sealed(request_id=seal.request_id, shard=seal.shard, logs=[row], generation=Generation(generation))
        )

    def seal_preempted(self, node: int, epoch: int, by: int) -> None:
        seal = self.take(Seal, node)[-1]
        row = SealedLog(LOG, Status.PREEMPTED, Epoch(epoch), NodeId(by), Lsn(0), [])
        self.deliver(Sealed(request_id=seal.request_id, shard=seal.shard, logs=[row]))

    def digested(
        self,
        node: int,
        *images: bytes,
        until: int = ESN_MAX,
        status: Status = Status.OK,
        epoch: int = 1,
        unreadable: tuple[int, ...] = (),
    ) -> None:
        """The shard answers its last DIGEST. `unreadable`: ESNs above those of the images, at which it holds a copy that it cannot read."""
        digest = self.take(Digest, node)[-1]
        lsns = [parse_lsn(one) for one in images] + [compose_lsn(epoch, esn) for esn in unreadable]
        images += (b"",) * len(unreadable)
        self.deliver(
            Digested(
                request_id=digest.request_id,
                shard=digest.shard,
                ranges=[DigestedRange(LOG, status, compose_lsn(epoch, until))],
                entries=[LogEntry(LOG, lsn, len(one)) for lsn, one in zip(lsns, images, strict=True)],
                images=b"".join(images),
            )
        )

    def stored(self) -> dict[int, dict[int, str]]:
        """What is to be stored: ESN -> node -> kind. Taken; `answer_stores` needs it no more."""
        self.stores = self.take(Store)
        found: dict[int, dict[int, str]] = {}
        for store in self.stores:
            header = parse_header(store.image)
            assert header.rank == (1, self.next_epoch - 1)
            assert store.shard in header.copyset
            found.setdefault(esn_of(store.lsn), {})[node_of(store.shard)] = kind_of(header).value
        return found

    def answer_stores(self, status: Status = Status.OK, nodes: tuple[int, ...] | None = None) -> None:
        """The shards answer what `stored` showed."""
        for store in self.stores:
            if nodes is None or node_of(store.shard) in nodes:
                self.mutated(store, status)

    def mutated(
        self, store: Store, status: Status = Status.OK, epoch: int = 0, by: int = -1, peer: int | None = None
    ) -> None:
        self.deliver(
            Mutated(
                recovery_id=store.recovery_id,
                log=store.log,
                lsn=store.lsn,
                shard=store.shard,
                wave=store.wave,
                status=status,
                seal_epoch=Epoch(epoch),
                seal_node=NodeId(by),
            ),
            peer,
        )

    def cleaned(self, node: int, status: Status = Status.OK, epoch: int = 0, by: int = -1) -> CleanLog:
        """The shard answers CLEAN; what it was told."""
        clean = self.take(Clean, node)[-1]
        row = CleanedLog(LOG, clean.logs[0].epoch, status, Epoch(epoch), NodeId(by))
        self.deliver(Cleaned(request_id=clean.request_id, shard=clean.shard, logs=[row]))
        told: CleanLog = clean.logs[0]
        return told

    def last_clean_epoch_set(self, status: Status = Status.OK) -> SetLastCleanEpoch:
        """The epoch store answers; what it was told."""
        request = self.requests.pop()
        assert isinstance(request.operation, SetLastCleanEpoch)
        self.store_answers(request, Result(status, LastCleanEpoch(request.operation.epoch, request.operation.tail)))
        return request.operation

    def peer_down(self, node: int) -> None:
        self.asked.on_peer_down(PeerId(node), self.now)
        self.recoveries.on_peer_down(PeerId(node), self.now)
        self.end_turn()

    def waits(self) -> WaitCause:
        """What the epoch waits for."""
        recovery = self.recoveries.recovery(LOG)
        assert recovery is not None
        assert recovery.current is not None
        return wait_of_epoch(recovery.current)[0]

    def explain(self) -> str:
        recovery = self.recoveries.recovery(LOG)
        return recovery.explain() if recovery is not None else "done"

    def finish_epoch(self, *nodes: int) -> SetLastCleanEpoch:
        """Everything that is left of an epoch goes well."""
        for _ in range(100):
            if not self.stored():
                break
            self.answer_stores()
        for node in nodes:
            self.cleaned(node)
        return self.last_clean_epoch_set()


def parse_lsn(one: bytes) -> Lsn:
    """Of an image, even a damaged one."""
    lsn = Lsn(int.from_bytes(one[40:48], "big"))
    assert epoch_of(lsn) < 100
    return lsn
