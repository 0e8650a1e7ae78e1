"""A sequencer node among fake shards, a fake epoch store and fake recoveries."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from google_crc32c import value as crc32c

from epoch_store.interface import (
    EpochStoreRequest,
    GetLastCleanEpoch,
    LastCleanEpoch,
    ReadMetadata,
    ReadShardIdentity,
    Result,
    ShardIdentity,
    UpdateMetadata,
)
from logdevice_py.config.cluster import ClusterConfig, MetadataLogConfig, NodeConfig, Roles, ShardState
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.entry import Constituent, EntryHeader, body_of, parse_constituents, parse_header
from logdevice_py.core.ids import (
    Generation,
    InstanceId,
    LogId,
    NodeId,
    PeerId,
    ShardId,
    is_metadata_log,
    node_of,
    shard_id,
)
from logdevice_py.core.lsn import EPOCH_INVALID, LSN_MAX, Epoch, Lsn
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.protocol.messages import (
    Append,
    Appended,
    AppendFlags,
    CheckedLog,
    CheckSeal,
    Digest,
    Digested,
    DigestedRange,
    GetSeqState,
    GuardedAppend,
    GuardFlags,
    LogEntry,
    NodeState,
    SealChecked,
    SeqState,
    Store,
    Stored,
    StoredFlags,
)
from logdevice_py.protocol.requests import Requests, ids_of_run
from logdevice_py.protocol.routing import handlers_of, merge
from sequencer.effects import LogNotice
from sequencer.node import SequencerNode
from sequencer.recovery.result import RecoveryOutcome, RecoveryResult
from sequencer.sequencer import Sequencer
from sequencer.settings import SequencerSettings

CLIENT = PeerId(-1)
LOG = LogId(1)
ME = NodeId(0)


def make_config(
    nodes: int = 4,
    *,
    replicate: str = "node:3",
    logs: tuple[int, int] = (1, 100),
    sequencers: Iterable[int] = (0,),
    version: int = 1,
    read_only: Iterable[int] = (),
    racks: str = "",
    **attributes: Any,
) -> ClusterConfig:
    """Nodes with a shard each. Only those of `sequencers` sequence, so that logs have their home at node 0 unless a test wants otherwise."""
    configs = {
        NodeId(index): NodeConfig(
            node=NodeId(index),
            host="127.0.0.1",
            port=4000 + index,
            roles=Roles.STORAGE | Roles.SEQUENCER if index in sequencers else Roles.STORAGE,
            shard_state=ShardState.READ_ONLY if index in read_only else ShardState.READ_WRITE,
            location=Location.parse(racks[index] if racks else ""),
        )
        for index in range(nodes)
    }
    replication = ReplicationProperty.parse(replicate)
    return ClusterConfig(
        name="test",
        uuid=bytes(16),
        version=version,
        nodes=configs,
        logs=LogTree.build(groups=[("/logs", *logs, {"replication": replication, **attributes})]),
        metadata_log=MetadataLogConfig(tuple(shard_id(NodeId(index)) for index in range(nodes)), replication),
        epoch_store="memory:",
    )


class FakeCluster:
    """A view of the cluster that tests change."""

    def __init__(self, nodes: int) -> None:
        self.states = {NodeId(index): NodeState.ALIVE for index in range(nodes)}
        self.generations = {shard_id(NodeId(index)): Generation(1) for index in range(nodes)}
        self.is_isolated = False
        self.config_version = 1

    def state(self, node: NodeId) -> NodeState:
        return self.states.get(node, NodeState.DEAD)

    def is_alive(self, node: NodeId) -> bool:
        return self.state(node) is not NodeState.DEAD

    def may_sequence(self, node: NodeId) -> bool:
        return self.state(node) is NodeState.ALIVE

    def instance(self, node: NodeId) -> InstanceId:
        return InstanceId(1)

    def generation(self, shard: ShardId) -> Generation:
        return self.generations.get(shard, Generation(0))

    def serves(self, shard: ShardId) -> bool:
        return self.is_alive(node_of(shard))

    def isolated(self) -> bool:
        return self.is_isolated


class FakeEpochStore:
    """Holds metadata of logs; answers at once unless `silent` or told to fail."""

    def __init__(self) -> None:
        self.metadata: dict[LogId, EpochMetaData] = {}
        self.clean: dict[LogId, Epoch] = {}
        """Last clean epochs."""
        self.generations: dict[ShardId, Generation] = {}
        """Of registered shards."""
        self.silent = False
        self.failures: list[Status] = []
        """Statuses for the next operations, before any is run."""
        self.lose_answers = 0
        self.operations: list[Any] = []
        self.held: list[EpochStoreRequest] = []

    def run(self, operation: Any) -> Result | None:
        self.operations.append(operation)
        if self.failures:
            return Result(self.failures.pop(0))
        if isinstance(operation, ReadShardIdentity):
            generation = self.generations.get(operation.shard)
            if generation is None:
                return Result(Status.EMPTY)
            return Result(Status.OK, ShardIdentity(bytes(16), operation.shard, generation))
        if isinstance(operation, GetLastCleanEpoch):
            return Result(Status.OK, LastCleanEpoch(self.clean.get(operation.log, EPOCH_INVALID)))
        stored = self.metadata.get(operation.log)
        if isinstance(operation, ReadMetadata):
            return Result(Status.OK, stored) if stored is not None else Result(Status.EMPTY)
        assert isinstance(operation, UpdateMetadata), operation
        updated = operation.apply(stored)
        if isinstance(updated, Status):
            return Result(updated, stored)
        self.metadata[operation.log] = updated
        if self.lose_answers:
            self.lose_answers -= 1
            return Result(Status.TIMEDOUT, maybe_applied=True)
        return Result(Status.OK, updated)

    def take_over(self, log: LogId = LOG, node: NodeId = NodeId(2)) -> Epoch:
        """Another node gets the next epoch."""
        stored = self.metadata[log]
        self.metadata[log] = replace(stored, epoch=Epoch(stored.epoch + 1), writer=node)
        return stored.epoch


@dataclass
class FakeRecoveries:
    """Records what is to be recovered; done at once unless `held`."""

    node: SequencerNode
    held: bool = False
    started: dict[LogId, tuple[Epoch, Callable[[RecoveryResult, Micros], None]]] = field(default_factory=dict)
    aborted: list[LogId] = field(default_factory=list)
    sealed: Any = None
    """To be called when the epochs of the last recovery are sealed."""

    def start(
        self, log: LogId, next_epoch: Epoch, metadata: EpochMetaData, on_done: Any, now: Micros, *, on_sealed: Any
    ) -> None:
        self.started[log] = (next_epoch, on_done)
        self.sealed = partial(on_sealed, next_epoch)
        if not self.held:
            self.node.context.timers.at(now, lambda now: self.finish(log, now))

    def abort(self, log: LogId, now: Micros) -> None:
        if self.started.pop(log, None) is not None:
            self.aborted.append(log)

    supersede = abort

    def finish(self, log: LogId, now: Micros, **result: Any) -> None:
        started = self.started.pop(log, None)
        if started is not None:
            epoch, done = started
            done(RecoveryResult(log, epoch, result.pop("outcome", RecoveryOutcome.OK), **result), now)


class LoneSequencerNode(SequencerNode):
    """Root of a process that has no other role."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.requests = self.context.requests
        self._root_routes = merge(self.routes, handlers_of(self.requests))

    def on_message(self, peer: PeerId, message: Any, now: Micros) -> None:
        self._root_routes[type(message)](peer, message, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        self.requests.on_peer_down(peer, now)
        super().on_peer_down(peer, now)


class World:
    """Runs a node's effects against fakes. `answer` says what a shard does with a STORE; None is silence."""

    def __init__(
        self,
        config: ClusterConfig | None = None,
        *,
        settings: SequencerSettings | None = None,
        node: NodeId = ME,
        instance: InstanceId = InstanceId(1),
        seed: int = 1,
    ) -> None:
        self.config = config or make_config()
        self.cluster = FakeCluster(len(self.config.nodes))
        self.store = FakeEpochStore()
        self.outbox, self.timers = Outbox(), TimerQueue()
        self.now = Micros(1_000_000)
        self.wall = 1_700_000_000_000_000
        self.node = LoneSequencerNode(
            node,
            instance,
            self.config,
            settings or SequencerSettings(),
            self.outbox,
            self.timers,
            random.Random(seed),
            lambda: Timestamp(self.wall),
            self.cluster,
            Requests(ids_of_run(instance), self.timers),
        )
        self.recoveries = FakeRecoveries(self.node)
        self.node.context.recoveries = self.recoveries
        self.answer: Callable[[Store], Status | None] = lambda store: Status.OK
        self.sent: list[Send] = []
        self.stores: list[Store] = []
        """STOREs of data logs."""
        self.metadata_stores: list[Store] = []
        self.answered: list[Appended] = []
        self.states: list[SeqState] = []
        self.seals: dict[ShardId, tuple[int, int]] = {}
        self.seal_epoch, self.seal_node, self.stored_flags = 0, -1, 0
        self.awaited: set[ShardId] = set()
        """Shards that say of what they store that a reader waits for it."""
        self.held_stores: list[Store] = []
        self.notices: list[LogNotice] = []
        self._request_ids = 0

    # Events

    def append(
        self,
        payload: bytes = b"x",
        *,
        log: LogId = LOG,
        records: int = 1,
        flags: int = 0,
        seen_epoch: int = 0,
        previous_lsn: int = 0,
        peer: PeerId = CLIENT,
        crc: int | None = None,
    ) -> int:
        """An APPEND that is part of the turn; `run` ends the turn."""
        self._request_ids += 1
        message = Append(
            request_id=self._request_ids,
            log=log,
            flags=flags,
            records=records,
            crc=crc32c(payload) if crc is None else crc,
            seen_epoch=Epoch(seen_epoch),
            previous_lsn=Lsn(previous_lsn),
            writer=b"",
            sequence=0,
            stream_epoch=Epoch(0),
            payload=payload,
        )
        self.node.on_message(peer, message, self.now)
        return self._request_ids

    def guarded_append(
        self,
        payload: bytes = b"g",
        *,
        log: LogId = LOG,
        records: int = 1,
        flags: int = 0,
        previous_lsn: int = 0,
        seen_epoch: int = 0,
        peer: PeerId = CLIENT,
        writer: bytes = b"",
        sequence: int = 0,
        stream_epoch: int = 0,
        transaction: int | tuple[int, int] | None = None,
        expect: tuple[int, int] | None = None,
        token: int | None = None,
        guards: GuardFlags = GuardFlags.NONE,
        append_id: int = 0,
    ) -> int:
        """A GUARDED_APPEND; what is given is asked for."""
        self._request_ids += 1
        first, last = transaction if isinstance(transaction, tuple) else (transaction or 0, transaction or 0)
        guards |= GuardFlags.TRANSACTION if transaction is not None else GuardFlags.NONE
        guards |= GuardFlags.EXPECT if expect is not None else GuardFlags.NONE
        guards |= GuardFlags.FENCE if token is not None else GuardFlags.NONE
        message = GuardedAppend(
            request_id=self._request_ids,
            log=log,
            flags=flags,
            records=records,
            crc=crc32c(payload),
            seen_epoch=Epoch(seen_epoch),
            previous_lsn=Lsn(previous_lsn),
            writer=writer,
            sequence=sequence,
            stream_epoch=Epoch(stream_epoch),
            guards=int(guards),
            first_transaction=first,
            last_transaction=last,
            expected_lsn=Lsn(expect[0] if expect else 0),
            expected_offset=expect[1] if expect else 0,
            token=token or 0,
            append_id=append_id or self._request_ids,
            payload=payload,
        )
        self.node.on_message(peer, message, self.now)
        return self._request_ids

    def stream_append(
        self,
        sequence: int,
        *,
        epoch: int = 1,
        resume: bool = False,
        exclusive: bool = False,
        synced: bool = False,
        writer: bytes = b"w" * 16,
        payload: bytes = b"s",
        records: int = 1,
        more_flags: int = 0,
        peer: PeerId = CLIENT,
    ) -> int:
        """A frame of a write stream; an `exclusive` one resumes, too."""
        self._request_ids += 1
        flags = AppendFlags.WRITE_STREAM | (AppendFlags.RESUME if resume or exclusive else AppendFlags.NONE)
        flags |= AppendFlags.EXCLUSIVE if exclusive else AppendFlags.NONE
        flags |= AppendFlags.SYNC if synced else AppendFlags.NONE
        message = Append(
            request_id=self._request_ids,
            log=LOG,
            flags=int(flags) | more_flags,
            records=records,
            crc=crc32c(payload),
            seen_epoch=Epoch(0),
            previous_lsn=Lsn(0),
            writer=writer,
            sequence=sequence,
            stream_epoch=Epoch(epoch),
            payload=payload,
        )
        self.node.on_message(peer, message, self.now)
        return self._request_ids

    def ask_state(self, flags: int = 0, min_epoch: int = 0, log: LogId = LOG, *, peer: PeerId = CLIENT) -> int:
        """A GET_SEQ_STATE."""
        self._request_ids += 1
        message = GetSeqState(request_id=self._request_ids, log=log, flags=flags, min_epoch=Epoch(min_epoch))
        self.node.on_message(peer, message, self.now)
        return self._request_ids

    def run(self, micros: int = 0) -> None:
        """End the turn and run effects until nothing is left; then let that much time pass."""
        self._settle()
        end = self.now + micros
        while (deadline := self.timers.next_deadline()) is not None and deadline <= end:
            self.now = Micros(max(self.now, deadline))
            self.timers.advance(self.now)
            self._settle()
        self.now = Micros(end)
        self.timers.advance(self.now)
        self._settle()

    def reply(self, store: Store, status: Status = Status.OK) -> None:
        """A shard answers a STORE that it had kept waiting."""
        self.node.on_message(PeerId(store.shard >> 8), self.stored_by(store, status), self.now)

    def reply_to_held(self, status: Status = Status.OK) -> None:
        """All shards answer."""
        held, self.held_stores = self.held_stores, []
        for store in held:
            self.reply(store, status)
        self.run()

    # What came of it

    @property
    def sequencer(self) -> Sequencer:
        """Of the log that tests use."""
        return self.node.sequencers[LOG]

    def answer_to(self, request_id: int) -> Appended:
        """The only answer to an APPEND."""
        found = [message for message in self.answered if message.request_id == request_id]
        assert len(found) == 1, found
        return found[0]

    def is_answered(self, request_id: int) -> bool:
        return any(message.request_id == request_id for message in self.answered)

    def state_of(self, request_id: int) -> SeqState:
        """The only answer to a GET_SEQ_STATE."""
        found = [message for message in self.states if message.request_id == request_id]
        assert len(found) == 1, found
        return found[0]

    def entries(self) -> dict[Lsn, tuple[EntryHeader, list[Constituent]]]:
        """The data entries that were sent to shards, by LSN."""
        found = {}
        for store in self.stores:
            header = parse_header(store.image)
            if not header.is_amend:
                found[store.lsn] = (header, parse_constituents(body_of(store.image)))
        return found

    def messages(self, kind: type[Any]) -> list[Any]:
        """Everything of a class that was sent."""
        return [send.message for send in self.sent if isinstance(send.message, kind)]

    # Effects

    def _settle(self) -> None:
        for _ in range(10_000):
            self.node.on_turn_end(self.now)
            self.node.check()
            effects = self.outbox.take()
            if not effects:
                return
            for effect in effects:
                self._run_effect(effect)
            self.timers.advance(self.now)
        raise AssertionError("the node never comes to rest")

    def _run_effect(self, effect: Any) -> None:
        if isinstance(effect, EpochStoreRequest):
            if self.store.silent:
                self.store.held.append(effect)
                return
            result = self.store.run(effect.operation)
            if result is not None:
                self.node.on_epoch_store(effect.token, result, self.now)
            return
        if isinstance(effect, LogNotice):
            self.notices.append(effect)
            return
        assert isinstance(effect, Send), effect
        self.sent.append(effect)
        message = effect.message
        if isinstance(message, Appended):
            self.answered.append(message)
        elif isinstance(message, SeqState):
            self.states.append(message)
        elif isinstance(message, Store):
            self._run_store(message)
        elif isinstance(message, Digest):
            self._run_digest(effect.to, message)
        elif isinstance(message, CheckSeal):
            self._run_check_seal(effect.to, message)

    def _run_store(self, store: Store) -> None:
        status: Status | None = Status.OK
        if is_metadata_log(store.log):
            self.metadata_stores.append(store)
        else:
            self.stores.append(store)
            status = self.answer(store)
        if not self.cluster.is_alive(NodeId(store.shard >> 8)):
            return
        if status is None:
            self.held_stores.append(store)
        else:
            self.reply(store, status)

    def stored_by(self, store: Store, status: Status) -> Stored:
        return Stored(
            log=store.log,
            lsn=store.lsn,
            shard=store.shard,
            wave=store.wave,
            status=status,
            flags=self.stored_flags if status is not Status.OK else self._awaited_flag(store.shard),
            seal_epoch=Epoch(self.seal_epoch),
            seal_node=NodeId(self.seal_node),
        )

    def _awaited_flag(self, shard: ShardId) -> int:
        return int(StoredFlags.AWAITED) if shard in self.awaited else 0

    def _run_digest(self, to: PeerId, digest: Digest) -> None:
        held = [store for store in self.metadata_stores if store.shard == digest.shard]
        log = digest.ranges[0].log
        entries = [LogEntry(store.log, store.lsn, len(store.image)) for store in held if store.log == log]
        self.node.on_message(
            to,
            Digested(
                request_id=digest.request_id,
                shard=digest.shard,
                ranges=[DigestedRange(log, Status.OK, LSN_MAX)],
                entries=entries,
                images=b"".join(store.image for store in held if store.log == log),
            ),
            self.now,
        )

    def _run_check_seal(self, to: PeerId, message: CheckSeal) -> None:
        if not self.cluster.is_alive(NodeId(to)):
            return
        epoch, node = self.seals.get(message.shard, (0, -1))
        answer = SealChecked(
            request_id=message.request_id,
            shard=message.shard,
            logs=[CheckedLog(log, epoch, node) for log in message.logs],  # type: ignore[arg-type]
        )
        self.node.on_message(to, answer, self.now)


def active(world: World | None = None, **kwargs: Any) -> World:
    """A world whose log has been activated and released."""
    world = world or World(**kwargs)
    world.append(b"first")
    world.run(1_000_000)
    assert world.sequencer.is_released
    world.sent.clear()
    world.stores.clear()
    world.answered.clear()
    world.metadata_stores = list(world.metadata_stores)
    return world
