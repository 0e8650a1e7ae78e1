"""Real clusters for tests: processes on a loopback range of their own, workloads that remember what was acknowledged, and the comparison."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.storage_figures.processes import cost_of_node
from client.client import Client
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.logs import Durability, LogTree
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError
from logdevice_py.programs import own_program
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file
from tests import forked
from tests.forked import ForkedProcess

Position = tuple[int, int]


class ForkingSupervisor(Supervisor):
    """Its nodes are forked by a process that has imported what they import, and die with that one."""

    program: tuple[str, ...] = ("server.logdeviced",)
    """What a node runs, before the arguments of ``logdeviced``."""

    async def spawn(self, command: list[str], output: int) -> ForkedProcess:
        own = own_program("server.logdeviced")
        assert command[: len(own)] == own
        arguments = command[len(own) :]
        arguments[arguments.index("--die-with") + 1] = str(forked.parent())
        return await forked.fork(*self.program, *arguments, output=output)


class ProcessCluster:
    """Nodes as child processes of the test."""

    def __init__(self, directory: Path, supervisor: Supervisor) -> None:
        self.directory = directory
        self.supervisor = supervisor

    @property
    def file(self) -> str:
        """The cluster file."""
        return str(layout.cluster_file(self.directory))

    async def kill(self, *nodes: int) -> None:
        """SIGKILL, all at once."""
        await asyncio.gather(*(self.supervisor.kill(node) for node in nodes))

    def peak_memory(self) -> dict[int, int]:
        """Bytes that each running node held in memory at most."""
        return {
            int(node): cost_of_node(self.supervisor, node).peak_bytes
            for node, child in self.supervisor.children.items()
            if child.process.returncode is None
        }

    async def start(self, *nodes: int) -> None:
        """Start again."""
        await asyncio.gather(*(self.supervisor.start(node) for node in nodes))

    async def acquainted(self) -> None:
        """Wait until all nodes that run have heard of each other, so that what fails next is all that is missing in a nodeset."""
        supervisor = self.supervisor
        await wait_until_acquainted(supervisor.config, supervisor.running, timeout=60, access=supervisor.admin_access)

    async def wipe(self, node: int) -> None:
        """Delete the data of a node that is down."""
        await asyncio.to_thread(shutil.rmtree, layout.node_directory(self.directory, NodeId(node)))

    def rack_of(self, node: int) -> str:
        """Where a node stands."""
        return str(self.supervisor.config.nodes[NodeId(node)].location)

    def rack(self, node: int) -> list[int]:
        """All nodes of the rack that `node` stands in."""
        return [other for other in sorted(self.supervisor.config.nodes) if self.rack_of(other) == self.rack_of(node)]

    def logs_of_nodes(self) -> str:
        """What the nodes printed, for failures."""
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.directory.glob("n*.log")))


@asynccontextmanager
async def process_cluster(
    directory: Path,
    *,
    nodes: int = 5,
    logs: int = 4,
    replicate: str = "rack:2,node:3",
    racks: int = 3,
    epoch_store: str | None = None,
    durability: Durability = Durability.SYNC,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    attributes: Mapping[str, Any] | None = None,
    log_tree: bool = False,
    rebuilding: bool = False,
    change: Callable[[ClusterConfig], ClusterConfig] = lambda config: config,
    supervised_by: Callable[[Path, ClusterConfig], Supervisor] = ForkingSupervisor,
) -> AsyncIterator[ProcessCluster]:
    """A cluster whose logs are writable. All processes are gone afterwards; assertions of nodes that ended by themselves fail the test.

    Args:
        change: makes of the configuration what is used.
        supervised_by: makes who starts the nodes.
    """
    config = make_config(
        directory,
        nodes=nodes,
        logs=logs,
        replicate=replicate,
        racks=racks,
        epoch_store=epoch_store,
        durability=durability,
        log_tree=log_tree,
        rebuilding=rebuilding,
    )
    if settings is not None:
        config = dataclasses.replace(config, settings={"rebuilding": {"enabled": rebuilding}, **settings})
    if attributes is not None:
        tree = config.logs
        groups = [(group.path, group.lo, group.hi, group.overrides) for group in tree.groups]
        config = dataclasses.replace(
            config, logs=LogTree.build(defaults={**tree.defaults, **attributes}, groups=groups)
        )
    config = change(config)
    supervisor = supervised_by(directory, config)
    write_cluster_file(directory, config)
    while not layout.is_free(directory):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.1)  # another test has a cluster at the same addresses, which ends with it
    await supervisor.listen()
    cluster = ProcessCluster(directory, supervisor)
    try:
        await supervisor.start_all()
        await cluster.acquainted()
        await wait_until_writable(layout.cluster_file(directory), timeout=60)
        yield cluster
        for node, child in supervisor.children.items():
            code = child.process.returncode
            assert child.asked_to_stop or code is None, f"N{node} ended by itself ({code})\n{cluster.logs_of_nodes()}"
    finally:
        await supervisor.stop_all()
    for path in sorted(directory.glob("n*.log")):
        assert "Traceback" not in path.read_text(), path.read_text()[-6000:]


@dataclass
class Journal:
    """What one log's writers know: payloads by position, and those whose fate is unknown."""

    acknowledged: dict[Position, bytes] = field(default_factory=dict)
    order: list[Position] = field(default_factory=list)
    """Positions of one stream writer in the order in which it appended."""
    doubtful: set[bytes] = field(default_factory=set)
    failed: set[bytes] = field(default_factory=set)
    stalls: list[float] = field(default_factory=list)


class StreamWorkload:
    """One BufferedWriter that appends numbered records until told to stop; `pause`: seconds between two batches."""

    def __init__(
        self, client: Client, log: int, *, name: str = "w", batch: int = 20, size: int = 40, pause: float = 0
    ) -> None:
        self.client, self.log, self.name, self.batch, self.size = client, LogId(log), name, batch, size
        self._pause = pause
        self.journal = Journal()
        self.sent = 0
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        last = time.monotonic()
        async with self.client.buffered_writer() as writer:
            while not self._stop.is_set():
                payloads = [self._payload(self.sent + index) for index in range(self.batch)]
                self.sent += self.batch
                receipts = await writer.append_many(self.log, payloads)
                now = time.monotonic()
                self.journal.stalls.append(now - last)
                last = now
                for receipt, payload in zip(receipts, payloads, strict=True):
                    position = (int(receipt.lsn), receipt.batch_offset)
                    assert position not in self.journal.acknowledged, "a position was given twice"
                    self.journal.acknowledged[position] = payload
                    self.journal.order.append(position)
                if self._pause:
                    await asyncio.sleep(self._pause)

    def _payload(self, number: int) -> bytes:
        return f"{self.name}-{number}-".encode().ljust(self.size, b".")

    @property
    def acknowledged(self) -> int:
        """How many records are acknowledged."""
        return len(self.journal.order)

    async def more(self, count: int, *, timeout: float = 60) -> None:
        """Until `count` further records are acknowledged."""
        target = self.acknowledged + count
        async with asyncio.timeout(timeout):
            while self.acknowledged < target:
                if self._task.done():
                    self._task.result()
                    raise AssertionError("the writer ended")
                await asyncio.sleep(0.01)

    async def finish(self) -> Journal:
        """Stop and give the journal."""
        self._stop.set()
        await self._task
        return self.journal


class DirectWorkload:
    """Several tasks that append one record each at a time, remembering those of unknown outcome; `pause`: seconds between two records of one."""

    def __init__(self, client: Client, log: int, *, tasks: int, name: str = "d", pause: float = 0) -> None:
        self.client, self.log, self.name = client, LogId(log), name
        self._pause = pause
        self.journal = Journal()
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run(index)) for index in range(tasks)]

    async def _run(self, task: int) -> None:
        number = 0
        last: Position = (0, -1)
        while not self._stop.is_set():
            payload = f"{self.name}-{task}-{number}".encode()
            number += 1
            try:
                receipt = await self.client.append(self.log, payload)
            except LogDeviceError as error:
                (self.journal.doubtful if error.maybe_applied else self.journal.failed).add(payload)
                await asyncio.sleep(0.05)
                continue
            position = (int(receipt.lsn), receipt.batch_offset)
            assert position > last, f"positions of one client went back: {last}, {position}"
            last = position
            assert position not in self.journal.acknowledged, "a position was given twice"
            self.journal.acknowledged[position] = payload
            if self._pause:
                await asyncio.sleep(self._pause)

    async def finish(self) -> Journal:
        """Stop and give the journal."""
        self._stop.set()
        await asyncio.gather(*self._tasks)
        return self.journal


@dataclass
class Reading:
    """A whole log as one reader saw it."""

    records: dict[Position, bytes]
    gaps: list[tuple[str, int, int]]
    """Maximal runs of one kind."""
    proof: object
    epochs: list[int]


async def tail_of(client: Client, log: int) -> LSN:
    """The tail, asked for until there is an answer."""
    while True:
        try:
            return await client.tail_lsn(LogId(log))
        except LogDeviceError as error:
            if not error.retriable:
                raise


async def read_all(client: Client, log: int, *, until: LSN | None = None, timeout: float = 60) -> Reading:
    """From the oldest to the tail; positions strictly ascend."""
    async with asyncio.timeout(timeout):
        tail = await tail_of(client, log) if until is None else until
        records: dict[Position, bytes] = {}
        gaps: list[tuple[str, int, int]] = []
        last: Position = (0, -1)
        async with client.reader(LogId(log), start=LSN.OLDEST, until=tail) as reader:
            while batch := await reader.read(max_records=5000):
                for gap in batch.gaps:
                    lo = int(gap.lo)
                    if gaps and gaps[-1][0] == gap.kind.value and gaps[-1][2] + 1 == lo:
                        lo = gaps.pop()[1]
                    gaps.append((gap.kind.value, lo, int(gap.hi)))
                for payload, lsn, offset in zip(batch.payloads, batch.lsns, batch.batch_offsets, strict=True):
                    assert (lsn, offset) > last, f"out of order: {(lsn, offset)} after {last}"
                    last = (lsn, offset)
                    assert payload is not None
                    records[last] = payload
            proof = reader.proof()
    return Reading(records, gaps, proof, sorted({lsn >> 32 for lsn, _ in records}))


def compare(reading: Reading, *journals: Journal) -> None:
    """Every acknowledged record is at its position, once; nothing that certainly failed is there; no loss is reported."""
    seen: dict[bytes, Position] = {}
    for position, payload in reading.records.items():
        assert payload not in seen, f"{payload!r} is at {seen[payload]} and at {position}"
        seen[payload] = position
    for journal in journals:
        missing = {p: d for p, d in journal.acknowledged.items() if reading.records.get(p) != d}
        assert not missing, (
            f"{len(missing)} acknowledged records are lost or altered, for example {next(iter(missing.items()))}"
        )
        assert journal.order == sorted(journal.order), "a stream's records are out of order"
        appeared = [payload for payload in journal.failed if payload in seen]
        assert not appeared, f"appends that certainly failed are in the log: {appeared[:3]}"
    losses = [gap for gap in reading.gaps if gap[0] == "dataloss"]
    assert not losses, losses
