"""A whole cluster in one process under virtual time: the production roots of nodes and clients on simulated machines.

Nodes crash with their process (the disk keeps what was written) or with their machine (the disk keeps what was synced, and perhaps some
of the rest), and come back with a later instance id. Everything that happens follows from the seed.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import Any

from client.effects import Connect
from client.links import Links
from client.read.items import RecordBatch
from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.read.read_stream import ReadStream
from client.read.settings import ReadSettings
from client.session import ClientSession, HistoryRequest
from client.settings import ClientSettings, WriterSettings
from client.write.frame_reader import StreamFrameReader
from client.write.write_streams import WriteStreams
from epoch_store.interface import Operation, RegisterShard, Result, ShardIdentity, WriterIdentity
from epoch_store.memory import Fault, MemoryCells, MemoryEpochStore
from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.core.declare import settings_from
from logdevice_py.core.ids import InstanceId, LogId, NodeId, ShardId, shard_index_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Outbox, TimerWheel
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, Micros
from logdevice_py.membership.settings import MembershipSettings
from logdevice_py.simulation.clock import SimClock
from logdevice_py.simulation.network import Network, NetworkSettings
from logdevice_py.simulation.process import Process
from logdevice_py.simulation.scheduler import Scheduler
from logdevice_py.simulation.trace import Trace
from sequencer.effects import EpochStoreRequest
from sequencer.node import SequencerNode
from sequencer.recovery.settings import RecoverySettings
from sequencer.settings import SequencerSettings
from server.node import Node
from server.sim_disk import DiskSettings, SimShard
from storage_node.log_store.identity import IdentityVerdict, ShardMarker, judge
from storage_node.log_store.interface import Completion, ReadLast, ReadShard, WriteShard, Written
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.node import StorageNode
from storage_node.settings import StorageSettings

REGISTER_RETRY = 200 * MILLISECOND
CLIENT_ADDRESS = -1000
"""The first client's; later ones count down."""


class SimNodeState(enum.Enum):
    """What a simulated node does."""

    DOWN = enum.auto()  # no process
    STARTING = enum.auto()  # it registers its shards and does not listen yet
    RUNNING = enum.auto()  # it serves
    PAUSED = enum.auto()  # its process is stopped and keeps its memory


class EpochStoreWeather:
    """How well nodes reach the epoch store; faults change it."""

    def __init__(self) -> None:
        self.delay_max = 5 * MILLISECOND
        self.refuse = 0.0
        """Probability that an operation is refused."""
        self.lose_answer = 0.0
        """Probability that an operation is applied and its answer lost."""
        self.expire = 0.0
        """Probability that an operation is lost on the way and times out."""


class SimNode:
    """One machine of the cluster, with its disks and whatever process runs on it."""

    def __init__(self, cluster: SimCluster, node: NodeId) -> None:
        self.id = node
        self.name = f"N{node}"
        self.state = SimNodeState.DOWN
        self.disk_settings = DiskSettings()
        rng = cluster.rng
        self.clock = SimClock(
            cluster.scheduler,
            offset=rng.randrange(1_000_000_000),
            rate_ppm=rng.randrange(401) - 200,
            skew=rng.randrange(200_001) - 100_000,
        )
        self.disks = {shard: MemoryDisk() for shard in cluster.config.nodes[node].shard_ids()}
        self.process: Process | None = None
        self.root: Node | None = None
        self.shards: dict[ShardId, SimShard] = {}
        self.starts = 0
        self.lost_data = False
        """A disk of it was wiped at some time."""
        self._cluster = cluster
        self._instance = 0

    # Life

    def start(self) -> None:
        """Start the process; it serves when all its shards are registered."""
        assert self.state is SimNodeState.DOWN, self.state
        cluster = self._cluster
        self.state = SimNodeState.STARTING
        self.starts += 1
        self._instance = max(self.clock.wall(), self._instance + 1)
        writer = WriterIdentity(self.id, InstanceId(self._instance))
        run = self.starts
        store = MemoryEpochStore(
            cluster.cells,
            writer,
            lambda step: cluster.scheduler.after(cluster.epoch_store_delay(), step),
            cluster.fault,
        )
        cluster.note(self.name, "start", self._instance)
        found: dict[ShardId, MemoryLogStore] = {}

        def open_next() -> None:
            if self.starts != run or self.state is not SimNodeState.STARTING:
                return
            for shard in self.disks:
                if shard not in found:
                    self._open(shard, store, found, open_next)
                    return
            self._serve(store, run, found)

        open_next()

    def _open(
        self,
        shard: ShardId,
        epoch_store: MemoryEpochStore,
        opened: dict[ShardId, MemoryLogStore],
        then: Callable[[], None],
    ) -> None:
        """Open a shard as `ShardService.open` does."""
        cluster, run = self._cluster, self.starts
        disk = self.disks[shard]
        store = MemoryLogStore(disk)
        judgement = judge(store.found, empty=store.empty, cluster=cluster.config.uuid, shard=shard)
        assert judgement.verdict is not IdentityVerdict.MOVE_ASIDE, judgement.reason
        kept = store.found.generation if store.found is not None and judgement.verdict is IdentityVerdict.KEEP else None
        operation = RegisterShard(cluster.config.uuid, self.id, shard_index_of(shard), kept)

        def done(results: list[Result]) -> None:
            if self.starts != run or self.state is not SimNodeState.STARTING:
                return
            result = results[0]
            if result.status is not Status.OK:
                assert result.status in (Status.AGAIN, Status.TIMEDOUT), result
                cluster.scheduler.after(REGISTER_RETRY, then)
                return
            assert isinstance(result.value, ShardIdentity)
            marker = ShardMarker(cluster.config.uuid, shard, result.value.generation)
            status = store.adopt(marker, boot=disk.boot, now=self.clock.wall())
            assert status is Status.OK, status
            opened[shard] = store
            then()

        epoch_store.submit([operation], done)

    def _serve(self, epoch_store: MemoryEpochStore, run: int, stores: dict[ShardId, MemoryLogStore]) -> None:
        cluster, config = self._cluster, self._cluster.config
        settings = config.settings
        rng = random.Random(cluster.rng.getrandbits(64))
        outbox, timers = Outbox(), TimerWheel()
        member = config.nodes[self.id]

        def deliver(done: list[Completion]) -> None:
            process, root = self.process, self.root
            if self.starts == run and process is not None and root is not None:
                storage = root.storage
                assert storage is not None

                def hand_over(now: Micros) -> None:
                    for each in done:
                        if isinstance(each, Written):
                            storage.on_written(each.token, each.status, now)
                        else:
                            storage.on_read(each.token, each.result, now)

                process.event(hand_over)

        self.shards = {
            shard: SimShard(store, store.load(), self.disk_settings, cluster.scheduler, rng, self.clock.wall, deliver)
            for shard, store in stores.items()
        }

        def make_sequencer(view: Any, request_ids: Any) -> SequencerNode:
            return SequencerNode(
                self.id,
                InstanceId(self._instance),
                config,
                settings_from(SequencerSettings, settings.get("sequencer", {})),
                outbox,
                timers,
                rng,
                self.clock.wall,
                view,
                settings_from(RecoverySettings, settings.get("recovery", {})),
            )

        def make_storage(view: Any, request_ids: Any) -> StorageNode:
            return StorageNode(
                self.id,
                config,
                settings_from(StorageSettings, settings.get("storage", {})),
                outbox,
                timers,
                rng,
                view,
                [shard.contents for shard in self.shards.values()],
                request_ids=request_ids,
            )

        root = self.root = Node(
            self.id,
            InstanceId(self._instance),
            config,
            outbox=outbox,
            timers=timers,
            rng=rng,
            membership=settings_from(MembershipSettings, settings.get("membership", {})),
            generations={shard: each.contents.marker.generation for shard, each in self.shards.items()},
            make_sequencer=make_sequencer if Roles.SEQUENCER in member.roles else None,
            make_storage=make_storage if self.shards else None,
        )

        def run_epoch_store(effects: list[Any]) -> None:
            tokens = [effect.token for effect in effects]

            def done(results: list[Result]) -> None:
                def hand_over(now: Micros) -> None:
                    assert root.sequencer is not None
                    for token, result in zip(tokens, results, strict=True):
                        root.sequencer.on_epoch_store(token, result, now)

                if self.starts == run and self.process is not None:
                    cluster.note(self.name, "epoch store", [result.status.name for result in results])
                    self.process.event(hand_over)

            epoch_store.submit([effect.operation for effect in effects], done)

        def check() -> None:
            if root.sequencer is not None:
                root.sequencer.check()
            if root.storage is not None:
                root.storage.check()

        self.process = Process(
            self.name,
            self.id,
            root,
            outbox,
            timers,
            effects={
                EpochStoreRequest: run_epoch_store,
                WriteShard: self._run_shards,
                ReadShard: self._run_shards,
                ReadLast: self._run_shards,
            },
            network=cluster.network,
            clock=self.clock,
            rng=rng,
            trace=cluster.trace,
            turn_max=cluster.turn_max,
            check=check if cluster.checks else None,
        )
        self.state = SimNodeState.RUNNING
        cluster.note(
            self.name, "serves", {shard: each.contents.marker.generation for shard, each in self.shards.items()}
        )
        self.process.event(root.start)

    def _run_shards(self, effects: list[Any]) -> None:
        by_shard: dict[ShardId, list[Any]] = {}
        for effect in effects:
            by_shard.setdefault(effect.shard, []).append(effect)
        for shard, group in by_shard.items():
            self.shards[shard].run(group)

    # Faults

    def crash(self, *, machine: bool) -> None:
        """End the process at this instant; with `machine` unsynced writes are lost, all or the later ones."""
        if self.state is SimNodeState.DOWN:
            return
        cluster = self._cluster
        cluster.note(self.name, "machine dies" if machine else "process dies")
        self.state = SimNodeState.DOWN
        self.starts += 1
        if self.process is not None:
            self.process.kill(machine=machine)
        self.process = self.root = None
        for shard in self.shards.values():
            shard.alive = False
        self.shards = {}
        if machine:
            for disk in self.disks.values():
                disk.crash(cluster.rng.randrange(disk.unsynced + 1))

    def pause(self) -> None:
        """Stop the process; it keeps its memory and its connections."""
        if self.state is SimNodeState.RUNNING:
            assert self.process is not None
            self._cluster.note(self.name, "paused")
            self.state = SimNodeState.PAUSED
            self.process.pause()

    def resume(self) -> None:
        """Let a paused process run on."""
        if self.state is SimNodeState.PAUSED:
            assert self.process is not None
            self._cluster.note(self.name, "resumed")
            self.state = SimNodeState.RUNNING
            self.process.resume()

    def wipe(self) -> None:
        """Replace the disks of a node that is down by empty ones."""
        assert self.state is SimNodeState.DOWN, self.state
        self._cluster.note(self.name, "wiped")
        self.lost_data = True
        for disk in self.disks.values():
            disk.wipe()


class SimPromise:
    """A promise that calls back."""

    __slots__ = ("_done", "_then", "error", "result")

    def __init__(self, then: Callable[[SimPromise], None]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._then = then
        self._done = False

    def done(self) -> bool:
        """It has its outcome."""
        return self._done

    def set_result(self, result: Any, /) -> None:
        """Keep it."""
        assert not self._done
        self._done, self.result = True, result
        self._then(self)

    def set_exception(self, exception: BaseException, /) -> None:
        """Break it."""
        assert not self._done
        self._done, self.error = True, exception
        self._then(self)

    def exception(self) -> BaseException | None:
        """Why it was broken."""
        return self.error


class SimClient:
    """A client process."""

    def __init__(self, cluster: SimCluster, name: str, address: int) -> None:
        self.name = name
        self.address = address
        self.timers = TimerWheel()
        self._scheduler = cluster.scheduler
        rng = random.Random(cluster.rng.getrandbits(64))
        clock = SimClock(cluster.scheduler, offset=cluster.rng.randrange(1_000_000_000))
        links = Links()
        self.session = ClientSession(
            cluster.config,
            self.timers,
            rng,
            settings=cluster.client_settings,
            read_settings=cluster.read_settings,
            links=links,
        )
        self.read_settings = cluster.read_settings
        self.read_metrics = ReadMetrics()
        self.finder = StreamFrameReader(self.session, self.read_settings, self.read_metrics)

        def run_connects(effects: list[Any]) -> None:
            for effect in effects:
                self.process.connect(effect.node)

        self.process = Process(
            name,
            address,
            self.session,
            links,
            self.timers,
            effects={Connect: run_connects},
            network=cluster.network,
            clock=clock,
            rng=rng,
            trace=cluster.trace,
            turn_max=cluster.turn_max,
        )

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Something that the application does."""
        self.process.event(handler)

    def later(self, handler: Callable[[Micros], None]) -> None:
        """Something that the application does when what runs at this moment has ended."""
        self._scheduler.after(0, lambda: self.process.event(handler))

    def writer(self, settings: WriterSettings) -> WriteStreams:
        """The streams of a BufferedWriter; call them within `event`."""
        return self.session.writer(settings, self.finder)

    def kill(self) -> None:
        """The application's process dies."""
        self.process.kill(machine=False)


class SimReader:
    """Reads a range of a log and hands over what it gets, as `client.reader.Reader` does."""

    def __init__(
        self,
        client: SimClient,
        log: LogId,
        first: int,
        until: int,
        on_batch: Callable[[RecordBatch], None],
        *,
        single_copy: bool,
        records_max: int = 1000,
    ) -> None:
        self.client = client
        self.log = log
        self.first = first
        self._on_batch = on_batch
        self._records_max = records_max
        self._history: HistoryRequest | None = None
        self._taking = False
        session = client.session
        request = ReadRequest(
            log=log, stream=next(session.ids), first=Lsn(first), until=Lsn(until), single_copy=single_copy
        )
        self.stream = ReadStream(
            request,
            config=session.config,
            settings=client.read_settings,
            outbox=session.links,
            timers=session.timers,
            rng=session.rng,
            metrics=client.read_metrics,
            request_history=self._request_history,
            on_ready=self._on_ready,
        )

    @property
    def finished(self) -> bool:
        """Everything up to `until` was handed over."""
        return self.stream.finished

    def start(self, now: Micros) -> None:
        """Begin; call it within `SimClient.event`."""
        self.client.session.add_stream(self.stream.request.stream, self.stream)
        self.stream.start(now)

    def stop(self, now: Micros) -> None:
        """Give up; call it within `SimClient.event`."""
        self.stream.stop()
        self.client.session.remove_stream(self.stream.request.stream)
        if self._history is not None:
            self._history.cancel()

    def _request_history(self) -> None:
        if self._history is not None:
            self._history.cancel()
        self._history = self.client.session.read_history(self.log, self.client.process.now(), self.stream.on_history)

    def _on_ready(self) -> None:
        if not self._taking and not self.stream.finished:
            self._taking = True
            # the stream calls from within one of its events
            self.client.later(self._take)

    def _take(self, now: Micros) -> None:
        self._taking = False
        while self.stream.ready and not self.stream.finished:
            self._on_batch(self.stream.take(self._records_max, now))


class SimCluster:
    """Nodes, clients, network and epoch store of one run."""

    def __init__(
        self,
        config: ClusterConfig,
        seed: int,
        *,
        network: NetworkSettings | None = None,
        client_settings: ClientSettings | None = None,
        read_settings: ReadSettings | None = None,
        trace: Trace | None = None,
        turn_max: int = 50,
        checks: bool = True,
    ) -> None:
        """
        Args:
            seed: of everything that is left to chance.
            turn_max: a turn of a process ends up to so many microseconds after its first event.
            checks: let every root assert after each turn what must hold.
        """
        self.config = config
        self.rng = random.Random(seed)
        self.scheduler = Scheduler()
        self.trace = trace or Trace()
        self.network = Network(self.scheduler, random.Random(self.rng.getrandbits(64)), network or NetworkSettings())
        self.cells = MemoryCells()
        self.weather = EpochStoreWeather()
        self.client_settings = client_settings or ClientSettings()
        self.read_settings = read_settings or ReadSettings()
        self.turn_max = turn_max
        self.checks = checks
        self.nodes = {node: SimNode(self, node) for node in sorted(config.nodes)}
        self.clients: list[SimClient] = []
        self._client_address = CLIENT_ADDRESS

    def note(self, who: str, what: str, detail: Any = "") -> None:
        """Put a line into the trace."""
        self.trace.note(self.scheduler.now, who, what, detail)

    def client(self) -> SimClient:
        """A further client process."""
        client = SimClient(self, f"C{CLIENT_ADDRESS - self._client_address}", self._client_address)
        self._client_address -= 1
        self.clients.append(client)
        return client

    def epoch_store_delay(self) -> int:
        """Of one way to or from the epoch store."""
        return 100 + self.rng.randrange(self.weather.delay_max)

    def fault(self, operation: Operation) -> Fault:
        """What becomes of an operation on the epoch store."""
        weather, chance = self.weather, self.rng.random()
        if chance < weather.refuse:
            return Fault.REFUSED
        if chance < weather.refuse + weather.lose_answer:
            return Fault.ANSWER_LOST
        if chance < weather.refuse + weather.lose_answer + weather.expire:
            return Fault.EXPIRED
        return Fault.NONE

    def calm(self) -> None:
        """End all faults: partitions, pauses, slow disks, the epoch store's; start what is down."""
        self.note("run", "calm")
        self.weather.refuse = self.weather.lose_answer = self.weather.expire = 0.0
        self.weather.delay_max = 5 * MILLISECOND
        self.network.unblock_all()
        for node in self.nodes.values():
            node.disk_settings.sync_max = 2 * MILLISECOND
            for disk in node.disks.values():
                disk.overloaded = False
                disk.free = disk.total
            node.resume()
            if node.state is SimNodeState.DOWN:
                node.start()
