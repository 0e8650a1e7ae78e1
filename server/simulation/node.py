"""A simulated machine of a cluster: its clocks and disks, and whatever process of a node runs on it."""

from __future__ import annotations

import asyncio
import enum
import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from epoch_store.cells import key_of
from epoch_store.interface import EpochStore, Result, WriterIdentity
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import InstanceId, NodeId, ShardId
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import MILLISECOND, Micros
from logdevice_py.shell.introduction import Identity
from logdevice_py.shell.proof import Principals
from logdevice_py.simulation.clock import SimClock
from logdevice_py.simulation.process import Process
from sequencer.effects import EpochStoreRequest, LogNotice
from server.event_log.notices import EventLogNotice
from server.node import Node
from server.node_settings import NodeSettings
from server.simulation.configuration import SimConfiguration, SimKeptConfiguration
from server.simulation.disk import DiskSettings, SimShard, SimStore, make_disk, store_settings
from server.simulation.epoch_store import SimEpochStore
from server.simulation.opening import SimOpening
from server.simulation.world import SimWorld
from storage_node.log_store.interface import (
    Completion,
    Contents,
    ReadDirectory,
    ReadLast,
    ReadShard,
    WriteShard,
)
from storage_node.repair.notices import Notice

_WRITE = struct.Struct(">QIQ?")
_READ = struct.Struct(">QIQQQ")
SUPERVISOR_PAUSE = 500 * MILLISECOND
"""After which a process that could not start is started again."""
_BROKEN_DISK_US = 50 * MILLISECOND


class SimNodeState(enum.Enum):
    """What a simulated node does."""

    DOWN = enum.auto()  # no process
    STARTING = enum.auto()  # it registers its shards and does not listen yet
    RUNNING = enum.auto()  # it serves
    PAUSED = enum.auto()  # its process is stopped and keeps its memory


class SimNode:
    """One machine of the cluster, with its disks and whatever process runs on it."""

    def __init__(self, cluster: SimWorld, node: NodeId) -> None:
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
        self.disks = {
            shard: make_disk(cluster.store, cluster.fault_effects, cluster.disk_bytes)
            for shard in cluster.config.nodes[node].shard_ids()
        }
        self.rate_ppm = self.clock.rate_ppm
        """Of its monotonic clock when nothing is wrong with it."""
        self.process: Process | None = None
        self.root: Node | None = None
        self.shards: dict[ShardId, SimShard] = {}
        self.starts = 0
        self.lost_data = False
        """A disk of it was lost at some time."""
        self.wipes = 0
        """How often."""
        self.retired = False
        """It was taken out of the cluster: its process is not started again."""
        self.disks_broken = False
        """Its disks failed for good: what is on them counts for nobody, and a process that ends is not started again."""
        self.leaving = False
        """It is stopping in order: it refuses what comes, until it ends."""
        self._paused_by = ""
        self._cluster = cluster
        self._instance = 0
        self._epoch_store: SimEpochStore | None = None
        """Of the last process."""
        self.kept = SimKeptConfiguration()
        """The stored configuration that it keeps."""
        self.configuration: SimConfiguration | None = None
        """Of the last process, where the configuration is stored."""

    # Life

    def start_if_down(self, delay: int = 0) -> None:
        """Start the process, unless something else did."""
        if self.state is SimNodeState.DOWN:
            self.start(delay)

    def start(self, delay: int = 0) -> None:
        """Start the process; it serves when all its shards are registered.

        Args:
            delay: microseconds until it begins to open its disks.
        """
        assert self.state is SimNodeState.DOWN, self.state
        if self.retired or self.disks_broken:
            return
        cluster = self._cluster
        self.state = SimNodeState.STARTING
        self.leaving = False
        self.starts += 1
        self._instance = max(self.clock.wall(), self._instance + 1)
        writer = WriterIdentity(self.id, InstanceId(self._instance))
        run = self.starts
        rng = random.Random(cluster.rng.getrandbits(64))
        store = self._epoch_store = SimEpochStore(
            cluster.cells, writer, cluster.scheduler, rng, cluster.weather, cluster.fault_effects
        )
        cluster.note(self.name, "start", self._instance)
        opening = SimOpening(cluster, self, store, rng, partial(self._serve, store, run))
        begin = opening.open_next
        if cluster.loop is not None:
            begin = partial(self._begin_configured, cluster.loop, store, opening.open_next, run)
        if delay:
            cluster.scheduler.after(delay, begin)
        else:
            begin()

    def _begin_configured(
        self, loop: asyncio.AbstractEventLoop, store: SimEpochStore, then: Callable[[], None], run: int
    ) -> None:
        """Find the stored configuration first."""
        if not self.is_starting(run):
            return
        found = self.configuration = SimConfiguration(self.name, loop, store, self.kept, self._cluster.file, self.clock)

        def ready() -> None:
            if self.is_starting(run):
                if self.id in found.config.nodes:
                    then()
                else:
                    self.fail_start("is not in the configuration", f"version {found.config.version}")

        def failed(error: LogDeviceError) -> None:
            if self.is_starting(run):
                self.fail_start("cannot use the configuration", error.detail)

        found.begin(ready, failed)

    def is_starting(self, run: int) -> bool:
        """Whether the start of that number goes on."""
        return self.starts == run and self.state is SimNodeState.STARTING

    def fail_start(self, reason: str, detail: str) -> None:
        """The process ends before it serves; it is started again after a while."""
        self._cluster.note(self.name, reason, detail)
        self._end_process()
        run = self.starts
        self._cluster.scheduler.after(SUPERVISOR_PAUSE, lambda: self._start_again(run))

    def _start_again(self, run: int) -> None:
        if self.starts == run:
            self.start_if_down()

    def _end_process(self) -> None:
        self.state = SimNodeState.DOWN
        self.starts += 1
        if self._epoch_store is not None:
            self._epoch_store.close()
        if self.configuration is not None:
            self.configuration.end()

    def _serve(self, epoch_store: EpochStore, run: int, opened: dict[ShardId, tuple[SimStore, Contents]]) -> None:
        cluster, found = self._cluster, self.configuration
        config = cluster.config if found is None else found.config
        rng = random.Random(cluster.rng.getrandbits(64))
        outbox, timers = _WatchedOutbox(self, cluster), TimerQueue()

        def deliver(done: list[Completion]) -> None:
            process, root = self.process, self.root
            if self.starts == run and process is not None and root is not None:
                if cluster.watch_done is not None:
                    cluster.watch_done(self, done)
                process.event(partial(root.on_done, done))

        limits = store_settings(config)

        self.shards = {
            shard: SimShard(
                store,
                self.disks[shard],
                contents,
                limits,
                self.disk_settings,
                cluster.scheduler,
                rng,
                self.clock.wall,
                deliver,
            )
            for shard, (store, contents) in opened.items()
        }

        settings = NodeSettings.of(config.settings)
        principals = Principals()
        root = self.root = Node(
            self.id,
            InstanceId(self._instance),
            config,
            settings,
            [shard.contents for shard in self.shards.values()],
            outbox=outbox,
            timers=timers,
            rng=rng,
            wall=self.clock.wall,
            principals=principals,
        )

        def run_epoch_store(effects: list[Any]) -> None:
            tokens = [effect.token for effect in effects]
            operations = [effect.operation for effect in effects]

            def done(results: list[Result]) -> None:
                if self.starts == run and self.process is not None:
                    cluster.note(self.name, "epoch store", [result.status.name for result in results])
                    if cluster.watch_epoch_store is not None:
                        cluster.watch_epoch_store(self, operations, results)
                    self.process.event(partial(root.on_epoch_store, tokens, results))

            cluster.trace.cover(repr([(effect.token, key_of(effect.operation)) for effect in effects]).encode())
            epoch_store.submit(operations, done)

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
            identity=Identity(config.name, config.uuid, self.id, InstanceId(self._instance), config.version),
            is_member=lambda node: node in root.config.nodes,
            effects={
                EpochStoreRequest: run_epoch_store,
                WriteShard: self._run_shards,
                ReadShard: self._run_shards,
                ReadLast: self._run_shards,
                ReadDirectory: self._run_shards,
                Notice: self._say,
                LogNotice: self._say,
                EventLogNotice: self._say,
            },
            network=cluster.network,
            clock=self.clock,
            rng=rng,
            trace=cluster.trace,
            turn_max=cluster.turn_max,
            settings=settings.runtime,
            security=settings.security,
            principals=principals,
            is_alive=root.gossip.is_alive,
            check=check if cluster.checks else None,
            on_congestion=root.on_congestion,
        )
        self.state = SimNodeState.RUNNING
        cluster.note(
            self.name, "serves", {shard: each.contents.marker.generation for shard, each in self.shards.items()}
        )
        self.process.event(root.start)
        if found is not None:
            found.follow(root, self.process.event, self._use_stored)

    def _use_stored(self, config: ClusterConfig) -> None:
        process, root = self.process, self.root
        assert process is not None
        assert root is not None
        self._cluster.note(self.name, "configuration", config.version)
        process.identity.config_version = config.version
        process.event(lambda now: root.on_config(config, now))

    def take_config(self, config: ClusterConfig) -> None:
        """Hand a cluster file to a node that runs; one that starts later, or is paused, takes the newest by itself."""
        process, root, paused = self.process, self.root, self.state is SimNodeState.PAUSED
        if process is None or root is None:
            return

        def event(now: Micros) -> None:
            root.on_config(self._cluster.config if paused else config, now)
            process.identity.config_version = root.config.version

        process.event(event)

    def _say(self, notices: list[Any]) -> None:
        for notice in notices:
            self._cluster.note(self.name, notice.kind, notice.text)

    def _run_shards(self, effects: list[Any]) -> None:
        by_shard: dict[ShardId, list[Any]] = {}
        cover = self._cluster.trace.cover
        for effect in effects:
            if type(effect) is WriteShard:
                cover(_WRITE.pack(effect.token, effect.shard, effect.batch.size, effect.sync))
            elif type(effect) is ReadDirectory:
                cover(_READ.pack(effect.token, effect.shard, len(effect.logs), 0, 0))
            else:
                cover(_READ.pack(effect.token, effect.shard, effect.log, effect.first, effect.last))
            by_shard.setdefault(effect.shard, []).append(effect)
        for shard, group in by_shard.items():
            self.shards[shard].run(group, self._complete)

    def _complete(self, done: list[Completion]) -> None:
        assert self.process is not None
        assert self.root is not None
        if self._cluster.watch_done is not None:
            self._cluster.watch_done(self, done)
        self.process.complete(partial(self.root.on_done, done))

    # Faults

    @property
    def failed(self) -> bool:
        """A shard of the process does not work any more: its disk failed."""
        return any(shard.store.failed for shard in self.shards.values())

    def crash(self, *, machine: bool) -> None:
        """End the process at this instant; with `machine` unsynced writes are lost, all or the later ones."""
        if self.state is SimNodeState.DOWN:
            return
        cluster = self._cluster
        cluster.note(self.name, "machine dies" if machine else "process dies")
        self._end_process()
        if self.process is not None:
            self.process.kill(machine=machine)
        self.process = self.root = None
        for shard in self.shards.values():
            shard.alive = False
        self.shards = {}
        if machine:
            for disk in self.disks.values():
                disk.power_cut(cluster.rng)

    def crash_midway(self, share: float, *, machine: bool, kind: str) -> None:
        """Crash when only a part of the effects of a turn is run: of the next one that has any.

        Args:
            share: how much of the effects is run, from 0 to 1.
            kind: under which name it is counted.
        """
        if self.process is None:
            return

        def crash() -> None:
            self._cluster.fault_effects[kind] += 1
            self.crash(machine=machine)

        self.process.cut_next_turn(share, crash)

    def pause(self, kind: str = "pause") -> None:
        """Stop the process; it keeps its memory and its connections."""
        if self.state is SimNodeState.RUNNING:
            assert self.process is not None
            self._cluster.note(self.name, "paused")
            self.state = SimNodeState.PAUSED
            self._paused_by = kind
            self.process.pause()

    def resume(self) -> None:
        """Let a paused process run on."""
        if self.state is SimNodeState.PAUSED:
            assert self.process is not None
            self._cluster.note(self.name, "resumed")
            self.state = SimNodeState.RUNNING
            if self.process.waiting:
                self._cluster.fault_effects[self._paused_by] += 1
            self.process.resume()

    def wipe(self) -> None:
        """Replace the disks of a node that is down by empty ones."""
        assert self.state is SimNodeState.DOWN, self.state
        self._cluster.note(self.name, "wiped")
        self.lost_data = True
        self.kept.text = None
        self.wipes += 1
        for disk in self.disks.values():
            disk.wipe()

    def break_disks(self) -> None:
        """Let the disks of a node that runs fail for good: at the next write or sync, while the process goes on."""
        assert self.state is SimNodeState.RUNNING, self.state
        self._cluster.note(self.name, "disks break")
        self.disks_broken = self.lost_data = True
        self._fail_disks()

    def _fail_disks(self) -> None:
        for disk in self.disks.values():
            disk.fail_sync = disk.fail_write = True
        if self.state is not SimNodeState.DOWN and not all(shard.store.failed for shard in self.shards.values()):
            self._cluster.scheduler.after(_BROKEN_DISK_US, self._fail_disks)  # other faults of disks end meanwhile

    def snapshot(self) -> dict[ShardId, dict[bytes, bytes]]:
        """A backup of its disks."""
        return {shard: disk.snapshot() for shard, disk in self.disks.items()}

    def restore(self, backup: dict[ShardId, dict[bytes, bytes]]) -> None:
        """Put a backup of this node onto the disks of a node that is down."""
        assert self.state is SimNodeState.DOWN, self.state
        self._cluster.note(self.name, "restored from a backup")
        self.lost_data = True
        for shard, disk in self.disks.items():
            disk.replace(backup[shard])

    def take_disks(self, contents: dict[ShardId, dict[bytes, bytes]]) -> None:
        """Put what is on another node's disks, shard by shard, onto the disks of a node that is down."""
        assert self.state is SimNodeState.DOWN, self.state
        self._cluster.note(self.name, "gets another node's disks")
        self.lost_data = True
        for disk, rows in zip(self.disks.values(), contents.values(), strict=True):
            disk.wipe()
            disk.replace(rows)

    def calm(self) -> None:
        """Everything about the machine works again. What is down is started; what its disk failed, or is about to end, is started anew."""
        self.disk_settings.clear()
        self.clock.set_rate(self.rate_ppm)
        for disk in self.disks.values():
            disk.overloaded = disk.lying = False
            disk.fail_sync = disk.fail_write = self.disks_broken
            disk.taken = 0
            disk.unreadable.clear()
        self.resume()
        if self.process is not None:
            self.process.spare_next_turn()
        if (self.failed and not self.disks_broken) or self.leaving:
            self.crash(machine=False)
        self.start_if_down()


class _WatchedOutbox(Outbox):
    """Shows what a node puts out to `SimWorld.watch`."""

    __slots__ = ("_cluster", "_node")

    def __init__(self, node: SimNode, cluster: SimWorld) -> None:
        super().__init__()
        self._node = node
        self._cluster = cluster

    def take(self) -> list[Any]:
        effects = self.effects
        if not effects:
            return []
        self.effects = []
        cluster = self._cluster
        if cluster.watch is not None:
            cluster.watch(self._node, effects)
        if cluster.watchers:
            for watcher in list(cluster.watchers):
                watcher(self._node, effects)
        return effects
