"""What only logdevice_py can be asked: logs that lie idle, and recovery against the number of unreleased entries.

Each starts a cluster of its own beside the one of the run, which stays idle.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.ldbench.acknowledgements import NANOSECONDS, AcknowledgementLog
from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import EngineError, Mode, ServerProcess, StartAt
from benchmarks.ldbench.engines.logdevice import RunningLogDevice
from benchmarks.ldbench.payloads import Content, PayloadPool
from benchmarks.ldbench.resources import cost_of
from benchmarks.ldbench.streams import AppendStream, read_until
from benchmarks.ldbench.verification import LogVerifier, WriterLedger
from benchmarks.ldbench.workload import Scale, SmallestOnly
from logdevice_py.config.attributes import Durability
from logdevice_py.config.cluster import ClusterConfig, Roles, default_metadata_nodeset
from logdevice_py.config.logs import LogTree
from logdevice_py.core.status import LogDeviceError
from server.dev.dev_cluster import make_config
from server.dev.zookeeper_server import ZooKeeperServer, ZooKeeperUnavailableError, why_no_zookeeper

_COPIES: Final = 3
_CONCURRENT: Final = 1_000
_SETTLE_SECONDS: Final = 3.0
_ZOOKEEPER_HEAP_MB: Final = 1024
_RECOVERY_TIMEOUT: Final = 60.0
_SEQUENCER: Final = f"N{_COPIES}"
"""The node that sequences in clusters of one."""
_OURS: Final = frozenset({"logdevice"})


def cluster_config(
    directory: Path, durability: str, *, sequencers: int, logs: int, epoch_store: str | None = None, **attributes: Any
) -> ClusterConfig:
    """Three storage nodes, N0 to N2, and nodes that only sequence behind them."""
    config = make_config(
        directory,
        nodes=_COPIES + sequencers,
        logs=logs,
        replicate=f"node:{_COPIES}",
        racks=_COPIES + sequencers,
        epoch_store=epoch_store,
        durability=Durability[durability.upper()],
    )
    nodes = {
        node: dataclasses.replace(member, roles=Roles.STORAGE if node < _COPIES else Roles.SEQUENCER)
        for node, member in config.nodes.items()
    }
    tree = config.logs
    return dataclasses.replace(
        config,
        nodes=nodes,
        logs=LogTree.build(
            defaults={**tree.defaults, **attributes}, groups=[(g.path, g.lo, g.hi, g.overrides) for g in tree.groups]
        ),
        metadata_log=dataclasses.replace(config.metadata_log, nodeset=default_metadata_nodeset(nodes)),
    )


@asynccontextmanager
async def own_cluster(bench: WorkloadBench, **options: Any) -> AsyncIterator[RunningLogDevice]:
    """A cluster in a directory of its own, stopped in any case."""
    assert isinstance(bench.running, RunningLogDevice)
    directory = bench.running.directory / f"own-{time.monotonic_ns():x}"
    await asyncio.to_thread(directory.mkdir)
    config = cluster_config(directory, bench.case.durability, **options)
    running = RunningLogDevice(directory, config, profiles=bench.running.profiles)
    try:
        yield running
    finally:
        await running.stop()


class _OwnCluster(SmallestOnly):
    group = "own clusters"
    mode: Mode | None = None
    engines: frozenset[str] | None = _OURS


class IdleLogs(_OwnCluster):
    """All logs are activated by one sequencer node, and once more with recovery by its next process; then nothing happens. The epoch store is a
    SQLite file."""

    name = "idle-logs"
    title = "memory and activation of logs that lie idle, one sequencer node, three storage nodes"
    primary = "bytes_per_log"

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """How many."""
        return ({"logs": scale.idle_logs},)

    async def run(self, bench: WorkloadBench) -> None:
        """Resident memory of nodes before and after; at the end a few logs are written to and read."""
        await self.activate(bench)

    async def activate(self, bench: WorkloadBench, epoch_store: str | None = None) -> None:
        """With an epoch store of that URL; None: a SQLite file."""
        count = int(bench.case.parameters["logs"])
        async with own_cluster(bench, sequencers=1, logs=count, epoch_store=epoch_store) as running:
            bench.say("starting a cluster of its own")
            await running.supervisor.listen()
            await running.supervisor.start_all()
            await running.client.start()
            await _writable(running, 1)
            await asyncio.sleep(_SETTLE_SECONDS)
            before = _resident(running.processes())
            bench.say(f"activating {count:,} logs")
            bench.watch(running)
            async with bench.timed():
                began = time.monotonic_ns()
                await _activate_all(running, count)
                seconds = (time.monotonic_ns() - began) / NANOSECONDS
            bench.say("letting them lie")
            await asyncio.sleep(_SETTLE_SECONDS)
            self._note_memory(bench, "provisioned and activated", before, _resident(running.processes()), count)
            bench.measurement.figures["activation_s"] = seconds
            await self._recover(bench, running, before, count)
            for log in sorted({1, count // 2 + 1, count}):
                bench.measurement.verified_records += await _write_and_read(running, log, 10)

    async def _recover(
        self, bench: WorkloadBench, running: RunningLogDevice, before: dict[str, int], count: int
    ) -> None:
        """A new process sequences: it recovers the first epoch of each log, and its memory counts from its own beginning."""
        await running.kill(_SEQUENCER)
        await running.restart(_SEQUENCER)
        await _writable(running, 1)
        await asyncio.sleep(_SETTLE_SECONDS)
        before = before | {_SEQUENCER: _resident(running.processes())[_SEQUENCER]}
        bench.say(f"recovering and activating {count:,} logs")
        began = time.monotonic_ns()
        await _activate_all(running, count)
        bench.measurement.figures["recovered_activation_s"] = (time.monotonic_ns() - began) / NANOSECONDS
        bench.say("letting them lie")
        await asyncio.sleep(_SETTLE_SECONDS)
        self._note_memory(bench, "recovered and activated", before, _resident(running.processes()), count)

    def _note_memory(
        self, bench: WorkloadBench, what: str, before: dict[str, int], after: dict[str, int], count: int
    ) -> None:
        """The figures of the last call stay."""
        added = {name: (after[name] - before[name]) / count for name in before}
        sequencer = added.pop(_SEQUENCER)
        storage = max(added.values())
        bench.measurement.figures |= {
            "bytes_per_log": sequencer + storage,
            "sequencer_bytes_per_log": sequencer,
            "storage_bytes_per_log": storage,
            "cluster_bytes_per_log": sequencer + sum(added.values()),
        }
        resident = ", ".join(f"{name} {before[name] / 1e6:.0f} to {after[name] / 1e6:.0f}" for name in before)
        bench.note(
            f"{what}: {sequencer:,.0f} B a log at the sequencer, {storage:,.0f} at a storage node; resident MB: {resident}"
        )


class IdleLogsZooKeeper(IdleLogs):
    """The same with a ZooKeeper server of its own, which is not counted."""

    name = "idle-logs-zookeeper"
    title = "the same with ZooKeeper as the epoch store"

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """A fifth: each log costs ZooKeeper several synced writes."""
        return ({"logs": scale.idle_logs // 5},)

    def impossible(self) -> str | None:
        """Without a ZooKeeper server."""
        return why_no_zookeeper()

    async def run(self, bench: WorkloadBench) -> None:
        """As with SQLite."""
        assert isinstance(bench.running, RunningLogDevice)
        server = ZooKeeperServer(bench.running.directory / "zookeeper", heap_mb=_ZOOKEEPER_HEAP_MB)
        try:
            await server.start_async()
            await self.activate(bench, server.url)
        except ZooKeeperUnavailableError as error:
            raise EngineError(str(error)) from error
        finally:
            await asyncio.to_thread(server.kill)


async def _activate_all(running: RunningLogDevice, count: int) -> None:
    logs = iter(range(1, count + 1))

    async def some() -> None:
        for log in logs:
            await _writable(running, log)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(_CONCURRENT, count)):
            tasks.create_task(some())


class RecoveryTime(_OwnCluster):
    """A sequencer is killed while a number of its entries lie on two of three storage nodes and none is acknowledged."""

    name = "recovery-time"
    title = "from the death of a sequencer until its log is recovered, by unreleased entries"
    primary = "recovery_ms"

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """How many entries are unreleased."""
        return [{"unreleased": count} for count in scale.unreleased]

    async def run(self, bench: WorkloadBench) -> None:
        """One storage node is paused so that entries cannot be acknowledged, and goes on at the moment of the kill."""
        count = int(bench.case.parameters["unreleased"])
        options = {
            "sequencers": 2,
            "logs": 1,
            "sequencer_batching": False,
            "max_writes_in_flight": max(2, count + 1),
            "window_bytes": 1 << 30,
        }
        async with own_cluster(bench, **options) as running:
            bench.say("starting a cluster of its own")
            await running.start()
            pool = PayloadPool(1, bench.size, Content(bench.case.content))
            ledger = WriterLedger(pool)
            producer = await running.producer("1", Mode.SINGLE, bench.setting, timeout=_RECOVERY_TIMEOUT)
            stream = AppendStream(producer, ledger, AcknowledgementLog())
            await stream.lone()
            leader = await running.leader("1")
            state = await running.client.sequencer(1)
            paused = "N0"
            await running.pause(paused)
            if count:
                stream.send(count)
                bench.say(f"waiting for {count:,} entries on two nodes")
                await self._handed_over(running, int(state.next_lsn), count)
            bench.watch(running)
            async with bench.timed():
                began = time.monotonic_ns()
                await running.kill(leader)
                await running.resume(paused)
                await _writable(running, 1)
                ended = time.monotonic_ns()
            await stream.settle()
            bench.measurement.figures["recovery_ms"] = (ended - began) / 1e6
            bench.measurement.figures["unreleased"] = float(count)
            await stream.lone()
            verifier = LogVerifier([ledger], ordered=False)
            consumer = await running.consumer("1", StartAt.BEGINNING)
            await read_until(consumer, verifier, verifier.finished)
            await consumer.close()
            bench.judged([verifier])

    async def _handed_over(self, running: RunningLogDevice, first: int, count: int) -> None:
        """Until the sequencer has given all of them their positions."""
        async with asyncio.timeout(_RECOVERY_TIMEOUT):
            while (await running.client.sequencer(1)).next_lsn < first + count:  # noqa: ASYNC110 - it is asked over the network
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # they are on their way to the two other storage nodes


async def _writable(running: RunningLogDevice, log: int) -> None:
    """Until the log has an active sequencer and earlier epochs are recovered."""
    deadline = time.monotonic() + _RECOVERY_TIMEOUT
    while True:
        try:
            await running.client.tail_lsn(log)
            return
        except LogDeviceError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise EngineError(f"log {log} is not writable: {error}") from error


def _resident(processes: Sequence[ServerProcess]) -> dict[str, int]:
    found = {process.name: cost_of(process.pid) for process in processes}
    return {name: cost.resident_bytes for name, cost in found.items() if cost is not None}


async def _write_and_read(running: RunningLogDevice, log: int, count: int) -> int:
    """Append to a log and read it back."""
    payloads = [f"record {number} of log {log}".encode() for number in range(count)]
    for payload in payloads:
        await running.client.append(log, payload)
    read: list[bytes | None] = []
    async with running.client.reader(log, until=await running.client.tail_lsn(log)) as reader:
        while batch := await reader.read():
            read += batch.payloads
    if read != payloads:
        raise EngineError(f"log {log}: {len(payloads)} records were appended, and {read[:3]}... was read")
    return len(read)


WORKLOADS = (IdleLogs(), IdleLogsZooKeeper(), RecoveryTime())
