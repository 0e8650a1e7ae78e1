"""Operators who take nodes away and drain them at random, each in maintenances of his own, while others append and nodes die.

1. What maintenances allow to be away at any moment leaves a copy of each entry, and room for all copies of the next one.
2. No append waits longer than it may, though nodes are away all the time.
3. In the end everything that was acknowledged is read, once, at its position.
4. Equal versions of the state are equal states.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from typing import Any, Final

from client.client import Client
from client.maintenance.commands import ApplyMaintenance, EndCause, EndMaintenance, MaintenanceKind
from epoch_store.cells import WriteId, decide, decode_cell
from epoch_store.interface import GetLastCleanEpoch, LastCleanEpoch, Result, WriterIdentity
from ldquery.ctl.event_log import read_rebuilding_set
from ldquery.ctl.impact import METADATA_LOGS, ShardsKnown, Survey, placed_epochs
from ldquery.maintenance.cluster import ClusterDrains, rows_of_set
from ldquery.maintenance.manager import MaintenanceLog, MaintenanceManager
from ldquery.maintenance.rolling import Pace, until_granted
from logdevice_py import LSN, LogDeviceError, SimCluster
from logdevice_py.core.ids import INTERNAL_LOGS, InstanceId, LogId, NodeId, ShardId, node_of, shard_id, shard_index_of
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.impact import PlacedEpochs
from logdevice_py.tables.catalog import TABLES
from server.admin.node_tables import historical_metadata_rows
from server.simulation.machines import SimNodeState

OPERATORS: Final = 3
ROUNDS: Final = 3
STALL_MAX: Final = 10.0
"""Seconds that an append may take: a node that dies is missed by its clients and by gossip, and its logs are recovered."""
_GONE: Final = frozenset({Status.NOTFOUND, Status.CONFLICT, Status.VERSION_MISMATCH})


def metadata_of(cluster: SimCluster, log: int) -> EpochMetaData | None:
    """What the epoch store says of a log at this moment."""
    cell = cluster.machines.cells.cells.get(f"logs/{log}/sequencer")
    return None if cell is None else EpochMetaData.decode(decode_cell(cell.content)[1])


class SimSurvey:
    """Asks simulated nodes what ``ldctl`` asks real ones, one after the other: meanwhile the cluster goes on."""

    def __init__(self, cluster: SimCluster, client: Client) -> None:
        self._cluster = cluster
        self._client = client

    async def __call__(self) -> Survey:
        cluster, config = self._cluster, self._client.config
        events = rows_of_set(await read_rebuilding_set(self._client))
        shards: list[dict[str, Any]] = []
        nodes: dict[NodeId, dict[str, Any]] = {}
        for number in config.nodes:
            await asyncio.sleep(cluster.rng.uniform(0, 0.02))
            node = cluster.machines.nodes[number]
            if node.state is SimNodeState.RUNNING and node.root is not None and node.root.storage is not None:
                nodes[number] = {"readiness": "OK", "config_version": node.root.config.version, "instance": "1"}
                for shard, machines in node.root.storage.shards.items():
                    awaited = machines.metadata_resync.waits_for
                    row = {"node_id": number, "shard": shard_index_of(shard), "generation": machines.shard.generation}
                    row |= {"status": machines.shard.status().name, "no_space": 0, "stored_bytes": 0, "spare_bytes": 1}
                    row |= {"accepting_writes": int(machines.shard.writable), "dirty_logs": machines.repairs.dirty_logs}
                    row |= {"damaged_ranges": machines.repairs.damaged_ranges}
                    shards.append(row | {"metadata_awaited": None if awaited is None else str(awaited)})
        known = ShardsKnown(config, shards, events)
        logs = {METADATA_LOGS: [self._metadata_logs(known)]}
        unknown: list[str] = []
        for log in map(int, (*config.log_ids(), *INTERNAL_LOGS)):
            metadata = metadata_of(cluster, log)
            if metadata is None:
                continue
            table = TABLES["historical_metadata"]
            names = [column.name for column in table.columns]
            rows = [
                dict(zip(names, table.cells(row), strict=True))
                for row in historical_metadata_rows(LogId(log), Status.OK, metadata)
            ]
            logs[str(log)] = placed_epochs(config, known, rows, self._clean(log), None)
        up = frozenset(node for node in nodes if node in config.sequencer_nodes())
        silent = {node: "CONNFAILED" for node in config.nodes if node not in nodes}
        return Survey(logs, up, silent, unknown, known.shards, nodes, known.rebuildings)

    def _metadata_logs(self, known: ShardsKnown) -> PlacedEpochs:
        kept_by, config = self._client.config.metadata_log, self._client.config
        domains = FailureDomains.by_file(kept_by.nodeset, kept_by.replication, config.location)
        first, shards = Epoch(1), tuple(sorted(kept_by.nodeset))
        now = known.of_metadata_logs()
        return PlacedEpochs(first, first, shards, kept_by.replication, domains.labels, is_current=True, now=now)

    def _clean(self, log: int) -> int:
        cell = self._cluster.machines.cells.cells.get(f"logs/{log}/lce")
        result = decide(GetLastCleanEpoch(LogId(log)), cell, WriteId(WriterIdentity(NodeId(-1), InstanceId(1)), 0))
        assert isinstance(result, Result)
        assert isinstance(result.value, LastCleanEpoch)
        return int(result.value.epoch)


class Kept:
    """What was promised and what became of it."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.away: set[int] = set()
        """Nodes that operators stopped."""
        self.outcomes: Counter[str] = Counter()
        self.acknowledged: dict[int, dict[bytes, LSN]] = {log: {} for log in (1, 2)}
        self.longest = 0.0
        self.is_over = False
        self.states: dict[Any, bytes] = {}

    def look(self, log: MaintenanceLog) -> None:
        """Rule 4, and rule 1 of all that may be away."""
        replica = log._replica
        encoded = replica.state.encode()
        assert self.states.setdefault(replica.version, encoded) == encoded, "rule 4: two states of one version"

    def check_away(self, going: Iterable[ShardId], emptied: frozenset[ShardId]) -> None:
        """Rule 1, by trying every copyset: knows nothing of f-majorities."""
        config, gone = self.cluster.machines.config, frozenset(going)
        for log in self.acknowledged:
            metadata = metadata_of(self.cluster, log)
            if metadata is None:
                continue
            last = metadata.history[-1]
            for interval in metadata.history:
                allowed = [
                    frozenset(chosen)
                    for chosen in combinations(sorted(interval.shards), interval.replication.copies)
                    if all(
                        len({config.nodes[node_of(s)].location.domain(scope, node_of(s)) for s in chosen}) >= factor
                        for scope, factor in interval.replication.factors
                    )
                ]
                lost = [chosen for chosen in allowed if chosen <= gone and not chosen & emptied]
                assert not lost, f"rule 1: log {log} may lose {[sorted(each) for each in lost]} of {interval.since}"
                if interval is last:
                    left = [chosen for chosen in allowed if not chosen & gone]
                    assert left, f"rule 1: log {log} cannot store anything in {interval.since} without {sorted(gone)}"


async def random_maintenances(cluster: SimCluster) -> Kept:
    """Operators, writers and deaths; what it came to."""
    kept = Kept(cluster)
    async with asyncio.TaskGroup() as group:
        writing = [group.create_task(_write(cluster, kept, log)) for log in kept.acknowledged]
        dying = group.create_task(_die(cluster, kept))
        await asyncio.gather(*(_operate(cluster, kept, f"op{number}") for number in range(OPERATORS)))
        kept.is_over = True
        await asyncio.gather(dying, *writing)
    for log, acknowledged in kept.acknowledged.items():
        async with cluster.client() as client, client.reader(log, LSN.OLDEST, until="tail") as reader:
            read: dict[bytes, LSN] = {}
            while batch := await reader.read(timeout=120):
                assert not [gap for gap in batch.gaps if gap.kind.name == "DATALOSS"], "rule 3: something is lost"
                for record in batch.records():
                    assert record.payload not in read, "rule 3: read twice"
                    read[record.payload] = record.lsn
        missing = {payload: lsn for payload, lsn in acknowledged.items() if read.get(payload) != lsn}
        assert not missing, f"rule 3: log {log} lacks {missing}"
    return kept


async def _write(cluster: SimCluster, kept: Kept, log: int) -> None:
    loop, number = asyncio.get_running_loop(), 0
    async with cluster.client() as client:
        while not kept.is_over:
            payload, began = b"%d-%d" % (log, number), loop.time()
            number += 1
            try:
                receipt = await client.append(log, payload, timeout=STALL_MAX)
                kept.acknowledged[log][payload] = receipt.lsn
            except LogDeviceError as error:
                if error.status is Status.TIMEDOUT or not (error.maybe_applied or error.retriable):
                    raise AssertionError(f"rule 2: log {log} takes nothing: {error}") from error
            kept.longest = max(kept.longest, loop.time() - began)
            await asyncio.sleep(cluster.rng.uniform(0.05, 0.5))


async def _die(cluster: SimCluster, kept: Kept) -> None:
    """A node dies now and then, for a moment, that nobody took away."""
    while not kept.is_over:
        await asyncio.sleep(cluster.rng.uniform(5, 25))
        node = cluster.rng.choice(list(cluster.machines.nodes))
        if cluster.machines.nodes[node].state is SimNodeState.RUNNING and node not in kept.away:
            kept.outcomes["died"] += 1
            await cluster.stop_node(node)
            await asyncio.sleep(cluster.rng.uniform(0.5, 3))
            await _start(cluster, node)


async def _start(cluster: SimCluster, node: int) -> None:
    if cluster.machines.nodes[NodeId(node)].state is SimNodeState.DOWN:
        await cluster.start_node(node)


async def _operate(cluster: SimCluster, kept: Kept, name: str) -> None:
    rng = cluster.rng
    for _ in range(ROUNDS):
        # each time another process, which may end at any moment
        async with cluster.client() as client, MaintenanceLog(client, timeout=60, snapshot_every=5) as log:
            survey = SimSurvey(cluster, client)
            manager = MaintenanceManager(
                log, survey, ClusterDrains(client), cluster.machines.nodes[NodeId(0)].clock.wall
            )
            nodes = sorted(rng.sample(list(client.config.nodes), rng.choice((1, 1, 2))))
            drain = rng.random() < 0.3
            await asyncio.sleep(rng.uniform(0, 3))
            await _maintain(cluster, kept, log, manager, nodes, drain, name)


async def _maintain(
    cluster: SimCluster,
    kept: Kept,
    log: MaintenanceLog,
    manager: MaintenanceManager,
    nodes: list[NodeId],
    drain: bool,
    name: str,
) -> None:
    rng, loop = cluster.rng, asyncio.get_running_loop()
    kind = MaintenanceKind.DRAIN if drain else MaintenanceKind.AWAY
    wanted = ApplyMaintenance(kind, nodes, [shard_id(node) for node in nodes], 300 * SECOND, name, "")
    try:
        number = await log.propose(wanted)
    except LogDeviceError as error:
        _expect(error, frozenset({Status.EXISTS}))
        kept.outcomes[error.status.name] += 1
        return
    try:
        granted = await until_granted(log, manager, number, Pace(lambda text: None, 0.5), ends=loop.time() + 20)
        kept.look(log)
        if granted is None:
            kept.outcomes["not granted"] += 1
            await log.overtaken(EndMaintenance(number, EndCause.CANCELLED))
        else:
            kept.outcomes["drained" if drain else "granted"] += 1
            await _take_away(cluster, kept, log, nodes)
            if rng.random() < 0.8:
                await log.overtaken(EndMaintenance(number, EndCause.DONE))
            else:
                kept.outcomes["forgotten"] += 1
        while drain and number in log.state.live and rng.random() < 0.95:
            await manager.look()
            await asyncio.sleep(0.5)
    except LogDeviceError as error:
        _expect(error, _GONE)
        kept.outcomes[error.status.name] += 1


def _expect(error: LogDeviceError, statuses: frozenset[Status]) -> None:
    """Raise what is neither of these nor passes by itself."""
    if error.status not in statuses and not error.retriable:
        raise error


async def _take_away(cluster: SimCluster, kept: Kept, log: MaintenanceLog, nodes: list[NodeId]) -> None:
    kept.away.update(nodes)
    kept.check_away(log.state.going() | {shard_id(NodeId(node)) for node in kept.away}, log.state.emptied())
    for node in nodes:
        if cluster.machines.nodes[node].state is SimNodeState.RUNNING:
            await cluster.stop_node(node)
    await asyncio.sleep(cluster.rng.choice((1.0, 4.0, 12.0)))
    for node in nodes:
        await _start(cluster, node)
    await asyncio.sleep(cluster.rng.uniform(0, 2))
    kept.away.difference_update(nodes)
