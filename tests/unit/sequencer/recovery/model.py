"""A small world for recoveries: shards, an epoch store, sequencers of old epochs and a network with faults, all on one clock and one seed."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google_crc32c import value as crc32c

from epoch_store.interface import GetLastCleanEpoch, LastCleanEpoch, Result, SetLastCleanEpoch
from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.entry import (
    Constituent,
    EntryFlags,
    EntryHeader,
    body_of,
    encode_body,
    encode_entry,
    parse_header,
)
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, node_of, node_peer, shard_id
from logdevice_py.core.lsn import Epoch, Esn, Lsn, compose_lsn, epoch_of, esn_of
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData, TailRecord
from logdevice_py.placement.failure_domains import Authority, FailureDomains
from logdevice_py.protocol.messages import (
    Clean,
    Cleaned,
    CleanedLog,
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
    Stored,
    StoreFlags,
)
from logdevice_py.protocol.requests import Requests
from logdevice_py.protocol.routing import handlers_of
from sequencer.effects import EpochStoreRequest
from sequencer.recovery.digest import CopyKind, kind_of
from sequencer.recovery.metrics import RecoveryMetrics
from sequencer.recovery.node_recoveries import NodeRecoveries
from sequencer.recovery.result import RecoveryOutcome, RecoveryResult
from sequencer.recovery.settings import RecoverySettings

LOG = LogId(7)


def make_metadata(
    shards: list[ShardId], replication: str, next_epoch: int, generation: int = 1, since: int = 1
) -> EpochMetaData:
    """Epoch metadata of a log that never changed its nodeset."""
    nodeset = tuple((shard, Generation(generation)) for shard in shards)
    interval = EpochInterval(Epoch(since), nodeset, ReplicationProperty.parse(replication))
    return EpochMetaData(Epoch(next_epoch), (interval,), True, False, NodeId(0))


@dataclass(slots=True)
class CleanMark:
    """What a shard keeps of a CLEAN."""

    seal_epoch: int
    lng: int
    last: int
    authoritative: bool


@dataclass(slots=True)
class ModelShard:
    """One shard of one log, with everything it has on disk."""

    shard: ShardId
    generation: int = 1
    seal: tuple[int, int] = (0, -1)
    soft_seal: tuple[int, int] = (0, -1)
    entries: dict[Lsn, dict[tuple[int, int], bytes]] = field(default_factory=dict)
    lng: dict[int, int] = field(default_factory=dict)
    last_clean: int = 0
    marks: dict[int, CleanMark] = field(default_factory=dict)
    lossy: int = 0
    """Up to this epoch entries may be missing."""

    def best(self, lsn: Lsn) -> bytes | None:
        """The copy of highest rank."""
        copies = self.entries.get(lsn)
        return copies[max(copies)] if copies else None

    def handle(self, message: Any, world: World) -> Any:
        """The answer to a request."""
        if isinstance(message, Store):
            return self.store(message)
        if isinstance(message, Seal):
            return self.on_seal(message)
        if isinstance(message, Digest):
            return self.digest(message)
        assert isinstance(message, Clean)
        return self.clean(message, world)

    def store(self, message: Store) -> Any:
        epoch = epoch_of(message.lsn)
        recovery = bool(message.flags & StoreFlags.RECOVERY)
        status, by = Status.OK, (0, -1)
        fence = message.seal_epoch + 1 if recovery else epoch
        if message.generation != self.generation:
            status = Status.REBUILDING
        elif max(self.seal, self.soft_seal)[0] >= fence:
            status, by = Status.PREEMPTED, max(self.seal, self.soft_seal)
        else:
            header = parse_header(message.image)
            assert message.shard in header.copyset
            self.entries.setdefault(message.lsn, {})[header.rank] = message.image
            self.lng[epoch] = max(self.lng.get(epoch, 0), header.lng)
            if not recovery:
                self.soft_seal = max(self.soft_seal, (epoch - 1, -1))
        answer: dict[str, Any] = {
            "log": message.log,
            "lsn": message.lsn,
            "shard": self.shard,
            "wave": message.wave,
            "status": status,
        }
        if recovery:
            return Mutated(recovery_id=message.recovery_id, seal_epoch=Epoch(by[0]), seal_node=NodeId(by[1]), **answer)
        return Stored(flags=0, seal_epoch=Epoch(by[0]), seal_node=NodeId(by[1]), **answer)

    def on_seal(self, message: Seal) -> Sealed:
        rows: list[Any] = []
        for log, seal_epoch, clean, generations in message.logs:
            holding = max(self.seal, self.soft_seal)
            if holding[0] > seal_epoch:
                rows.append(SealedLog(log, Status.PREEMPTED, holding[0], holding[1], 0, []))  # type: ignore[arg-type]
                continue
            self.seal = max(self.seal, (seal_epoch, message.node))
            states = []
            for epoch in range(clean + 1, seal_epoch + 1):
                wanted = [generation for since, generation in generations if since <= epoch]
                if not wanted or wanted[-1] != self.generation:
                    states.append(EpochState(epoch, Status.REBUILDING, 0, 0, 0, 0, 0))  # type: ignore[arg-type]
                    continue
                status = Status.REBUILDING if epoch <= self.lossy else Status.OK
                lng = self.lng.get(epoch, 0)
                mine = sorted(esn_of(lsn) for lsn in self.entries if epoch_of(lsn) == epoch)
                if not mine and not lng and status is Status.OK:
                    continue
                tails = [esn for esn in mine if esn <= lng]
                tail = compose_lsn(epoch, tails[-1]) if tails else Lsn(0)
                last, stamp = mine[-1] if mine else 0, self.stamp(tail) if tail else 0
                states.append(EpochState(epoch, status, lng, last, 0, tail, stamp))  # type: ignore[arg-type]
            rows.append(SealedLog(log, Status.OK, self.seal[0], self.seal[1], 0, states))  # type: ignore[arg-type]
        return Sealed(
            request_id=message.request_id, shard=self.shard, logs=rows, generation=Generation(self.generation)
        )

    def stamp(self, lsn: Lsn) -> int:
        image = self.best(lsn)
        assert image is not None
        return parse_header(image).timestamp

    def digest(self, message: Digest) -> Digested:
        ranges: list[Any] = []
        entries: list[Any] = []
        images: list[bytes] = []
        size = 0
        for log, first, until, generation in message.ranges:
            if generation != self.generation:
                ranges.append(DigestedRange(log, Status.REBUILDING, first))
                continue
            covered = until
            for lsn in sorted(lsn for lsn in self.entries if first <= lsn <= until):
                image = self.best(lsn)
                assert image is not None
                entries.append(LogEntry(log, lsn, len(image)))
                images.append(image)
                size += len(image)
                if size >= message.bytes_max:
                    covered = lsn
                    break
            status = Status.REBUILDING if epoch_of(first) <= self.lossy else Status.OK
            ranges.append(DigestedRange(log, status, covered))
        return Digested(
            request_id=message.request_id, shard=self.shard, ranges=ranges, entries=entries, images=b"".join(images)
        )

    def clean(self, message: Clean, world: World) -> Cleaned:
        rows: list[Any] = []
        for log, epoch, lng, last, _, _, authoritative, _ in message.logs:
            holding = max(self.seal, self.soft_seal)
            if holding[0] > message.seal_epoch:
                rows.append(CleanedLog(log, epoch, Status.PREEMPTED, holding[0], holding[1]))  # type: ignore[arg-type]
                continue
            for earlier in range(self.last_clean + 1, epoch):
                self.purge(earlier, world)
            self.marks[epoch] = CleanMark(message.seal_epoch, lng, last, bool(authoritative))
            self.last_clean = max(self.last_clean, epoch)
            rows.append(CleanedLog(log, epoch, Status.OK, holding[0], holding[1]))  # type: ignore[arg-type]
        return Cleaned(request_id=message.request_id, shard=self.shard, logs=rows)

    def purge(self, epoch: int, world: World) -> None:
        """The shard missed the recovery of an epoch: what it holds beyond what all agreed on may be wrong."""
        marks = [shard.marks[epoch] for shard in world.shards.values() if epoch in shard.marks]
        if not marks:
            return
        lng = max(marks, key=lambda mark: mark.seal_epoch).lng
        for lsn in [lsn for lsn in self.entries if epoch_of(lsn) == epoch and esn_of(lsn) > lng]:
            del self.entries[lsn]


@dataclass(slots=True)
class Wave:
    """A wave of an old sequencer's append."""

    copyset: tuple[ShardId, ...]
    stored: set[ShardId]


class OldSequencer:
    """Appends entries of one epoch, retries by waves, acknowledges them; never notices that it was preempted."""

    def __init__(self, world: World, epoch: int, peer: PeerId, streams: bool) -> None:
        self.world, self.epoch, self.peer, self.streams = world, epoch, peer, streams
        self.lng = 0
        self.next_esn = 1
        self.waves: dict[int, dict[int, Wave]] = {}
        self.replicated: set[int] = set()
        self.held: set[int] = set()

    def append(self) -> None:
        esn = self.next_esn
        self.next_esn += 1
        self.waves[esn] = {}
        self.send_wave(esn)

    def send_wave(self, esn: int) -> None:
        if esn in self.replicated or len(self.waves[esn]) >= 3:
            return
        world = self.world
        wave = len(self.waves[esn]) + 1
        order = list(world.shards)
        world.rng.shuffle(order)
        copyset: list[ShardId] = []
        for shard in order:
            if world.domains.can_replicate(copyset):
                break
            copyset.append(shard)
        self.waves[esn][wave] = Wave(tuple(copyset), set())
        lsn = compose_lsn(self.epoch, esn)
        body = encode_body([Constituent(f"{self.epoch}.{esn}".encode(), 1, 0)])
        flags = EntryFlags.WRITE_STREAM if self.streams else EntryFlags.NONE
        header = EntryHeader(
            LOG, lsn, Timestamp(1000 * self.epoch + esn), wave, tuple(copyset), Esn(self.lng), 1, int(flags), len(body)
        )
        header.body_crc = crc32c(body)
        image = encode_entry(header, body)
        for shard in copyset:
            store = Store(
                log=LOG,
                lsn=lsn,
                shard=shard,
                generation=Generation(1),
                wave=wave,
                flags=0,
                seal_epoch=Epoch(0),
                recovery_id=0,
                image=image,
            )
            if world.rng.random() >= world.store_losses:
                world.send(self.peer, shard, store)
        world.after(world.rng.randrange(600) * MILLISECOND + 200, lambda: self.send_wave(esn))

    def on_message(self, message: Stored) -> None:
        if message.status is not Status.OK:
            return
        esn = esn_of(message.lsn)
        wave = self.waves[esn][message.wave]
        wave.stored.add(message.shard)
        if wave.stored == set(wave.copyset):
            self.replicated.add(esn)
            while self.lng + 1 in self.replicated:
                self.lng += 1
                if self.streams:
                    self.world.acknowledge(self.epoch, self.lng)
            if not self.streams:
                self.world.acknowledge(self.epoch, esn)


class Recoverer:
    """A node that runs a recovery."""

    def __init__(self, world: World, node: int) -> None:
        self.world = world
        self.peer = PeerId(node)
        self.outbox = Outbox()
        self.timers = TimerQueue()
        self.alive = True
        self.epoch = 0
        """Of its sequencer."""
        self.result: RecoveryResult | None = None
        """Of the recovery for that epoch."""
        self.metrics = RecoveryMetrics()
        tokens = itertools.count(1)
        self.asked = Requests(itertools.count(1), self.timers)
        self.recoveries = NodeRecoveries(
            NodeId(node),
            outbox=self.outbox,
            timers=self.timers,
            rng=random.Random(world.rng.getrandbits(32)),
            settings=world.settings,
            metrics=self.metrics,
            cluster=world,
            wall=lambda: Timestamp(5),
            next_token=lambda: next(tokens),
            requests=self.asked,
        )

    def let_rest(self, micros: int) -> None:
        """The recovery lets others take their turn, if it is where it might."""
        recovery = self.recoveries.recovery(LOG)
        if self.alive and recovery is not None and recovery.waits_since is not None:
            self.recoveries.rest(LOG)
            self.world.after(micros, self.next_turn)

    def next_turn(self) -> None:
        if self.alive:
            self.recoveries.run_waiting(self.world.now)
            self.end_turn()

    def start(self, next_epoch: int) -> None:
        world = self.world
        metadata = make_metadata(list(world.shards), world.replication, next_epoch + 1)
        self.epoch, self.result = next_epoch, None
        told: list[RecoveryResult] = []

        def done(result: RecoveryResult, now: Micros) -> None:
            assert result.next_epoch == next_epoch
            assert not told
            told.append(result)
            if next_epoch == self.epoch:
                self.result = result

        self.recoveries.start(LOG, Epoch(next_epoch), metadata, done, world.now)
        self.end_turn()

    def end_turn(self) -> None:
        world = self.world
        self.recoveries.on_turn_end(world.now)
        for effect in self.outbox.take():
            if isinstance(effect, Send):
                world.send(self.peer, effect.message.shard, effect.message)
            else:
                assert isinstance(effect, EpochStoreRequest)
                world.on_epoch_store_request(self, effect)
        deadline = self.timers.next_deadline()
        if deadline is not None:
            world.at(max(deadline, world.now), self.wake)

    def wake(self) -> None:
        deadline = self.timers.next_deadline()
        if self.alive and deadline is not None and deadline <= self.world.now:
            self.timers.advance(self.world.now)
            self.end_turn()

    def on_message(self, shard: ShardId, message: Any) -> None:
        if self.alive:
            handlers_of(self.asked, self.recoveries)[type(message)](node_peer(shard), message, self.world.now)
            self.end_turn()

    def on_peer_down(self, peer: PeerId) -> None:
        if self.alive:
            self.asked.on_peer_down(peer, self.world.now)
            self.recoveries.on_peer_down(peer, self.world.now)
            self.end_turn()

    def on_peer_up(self, peer: PeerId) -> None:
        if self.alive:
            self.recoveries.on_peer_up(peer, self.world.now)
            self.end_turn()


@dataclass(slots=True)
class Link:
    """A connection between a sequencing node and a storage node; each direction keeps its order."""

    incarnation: int = 0
    last: list[int] = field(default_factory=lambda: [0, 0])


class World:
    """Everything of one run."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.now = Micros(0)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        count = rng.choice([1, 2, 3, 3, 3, 4, 5, 6])
        copies = rng.randrange(min(3, count)) + 1
        racks = count >= 4 and copies >= 2 and rng.random() < 0.5
        self.replication = f"rack:2,node:{copies}" if racks and copies > 2 else f"node:{copies}"
        if racks and copies == 2:
            self.replication = "rack:2"
        self._racks = racks
        self.shards = {shard_id(NodeId(node)): ModelShard(shard_id(NodeId(node))) for node in range(count)}
        self.copies = copies
        self.domains = FailureDomains.by_file(self.shards, ReplicationProperty.parse(self.replication), self.location)
        self.settings = RecoverySettings(
            digest_bytes_max=rng.choice([1, 200, 1 << 20]),
            mutations_in_flight_max=rng.choice([1, 3, 256]),
            phase_timeout_us=rng.choice([2 * SECOND, 10 * SECOND]),
            grace_period_us=rng.choice([0, 100 * MILLISECOND]),
            mutation_timeout_initial_us=rng.choice([50, 500]) * MILLISECOND,
        )
        self.links: dict[tuple[PeerId, ShardId], Link] = {}
        self.down: set[ShardId] = set()
        self.paused: dict[ShardId, list[Callable[[], None]]] = {}
        self.wiped: set[ShardId] = set()
        self.faulty = True
        self.slow = rng.choice([2, 20, 150]) * MILLISECOND
        self.store_failures = rng.choice([0.2, 0.95, 0.95])
        self.store_losses = rng.choice([0.0, 0.4])
        self.streams = rng.random() < 0.3
        self.last_clean = LastCleanEpoch()
        self.acknowledged: set[Lsn] = set()
        self.sequencers: dict[PeerId, OldSequencer] = {}
        self.recoverers: dict[PeerId, Recoverer] = {}
        self.latest: Recoverer | None = None
        """The one that was started last."""
        self.final: dict[int, tuple[frozenset[int], int]] = {}

    # --- what recovery asks ---

    def location(self, shard: ShardId) -> Location | None:
        rack = node_of(shard) % 2 if self._racks else node_of(shard)
        return Location.parse(f"r.d.c.w.k{rack}")

    def has_left(self, shard: ShardId, since: int) -> bool:
        return False

    def in_cluster(self, shard: ShardId) -> bool:
        return True

    def is_writable(self, shard: ShardId) -> bool:
        return True

    def authority(self, log: LogId, shard: ShardId, generation: Generation) -> Authority:
        return Authority.FULLY_AUTHORITATIVE

    def is_alive(self, node: NodeId) -> bool:
        return shard_id(node) not in self.down or self.rng.random() < 0.5

    # --- time and network ---

    def at(self, when: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._serial), action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def run(self, until: int, stop: Callable[[], bool] = lambda: False) -> None:
        while self._events and self._events[0][0] <= until and not stop():
            when, _, action = heapq.heappop(self._events)
            self.now = Micros(max(self.now, when))
            action()

    def link(self, peer: PeerId, shard: ShardId) -> Link:
        return self.links.setdefault((peer, shard), Link())

    def _deliver(self, link: Link, direction: int, action: Callable[[], None]) -> None:
        """In order, unless the connection breaks before."""
        when = max(link.last[direction], self.now + 50 + self.rng.randrange(self.slow))
        link.last[direction] = when
        incarnation = link.incarnation
        self.at(when, lambda: action() if link.incarnation == incarnation else None)

    def send(self, peer: PeerId, shard: ShardId, message: Any) -> None:
        link = self.link(peer, shard)
        if shard in self.down:
            if peer in self.recoverers:
                recoverer = self.recoverers[peer]
                self.after(100, lambda: recoverer.on_peer_down(node_peer(shard)) if shard in self.down else None)
            return

        def arrive() -> None:
            if shard in self.paused:
                self.paused[shard].append(lambda: arrive_again())
                return
            answer = self.shards[shard].handle(message, self)
            self._deliver(link, 1, lambda: self.receive(peer, shard, answer))

        incarnation = link.incarnation

        def arrive_again() -> None:
            # A node that was stopped reads what had reached it, even if the other side has closed the connection.
            if shard not in self.down and (link.incarnation == incarnation or self.rng.random() < 0.5):
                arrive()

        self._deliver(link, 0, arrive)

    def receive(self, peer: PeerId, shard: ShardId, answer: Any) -> None:
        if peer in self.sequencers:
            if isinstance(answer, Stored):
                self.sequencers[peer].on_message(answer)
        else:
            self.recoverers[peer].on_message(shard, answer)

    def break_link(self, peer: PeerId, shard: ShardId) -> None:
        link = self.link(peer, shard)
        link.incarnation += 1
        link.last = [self.now, self.now]
        if peer in self.recoverers:
            self.recoverers[peer].on_peer_down(node_peer(shard))
            if shard not in self.down:
                self.after(1000, lambda: self.recoverers[peer].on_peer_up(node_peer(shard)))

    # --- epoch store ---

    def on_epoch_store_request(self, recoverer: Recoverer, request: EpochStoreRequest) -> None:
        operation = request.operation
        if isinstance(operation, SetLastCleanEpoch):
            self.check_decided(recoverer, operation)
        setting = isinstance(operation, SetLastCleanEpoch)
        lost_before = self.faulty and self.rng.random() < (self.store_failures if setting else 0.2)
        lost_after = self.faulty and self.rng.random() < 0.2

        def answer(result: Result) -> None:
            def tell() -> None:
                if recoverer.alive:
                    recoverer.recoveries.on_epoch_store(request.token, result, self.now)
                    recoverer.end_turn()

            self.after(self.rng.randrange(20_000), tell)

        def apply() -> None:
            if lost_before:
                answer(Result(Status.AGAIN))
                return
            status = Status.OK
            if isinstance(operation, SetLastCleanEpoch):
                if operation.epoch <= self.last_clean.epoch:
                    status = Status.STALE
                else:
                    self.last_clean = LastCleanEpoch(operation.epoch, operation.tail)
            else:
                assert isinstance(operation, GetLastCleanEpoch)
            answer(Result(Status.TIMEDOUT) if lost_after else Result(status, self.last_clean))

        self.after(self.rng.randrange(20_000), apply)

    # --- faults ---

    def crash(self, shard: ShardId) -> None:
        if shard in self.down:
            return
        self.down.add(shard)
        self.paused.pop(shard, None)
        for peer, other in list(self.links):
            if other == shard:
                self.break_link(peer, shard)

    def start_shard(self, shard: ShardId) -> None:
        self.down.discard(shard)
        for recoverer in list(self.recoverers.values()):
            recoverer.on_peer_up(node_peer(shard))

    def wipe(self, shard: ShardId) -> None:
        self.crash(shard)
        self.wiped.add(shard)
        generation = self.shards[shard].generation
        self.shards[shard] = ModelShard(shard, generation + 1)

    def lose_unsynced(self, shard: ShardId) -> None:
        """The power failed: some entries that were never synced are gone. What recovery stores always is."""
        self.crash(shard)
        self.wiped.add(shard)
        model = self.shards[shard]
        for lsn, copies in list(model.entries.items()):
            model.lossy = max(model.lossy, epoch_of(lsn))
            if self.rng.random() < 0.3:
                model.entries[lsn] = {rank: image for rank, image in copies.items() if rank[0]}
                if not model.entries[lsn]:
                    del model.entries[lsn]

    def pause(self, shard: ShardId) -> None:
        if shard not in self.down:
            self.paused.setdefault(shard, [])

    def resume(self, shard: ShardId) -> None:
        for action in self.paused.pop(shard, []):
            action()

    def end_faults(self) -> None:
        self.faulty = False
        for shard in list(self.paused):
            self.resume(shard)
        for shard in sorted(self.down):
            self.start_shard(shard)

    # --- what must hold ---

    @property
    def tolerable(self) -> bool:
        """So few shards lost their data that nothing acknowledged may be lost."""
        return len(self.wiped) < self.copies

    def acknowledge(self, epoch: int, esn: int) -> None:
        self.acknowledged.add(compose_lsn(epoch, esn))

    def check_decided(self, recoverer: Recoverer, operation: SetLastCleanEpoch) -> None:
        """An epoch is clean: what it holds must be what every earlier recovery that came this far had found."""
        recovery = recoverer.recoveries.recovery(LOG)
        assert recovery is not None
        assert recovery.current is not None
        plan = recovery.current.findings.decided
        assert plan.epoch == operation.epoch
        entries = set(range(1, plan.lng + 1)) | {
            esn for esn, decision in plan.decisions.items() if decision.kind is CopyKind.ENTRY and esn not in plan.lost
        }
        assert operation.tail == plan.tail_record
        if not plan.authoritative:
            assert not self.tolerable
            return
        if not self.tolerable:
            return
        assert not plan.lost
        found = (frozenset(entries), int(plan.bridge))
        assert self.final.setdefault(plan.epoch, found) == found
        assert plan.bridge == plan.tail + 1
        assert not self.streams or entries == set(range(1, len(entries) + 1))
        for lsn in self.acknowledged:
            assert epoch_of(lsn) != plan.epoch or esn_of(lsn) in entries, (lsn, entries)
        self.check_shards(plan.epoch, plan.seal_epoch, plan.lng, found)

    def check_shards(self, epoch: Epoch, seal_epoch: int, lng: int, found: tuple[frozenset[int], int]) -> None:
        """All shards that this recovery cleaned agree, and hold what was decided on valid copysets."""
        entries, bridge = found
        clean = [
            shard
            for shard in self.shards.values()
            if shard.generation == 1 and epoch in shard.marks and shard.marks[epoch].seal_epoch >= seal_epoch
        ]
        holders: dict[int, list[ShardId]] = {}
        copies: dict[int, dict[ShardId, tuple[ShardId, ...]]] = {}
        for shard in clean:
            for lsn in shard.entries:
                if epoch_of(lsn) != epoch or esn_of(lsn) <= lng:
                    continue
                image = shard.best(lsn)
                assert image is not None
                esn = esn_of(lsn)
                kind = kind_of(parse_header(image))
                expected = CopyKind.ENTRY if esn in entries else CopyKind.BRIDGE if esn >= bridge else CopyKind.HOLE
                assert kind is expected, (esn, kind, expected)
                if kind is CopyKind.ENTRY:
                    assert f"{epoch}.{esn}".encode() in body_of(image)
                assert esn <= shard.marks[epoch].last
                holders.setdefault(esn, []).append(shard.shard)
                copies.setdefault(esn, {})[shard.shard] = parse_header(image).copyset
        whole = [shard for shard, model in self.shards.items() if model.generation == 1]
        if self.domains.can_replicate(whole):
            for number in range(lng + 1, bridge + 1):
                esn = Esn(number)
                # A shard may have been wiped since it was cleaned.
                # One copyset is complete, so that one of its members feels called to deliver the entry; unless a later recovery is at work.
                held = copies.get(esn, {})
                disturbed = self.wiped or any(shard.seal[0] > seal_epoch for shard in self.shards.values())
                assert disturbed or any(all(held.get(s) == copyset for s in copyset) for copyset in held.values())
                assert self.domains.can_replicate([*holders.get(esn, []), *self.wiped]), (esn, holders)

    def check_end(self) -> None:
        """The last recovery is done: every acknowledged entry can be read."""
        if not self.tolerable:
            return
        for lsn in sorted(self.acknowledged):
            if epoch_of(lsn) > self.last_clean.epoch:
                continue
            images = [model.best(lsn) for model in self.shards.values() if model.generation == 1]
            assert any(image is not None and not parse_header(image).is_hole for image in images), lsn


def run_world(seed: int) -> World:
    """Sequencers and recoveries one after the other and at the same time, faults, then peace."""
    world = World(seed)
    rng = world.rng
    shards = sorted(world.shards)
    lasting: list[Recoverer] = []
    """The one that is started for the last epoch: it is not killed from then on."""
    last_epoch = 2 + rng.randrange(5)
    at = 0
    for epoch in range(1, last_epoch + 1):
        if epoch < last_epoch and (epoch == 1 or rng.random() < 0.5):
            sequencer = OldSequencer(world, epoch, PeerId(200 + epoch), world.streams)
            world.sequencers[sequencer.peer] = sequencer
            for _ in range(rng.randrange(10)):
                world.at(at + rng.randrange(400 * MILLISECOND), sequencer.append)
        if epoch > 1 and (epoch == last_epoch or rng.random() < 0.8):

            def start(epoch: int = epoch) -> None:
                recoverer = world.latest
                if recoverer is None or not recoverer.alive or recoverer.epoch > epoch or rng.random() < 0.6:
                    recoverer = Recoverer(world, 100 + epoch)
                    world.recoverers[recoverer.peer] = recoverer
                if epoch == last_epoch:
                    lasting.append(recoverer)
                world.latest = recoverer
                recoverer.start(epoch)

            world.at(at + rng.randrange(300) * MILLISECOND, start)
        at += rng.randrange(rng.choice([300, 300, 3000])) * MILLISECOND + 1
    end = at + rng.choice([100, 500, 3000]) * MILLISECOND

    def fault() -> None:
        if world.now > end:
            return
        shard = shards[rng.randrange(len(shards))]
        pick = rng.random()
        later = rng.randrange(rng.choice([100, 2000, 15_000])) * MILLISECOND
        if pick < 0.25:
            world.crash(shard)
            world.after(later, lambda: world.start_shard(shard))
        elif pick < 0.5:
            world.pause(shard)
            world.after(later, lambda: world.resume(shard))
        elif pick < 0.8:
            keys = sorted(world.links)
            if keys:
                world.break_link(*keys[rng.randrange(len(keys))])
        elif pick < 0.87 and (len(world.wiped | {shard}) < world.copies or rng.random() < 0.1):
            if rng.random() < 0.5:
                world.wipe(shard)
            else:
                world.lose_unsynced(shard)
            world.after(later, lambda: world.start_shard(shard))
        elif world.recoverers:
            peers = sorted(world.recoverers)
            victim = world.recoverers[peers[rng.randrange(len(peers))]]
            if rng.random() < 0.5:
                victim.let_rest(later)
            elif victim not in lasting:
                victim.alive = False
        world.after(rng.randrange(rng.choice([50, 300, 1000])) * MILLISECOND, fault)

    if rng.random() < 0.9:
        world.at(rng.randrange(300) * MILLISECOND, fault)
    world.run(end)
    world.end_faults()

    def finished() -> bool:
        return bool(lasting) and lasting[0].result is not None

    world.run(world.now + 120 * SECOND, finished)
    (last,) = lasting
    recovery = last.recoveries.recovery(LOG)
    assert last.result is not None, recovery.explain() if recovery is not None else "no recovery"
    assert last.result.outcome is RecoveryOutcome.OK
    assert world.last_clean.epoch == last_epoch - 1
    if world.tolerable:
        assert last.result.authoritative
    world.check_end()
    tail: TailRecord | None = last.result.tail
    assert tail == world.last_clean.tail
    return world
