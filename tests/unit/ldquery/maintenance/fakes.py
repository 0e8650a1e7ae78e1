"""A cluster as managers see it: nodes that are there or not, shards that are drained or not, and a log of maintenances in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import msgpack

from client.maintenance.commands import ApplyMaintenance, MaintenanceCommand, MaintenanceKind, encode
from client.maintenance.state import MaintenancesState
from client.replica.commands import CommandRefused, StateVersion, refusal
from ldquery.ctl.impact import METADATA_LOGS, ShardsKnown, Survey, placed_epochs, placed_metadata_logs
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, format_shard, node_of, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND, Timestamp
from tests.simulation.cluster_plan import ClusterPlan, NodePlan

GB = 1_000_000_000


class SeenCluster:
    """What a survey finds."""

    def __init__(
        self,
        nodes: int,
        replicate: str = "node:2",
        *,
        racks: int = 0,
        rebuilding: bool = True,
        percent: int = 100,
        nodeset: Sequence[int] | None = None,
    ) -> None:
        """
        Args:
            racks: nodes stand in so many in turn; 0: each in its own.
            percent: `away_percent_max`.
            nodeset: of the log's epochs; None: all nodes.
        """
        settings = [f"[settings.maintenance]\nenabled = true\naway_percent_max = {percent}"]
        if rebuilding:
            settings.append("[settings.rebuilding]\nenabled = true")
        members = {node: NodePlan(["sequencer", "storage"], node % (racks or nodes)) for node in range(nodes)}
        self.plan = ClusterPlan(replicate, racks or nodes, {}, members, settings)
        self.config = load_cluster(self.plan.render())
        self.replication = ReplicationProperty.parse(replicate)
        self.nodeset = tuple(range(nodes)) if nodeset is None else tuple(nodeset)
        self.earlier: tuple[int, ...] = ()
        """Nodeset of the log's epochs before; (): the same."""
        self.down: set[int] = set()
        self.drained: dict[ShardId, str] = {}
        """Status of what is drained, as the event log has it."""
        self.began_anew: set[int] = set()
        """Nodes whose shard lost what it held in its first generation. Others restored that, and the shard is used in its second one."""
        self.rows: dict[int, dict[str, Any]] = {}
        """What is otherwise of a node's shard."""
        self.info: dict[int, dict[str, Any]] = {}
        """What is otherwise of a node."""
        self.unknown: list[str] = []
        self.surveys = 0
        self.lost: set[ShardId] = set()
        """Drained ones that are lost."""

    def publish(self) -> None:
        """A further version of the file, as the plan says."""
        self.plan.version += 1
        self.config = load_cluster(self.plan.render())

    async def survey(self) -> Survey:
        """What is so now."""
        self.surveys += 1
        return self.seen()

    def seen(self) -> Survey:
        """As `survey`."""
        config, up = self.config, [node for node in self.config.nodes if node not in self.down]
        shards = [
            {
                "node_id": node,
                "shard": 0,
                "generation": self._generation(node),
                "status": "OK",
                "no_space": 0,
                "accepting_writes": 1,
                "metadata_awaited": None,
                "dirty_logs": 0,
                "damaged_ranges": 0,
                "stored_bytes": GB,
                "spare_bytes": 10 * GB,
                **self.rows.get(node, {}),
            }
            for node in up
        ]
        events = [
            {
                "rebuilding_shard": format_shard(shard),
                "generation": 1,
                "mode": mode,
                "status": status,
                "recoverable": int(mode == "RELOCATE"),
                "version": 9,
            }
            for shard, (mode, status) in {
                **{shard_id(NodeId(node)): ("RESTORE", "rebuilt") for node in self.began_anew},
                **{shard: ("RELOCATE", status) for shard, status in self.drained.items()},
            }.items()
        ]
        known = ShardsKnown(config, shards, events)
        history = [
            {
                "since": since,
                "epoch": since + 1,
                "replication": str(self.replication),
                "storage_set": ", ".join(
                    f"N{node}:S0={1 if since == 1 else self._generation(node)}" for node in nodeset
                ),
                "failure_domains": None,
            }
            for since, nodeset in ((1, self.earlier), (3, self.nodeset))
            if nodeset
        ]
        logs = {
            METADATA_LOGS: [placed_metadata_logs(config, known)],
            "/a": placed_epochs(config, known, history, 2 if self.earlier else 0, None),
        }
        nodes = {
            node: {
                "node_id": node,
                "readiness": "OK",
                "config_version": config.version,
                "instance": "100",
                **self.info.get(node, {}),
            }
            for node in up
        }
        silent = dict.fromkeys(self.down, "CONNFAILED")
        return Survey(logs, frozenset(up), silent, self.unknown, known.shards, nodes, known.rebuildings)

    def _generation(self, node: int) -> int:
        return 2 if node in self.began_anew else 1

    # `Drains`

    async def begin(self, shard: ShardId) -> None:
        if self.drained.get(shard) in (None, "unplaced"):
            self.drained[shard] = "rebuilding"

    async def progress(self, shards: Iterable[ShardId]) -> dict[ShardId, str | None]:
        return {shard: self.drained.get(shard) for shard in shards}

    async def call_off(self, shard: ShardId) -> str | None:
        if shard in self.lost:
            return f"{format_shard(shard)} was lost while it was drained"
        self.drained.pop(shard, None)
        return None

    # The truth

    def loses(self, away: Iterable[ShardId]) -> list[str]:
        """What is lost while shards are away that were not drained before, by trying every copyset; knows nothing of f-majorities."""
        gone, members = frozenset(away), [shard_id(NodeId(node)) for node in self.nodeset]
        empty = {shard for shard, status in self.drained.items() if status == "rebuilt"}
        copysets = [
            frozenset(chosen)
            for chosen in combinations(members, self.replication.copies)
            if all(
                len({self.config.nodes[node_of(shard)].location.domain(scope, node_of(shard)) for shard in chosen})
                >= factor
                for scope, factor in self.replication.factors
            )
        ]
        found = []
        if any(copyset <= gone for copyset in copysets if not copyset & empty):
            found.append("DATA")
        if not any(copyset.isdisjoint(gone) for copyset in copysets if copyset.isdisjoint(self.drained)):
            found.append("APPENDS")
        return found


class MemoryMaintenanceLog:
    """One process's view of a log that several share."""

    def __init__(self, cluster: SeenCluster, state: MaintenancesState | None = None) -> None:
        self.cluster = cluster
        self.state = MaintenancesState() if state is None else state
        self.at = 0
        self.time = SECOND
        self.commands: list[str] = []

    @property
    def client(self) -> Any:
        return SimpleNamespace(config=self.cluster.config)

    async def current(self) -> MaintenancesState:
        return self.state

    async def propose(self, command: MaintenanceCommand) -> int:
        self.at += 1
        self.commands.append(type(command).__name__)
        try:
            made = self.state.apply(encode(command), StateVersion(Lsn(self.at), 0), Timestamp(self.time))
        except CommandRefused as refused:
            raise LogDeviceError(*refusal(str(refused)), retriable=False, maybe_applied=False) from None
        return int(msgpack.unpackb(made)) if made else 0

    async def overtaken(self, command: MaintenanceCommand) -> bool:
        try:
            await self.propose(command)
        except LogDeviceError:
            return True
        return False

    async def apply(self, *nodes: int, drain: bool = False, seconds: float = 600, restart: int = 0) -> int:
        """Ask for a maintenance of whole nodes."""
        return await self.propose(wanted(*nodes, drain=drain, seconds=seconds, restart=restart))

    def phase(self, number: int) -> str:
        return self.state.live[number].phase.name


def wanted(*nodes: int, drain: bool = False, seconds: float = 600, restart: int = 0) -> ApplyMaintenance:
    kind = MaintenanceKind.DRAIN if drain else MaintenanceKind.AWAY
    shards = [shard_id(NodeId(node)) for node in nodes]
    return ApplyMaintenance(kind, [NodeId(n) for n in nodes], shards, int(seconds * SECOND), "ann", "", restart)
