"""A cluster as its file describes it: nodes, logs, where metadata is kept."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

from logdevice_py.config.attributes import ATTRIBUTES, parse_attribute
from logdevice_py.config.location import NOWHERE, Location
from logdevice_py.config.logs import MATCHES_MAX, LogAttributes, LogGroup, LogTree, matching
from logdevice_py.config.quotas import PrincipalQuota
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.config.run_time_logs import NO_RUN_TIME_LOGS, RunTimeLogs
from logdevice_py.core.ids import (
    EVENT_LOG_DELTAS,
    EVENT_LOG_SNAPSHOTS,
    LOG_TREE_DELTAS,
    LOG_TREE_SNAPSHOTS,
    MAINTENANCE_DELTAS,
    MAINTENANCE_SNAPSHOTS,
    TREE_LOG_ID_MIN,
    USER_LOG_ID_MAX,
    LogId,
    NodeId,
    ShardId,
    shard_id,
)
from logdevice_py.core.status import LogDeviceError, Status

SETTINGS_SECTIONS: Final = (
    "sequencer",
    "storage",
    "client",
    "membership",
    "recovery",
    "runtime",
    "admin",
    "rebuilding",
    "log_tree",
    "maintenance",
    "placement",
    "security",
)
"""Sections of ``[settings]``; the package that owns one declares and parses its settings."""

_EVENT_LOG: Final = frozenset({EVENT_LOG_DELTAS, EVENT_LOG_SNAPSHOTS})
_LOG_TREE: Final = frozenset({LOG_TREE_DELTAS, LOG_TREE_SNAPSHOTS})
_MAINTENANCE: Final = frozenset({MAINTENANCE_DELTAS, MAINTENANCE_SNAPSHOTS})


class Roles(enum.Flag):
    """What a node does."""

    SEQUENCER = enum.auto()
    STORAGE = enum.auto()


class ShardState(enum.Enum):
    """What the shards of a node are used for; the values are those of the cluster file."""

    READ_WRITE = "read-write"  # takes new records
    READ_ONLY = "read-only"  # keeps and serves what it has, takes no new records
    DISABLED = "disabled"  # is in no new nodeset; epochs that list it still count it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One node."""

    node: NodeId
    host: str
    port: int
    roles: Roles = Roles.SEQUENCER | Roles.STORAGE
    location: Location = NOWHERE
    shards: int = 1
    sequencer_weight: float = 1.0
    """Share of the logs that the node sequences, relative to the others; 0 is none."""
    storage_capacity: float = 1.0
    """Share of the records that each shard of the node stores, relative to the others."""
    shard_state: ShardState = ShardState.READ_WRITE
    data_dir: str | None = None
    admin_port: int | None = None

    def shard_ids(self) -> tuple[ShardId, ...]:
        """The node's shards; none when it does not store."""
        if Roles.STORAGE not in self.roles:
            return ()
        return tuple(shard_id(self.node, index) for index in range(self.shards))


@dataclass(frozen=True, slots=True)
class MetadataLogConfig:
    """Where the metadata logs of all logs are kept.

    Growing the nodeset is safe at any time, by nodes that run: shards that once lost their disks are not authoritative for metadata logs until each
    that joins has told them what it has, and readers may have to wait for that. A shard may be taken out of it only when its copies are no longer needed: an f-majority of the
    smaller nodeset need not meet the copysets of the larger one.
    """

    nodeset: tuple[ShardId, ...]
    replication: ReplicationProperty


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """One version of the cluster file. Immutable, so derived tables are kept with it; only `run_time_logs` lives beside it."""

    name: str
    uuid: bytes
    """16 bytes that tell this cluster from every other."""
    version: int
    nodes: Mapping[NodeId, NodeConfig]
    """In order of their indices."""
    logs: LogTree
    metadata_log: MetadataLogConfig
    epoch_store: str
    """A URL: ``sqlite:///absolute/path``, ``zookeeper://host:port[,host:port]/root`` or ``memory:``."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Raw tables by section, parsed by the packages that declare them."""
    quotas: Mapping[str, PrincipalQuota] = field(default_factory=dict)
    """What principals may do at each node, by name; ``*``: what each may do that has no quota of its own."""
    excluded: frozenset[ShardId] = frozenset()
    """Shards that are lost or being emptied, as the event log says and not the file: they are in no new nodeset and take no new records."""
    excluded_known: bool = True
    """What is excluded is known: a node that has not read the event log yet adds no shard to a nodeset."""
    run_time_logs: RunTimeLogs = field(default=NO_RUN_TIME_LOGS, compare=False, repr=False)
    """Logs that the file does not have, as this process knows them."""

    def storage_shards(self) -> tuple[ShardId, ...]:
        """Every shard of every storage node, whatever its state, ascending."""
        return self._storage_shards

    def writable_shards(self) -> tuple[ShardId, ...]:
        """The shards that take new records, ascending."""
        return self._writable_shards

    def is_writable(self, shard: ShardId) -> bool:
        """Whether the file lets the shard take new records."""
        return shard in self._writable_set

    def takes_records(self, node: NodeConfig) -> bool:
        """Whether shards of the node take new records, unless they are lost or drained."""
        return node.shard_state is ShardState.READ_WRITE and node.location.region not in self.disabled_regions

    def location(self, shard: ShardId) -> Location | None:
        """Where the shard's node stands; None when the node is not in the file."""
        node = self.nodes.get(NodeId(shard >> 8))
        return None if node is None else node.location

    def storage_capacity(self, shard: ShardId) -> float:
        """Weight of the shard when copysets are chosen; 0 when its node is not in the file."""
        node = self.nodes.get(NodeId(shard >> 8))
        return 0.0 if node is None else node.storage_capacity

    # Logs: those of the file and those of the log tree. What is asked of `logs` concerns the file alone.

    @property
    def rebuilding_enabled(self) -> bool:
        """What a lost shard held is re-replicated without anybody's asking."""
        return self._rebuilding_asked is not False

    @property
    def rebuilding_by_default(self) -> bool:
        """The file does not say whether to rebuild: nodes of versions before this one keep no event log then."""
        return self._rebuilding_asked is None

    @property
    def _rebuilding_asked(self) -> bool | None:
        """What the file says of it; None: nothing."""
        asked: bool | None = self.settings.get("rebuilding", {}).get("enabled")
        return asked

    @cached_property
    def has_log_tree(self) -> bool:
        """Logs can be made at run time."""
        return self.settings.get("log_tree", {}).get("enabled") is True

    @property
    def has_maintenances(self) -> bool:
        """There is a log of maintenances."""
        return self.settings.get("maintenance", {}).get("enabled") is True

    @property
    def all_logs_known(self) -> bool:
        """Nothing that was in the log tree when this process began is missing here."""
        return not self.has_log_tree or self.run_time_logs.is_known

    def log(self, log: LogId) -> LogAttributes | None:
        """The attributes of a data log that takes appends; None when none is known: see `is_absent`."""
        if log < TREE_LOG_ID_MIN:
            return self.logs.get(log)
        if log > USER_LOG_ID_MAX:
            return self._internal_log(log)
        return self.logs.get(log) or self.run_time_logs.attributes(log, self)

    def is_absent(self, log: LogId) -> bool:
        """There is no such data log, as far as this version of the file says. Of one that may have been made a moment ago, or while this process did not
        listen, that is not known, and it is False."""
        if log > USER_LOG_ID_MAX:
            return self._internal_log(log) is None
        if self.logs.group(log) is not None:
            return False
        return log < TREE_LOG_ID_MIN or not self.has_log_tree or self.run_time_logs.is_absent(log)

    def unknown(self, log: LogId) -> LogDeviceError:
        """What is said of a log without attributes: NOTFOUND: there is none, or it is being removed; AGAIN: whether there is one is not known yet."""
        if self.is_absent(log) or self.run_time_logs.is_ending(log):
            return LogDeviceError(Status.NOTFOUND, f"there is no log {log}")
        return LogDeviceError(Status.AGAIN, f"whether there is a log {log} is not known yet")

    def group(self, log: LogId) -> LogGroup | None:
        """The group of a data log that takes appends."""
        return self.logs.group(log) or self.run_time_logs.group(log, self)

    def group_at(self, path: str) -> LogGroup | None:
        """The group with this path; that of the file where both have one."""
        return self.logs.group_at(path) or self.run_time_logs.group_at(path, self)

    def groups(self) -> Iterator[LogGroup]:
        """All that take appends, in order of their ids."""
        yield from self.logs.groups
        yield from self.run_time_logs.groups(self)

    def log_ids(self) -> Iterator[LogId]:
        """Every log id, ascending."""
        yield from self.logs.ids()
        yield from self.run_time_logs.ids()

    def log_name(self, log: LogId) -> str:
        """How a person names the log: ``/team/audit``, ``/team/clicks/3``, or the bare id when no group is known."""
        group = self.group(log)
        return str(log) if group is None else group.name(log)

    def find_log(self, name: str | int) -> LogId:
        """The log that a person names; as `LogTree.find`.

        Raises:
            LogDeviceError: NOTFOUND; INVALID_PARAM; AGAIN: it may be in the log tree, of which this process does not know enough.
        """
        try:
            return self.logs.find(name)
        except LogDeviceError as error:
            if error.status is not Status.NOTFOUND or not self.has_log_tree:
                raise
            return self._find_in_tree(name, error)

    def _find_in_tree(self, name: str | int, not_in_file: LogDeviceError) -> LogId:
        if isinstance(name, int) or name.isdecimal():
            log = LogId(int(name))
            if self.log(log) is not None:
                return log
            if not self.is_absent(log):
                raise LogDeviceError(Status.AGAIN, f"whether there is a log {log} is not known yet")
            raise not_in_file
        found = self.run_time_logs.group_at(name, self)
        if found is not None:
            return found.only_log()
        directory, _, place = name.rpartition("/")
        found = self.run_time_logs.group_at(directory, self)
        if found is not None and place.isdecimal():
            return found.log_at(int(place))
        if not self.run_time_logs.is_known:
            raise LogDeviceError(
                Status.AGAIN, f"whether there is a log {name} is not known: the log tree is not read yet"
            )
        raise not_in_file

    def matching_logs(self, pattern: str) -> list[LogId]:
        """The logs that a person names with a pattern, ascending; as `LogTree.matching`.

        Raises:
            LogDeviceError: as `find_log`; INVALID_PARAM when it fits too many.
        """
        if "*" not in pattern and "?" not in pattern:
            return [self.find_log(pattern)]
        found: list[LogId] = []
        missing: LogDeviceError | None = None
        try:
            found += self.logs.matching(pattern)
        except LogDeviceError as error:
            if error.status is not Status.NOTFOUND:
                raise
            missing = error
        if self.has_log_tree:
            found += matching(pattern, self.run_time_logs.groups(self))
            if not self.run_time_logs.is_known:
                raise LogDeviceError(
                    Status.AGAIN, f"which logs {pattern} fits is not known: the log tree is not read yet"
                )
        if not found and missing is not None:
            raise missing
        if len(found) > MATCHES_MAX:
            raise LogDeviceError(Status.INVALID_PARAM, f"{pattern} fits more than {MATCHES_MAX} logs")
        return found

    def values_in_use(self, key: str) -> set[Any]:
        """Every value that an attribute may have for some log, by its key in the cluster file; perhaps others."""
        name = ATTRIBUTES[key].name
        found = {getattr(group.attributes, name) for group in self.logs.groups}
        if not self.has_log_tree:
            return found
        sets = [self.logs.defaults, *self.logs.directories.values()]
        found.update(each[name] for each in sets if name in each)
        if name == "replication":
            found.add(self.metadata_log.replication)
        for raw in self.run_time_logs.raw_values(key):
            try:
                found.add(parse_attribute(key, raw)[1])
            except (ValueError, OverflowError):
                continue  # it holds for no log
        return found

    def _internal_log(self, log: LogId) -> LogAttributes | None:
        if log in _EVENT_LOG and self.rebuilding_enabled:
            return event_log_attributes(self.metadata_log.replication)
        if log in _LOG_TREE and self.has_log_tree:
            return log_tree_attributes(self.metadata_log.replication)
        if log in _MAINTENANCE and self.has_maintenances:
            return maintenance_attributes(self.metadata_log.replication)
        return None

    def sequencer_nodes(self) -> tuple[NodeId, ...]:
        """The nodes that may sequence, ascending."""
        return self._sequencer_nodes

    def sequencer_nodes_within(self, area: Location) -> tuple[NodeId, ...]:
        """The nodes that may sequence and stand in `area`, ascending."""
        found = self._sequencers_by_area.get(area)
        if found is None:
            found = tuple(node for node in self._sequencer_nodes if self.nodes[node].location.within(area))
            self._sequencers_by_area[area] = found
        return found

    @cached_property
    def sequencer_weights(self) -> tuple[float, ...]:
        """By node index: the node's share relative to the heaviest node, 0 to 1; 0 for nodes that never sequence."""
        weights = [0.0] * (max(self.nodes, default=-1) + 1)
        for node in self._sequencer_nodes:
            weights[node] = self.nodes[node].sequencer_weight
        heaviest = max(weights, default=0.0)
        return tuple(weight / heaviest for weight in weights) if heaviest > 0 else tuple(weights)

    @cached_property
    def enabled_storage_nodes(self) -> tuple[NodeConfig, ...]:
        """The nodes whose shards new nodesets may have, ascending."""
        storage = (self.nodes[node] for node in sorted(self.nodes) if self.nodes[node].shard_ids())
        return tuple(
            node
            for node in storage
            if node.shard_state is not ShardState.DISABLED and node.location.region not in self.disabled_regions
        )

    @cached_property
    def disabled_regions(self) -> frozenset[str]:
        """The regions whose shards take no new records and are in no new nodeset."""
        raw = self.settings.get("placement", {}).get("disabled_regions", "")
        return frozenset(filter(None, map(str.strip, str(raw).split(","))))

    @cached_property
    def _sequencers_by_area(self) -> dict[Location, tuple[NodeId, ...]]:
        return {}

    @cached_property
    def _storage_shards(self) -> tuple[ShardId, ...]:
        return tuple(sorted(shard for node in self.nodes.values() for shard in node.shard_ids()))

    @cached_property
    def _writable_shards(self) -> tuple[ShardId, ...]:
        writable = filter(self.takes_records, self.nodes.values())
        return tuple(sorted({shard for node in writable for shard in node.shard_ids()} - self.excluded))

    @cached_property
    def _writable_set(self) -> frozenset[ShardId]:
        return frozenset(self._writable_shards)

    @cached_property
    def _sequencer_nodes(self) -> tuple[NodeId, ...]:
        return tuple(sorted(node.node for node in self.nodes.values() if Roles.SEQUENCER in node.roles))


@lru_cache(maxsize=64)
def event_log_attributes(replication: ReplicationProperty) -> LogAttributes:
    """Of the logs of the event log: as many copies as metadata logs have, an LSN for each event, on all shards."""
    return LogAttributes(
        path="/internal/event_log", replication=replication, sequencer_batching=False, single_copy_delivery=False
    )


@lru_cache(maxsize=64)
def log_tree_attributes(replication: ReplicationProperty) -> LogAttributes:
    """Of the logs of the log tree: as many copies as metadata logs have, on all shards."""
    return LogAttributes(path="/internal/log_tree", replication=replication, single_copy_delivery=False)


@lru_cache(maxsize=64)
def maintenance_attributes(replication: ReplicationProperty) -> LogAttributes:
    """Of the logs of the maintenances: as many copies as metadata logs have, on all shards."""
    return LogAttributes(path="/internal/maintenance", replication=replication, single_copy_delivery=False)


def default_metadata_nodeset(nodes: Mapping[NodeId, NodeConfig]) -> tuple[ShardId, ...]:
    """The metadata nodeset of a file that names none: the first shard of every storage node."""
    return tuple(sorted(shard_id(node.node) for node in nodes.values() if Roles.STORAGE in node.roles))
