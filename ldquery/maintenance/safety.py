"""Whether a maintenance is safe: decided from what the cluster says and what others may take away, by the rules of ``ldctl check-impact``.

1. Together: whatever others may take away counts as away, whether it is or not.
2. Nothing that logs of its shards lose is small, nor excused by what was lost before.
3. What is not known is not safe: nodesets that nobody tells, nodes with another cluster file.
4. Capacity counts: copies that are to be stored elsewhere have room there, and no more than a share of the cluster is away.
5. What comes back before anybody stores its copies elsewhere needs no other place for them, where nothing else is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from client.maintenance.commands import MaintenanceKind
from client.maintenance.settings import MaintenanceSettings
from client.maintenance.state import Maintenance, MaintenancePhase, MaintenancesState
from ldquery.ctl.impact import LogImpact, Survey, rows_of, space_lacking
from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.core.declare import settings_from
from logdevice_py.core.ids import NodeId, ShardId, format_shard, node_of
from logdevice_py.core.some_names import name_some
from logdevice_py.core.units import format_duration
from logdevice_py.event_log.settings import RebuildingSettings
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.impact import Impact, Loss, PlacedEpochs, impact

_NAMED: Final = 3


def why_not(config: ClusterConfig, found: Survey, state: MaintenancesState, wanted: Maintenance) -> list[str]:
    """Why it is not safe to go on with a maintenance: to begin with it, or to take away what it was granted. Empty: it is safe.

    Args:
        found: asked for after `state` was known.
        state: of which `wanted` is a part.
    """
    return list(_Case(config, found, state, wanted).reasons())


def is_back(config: ClusterConfig, found: Survey, wanted: Maintenance) -> bool:
    """Whether all that a maintenance concerns, and is in the cluster file, is there and well."""
    unwell = unwell_shards(config, found)
    nodes = {*wanted.wanted.nodes, *map(node_of, wanted.wanted.shards)}.intersection(config.nodes)
    return not unwell.intersection(wanted.wanted.shards) and all(node in found.nodes for node in nodes)


def has_left(config: ClusterConfig, wanted: Maintenance) -> bool:
    """Whether the cluster file has nothing any more of what a maintenance concerns."""
    shards = set(config.storage_shards())
    return shards.isdisjoint(wanted.wanted.shards) and set(config.nodes).isdisjoint(wanted.wanted.nodes)


def unwell_shards(config: ClusterConfig, found: Survey) -> frozenset[ShardId]:
    """Shards that do not answer, do not serve yet, or do not have yet what they are to have."""
    return frozenset(shard for shard in config.storage_shards() if why_unwell(found, shard) is not None)


def why_unwell(found: Survey, shard: ShardId) -> str | None:
    """What is the matter with a shard; None: nothing."""
    row, node = found.shards.get(shard), found.nodes.get(node_of(shard))
    if row is None or node is None:
        return "does not answer"
    if node["readiness"] != "OK":
        return f"takes no requests: {node['readiness']}"
    if row["status"] != "OK":
        return f"is {row['status']}"
    if row["metadata_awaited"] is not None:
        return f"gets back what it held of metadata logs, from {row['metadata_awaited']}"
    if row["dirty_logs"] or row["damaged_ranges"]:
        return f"may lack records of {row['dirty_logs']} logs and has {row['damaged_ranges']} damaged ranges: they are repaired"
    return None


class _Case:
    """One maintenance that is judged."""

    def __init__(self, config: ClusterConfig, found: Survey, state: MaintenancesState, wanted: Maintenance) -> None:
        self.config = config
        self.found = found
        self.wanted = wanted
        self.shards = frozenset(wanted.wanted.shards).intersection(config.storage_shards())
        self.nodes = frozenset(wanted.wanted.nodes)
        self.going = state.going() | self.shards
        self.going_nodes = state.going_nodes() | self.nodes
        self.emptied = state.emptied()
        self.unwell = unwell_shards(config, found)
        self.limits: MaintenanceSettings = settings_from(MaintenanceSettings, config.settings.get("maintenance", {}))

    def reasons(self) -> Iterator[str]:
        yield from self._of_knowledge()
        begins = self.wanted.phase in (MaintenancePhase.WAITING, MaintenancePhase.DRAINING)
        if self.wanted.wanted.kind is MaintenanceKind.DRAIN and begins:
            yield from self._of_draining()
        else:
            yield from self._of_going()

    def _of_knowledge(self) -> Iterator[str]:
        found, version = self.found, self.config.version
        if found.unknown:
            yield f"nobody tells the nodesets of {len(found.unknown)} logs: {name_some(found.unknown, _NAMED)}"
        others = [f"N{node}" for node, row in sorted(found.nodes.items()) if row["config_version"] != version]
        if others:
            yield f"{name_some(others, _NAMED)} do not use version {version} of the cluster file, which this is"

    # What may disappear

    def _of_going(self) -> Iterator[str]:
        yield from self._of_logs(self.going | self.unwell)
        left = self.found.sequencing - self.going_nodes
        if self.nodes and not left:
            yield "no node would be left that sequences: nothing could be appended"
        yield from self._of_shares()
        if self._is_rebuilt_meanwhile():
            yield from self._of_space()
        yield from self._of_unused_logs(self.writable() - self.going)

    def _of_logs(self, missing: frozenset[ShardId]) -> Iterator[str]:
        losses = [
            LogImpact(log, each)
            for log, epochs in self.found.logs.items()
            for placed in self._concerned(epochs)
            for each in impact([placed], missing)
            if not self._is_only_late(each)
        ]
        for row in rows_of(losses):
            yield f"{row['loses']}: {row['which']}{_count(row['logs'])}: {row['means']}; away would be {row['missing then']}"
        if losses and all(each.impact.loss is Loss.REBUILDING for each in losses):
            yield (
                f"away for {format_duration(self._grace)} at most, nothing would be stored elsewhere meanwhile: ask for that with --for, "
                "or wait until those epochs are trimmed"
            )

    def _is_only_late(self, found: Impact) -> bool:
        """Whether a loss is but that nobody could restore copies of which nobody restores any before they are back: rule 5."""
        return (
            found.loss is Loss.REBUILDING and not self._is_rebuilt_meanwhile() and self.shards.issuperset(found.shards)
        )

    def _concerned(self, epochs: Iterable[PlacedEpochs]) -> Iterator[PlacedEpochs]:
        """Those with something on shards of the maintenance; what is being emptied elsewhere takes nothing."""
        for each in epochs:
            if self.shards.intersection(each.shards) - each.now.emptied:
                yield replace(each, now=replace(each.now, unwritable=each.now.unwritable | self.emptied))

    def _of_shares(self) -> Iterator[str]:
        config = self.config
        full = [shard for shard in config.storage_shards() if shard not in self.emptied]
        away = [shard for shard in full if shard in self.going or shard in self.unwell]
        if len({node_of(shard) for shard in away}) > 1:
            share = sum(map(config.storage_capacity, away)) / (sum(map(config.storage_capacity, full)) or 1.0)
            yield from self._beyond(share, "storage capacity")
        weights = {node: config.nodes[node].sequencer_weight for node in config.sequencer_nodes()}
        gone = [node for node in weights if node in self.going_nodes or node not in self.found.nodes]
        if self.nodes and len(gone) > 1:
            share = sum(weights[node] for node in gone) / (sum(weights.values()) or 1.0)
            yield from self._beyond(share, "sequencers' weights")

    def _beyond(self, share: float, of: str) -> Iterator[str]:
        if share * 100 > self.limits.away_percent_max:
            yield f"{share:.0%} of the {of} would be away; away_percent_max is {self.limits.away_percent_max}"

    def _is_rebuilt_meanwhile(self) -> bool:
        """Whether its time is long enough for others to restore what it holds."""
        for_us = self.wanted.wanted.for_us
        return self.config.rebuilding_enabled and self._grace > 0 and (not for_us or for_us > self._grace)

    @property
    def _grace(self) -> int:
        raw = self.config.settings.get("rebuilding", {})
        return settings_from(RebuildingSettings, raw).self_initiated_grace_period_us

    # What is to be emptied

    def _of_draining(self) -> Iterator[str]:
        if not self.config.rebuilding_enabled:
            yield "nobody drains: take enabled = false out of [settings.rebuilding] of the cluster file, and start the nodes again"
            return
        writable = self.writable() - self.going
        yield from self._of_unused_logs(writable)
        yield from self._of_places(writable)
        yield from self._of_space()

    def _of_places(self, writable: frozenset[ShardId]) -> Iterator[str]:
        """Copies are moved within the nodeset of their epoch only."""
        nowhere: dict[tuple[ShardId, ...], dict[str, None]] = {}
        for log, epochs in self.found.logs.items():
            for each in self._concerned(epochs):
                if not self._has_place(each, writable):
                    nowhere.setdefault(each.shards, {})[log] = None
        for shards, logs in nowhere.items():
            yield (
                f"{name_some(logs, _NAMED)}{_count(len(logs))}: copies lie on {_names(shards)} and may move to these alone, which are too few: "
                "wait until the records of those epochs are trimmed, or drain by hand (ldctl drain) and leave them a copy short"
            )

    @staticmethod
    def _has_place(epochs: PlacedEpochs, writable: frozenset[ShardId]) -> bool:
        domains = FailureDomains(epochs.shards, epochs.replication, epochs.labels)
        left = [shard for shard in epochs.shards if shard in writable and shard not in epochs.now.lost]
        return domains.can_replicate([shard for shard in left if shard not in epochs.now.unwritable])

    # Both

    def writable(self) -> frozenset[ShardId]:
        """Shards that take records now, those of the maintenance included."""
        return frozenset(
            shard
            for shard in self.config.writable_shards()
            if shard not in self.emptied | self.unwell | frozenset(self.found.rebuildings)
            and not self.found.shards[shard]["no_space"]
            and self.found.shards[shard]["accepting_writes"]
        )

    def _of_unused_logs(self, left: frozenset[ShardId]) -> Iterator[str]:
        """Logs could not be used for the first time."""
        now = self.writable()
        for replication in dict.fromkeys(
            [group.attributes.replication for group in self.config.groups()] + [self.config.metadata_log.replication]
        ):
            domains = FailureDomains.by_file(self.config.storage_shards(), replication, self.config.location)
            if domains.can_replicate(now) and not domains.can_replicate(left):
                yield f'"{replication}" could not be kept by the shards that are left: {_names(left)}'

    def _of_space(self) -> Iterator[str]:
        lacking = space_lacking(self.found, self.shards, self.writable() - self.going)
        if lacking is not None:
            yield lacking


def _count(logs: int) -> str:
    return "" if logs == 1 else f" ({logs} logs)"


def _names(shards: Iterable[ShardId]) -> str:
    return name_some([format_shard(shard) for shard in sorted(shards)], _NAMED) or "none"


def restartable(config: ClusterConfig) -> list[NodeId]:
    """All nodes in the order in which they are started again: those that store only, then the others."""
    return sorted(config.nodes, key=lambda node: (Roles.SEQUENCER in config.nodes[node].roles, node))
