"""logdevice_py itself: real node processes, the asyncio client."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.ldbench.engine import (
    AppendError,
    Consumer,
    DurabilityClass,
    EngineError,
    Mode,
    Producer,
    ServerProcess,
    Setting,
    StartAt,
    StartOptions,
)
from benchmarks.ldbench.sampling import START_SAMPLING, STOP_SAMPLING
from benchmarks.ldbench.separate_machines import SeparateMachines
from client.buffered_writer import BufferedWriter
from client.client import Client
from client.reader import Reader
from client.receipt import Receipt
from client.settings import ClientSettings
from logdevice_py.config.attributes import Durability
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import format_duration
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_writable
from server.dev.supervisor import CommandError, Supervisor, write_cluster_file
from server.dev.virtual_network import VirtualNetwork
from storage_node.log_store.settings import STORE_KINDS

READY_TIMEOUT: Final = 120.0
APPEND_TIMEOUT: Final = 30.0
"""Seconds; the client's own, so that calls need not say it."""
_SPARE_NODES: Final = 2
"""One that is killed, and one so that copies still have a choice."""
_DATALOSS: Final = "dataloss"
_LARGE: Final = 10_000_000

_SINGLE: Final = (
    Setting(name="window=10k", description="Client.append, 10,000 records under way, defaults"),
    Setting(
        name="window=30k", description="Client.append, 30,000 records under way, defaults", records_in_flight=30_000
    ),
    Setting(name="window=3k", description="Client.append, 3,000 records under way, defaults", records_in_flight=3_000),
)
_BUFFERED: Final = (
    Setting(
        name="default",
        description="BufferedWriter with its defaults, 5 MB under way",
        records_in_flight=_LARGE,
        bytes_in_flight=5_000_000,
    ),
    Setting(
        name="window=15MB",
        description="BufferedWriter with its defaults, 15 MB under way",
        records_in_flight=_LARGE,
        bytes_in_flight=15_000_000,
    ),
    Setting(
        name="frames=1MiB",
        description="BufferedWriter(size_trigger=1MiB), 15 MB under way",
        records_in_flight=_LARGE,
        bytes_in_flight=15_000_000,
        options={"size_trigger": "1MiB"},
    ),
)
_LIST_RECORDS: Final = 2_000
_SETTINGS: Final[Mapping[Mode, Sequence[Setting]]] = {
    Mode.SINGLE: _SINGLE,
    Mode.BUFFERED: _BUFFERED,
    Mode.BUFFERED_MANY: tuple(
        replace(
            setting,
            description=f"{setting.description}, lists of {_LIST_RECORDS:,} records",
            records_per_call=_LIST_RECORDS,
        )
        for setting in _BUFFERED
    ),
}


class BenchSupervisor(Supervisor):
    """Starts nodes under the sampling profiler, or in network namespaces of their own."""

    profiles: Path | None = None
    """Where profiles go."""
    network: VirtualNetwork | None = None

    def command(self, node: NodeId) -> list[str]:
        """As without it, with what is asked for in between."""
        command = super().command(node)
        if self.profiles is not None:
            at = command.index("server.logdeviced")
            profile = self.profiles / f"N{node}-{time.monotonic_ns():x}.stacks"
            command[at:at] = ["benchmarks.ldbench.profiled", str(profile)]
        if self.network is not None:
            command[:0] = ["ip", "netns", "exec", self.network.namespace(node)]
        return command


class _SingleProducer:
    """`Client.append` for each record."""

    def __init__(self, running: RunningLogDevice, log: int, timeout: float) -> None:
        self._append = running.client.append
        self._running = running
        self._log = log
        self._timeout = timeout

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        append, log, timeout = self._append, self._log, self._timeout
        if timeout == APPEND_TIMEOUT:
            return self._receipts([append(log, record) for record in records])
        return self._receipts([append(log, record, timeout=timeout) for record in records])

    async def _receipts(self, receipts: Sequence[Awaitable[Receipt]]) -> None:
        last = await _all_acknowledged(receipts)
        if last.copyset:
            self._running.copysets[self._log] = last.copyset

    async def ready(self) -> None:
        return

    async def close(self) -> None:
        return


class _BufferedProducer:
    """A BufferedWriter, by `append` for each record."""

    def __init__(self, writer: BufferedWriter, log: int) -> None:
        self._writer = writer
        self._log = log

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        append, log = self._writer.append, self._log
        return _all_acknowledged([append(log, record) for record in records])

    async def ready(self) -> None:
        await self._writer.ready()

    async def close(self) -> None:
        await _closed(self._writer)


class _ListProducer:
    """A BufferedWriter, by `append_many`."""

    def __init__(self, writer: BufferedWriter, log: int) -> None:
        self._writer = writer
        self._log = log

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        return _acknowledged(self._writer.append_many(self._log, records))

    async def ready(self) -> None:
        await self._writer.ready()

    async def close(self) -> None:
        await _closed(self._writer)


async def _acknowledged(receipts: Awaitable[object]) -> None:
    try:
        await receipts
    except LogDeviceError as error:
        raise AppendError(str(error)) from error


async def _all_acknowledged(receipts: Sequence[Awaitable[Receipt]]) -> Receipt:
    """Await each: those that are there already cost next to nothing. Returns the last."""
    failed: LogDeviceError | None = None
    for receipt in receipts:
        try:
            last = await receipt
        except LogDeviceError as error:
            failed = error
    if failed is not None:
        raise AppendError(str(failed)) from failed
    return last


async def _closed(writer: BufferedWriter) -> None:
    try:
        await writer.close()
    except LogDeviceError as error:
        raise EngineError(str(error)) from error


class _LogConsumer:
    """A `Reader`, batch by batch."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def read(self, max_records: int = 10_000) -> Sequence[bytes]:
        while True:
            try:
                batch = await self._reader.read(max_records)
            except LogDeviceError as error:
                raise EngineError(str(error)) from error
            if batch.gaps and any(gap.kind.value == _DATALOSS for gap in batch.gaps):
                raise EngineError(f"records are lost: {batch.gaps}")
            payloads: Any = batch.payloads  # a corrupt record is None, which is equal to no payload
            if payloads:
                return payloads  # type: ignore[no-any-return]

    async def close(self) -> None:
        await self._reader.close()


class RunningLogDevice:
    """A cluster under a supervisor in this process, and one client."""

    def __init__(
        self,
        directory: Path,
        config: ClusterConfig,
        *,
        profiles: Path | None = None,
        machines: SeparateMachines | None = None,
    ) -> None:
        """
        Args:
            directory: of the cluster.
            config: its file.
            profiles: where processes put profiles of themselves when they stop; None: nobody does.
            machines: where the nodes run, gone with them; None: on loopback addresses.
        """
        self.directory = directory
        self.config = config
        self.profiles = profiles
        self._machines = machines
        write_cluster_file(directory, config)
        self.supervisor = BenchSupervisor(directory, config)
        if machines is not None:
            self.supervisor.network = machines.network
        if profiles is not None:
            profiles.mkdir(exist_ok=True)
            self.supervisor.profiles = profiles
        self.client = Client(
            str(layout.cluster_file(directory)), settings=ClientSettings(append_timeout_us=round(APPEND_TIMEOUT * 1e6))
        )
        self.copysets: dict[int, tuple[int, ...]] = {}
        """By log, the shards of an entry that was acknowledged lately."""
        self._unused = iter(config.logs.ids())
        self._stopped = False

    async def start(self) -> None:
        """Returns when every log takes appends."""
        try:
            await self.supervisor.listen()
            await self.supervisor.start_all()
            await wait_until_writable(layout.cluster_file(self.directory), timeout=READY_TIMEOUT)
            await self.client.start()
        except (OSError, LogDeviceError, CommandError) as error:
            output = _ends(self.directory)
            await self.stop()
            raise EngineError(f"the cluster did not start: {error}\n{output}") from error

    async def create_logs(self, count: int) -> Sequence[str]:
        """The next of those in the cluster file."""
        logs = [str(int(log)) for log in islice(self._unused, count)]
        if len(logs) < count:
            raise EngineError("the cluster has no unused logs left")
        return logs

    async def producer(self, log: str, mode: Mode, setting: Setting, *, timeout: float = 30.0) -> Producer:
        """A writer of its own for the buffered modes; direct appends share the client."""
        if mode is Mode.SINGLE:
            return _SingleProducer(self, int(log), timeout)
        writer = self.client.buffered_writer(
            timeout=f"{max(1, round(timeout * 1000))}ms", **dict[str, Any](setting.options)
        )
        kind = _BufferedProducer if mode is Mode.BUFFERED else _ListProducer
        return kind(writer, int(log))

    async def consumer(self, log: str, start: StartAt) -> Consumer:
        """Behind the tail as the sequencer knows it, or from the oldest record on."""
        try:
            first = LSN.OLDEST if start is StartAt.BEGINNING else LSN(await self.client.tail_lsn(int(log)) + 1)
        except LogDeviceError as error:
            raise EngineError(str(error)) from error
        reader = self.client.reader(int(log), start=first)
        await reader.__aenter__()
        return _LogConsumer(reader)

    def processes(self) -> Sequence[ServerProcess]:
        """The nodes."""
        return [
            ServerProcess(f"N{node}", "node", child.process.pid)
            for node, child in sorted(self.supervisor.children.items())
            if child.process.returncode is None
        ]

    async def leader(self, log: str) -> str:
        """The node that sequences it."""
        try:
            return f"N{(await self.client.sequencer(int(log))).node}"
        except LogDeviceError as error:
            raise EngineError(str(error)) from error

    async def followers(self, log: str) -> Sequence[str]:
        """Nodes of the copyset of the last acknowledged append; all others when it is not known."""
        leader = await self.leader(log)
        copyset = self.copysets.get(int(log), ())
        nodes = [shard >> 8 for shard in copyset] or [int(node) for node in self.config.nodes]
        return [f"N{node}" for node in sorted(nodes) if f"N{node}" != leader]

    async def kill(self, name: str) -> None:
        """SIGKILL."""
        await self.supervisor.kill(_node(name))

    async def pause(self, name: str) -> None:
        """SIGSTOP."""
        await self.supervisor.pause(_node(name))

    async def resume(self, name: str) -> None:
        """SIGCONT."""
        await self.supervisor.resume(_node(name))

    async def restart(self, name: str) -> None:
        """Start it again."""
        await self.supervisor.start(_node(name))

    async def whole(self, log: str) -> bool:
        """As `RunningEngine.whole`: the client has heard that all nodes are alive."""
        return set(self.client.session.alive_nodes()) == set(self.config.nodes)

    async def cut_off(self, name: str) -> None:
        """Nothing that a node sends or that is sent to it arrives."""
        assert self._machines is not None
        await asyncio.to_thread(self._machines.network.unplug, _node(name))

    async def connect_again(self, name: str) -> None:
        """The end of `cut_off`."""
        assert self._machines is not None
        await asyncio.to_thread(self._machines.network.plug, _node(name))

    def sample(self, on: bool) -> None:
        """Tell the profilers of the nodes."""
        if self.profiles is not None:
            for process in self.processes():
                os.kill(process.pid, START_SAMPLING if on else STOP_SAMPLING)

    def configuration(self) -> Mapping[str, str]:
        """The cluster file."""
        return {"cluster.toml": layout.cluster_file(self.directory).read_text()}

    async def stop(self) -> None:
        """The client, then the nodes."""
        if self._stopped:
            return
        self._stopped = True
        await self.client.close()
        await self.supervisor.stop_all()
        if self._machines is not None:
            await asyncio.to_thread(self._machines.close)


def _node(name: str) -> int:
    return int(name.removeprefix("N"))


def _ends(directory: Path) -> str:
    """The last lines that each node printed."""
    lines = []
    for path in sorted(directory.glob("n*.log")):
        lines += [f"{path.name}: {line}" for line in path.read_text(errors="replace").splitlines()[-5:]]
    return "\n".join(lines)


class LogDeviceEngine:
    """Clusters of nodes that sequence and store."""

    name = "logdevice"
    title = "logdevice_py by its own client"
    ordered = False  # direct appends under way together may change places when one is tried again
    ordered_through_faults = False
    has_leaders = True
    single_writer = False

    def __init__(self, store: str = STORE_KINDS[0]) -> None:
        """
        Args:
            store: what shards are stored in.
        """
        self._store = store

    def unavailable(self, options: StartOptions) -> str | None:
        """It is here."""
        if platform.system() != "Linux":
            return "clusters for trying things need the loopback addresses of Linux"
        return None

    def versions(self) -> Mapping[str, str]:
        """Server and client are one package."""
        return {name: version(name) for name in ("logdevice-py", "rocksdict", "uvloop")}

    def settings(self, mode: Mode) -> Sequence[Setting]:
        """Of each mode."""
        return _SETTINGS[mode]

    def lone_setting(self) -> Setting:
        """Defaults."""
        return _SINGLE[0]

    def acknowledgement(self, options: StartOptions) -> str:
        """All copies count."""
        what = "each synced" if options.durability is DurabilityClass.SYNC else "each in the page cache"
        return f"{options.copies} of {options.copies} copies, {what}"

    def config(self, options: StartOptions) -> ClusterConfig:
        """As many nodes as copies, more when one of them is going to fail."""
        nodes = options.copies + (_SPARE_NODES if options.tolerate_failure else 0)
        return make_config(
            options.directory,
            nodes=nodes,
            logs=options.logs,
            replicate=f"node:{options.copies}",
            racks=nodes,
            epoch_store=None,
            durability=Durability[options.durability.name],
            store=self._store,
        )

    async def start(self, options: StartOptions) -> RunningLogDevice:
        """Start the nodes."""
        config = self.config(options)
        if options.sync_delay_us:
            storage = {**config.settings.get("storage", {}), "sync_delay_us": format_duration(options.sync_delay_us)}
            config = replace(config, settings={**config.settings, "storage": storage})
        machines = None
        if options.partitions:
            machines = await SeparateMachines.open(options.directory, len(config.nodes))
            config = machines.place(config)
        profiles = options.directory / "profiles" if options.profile else None
        try:
            running = RunningLogDevice(options.directory, config, profiles=profiles, machines=machines)
        except LogDeviceError as error:
            if machines is not None:
                machines.close()
            raise EngineError(f"the cluster file: {error}") from error
        await running.start()
        return running


ENGINE = LogDeviceEngine()
