"""A storage node on memory stores, driven by hand: no event loop, no clock. Every message it sends is encoded and decoded."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from google_crc32c import value as crc32c

from logdevice_py.config.attributes import Durability
from logdevice_py.config.cluster import ClusterConfig, MetadataLogConfig, NodeConfig, ShardState
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.entry import Constituent, EntryFlags, EntryHeader, encode_body, encode_entry, parse_header
from logdevice_py.core.ids import Generation, InstanceId, LogId, NodeId, PeerId, ShardId, node_of, shard_id
from logdevice_py.core.lsn import Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, Micros, Timestamp
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.framing import decode_frame, encode_frame
from logdevice_py.protocol.messages import (
    Clean,
    CleanLog,
    Digest,
    Digested,
    DigestRange,
    GapReason,
    NodeState,
    Records,
    Release,
    Seal,
    SealLog,
    ShardGap,
    Start,
    StartFlags,
    Store,
    StoreFlags,
    Window,
)
from logdevice_py.protocol.requests import Requests
from logdevice_py.protocol.routing import Handler, handlers_of, merge
from storage_node.epochs.purge import HistoryResult
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import Contents, ReadDirectory, ReadLast, ReadShard, WriteShard
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.log_store.settings import LogStoreSettings
from storage_node.node import StorageNode
from storage_node.repair.notices import Notice
from storage_node.settings import StorageSettings

T = TypeVar("T")
SYNC_LOG = LogId(7)
ASYNC_LOG = LogId(107)
NODES = 5
SHARDS = tuple(shard_id(NodeId(node)) for node in range(NODES))
ME = SHARDS[0]
SEQUENCER = PeerId(1)
READER = PeerId(-1)
PLENTY = 1 << 40
THREE_COPIES = ReplicationProperty.parse("node:3")


def make_config(shard_state: ShardState = ShardState.READ_WRITE) -> ClusterConfig:
    """Five nodes with a shard each; logs 1 to 100 are synced, 101 to 200 are not."""
    nodes = {
        NodeId(index): NodeConfig(node=NodeId(index), host="127.0.0.1", port=4000 + index) for index in range(NODES)
    }
    nodes[NodeId(0)] = replace(nodes[NodeId(0)], shard_state=shard_state)
    logs = LogTree.build(
        defaults={"replication": THREE_COPIES},
        groups=[("/sync", 1, 100, {}), ("/async", 101, 200, {"durability": Durability.ASYNC})],
    )
    return ClusterConfig(
        name="test",
        uuid=b"u" * 16,
        version=1,
        nodes=nodes,
        logs=logs,
        metadata_log=MetadataLogConfig(SHARDS, THREE_COPIES),
        epoch_store="memory:",
    )


class EverybodyIsAlive:
    """A `ClusterView`."""

    config_version = 0
    is_isolated = False

    def state(self, node: NodeId) -> NodeState:
        return NodeState.ALIVE

    def is_alive(self, node: NodeId) -> bool:
        return True

    def may_sequence(self, node: NodeId) -> bool:
        return True

    def instance(self, node: NodeId) -> InstanceId:
        return InstanceId(1)

    def generation(self, shard: ShardId) -> Generation:
        return Generation(1)

    def serves(self, shard: ShardId) -> bool:
        return self.is_alive(node_of(shard))

    def isolated(self) -> bool:
        return self.is_isolated


class FakeHistoryReader:
    """Waits until the test says what the history is."""

    def __init__(self, log: LogId, done: HistoryResult) -> None:
        self.log = log
        self.done = done
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class LoneStorageNode(StorageNode):
    """Root of a process that has no other role."""

    def __init__(
        self,
        node: NodeId,
        config: ClusterConfig,
        settings: StorageSettings,
        outbox: Outbox,
        timers: TimerQueue,
        view: ClusterView,
        contents: Sequence[Contents],
        **more: Any,
    ) -> None:
        self.requests = Requests(count(1), timers)
        super().__init__(
            node, config, settings, outbox, timers, random.Random(1), view, self.requests, contents, **more
        )
        self._root_routes = self._all_routes()

    def _all_routes(self) -> dict[type[Any], Handler]:
        return merge(self.make_routes(), handlers_of(self.requests))

    def enable_rebuilding(self, *arguments: Any) -> None:
        super().enable_rebuilding(*arguments)
        self._root_routes = self._all_routes()

    def on_message(self, peer: PeerId, message: Any, now: Micros) -> None:
        self._root_routes[type(message)](peer, message, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        self.requests.on_peer_down(peer, now)
        super().on_peer_down(peer, now)


class ShardDriver:
    """Runs a storage node of one shard. `sent` collects what it sends; completions come at once unless `hold` is set."""

    def __init__(
        self,
        settings: StorageSettings | None = None,
        generation: int = 1,
        shard_state: ShardState = ShardState.READ_WRITE,
    ) -> None:
        self.disk = MemoryDisk()
        self.view = EverybodyIsAlive()
        self.settings = settings or StorageSettings()
        self.generation = Generation(generation)
        self.config = make_config(shard_state)
        self.now = Micros(1_000_000)
        self.hold = False
        self.sent: list[tuple[PeerId, Any]] = []
        self.readers: list[FakeHistoryReader] = []
        self.notices: list[Notice] = []
        self.reads = 0
        self.open()

    store_settings = LogStoreSettings()
    wall: Callable[[], Timestamp] | None = None

    def open(self) -> None:
        """Start the node on what its disk holds."""
        self.store = MemoryLogStore(self.disk, self.store_settings)
        now = Timestamp(self.now) if self.wall is None else self.wall()
        self.store.adopt(ShardMarker(b"u" * 16, ME, self.generation), boot=self.disk.boot, now=now)
        self.outbox, self.timers = Outbox(), TimerQueue()
        self.held: deque[tuple[Any, Any]] = deque()
        self.sent.clear()
        self.node = LoneStorageNode(
            NodeId(0),
            self.config,
            self.settings,
            self.outbox,
            self.timers,
            self.view,
            [self.store.load()],
            start_reader=self._start_reader,
            wall=self.wall,
        )
        self.turn()

    def power_cut(self, surviving: int = 0) -> None:
        """Lose the writes that were not synced, and start again."""
        self.disk.crash(surviving)
        self.open()

    def restart(self) -> None:
        """Stop in order, and start again."""
        self.node.shut_down(self.now)
        self.turn()
        self.store.close()
        self.open()

    def turn(self, *events: tuple[PeerId, Any]) -> None:
        """One turn of the event loop with these messages, and what follows from it unless completions are held."""
        for peer, message in events:
            self.node.on_message(peer, copy_message(message), self.now)
        self._end_turn()
        while self.held and not self.hold:
            self.complete()

    def complete(self) -> None:
        """Bring back the oldest completion that is held."""
        effect, result = self.held.popleft()
        if isinstance(effect, WriteShard):
            status = result
            if status is Status.OK and effect.sync:
                status = self.store.sync()
            self.node.on_written(effect.token, status, self.now)
        else:
            self.node.on_read(effect.token, result, self.now)
        self._end_turn()

    def let_go(self) -> None:
        """Bring back everything that is held."""
        self.hold = False
        self.turn()

    def advance(self, micros: int) -> None:
        """Let time pass."""
        end = self.now + micros
        while (deadline := self.timers.next_deadline()) is not None and deadline <= end:
            self.now = Micros(max(self.now, deadline))
            self.timers.advance(self.now)
            self.turn()
        self.now = Micros(end)

    def take(self, kind: type[T], peer: PeerId | None = None) -> list[T]:
        """The messages of a kind that were sent since they were last taken."""
        taken: list[T] = []
        rest = []
        for to, message in self.sent:
            if isinstance(message, kind) and (peer is None or to == peer):
                taken.append(message)
            else:
                rest.append((to, message))
        self.sent = rest
        return taken

    def take_one(self, kind: type[T]) -> T:
        """The only message of a kind."""
        found = self.take(kind)
        assert len(found) == 1, found
        return found[0]

    def tell_history(self, history: Sequence[EpochInterval], complete: bool = True) -> None:
        """Answer the latest reader of a metadata log."""
        self.readers[-1].done(tuple(history), complete, self.now)
        self.turn()

    @property
    def machines(self) -> Any:
        """Those of the shard."""
        return self.node.shards[ME]

    def log(self, log: LogId = SYNC_LOG) -> Any:
        """The state of a log."""
        return self.machines.shard.logs[log]

    def stored(self, log: LogId = SYNC_LOG) -> list[Lsn]:
        """LSNs on disk."""
        result = self.store.read(ReadShard(0, ME, log, Lsn(1), Lsn(2**62), PLENTY, 100_000))
        return [lsn for lsn, _ in result.entries]

    def _end_turn(self) -> None:
        self.node.on_turn_end(self.now)
        self.node.check()
        for effect in self.outbox.take():
            if isinstance(effect, Send):
                self.sent.append((effect.to, copy_message(effect.message)))
            elif isinstance(effect, WriteShard):
                self.held.append((effect, self.store.write([effect.batch])[0]))
            elif isinstance(effect, Notice):
                self.notices.append(effect)
            elif isinstance(effect, ReadDirectory):
                self.held.append((effect, self.store.read_directory(effect)))
            elif isinstance(effect, ReadShard):
                self.reads += 1
                self.held.append((effect, self.store.read(effect)))
            else:
                assert isinstance(effect, ReadLast), effect
                self.reads += 1
                self.held.append((effect, self.store.read_last(effect)))

    def _start_reader(self, log: LogId, done: HistoryResult, now: Micros) -> FakeHistoryReader:
        self.readers.append(FakeHistoryReader(log, done))
        return self.readers[-1]


def copy_message(message: Any) -> Any:
    """As it arrives elsewhere."""
    frame = b"".join(encode_frame(message))
    return decode_frame(frame) if len(frame) < 60_000 else message


def lsn(epoch: int, esn: int) -> Lsn:
    """Short for `compose_lsn`."""
    return compose_lsn(epoch, esn)


def image(
    position: Lsn,
    *,
    log: LogId = SYNC_LOG,
    wave: int = 1,
    lng: int = 0,
    copyset: Sequence[ShardId] = SHARDS[:3],
    flags: int = 0,
    payload: bytes = b"payload",
    timestamp: Timestamp | None = None,
    extensions: bytes = b"",
) -> bytes:
    """An entry's image; holes and AMENDs have no body."""
    body = b"" if flags & EntryFlags.HOLE else encode_body([Constituent(payload, 1, crc32c(payload))])
    header = EntryHeader(
        log,
        position,
        Timestamp(1_000 + (position & 0xFFFFFFFF)) if timestamp is None else timestamp,
        wave,
        tuple(copyset),
        Esn(lng),
        0 if flags & EntryFlags.HOLE else 1,
        flags,
        len(body),
        crc32c(body),
        extensions,
    )
    return encode_entry(header, b"" if flags & EntryFlags.AMEND else body)


def store(position: Lsn, *, generation: int = 1, flags: int = 0, log: LogId = SYNC_LOG, **header: Any) -> Store:
    """A STORE of a sequencer."""
    return Store(
        log=log,
        lsn=position,
        shard=ME,
        generation=Generation(generation),
        wave=header.get("wave", 1),
        flags=flags,
        seal_epoch=Epoch(0),
        recovery_id=0,
        image=image(position, log=log, **header),
    )


def recovery_store(position: Lsn, seal_epoch: int, *, flags: int = 0, log: LogId = SYNC_LOG, **header: Any) -> Store:
    """A STORE of a recovery."""
    flags |= EntryFlags.WRITTEN_BY_RECOVERY
    return Store(
        log=log,
        lsn=position,
        shard=ME,
        generation=Generation(1),
        wave=1,
        flags=int(StoreFlags.RECOVERY),
        seal_epoch=Epoch(seal_epoch),
        recovery_id=9,
        image=image(position, log=log, wave=seal_epoch, flags=flags, **header),
    )


def stores(positions: Iterable[Lsn], **header: Any) -> list[tuple[PeerId, Store]]:
    """STOREs from the sequencer, as events."""
    return [(SEQUENCER, store(position, **header)) for position in positions]


def release(position: Lsn, log: LogId = SYNC_LOG) -> tuple[PeerId, Release]:
    """A RELEASE from the sequencer."""
    return (SEQUENCER, Release(shard=ME, logs=[(log, position)]))


def seal(
    epoch: int,
    *,
    clean: int = 0,
    log: LogId = SYNC_LOG,
    generations: Sequence[tuple[int, int]] = ((1, 1),),
    node: int = 2,
) -> tuple[PeerId, Seal]:
    """A SEAL from another node."""
    message = Seal(request_id=5, shard=ME, node=NodeId(node), logs=[SealLog(log, epoch, clean, list(generations))])  # type: ignore[arg-type]
    return (PeerId(node), message)


def clean(
    epoch: int,
    seal_epoch: int,
    *,
    lng: int = 0,
    last: int = 0,
    log: LogId = SYNC_LOG,
    request_id: int = 6,
    authoritative: bool = True,
) -> tuple[PeerId, Clean]:
    """A CLEAN from another node."""
    return (
        PeerId(2),
        Clean(
            request_id=request_id,
            shard=ME,
            seal_epoch=Epoch(seal_epoch),
            node=NodeId(2),
            logs=[CleanLog(log, epoch, lng, last, compose_lsn(epoch, lng), 77, int(authoritative))],  # type: ignore[arg-type]
        ),
    )


def digest(
    first: Lsn, last: Lsn, *, log: LogId = SYNC_LOG, generation: int = 1, bytes_max: int = 1 << 20
) -> tuple[PeerId, Digest]:
    """A DIGEST from another node."""
    ranges = [DigestRange(log, first, last, Generation(generation))]
    return (PeerId(2), Digest(request_id=8, shard=ME, bytes_max=bytes_max, ranges=ranges))


def start(
    first: Lsn = Lsn(1),
    until: Lsn = Lsn(2**62),
    *,
    log: LogId = SYNC_LOG,
    stream: int = 1,
    window_high: Lsn | None = None,
    credit: int = PLENTY,
    version: int = 1,
    single_copy: bool = False,
    known_down: Sequence[ShardId] = (),
    order: Sequence[tuple[int, int]] = (),
    generation: int = 1,
    flags: int = 0,
    peer: PeerId = READER,
) -> tuple[PeerId, Start]:
    """A START from a reader."""
    message = Start(
        log=log,
        stream=stream,
        shard=ME,
        generation=Generation(generation),
        first=first,
        until=until,
        window_high=until if window_high is None else window_high,
        bytes_credit=credit,
        flags=flags | (int(StartFlags.SINGLE_COPY) if single_copy else 0),
        filter_version=version,
        replication=3,
        known_down=list(known_down),
        order=list(order),
    )
    return (peer, message)


def window(
    high: Lsn, credit: int = PLENTY, *, version: int = 1, log: LogId = SYNC_LOG, stream: int = 1
) -> tuple[PeerId, Window]:
    """A WINDOW from a reader."""
    message = Window(log=log, stream=stream, shard=ME, filter_version=version, high=high, bytes_credit=credit)
    return (READER, message)


def told(driver: ShardDriver, peer: PeerId = READER, stream: int = 1) -> list[Any]:
    """What a reader was told since last asked, in order: the LSN of an entry, or (reason, first, last)."""
    story: list[Any] = []
    rest = []
    for to, message in driver.sent:
        if to != peer or not isinstance(message, (Records, ShardGap)) or message.stream != stream:
            rest.append((to, message))
        elif isinstance(message, ShardGap):
            story.append((GapReason(message.reason).name, message.first, message.last))
        else:
            at = 0
            for position, length in message.entries:
                assert parse_header(message.images[at : at + length]).lsn == position
                story.append(position)
                at += length
            assert at == len(message.images)
    driver.sent = rest
    return story


def headers(message: Digested) -> list[EntryHeader]:
    """The entries of a digest."""
    found, at = [], 0
    for _, _, length in message.entries:
        found.append(parse_header(message.images[at : at + length]))
        at += length
    return found


def interval(since: int = 1, shards: Sequence[ShardId] = SHARDS, generation: int = 1) -> EpochInterval:
    """An interval of a metadata history."""
    return EpochInterval(Epoch(since), tuple((shard, Generation(generation)) for shard in shards), THREE_COPIES)


MILLIS = MILLISECOND
