"""Tables of the cluster as a whole and of its nodes."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _FLAG, _REAL = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.FLAG, ColumnKind.REAL
_LOG, _LSN, _TIME = ColumnKind.LOG, ColumnKind.LSN, ColumnKind.TIME


@table("nodes", TableSource.CONFIGURATION)
@dataclass(slots=True)
class NodesRow:
    """A node of the cluster file, whether it runs or not."""

    node_id: int = column(_INTEGER, "The node's index.")
    address: str = column(_TEXT, "Where it serves the protocol, host:port.")
    admin_address: str | None = column(_TEXT, "Where it serves these tables; NULL when it does not.")
    location: str = column(_TEXT, "region.datacenter.cluster.row.rack.")
    sequencer: int = column(_FLAG, "It has the role sequencer.")
    storage: int = column(_FLAG, "It has the role storage.")
    sequencer_weight: float = column(_REAL, "Its share of the logs that are sequenced, relative to the others.")
    storage_state: str = column(_TEXT, "read-write, read-only or disabled.")
    storage_capacity: float = column(_REAL, "Its shards' share of the records, relative to the others.")
    num_shards: int = column(_INTEGER, "How many shards it has.")
    is_metadata_node: int = column(_FLAG, "It stores metadata logs.")


@table("log_groups", TableSource.CONFIGURATION)
@dataclass(slots=True)
class LogGroupsRow:
    """A group of logs of the cluster file, with the attributes that hold for it."""

    name: str = column(_TEXT, "Path of the group.")
    logid_lo: int = column(_LOG, "The first log.")
    logid_hi: int = column(_LOG, "The last log.")
    replication: str = column(_TEXT, "Replication property.")
    durability: str = column(_TEXT, "sync or async.")
    nodeset_size: int = column(_INTEGER, "Shards in a nodeset; 0 for all.")
    max_writes_in_flight: int = column(_INTEGER, "Entries in a sequencer's window at most.")
    window_bytes: int = column(_INTEGER, "Bytes in a sequencer's window at most.")
    sequencer_batching: int = column(_FLAG, "The sequencer joins frames to entries.")
    single_copy_delivery: int = column(_FLAG, "Readers get each entry from one shard.")
    backlog_us: int = column(_INTEGER, "How long records are kept, in microseconds; 0 for ever.")


class LogCopies(enum.Enum):
    """What is known of the copies of a log; the value says what it means."""

    OK = "No copies are missing that a lost shard held."
    SHORT = "Lost shards held copies that were not re-replicated; table `under_replicated_logs` says which."
    GONE = "Lost shards suffice for a copyset: there may be records without any copy left."
    UNKNOWN = "None are known to be missing, but not every node that stores has said so."


@table("logs", TableSource.SUMMARY)
@dataclass(slots=True, kw_only=True)
class LogsRow:
    """A log, with what its sequencer, its shards and the epoch store say of it."""

    log_id: int = column(_LOG, "The log.")
    path: str = column(_TEXT, "How people name it, like /team/audit or /team/clicks/3.")
    sequencer_node_id: int | None = column(_INTEGER, "The node that sequences it; NULL: none says that it does.")
    epoch: int | None = column(_INTEGER, "Its latest epoch; NULL: it never had one, or that is not known.")
    head: int | None = column(_LSN, "Nothing that can be read lies below; NULL: no shard says that it holds any of it.")
    tail: int | None = column(_LSN, "The last LSN that can be read; NULL: none that is known.")
    stored_bytes: int = column(
        _INTEGER,
        "About how many bytes shards hold of it, all of its copies together, with what is trimmed in partitions that are still there.",
    )
    newest_time: int | None = column(_TIME, "The time of its last record, trimmed or not; NULL: none that is known.")
    entries_1min: float | None = column(
        _REAL, "Entries appended per second, over the last minute; NULL: nobody sequences it."
    )
    bytes_1min: float | None = column(_REAL, "Bytes of payloads appended per second, over the last minute.")
    copies: str = column(_TEXT, "Whether copies of it are missing.", words=LogCopies)


@table("info", TableSource.EVERY_NODE)
@dataclass(slots=True)
class InfoRow:
    """The process of a node."""

    cluster: str = column(_TEXT, "Name of the cluster.")
    pid: int = column(_INTEGER, "Process id.")
    version: str = column(_TEXT, "Version of the program.")
    python: str = column(_TEXT, "Version of the interpreter.")
    instance: str = column(_TEXT, "Names this run of the node; a later run has a greater one.")
    start_time: int = column(_TIME, "When the process began to serve.")
    uptime_seconds: float = column(_REAL, "For how long it has served.")
    config_version: int = column(
        _INTEGER, "Version of the configuration that it uses: of the cluster file, or the stored one."
    )
    protocol_min: int = column(_INTEGER, "The oldest protocol that it speaks.")
    protocol_max: int = column(_INTEGER, "The newest protocol that it speaks.")
    roles: str = column(_TEXT, "sequencer, storage, or both.")
    certificate_expires: int | None = column(
        _TIME, "When its certificate does; NULL: it has none, or the package cryptography is missing there."
    )
    readiness: str = column(_TEXT, "OK, or the status that says why it should get no requests.")
    copies_reviewed: int = column(
        _FLAG, "Table `under_replicated_logs` of the node says all that follows from what it has heard of the shards."
    )
    departures_handled: int = column(
        _FLAG,
        "Since the last change of nodes the node looked at every log located at it, and the open epochs of none list a shard that departed: a "
        "further node may be removed as soon as all nodes say so.",
    )
    logs_leaving_departed_shards: int = column(
        _INTEGER, "How many logs located at the node are on their way to an epoch without shards that departed."
    )
    configuration_trouble: str = column(
        _TEXT, "Column `trouble` of table `configuration`: what somebody should see to; empty: nothing."
    )
    duties: str = column(
        _TEXT,
        "What the node sees to for the whole cluster, and why that fails: maintenances, janitors; empty: nothing.",
    )
    keeps_event_log: int | None = column(
        _FLAG,
        "It takes part in rebuilding; NULL: the node is of an earlier version, which does so only where the cluster file asks for it.",
    )
    rebuilding_awaits: str = column(
        _TEXT,
        "What shards that are gone wait for, to be taken for lost and rebuilt, as the node sees it that decides; empty: none is gone, or another node "
        "decides.",
    )
    open_files: int | None = column(
        _INTEGER, "Files and sockets that the process has open; NULL: the system does not tell."
    )
    open_files_max: int | None = column(
        _INTEGER,
        "So many it may have; the next one fails. NULL: there is no limit, or the node is of an earlier version.",
    )


@table("configuration", TableSource.EVERY_NODE)
@dataclass(slots=True, kw_only=True)
class ConfigurationRow:
    """Which configuration a node uses, and what it knows of the stored one."""

    version: int = column(_INTEGER, "Of the configuration that it uses.")
    source: str = column(_TEXT, "Where that is from: cluster file, or epoch store.")
    newest_known: int = column(_INTEGER, "The greatest version that any node said to have.")
    stored_version: int | None = column(
        _INTEGER, "What the epoch store held when the node last read it; NULL: nothing, or the node has not read it."
    )
    read_time: int | None = column(
        _TIME, "When the epoch store last told the node; it asks every few seconds. NULL: never."
    )
    trouble: str = column(_TEXT, "What somebody should see to; empty: nothing.")


@table("configuration_history", TableSource.ANY_NODE)
@dataclass(slots=True)
class ConfigurationHistoryRow:
    """A version of the configuration that is kept."""

    version: int = column(_INTEGER, "Its version.")
    changed_time: int | None = column(_TIME, "When it was stored; NULL: it is a cluster file's.")
    who: str = column(_TEXT, "Who changed it, as they said.")
    why: str = column(_TEXT, "What for, as they said.")
    in_force: int = column(_FLAG, "The node that tells it uses it.")
    text: str = column(_TEXT, "All of it, as of a cluster file.")


@table("settings", TableSource.EVERY_NODE)
@dataclass(slots=True)
class SettingsRow:
    """A setting as a node uses it."""

    section: str = column(_TEXT, "Section of the cluster file, like settings.sequencer.")
    name: str = column(_TEXT, "Its name.")
    current_value: str = column(_TEXT, "What the node uses, as it is written in the cluster file.")
    default_value: str = column(_TEXT, "What it would use by default.")
    from_config: int = column(_FLAG, "The cluster file set it when the node was started.")
    from_operator: int = column(_FLAG, "An operator set it since, until the node is started again.")
    is_live: int = column(_FLAG, "It can be changed while the node runs.")
    doc: str = column(_TEXT, "What it does.")


@table("cluster_state", TableSource.EVERY_NODE)
@dataclass(slots=True)
class ClusterStateRow:
    """What one node's failure detector thinks of another one (and of itself)."""

    observed_node_id: int = column(_INTEGER, "The node that is spoken of.")
    state: str = column(_TEXT, "DEAD, STARTING, ALIVE or LEAVING.")
    instance: str = column(_TEXT, "The run of it that was heard of last; empty for none.")
    generations: str = column(_TEXT, "Generations of its shards, in order, as far as they are known.")


@table("sockets", TableSource.EVERY_NODE)
@dataclass(slots=True)
class SocketsRow:
    """A connection of a node."""

    peer: str = column(_TEXT, "N3 for a node, C17 for a client; empty before it has introduced itself.")
    address: str = column(_TEXT, "The other end, host:port.")
    direction: str = column(_TEXT, "out: this node dialled it; in: it was accepted.")
    state: str = column(_TEXT, "up, or connecting.")
    pending_bytes: int = column(_INTEGER, "What waits to be sent.")
    is_paused: int = column(_FLAG, "Requests of the peer are not read until it has read answers to earlier ones.")


@table("append_trace", TableSource.EVERY_NODE)
@dataclass(slots=True)
class AppendTraceRow:
    """Something that happened to an append at a node, as far as it is traced. It is while setting `trace_instants` of [settings.runtime] asks for it;
    ``ldbench trace`` puts the rows of all nodes together."""

    at_ns: int = column(
        _INTEGER, "When, in nanoseconds of the node's monotonic clock, which processes of one machine share."
    )
    event: str = column(
        _TEXT,
        "APPEND, STORE, STORED, APPENDED, RELEASE or RECORDS, with _SENT or _RECEIVED; of a copy WRITTEN, SYNCED (names no log) and DURABLE.",
    )
    log_id: int | None = column(_LOG, "The log.")
    lsn: int | None = column(_LSN, "The entry; of a release all up to it; NULL: not known yet.")
    peer: str | None = column(_TEXT, "The other end: N3 for a node, C17 for a client.")
    copy: str | None = column(_TEXT, "Of whose copy, like N3:S0.")
    wave: int | None = column(_INTEGER, "Of STORE.")
    request_id: int | None = column(_INTEGER, "Of APPEND, chosen by the client.")
    batch_offset: int | None = column(_INTEGER, "Of APPENDED: the place of the append's first record in the entry.")
    took_ns: int | None = column(_INTEGER, "WRITTEN, SYNCED: how long it took.")


@table("stats", TableSource.EVERY_NODE)
@dataclass(slots=True)
class StatsRow:
    """A counter or gauge of a node."""

    section: str = column(_TEXT, "What counts it, like sequencer or storage.")
    shard: int | None = column(_INTEGER, "Index of the shard that counts it; NULL when the node as a whole does.")
    name: str = column(_TEXT, "Its name.")
    kind: str = column(_TEXT, "counter, gauge or histogram.")
    unit: str = column(_TEXT, "What is counted; us for microseconds.")
    value: int = column(_INTEGER, "Its value; of a histogram how many samples it counted.")


@table("epoch_store", TableSource.ANY_NODE)
@dataclass(slots=True)
class EpochStoreRow:
    """What the epoch store holds of a log."""

    log_id: int = column(_LOG, "The data log.")
    status: str = column(_TEXT, "OK; EMPTY: the log was never sequenced; otherwise why it could not be read.")
    epoch: int | None = column(_INTEGER, "The next epoch: what the next activation gets.")
    since: int | None = column(_INTEGER, "The first epoch of the current nodeset.")
    replication: str | None = column(_TEXT, "Replication property of the current nodeset.")
    storage_set_size: int | None = column(_INTEGER, "Shards in the current nodeset.")
    storage_set: str | None = column(_TEXT, "The current nodeset.")
    metadata_log_written: int | None = column(_FLAG, "The current nodeset stands in the metadata log.")
    disabled: int | None = column(_FLAG, "No sequencer may be activated.")
    written_by: int | None = column(_INTEGER, "The node that took the latest epoch.")
    epoch_given_at: int | None = column(_TIME, "When the latest epoch was taken.")
    lce: int | None = column(_INTEGER, "Last clean epoch: it and all earlier ones are recovered.")
    tail_lsn: int | None = column(_LSN, "The last record of those epochs.")
    tail_time: int | None = column(_TIME, "Its timestamp.")
    version: int | None = column(_INTEGER, "How often the metadata were changed.")


@table("historical_metadata", TableSource.ANY_NODE)
@dataclass(slots=True)
class HistoricalMetadataRow:
    """A nodeset that a log has, or had."""

    log_id: int = column(_LOG, "The data log.")
    status: str = column(_TEXT, "OK; EMPTY: the log was never sequenced; otherwise why it could not be read.")
    since: int | None = column(_INTEGER, "The first epoch of the nodeset.")
    epoch: int | None = column(_INTEGER, "The last epoch of it; of the current one the latest that was given.")
    replication: str | None = column(_TEXT, "Replication property.")
    storage_set_size: int | None = column(_INTEGER, "Shards in the nodeset.")
    storage_set: str | None = column(_TEXT, "The nodeset; N2:S0=3 is generation 3 of that shard.")
    failure_domains: str | None = column(
        _TEXT,
        "Which shards count as one rack, row and so on in these epochs, whatever the cluster file says by now: rack=N0:S0 N1:S0|N2:S0. "
        "Empty: only nodes matter. NULL: not kept; the cluster file holds.",
    )
    extra_copies: int | None = column(_INTEGER, "Copies that are sent beside those of `replication`.")
