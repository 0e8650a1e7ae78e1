"""Runs one node on asyncio: opens its shards, epoch store and connections, and executes its effects.

The same object serves `logdeviced` (one a process) and `LocalCluster` (several in one loop).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from epoch_store.interface import EpochStore, Operation, Result, WriterIdentity
from epoch_store.opening import open_epoch_store
from epoch_store.zookeeper_access import zookeeper_access
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.ids import InstanceId, NodeId, PeerId, ShardId, format_shard, shard_index_of
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.placement.cluster_placement import check_policy
from logdevice_py.runtime.append_trace import AppendTrace, uninstall
from logdevice_py.runtime.clock import monotonic_us, wall_us
from logdevice_py.runtime.diagnostics import FIELDS, Diagnostics
from logdevice_py.runtime.driver import Driver
from logdevice_py.runtime.metric_source import MetricSource
from logdevice_py.runtime.transport import Transport, bind
from logdevice_py.shell.introduction import Identity
from logdevice_py.shell.proof import Principals
from logdevice_py.shell.settings import RuntimeSettings
from sequencer.effects import EpochStoreRequest, LogNotice
from sequencer.node import SequencerNode
from server.audit.audit_file import AuditFile
from server.audit.audit_log import WriteAuditLine
from server.cluster_file import ClusterFile, read_cluster_file
from server.configuration.begin import EpochStorePlace, starting_configuration
from server.configuration.keeper import ConfigurationFile, ConfigurationKeeper, InForce
from server.copy_review import CopyReview
from server.event_log.notices import EventLogNotice
from server.instance import choose_instance, keep_instance
from server.live_settings import LiveSettings, live_settings_of
from server.node import Node
from server.node_settings import NodeSettings
from server.node_view import AdminApi, AdminView
from server.private_files import make_private_directory
from server.registration import ShardRegistration
from server.security import open_security
from storage_node.log_store.identity import LOSS_NOT_ACCEPTED, AcceptedLoss
from storage_node.log_store.interface import (
    Completion,
    ReadDirectory,
    ReadLast,
    ReadShard,
    WriteShard,
)
from storage_node.log_store.rocksdb.shard_opening import DamagedStoreError, refuse_in_use
from storage_node.log_store.settings import LogStoreSettings
from storage_node.repair.notices import Notice
from storage_node.service import ShardService

log = logging.getLogger("logdevice.node")

OpenAdmin = Callable[[AdminView], Awaitable[AdminApi | None]]
CONFIG_POLL = 0.5
"""Seconds between looks at the cluster file."""
STATE_INTERVAL = 600.0
"""Seconds between the times at which the epoch store is told how far the disks are."""
NOTE_TIMEOUT = 2.0
"""Seconds for which a node that stops waits for the epoch store."""
DRAIN_TIMEOUT = 5.0
"""Seconds that appends under way get to finish when the node stops in order."""
_AUDIT_TIMEOUT = 5.0
"""Seconds for which what an operator asks for waits until it is in the audit log."""
DRAIN_LOOK = 0.005
"""Seconds between two looks at what a node that stops has under way."""
QUIET_LOOKS = 10
"""Looks in a row that see no append, after which every client is taken to know that the node stops. An append that arrived at a closed
connection would have an unknown outcome; one that is refused is merely sent elsewhere. Looks, not seconds: while the process stalls
nobody is heard, which does not mean that nobody speaks."""


class NodeHost:
    """One running node."""

    def __init__(
        self,
        path: Path,
        file: ClusterConfig,
        begin: InForce,
        directory: Path,
        node: NodeId,
        instance: InstanceId,
        place: EpochStorePlace | None = None,
        stand_at: str | None = None,
    ) -> None:
        """Use `open`."""
        config = begin.config
        self.path = path
        self.config = config
        self.started_with = config
        """Its settings hold until the node is started again; everything else is as `config` says."""
        self.node_id = node
        self.instance = instance
        self.crashed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Done when a machine failed, with the exception."""
        self.stop_wanted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when an operator asked the node to stop; whoever runs the node closes it then."""
        member = config.nodes[node]
        self._stand_at = stand_at
        self.address = (stand_at or member.host, member.port)
        self.shards: dict[ShardId, ShardService] = {}
        self.store_directories: dict[ShardId, str] = {}
        """Where the store of each of its shards is, of those that are out of service too."""
        self._registrations: dict[ShardId, ShardRegistration] = {}
        self._loop = asyncio.get_running_loop()
        self._place = place
        self._epoch_store_url = file.epoch_store if place is None else place.url
        self._epoch_store: EpochStore | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._file = ClusterFile(path, file)
        self.configuration = ConfigurationKeeper(self.ask_epoch_store, ConfigurationFile(directory), file, begin)
        """Follows the configuration that the epoch store keeps."""
        self._told_version = 0
        self._closed = False
        self._leaving = False
        self._sock: socket.socket | None = None
        self._admin: AdminApi | None = None
        self._audit_file: AuditFile | None = None
        self._diagnostics = Diagnostics(log)
        self.trace: AppendTrace | None = None
        """What became of appends lately; None: nobody asked for it."""
        self.duties: Callable[[], list[str]] = list
        """What the node sees to for the cluster: nothing, but where somebody keeps its duties."""
        self.copy_review = CopyReview(self)
        """Which of its logs are short of copies."""
        self.serving_since = Timestamp(0)
        """When the node began to serve; 0 before."""
        self.driver: Driver
        self.transport: Transport
        self.node: Node
        self.live_settings: LiveSettings

    @classmethod
    async def open(
        cls,
        path: Path,
        node: NodeId,
        data: Path | None,
        accepted: AcceptedLoss = LOSS_NOT_ACCEPTED,
        open_admin: OpenAdmin | None = None,
        place: EpochStorePlace | None = None,
        stand_at: str | None = None,
    ) -> NodeHost:
        """Start a node; it serves when this returns.

        Args:
            path: the cluster file.
            node: which node of it.
            data: where its shards are; None: where the cluster file says.
            accepted: data that may be missing.
            open_admin: opens the admin API; None: the node has none.
            place: the epoch store; None: where the cluster file says.
            stand_at: the address at which it listens for nodes and clients, and from which it dials; None: that of the cluster file. Somebody forwards.

        Raises:
            LogDeviceError: the cluster file is invalid or does not have the node, a store cannot be opened, or it is not the one that
                the cluster knows.
            OSError: the address is taken, or the data directory cannot be used.
        """
        file = read_cluster_file(path)
        reached = file if place is None else place.reached_from(file)
        before = file.nodes.get(node)
        directory = data or (Path(before.data_dir) if before is not None and before.data_dir else None)
        begin = await starting_configuration(reached, directory, zookeeper_access(path, reached, node))
        config = begin.config
        member = config.nodes.get(node)
        if member is None:
            where = f"configuration version {config.version} in {reached.epoch_store}" if begin.is_stored else str(path)
            hint = f": ldctl nodes add N{node} host=HOST port=PORT adds it" if begin.is_stored else ""
            raise LogDeviceError(Status.NOTINCONFIG, f"{where} has no node N{node}{hint}")
        for shard, _ in sorted(accepted.generations):
            if shard not in member.shard_ids():
                raise LogDeviceError(
                    Status.INVALID_PARAM, f"--accept-data-loss: N{node} has no shard {format_shard(shard)}"
                )
        directory = directory or (Path(member.data_dir) if member.data_dir else None)
        if directory is None:
            raise LogDeviceError(Status.INVALID_CONFIG, f"N{node} has no data_dir in {path}: give --data")
        host = cls(
            path, file, begin, directory, node, await asyncio.to_thread(choose_instance, directory), place, stand_at
        )
        try:
            await host._start(directory, accepted, open_admin)
        except BaseException:
            await host._abandon()
            raise
        return host

    async def _start(self, directory: Path, accepted: AcceptedLoss, open_admin: OpenAdmin | None) -> None:
        config, member = self.config, self.config.nodes[self.node_id]
        reached = config if self._place is None else self._place.reached_from(config)
        reached = replace(reached, epoch_store=self._epoch_store_url)  # what is stored may name where it was before
        self._epoch_store = open_epoch_store(
            reached.epoch_store,
            config.name,
            WriterIdentity(self.node_id, self.instance),
            self._loop,
            hosts=[each.host for each in config.nodes.values()],
            access=zookeeper_access(self.path, reached, self.node_id),
        )
        # Before the shards: a second process of the node must not have its own empty ones registered in place of the real ones.
        self._sock = bind(*self.address)
        if open_admin is not None:
            self._admin = await open_admin(self)
        settings = NodeSettings.of(config.settings)
        check_policy(config)
        registrations = {
            shard: ShardRegistration(self._epoch_store, reached, self.node_id, shard, directory, accepted)
            for shard in member.shard_ids()
        }
        self.store_directories = {shard: str(each.directory) for shard, each in registrations.items()}
        for shard, registration in registrations.items():
            await registration.check()
            # Before the instance is kept: it would be left in the directory of another node.
            await asyncio.to_thread(refuse_in_use, str(registration.directory), shard)
        make_private_directory(directory)
        await asyncio.to_thread(keep_instance, directory, self.instance)
        await self.configuration.keep_first()
        for shard, registration in registrations.items():
            try:
                await self._open_shard(shard, registration, settings.log_store)
            except DamagedStoreError as error:
                text = registration.explain_damage(error.detail)
                if len(registrations) == 1:
                    raise DamagedStoreError(error.status, text) from None
                log.error("%s is out of service, the other shards of the node serve: %s", format_shard(shard), text)
        if registrations and not self.shards:
            raise LogDeviceError(Status.FAILED, "no shard of the node can serve")
        rng = random.Random(secrets.randbits(64))
        outbox, timers = Outbox(), TimerQueue()
        principals = Principals()
        self.node = Node(
            self.node_id,
            self.instance,
            config,
            settings,
            [service.contents for service in self.shards.values()],
            outbox=outbox,
            timers=timers,
            rng=rng,
            wall=wall_us,
            principals=principals,
        )
        self.config = self.node.config
        self.driver = Driver(
            self.node,
            outbox,
            timers,
            effects={
                EpochStoreRequest: self._run_epoch_store,
                WriteShard: self._run_shards,
                ReadShard: self._run_shards,
                ReadLast: self._run_shards,
                ReadDirectory: self._run_shards,
                Notice: self._say,
                LogNotice: self._say_of_logs,
                EventLogNotice: self._say_of_event_log,
                WriteAuditLine: self._run_audit,
            },
            own_peer=PeerId(self.node_id),
            on_crash=self._on_crash,
            on_config_version=self._on_config_version,
            on_congestion=self.node.on_congestion,
        )
        security = settings.security
        tls, check_token = open_security(self.path, config, self.node_id)
        self.transport = Transport(
            Identity(config.name, config.uuid, self.node_id, self.instance, config.version),
            self.driver,
            self._address_of,
            settings=settings.runtime,
            rng=rng,
            security=security,
            principals=principals,
            tls=tls,
            check_token=check_token,
            is_alive=self.node.gossip.is_alive,
            local_host=self._stand_at,
        )
        principals.origin = self.transport.origin
        if security.audit_file:
            self._audit_file = self._open_audit_file(security)
        self.driver.attach(self.transport)
        await self.transport.listen_on(self._sock)
        self._sock = None
        self.driver.event(self.node.start)
        self._tasks.append(self._loop.create_task(self._watch_config(), name=f"N{self.node_id} config"))
        self._tasks.append(self._loop.create_task(self._watch_store(), name=f"N{self.node_id} configuration"))
        admin = None if self._admin is None else self._admin.use_settings
        self.live_settings = live_settings_of(
            self.node, self.driver, self.started_with.settings, self._use_runtime, admin
        )
        self._use_runtime(settings.runtime)
        if self.shards:
            self._tasks.append(self._loop.create_task(self._note_states(), name=f"N{self.node_id} states"))
            self._tasks.append(self._loop.create_task(self.copy_review.run(), name=f"N{self.node_id} copies"))
        self.serving_since = wall_us()
        if self._admin is not None:
            self._admin.tell()

    def _address_of(self, node: NodeId) -> tuple[str, int] | None:
        member = self.config.nodes.get(node)
        return None if member is None else (member.host, member.port)

    def _use_runtime(self, settings: RuntimeSettings) -> None:
        """Begin or end the trace of appends. One of the same size goes on."""
        size = settings.trace_instants
        if size == (0 if self.trace is None else self.trace.instants.maxlen):
            return
        self.trace = None
        uninstall(self.driver, self.transport)
        if size:
            self.trace = AppendTrace(size)
            self.trace.install(self.driver, self.transport)
        for service in self.shards.values():
            service.trace = self.trace

    def _on_crash(self, error: BaseException) -> None:
        log.critical("N%d: a protocol machine failed", self.node_id, exc_info=error)
        if not self.crashed.done():
            self.crashed.set_result(error)

    # Shards

    async def _open_shard(self, shard: ShardId, registration: ShardRegistration, settings: LogStoreSettings) -> None:
        self.shards[shard] = await ShardService.open(
            str(registration.directory),
            shard,
            self.config.uuid,
            settings,
            registration.register,
            registration.finish,
            wall=wall_us,
            report=lambda text: log.warning("%s: %s", format_shard(shard), text),
            admit=registration.admit,
            replace_damaged=registration.accepts_loss,
        )
        self._registrations[shard] = registration

    async def _note_states(self) -> None:
        """Let the epoch store know every now and then how far the disks are, so that an older state of one is noticed that is put back."""
        while True:
            await asyncio.sleep(STATE_INTERVAL)
            for shard, service in self.shards.items():
                if await service.advance_incarnation() is not None:
                    await self._registrations[shard].note(service.marker)

    def _say(self, notices: list[Notice]) -> None:
        now = monotonic_us()
        for notice in notices:
            shard = format_shard(notice.shard)
            self._diagnostics.warn(f"{shard}: {notice.kind}", f"{shard}: {notice.text}", now, shard=shard)

    def _say_of_logs(self, notices: list[LogNotice]) -> None:
        now = monotonic_us()
        for notice in notices:
            self._diagnostics.warn(notice.kind, notice.text, now, log=notice.log)

    def _say_of_event_log(self, notices: list[EventLogNotice]) -> None:
        for notice in notices:
            level = logging.WARNING if notice.alarm else logging.INFO
            log.log(level, "%s", notice.text, extra={FIELDS: {"kind": notice.kind}})

    def _run_shards(self, effects: list[Any]) -> None:
        if len(self.shards) == 1:
            for service in self.shards.values():
                service.run(effects, self._deliver, self._complete)
            return
        by_shard: dict[ShardId, list[Any]] = {}
        for effect in effects:
            by_shard.setdefault(effect.shard, []).append(effect)
        for shard, group in by_shard.items():
            self.shards[shard].run(group, self._deliver, self._complete)

    def _deliver(self, done: list[Completion]) -> None:
        self.driver.event_and_turn(partial(self.node.on_done, done))

    def _complete(self, done: list[Completion]) -> None:
        self.driver.complete(partial(self.node.on_done, done))

    # Audit log

    def _open_audit_file(self, security: SecuritySettings) -> AuditFile:
        path = self.path.parent / security.audit_file.replace("{node}", f"N{self.node_id}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LogDeviceError(Status.INVALID_CONFIG, f"audit_file {path}: {error.strerror}") from None
        return AuditFile(
            path, security.audit_file_bytes, security.audit_files, self._on_audit_written, self._on_audit_failure
        )

    def _run_audit(self, effects: list[WriteAuditLine]) -> None:
        assert self._audit_file is not None
        self._audit_file.run(effects)

    def _on_audit_written(self, tokens: list[int], ok: bool) -> None:
        audit = self.node.audit
        assert audit is not None
        self.driver.event(lambda now: audit.on_written(tokens, ok, now))

    def _on_audit_failure(self, lines: int, why: str) -> None:
        if self.node.audit is not None:
            self.node.audit.metrics.failures += lines
        self._diagnostics.warn("audit log", f"the audit log lacks {lines} lines: {why}", monotonic_us())

    async def note_action(self, who: str, origin: str, what: str, given: Mapping[str, Any], outcome: str) -> None:
        """Write into the audit log what is asked of the admin API, or what became of it; on disk when it returns.

        Raises:
            LogDeviceError: AGAIN: it cannot be written.
        """
        audit = self.node.audit
        if audit is None:
            return
        written: asyncio.Future[bool] = self._loop.create_future()

        def done(ok: bool, now: Micros) -> None:
            if not written.done():
                written.set_result(ok)

        self.driver.event(lambda now: audit.administered(who, origin, what, given, outcome, done))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AUDIT_TIMEOUT):
                if await written:
                    return
        raise LogDeviceError(Status.AGAIN, "the audit log cannot be written")

    def note_refusal(self, who: str, origin: str, what: str) -> None:
        """Write into the audit log that somebody asked for what he may not have."""
        audit = self.node.audit if self.is_open else None
        if audit is not None:
            self.driver.event(lambda now: audit.request_refused(who, origin, what, now))

    # Epoch store

    def _run_epoch_store(self, effects: list[EpochStoreRequest]) -> None:
        assert self._epoch_store is not None
        tokens = [effect.token for effect in effects]

        def done(results: list[Result]) -> None:
            if not self._closed:
                self.driver.event(partial(self.node.on_epoch_store, tokens, results))

        self._epoch_store.submit([effect.operation for effect in effects], done)

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Have the node's machines do something at this moment."""
        self.driver.event(handler)

    def ask_epoch_store(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        """Run operations that no machine asked for."""
        assert self._epoch_store is not None, "a node that serves has one"
        self._epoch_store.submit(operations, done)

    # Admin API

    @property
    def is_open(self) -> bool:
        """There is something to look at: the node serves, or did and is drained."""
        return bool(self.serving_since) and not self._closed

    def readiness(self) -> Status:
        """OK when the node takes requests; else NOTREADY, SHUTDOWN or ISOLATED."""
        if self._leaving or self._closed:
            return Status.SHUTDOWN
        if not self.serving_since:
            return Status.NOTREADY
        return Status.ISOLATED if self.node.gossip.isolated() else Status.OK

    def health(self) -> dict[str, Any]:
        """What whoever watches the node may want to know beside that it answers: nothing of it is a reason to stop or to avoid the node."""
        copies = self.copy_review.metrics()
        return {
            "shards": {
                f"S{shard_index_of(shard)}": {
                    "status": "FAILED" if service.failed else "OK",
                    "generation": service.marker.generation,
                }
                for shard, service in self.shards.items()
            },
            "copies_reviewed": bool(copies.reviewed),
            "under_replicated_logs": copies.under_replicated_logs,
            "logs_with_lost_records": copies.logs_with_lost_records,
        }

    def metric_sources(self) -> list[MetricSource]:
        """Everything that counts in a node that serves."""
        node = self.node
        self.transport.metrics.connections = sum(1 for _ in self.transport.connections())
        found = [
            MetricSource("node", node.metrics),
            MetricSource("membership", node.gossip.metrics),
            MetricSource("transport", self.transport.metrics),
        ]
        if node.sequencer is not None:
            found.append(MetricSource("sequencer", node.sequencer.collect_metrics()))
            found.append(MetricSource("recovery", node.sequencer.recovery_metrics))
        if node.storage is not None:
            found.append(MetricSource("storage", node.storage.metrics))
            now = monotonic_us()
            for shard, machines in node.storage.shards.items():
                found.append(MetricSource("scrubber", machines.scrubber.coverage(now), shard & 0xFF))
            found.append(MetricSource("copies", self.copy_review.metrics()))
        if node.rebuilding is not None:
            found.append(MetricSource("rebuilding", node.rebuilding.metrics))
        found += [MetricSource("log store", each.metrics, shard & 0xFF) for shard, each in self.shards.items()]
        for shard, each in self.shards.items():
            measured = each.view.measure()
            if measured is not None:
                found.append(MetricSource("rocksdb", measured, shard & 0xFF))
        if node.audit is not None:
            found.append(MetricSource("audit", node.audit.metrics))
        if self._epoch_store is not None:
            found.append(MetricSource("epoch store", self._epoch_store.metrics))
        if self._admin is not None:
            found.append(MetricSource("admin", self._admin.metrics))
            found.append(MetricSource("process", self._admin.process_metrics()))
        return found

    # Configuration: the cluster file, until there is a stored one

    def reload_config(self) -> None:
        """Look at the cluster file at once (SIGHUP)."""
        self._look_at_config(again=True)

    def _on_config_version(self, version: int) -> None:
        if version > self.config.version:
            self._told_version = version
            self._look_at_config()

    async def _watch_config(self) -> None:
        while True:
            await asyncio.sleep(CONFIG_POLL)
            self._look_at_config()
            self.transport.look_at_certificates()

    async def _watch_store(self) -> None:
        def told() -> int:
            return max(self._told_version, self.node.gossip.config_version)

        await self.configuration.follow(monotonic_us, told, self.use_stored)

    def use_stored(self, config: ClusterConfig) -> None:
        """A stored configuration came into force, which the node keeps."""
        if config.version > self.config.version:
            log.info("configuration version %d, from the epoch store", config.version)
            self._use(config)

    def _look_at_config(self, *, again: bool = False) -> None:
        if self.configuration.in_force.is_stored:
            self.configuration.look_at_file(self.path)
            return
        config = self._file.look(monotonic_us(), again=again)
        if config is None:
            return
        log.info("cluster file version %d", config.version)
        self.configuration.in_force.config = config
        self._use(config)

    def _use(self, config: ClusterConfig) -> None:
        if self.node_id in self.config.nodes and self.node_id not in config.nodes:
            log.warning(
                "N%d is not in version %d: it may be stopped, and its data deleted", self.node_id, config.version
            )
        self.config = replace(config, run_time_logs=self.config.run_time_logs)
        self.transport.identity.config_version = config.version
        self.driver.event(lambda now: self.node.on_config(config, now))

    # Stopping

    async def drain(self) -> bool:
        """Sequence nothing any more: tell the others, and finish what is under way. False: some appends take too long."""
        self._leaving = True
        self.driver.event(self.node.leave)
        if self.node.sequencer is None:
            return True
        await self._drain(self.node.sequencer)
        return self.node.sequencer.drained

    async def close(self) -> None:
        """Stop in order: tell the others, finish what is under way, sync, close."""
        if self._closed:
            return
        await self.drain()
        if self.node.storage is not None:
            self.driver.event(self.node.storage.shut_down)
            await asyncio.sleep(0.01)  # answers that this turn still puts out
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.driver.stop()
        await self.transport.close()
        await self._abandon()

    async def _drain(self, sequencer: SequencerNode) -> None:
        """Until no append is under way and none has come for a moment."""
        await asyncio.sleep(0)  # the turn in which requests begin to be refused
        received, looks = -1, 0
        deadline = monotonic_us() + int(DRAIN_TIMEOUT * 1e6)
        while monotonic_us() < deadline and not self.crashed.done():
            looks += 1
            if received != sequencer.metrics.frames_received:
                received, looks = sequencer.metrics.frames_received, 0
            if sequencer.drained and (not self.transport.clients or looks >= QUIET_LOOKS):
                break
            await asyncio.sleep(DRAIN_LOOK)

    async def _abandon(self) -> None:
        """Close what is open of stores."""
        self._closed = True
        if self._admin is not None:
            await self._admin.close()
            self._admin = None
        if self._audit_file is not None:
            await self._audit_file.close()
            self._audit_file = None
        if self._sock is not None:
            self._sock.close()
        for shard, service in self.shards.items():
            with contextlib.suppress(LogDeviceError):
                await service.close()
            if shard in self._registrations and not service.failed:
                # who cannot be told learns it at the next start: the disk is ahead then
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(NOTE_TIMEOUT):
                        await self._registrations[shard].note(service.marker)
        self.shards.clear()
        if self._epoch_store is not None:
            self._epoch_store.close()
            self._epoch_store = None
