"""Tables of nodes that store."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _FLAG = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.FLAG
_LOG, _LSN, _TIME = ColumnKind.LOG, ColumnKind.LSN, ColumnKind.TIME
_STORAGE = TableSource.STORAGE_NODES


class QuarantineReason(enum.Enum):
    """Why a store is quarantined; the value says when. Their names, in lower case, are in names of directories: never changed."""

    REPLACED = "It is of an earlier generation of the shard, or a stale state of the shard's disk."
    FOREIGN = "It is another shard's or another cluster's, or it does not say whose it is."
    DAMAGED = "It could not be opened, and an operator declared its data lost by name."


class CopiesState(enum.Enum):
    """What is known of the copies that lost shards held of some epochs of a log; the value says what it means."""

    SHORT = "Entries are readable that have fewer copies than the log asks for."
    GONE = "Lost shards suffice for a copyset: there may be records without any copy left."


@table("shards", _STORAGE)
@dataclass(slots=True)
class ShardsRow:
    """A shard of a node that runs."""

    shard: int = column(_INTEGER, "Index within the node.")
    generation: int = column(
        _INTEGER, "Which generation of the shard it is, from 1: one more each time that it starts without its data."
    )
    status: str = column(_TEXT, "OK; FAILED: its disk failed; SHUTDOWN: the node stops.")
    accepting_writes: int = column(_FLAG, "The cluster file lets it take records, and it answers.")
    no_space: int = column(_FLAG, "Records are refused for lack of space.")
    disk_bytes: int = column(_INTEGER, "Size of the file system that its store is on.")
    available_bytes: int = column(_INTEGER, "What is free there, as measured last.")
    previous_stop: str = column(_TEXT, "How its last run ended.")
    verified_since: int | None = column(
        _TIME, "All that was released before has been read again and compared with other shards since; NULL: not yet."
    )
    uncompared_ranges: int = column(_INTEGER, "Ranges of that for which not every shard concerned answered.")
    scrubbing_log: int | None = column(_LOG, "The log that is read again at present; those of lower ids are done.")
    damaged_ranges: int = column(_INTEGER, "Ranges known to be damaged or missing and not repaired yet.")
    dirty_logs: int = column(
        _INTEGER, "Logs that may lack records because the machine went down; they are fetched from other shards."
    )
    metadata_awaited: str | None = column(
        _TEXT,
        "It started a new generation and is getting back what it held of metadata logs: the shards that have not told everything; none: a newer cluster file is on "
        "its way; NULL: it has all of it, or keeps none.",
    )
    logs: int = column(_INTEGER, "Logs that it has met, metadata logs included.")
    read_streams: int = column(_INTEGER, "Read streams open.")
    partitions: int = column(_INTEGER, "Partitions of its store, by time.")
    stored_bytes: int = column(_INTEGER, "About how much entries take on disk and in memtables.")
    spare_bytes: int = column(
        _INTEGER,
        "How many bytes the file system takes before copies that rebuilding brings are refused, as measured last. Shards on one file system tell the same.",
    )
    recent_bytes: int = column(_INTEGER, "Bytes of recent entries that are held in memory.")


@table("quarantined_stores", _STORAGE)
@dataclass(slots=True)
class QuarantinedStoresRow:
    """A store that was found in place of a shard's own, and was renamed.

    It does not count, and takes space until an operator deletes its directory: no node ever does.
    """

    shard: int = column(_INTEGER, "Index of the shard within its node; it need not be in service.")
    directory: str = column(_TEXT, "Where the store lies now.")
    reason: str = column(_TEXT, "Why it does not count.", words=QuarantineReason)
    stored_bytes: int | None = column(_INTEGER, "What its files take on disk; NULL: they cannot be looked at.")


@table("partitions", _STORAGE)
@dataclass(slots=True)
class PartitionsRow:
    """A partition of a shard's store: entries that came in the same span of time."""

    shard: int = column(_INTEGER, "Index of the shard within its node.")
    id: int = column(_INTEGER, "Its number; later ones have greater numbers.")
    start_time: int = column(_TIME, "When it was begun.")
    end_time: int | None = column(_TIME, "When the next one was begun; NULL: it takes what comes.")
    min_time: int | None = column(_TIME, "No record's timestamp is below; NULL: it holds none.")
    max_time: int | None = column(_TIME, "No record's timestamp is above.")
    logs: int = column(_INTEGER, "Logs that it holds something of.")
    stored_bytes: int = column(_INTEGER, "About how much it takes on disk and in memtables.")


@table("extents", _STORAGE)
@dataclass(slots=True)
class ExtentsRow:
    """An extent of a shard whose store is in extents."""

    shard: int = column(_INTEGER, "Index of the shard within its node.")
    id: int = column(_INTEGER, "Its number; later ones have greater numbers.")
    state: str = column(
        _TEXT,
        "head (takes the next block), closed (its rows are in memory), indexed (its rows are in a table of their own) or moved (a file of copies that were "
        "taken out of extents of which much was trimmed).",
    )
    first_block: int = column(_INTEGER, "Number of its first block.")
    last_block: int = column(_INTEGER, "Number of its last block.")
    size_bytes: int = column(_INTEGER, "Bytes of its file.")
    used_bytes: int = column(_INTEGER, "Bytes up to the end of its last block.")
    copies: int = column(_INTEGER, "Copies of entries that its blocks wrote, also those that do not count any more.")
    partitions: str = column(
        _TEXT,
        "Numbers of the partitions that refer to it, comma-separated; 0 as long as the table of what lives long lacks something of it. Without any it goes.",
    )


@table("logsdb_directory", _STORAGE)
@dataclass(slots=True)
class LogsdbDirectoryRow:
    """What one partition of a shard holds of a log."""

    shard: int = column(_INTEGER, "Index of the shard within its node.")
    log_id: int = column(_LOG, "The log; a metadata log has bit 62 set.")
    partition: int = column(_INTEGER, "Number of the partition; 0 for what is not partitioned.")
    first_lsn: int = column(_LSN, "Nothing of the log in the partition lies below.")
    max_lsn: int = column(_LSN, "Nothing of the log in the partition lies above.")
    approximate_size_bytes: int = column(
        _INTEGER,
        "About how many bytes it holds of the log: of each LSN one copy, with what is trimmed but not dropped yet.",
    )


@table("stored_logs", _STORAGE)
@dataclass(slots=True)
class StoredLogsRow:
    """A log of which a shard has stored something."""

    shard: int = column(_INTEGER, "Index of the shard within its node.")
    log_id: int = column(_LOG, "The log; a metadata log has bit 62 set.")
    highest_lsn: int = column(_LSN, "No entry was ever accepted above it.")


@table("recovered_epochs", _STORAGE)
@dataclass(slots=True)
class RecoveredEpochsRow:
    """How the recovery of an epoch ended, and what the epoch holds."""

    log_id: int = column(_LOG, "The data log.")
    shard: int = column(_INTEGER, "Index of the shard within its node.")
    epoch: int = column(_INTEGER, "The epoch.")
    seal_epoch: int = column(_INTEGER, "Epoch of the recovery.")
    is_authoritative: int = column(_FLAG, "Enough shards were there to know everything.")
    is_counted: int = column(_FLAG, "What it holds is known: its log rolls, or is guarded.")
    last_lsn: int | None = column(_LSN, "Its last entry; NULL: it holds nothing.")
    entries: int | None = column(_INTEGER, "LSNs with records.")
    records: int | None = column(_INTEGER, "Records.")
    bytes: int | None = column(_INTEGER, "Bytes of bodies as they are stored, one copy each.")
    first_time: int | None = column(_TIME, "Timestamp of its first record.")
    last_time: int | None = column(_TIME, "Timestamp of its last record.")
    completed_time: int | None = column(_TIME, "When its recovery decided what it holds.")
    first_txid: int | None = column(_INTEGER, "The first transaction id.")
    last_txid: int | None = column(_INTEGER, "The last transaction id.")
    lost: int = column(_INTEGER, "LSNs of which nothing was readable.")


@table("log_storage_state", _STORAGE)
@dataclass(slots=True)
class LogStorageStateRow:
    """What a shard knows of a log."""

    log_id: int = column(_LOG, "The log; a metadata log has bit 62 set.")
    shard: int = column(_INTEGER, "Index of the shard within its node.")
    last_released: int = column(_LSN, "Everything up to here may be read from the shard.")
    held_release: int | None = column(_LSN, "Released too, but held back until earlier epochs are purged.")
    trim_point: int = column(_LSN, "Everything up to here is trimmed.")
    highest_lsn: int = column(_LSN, "No entry was ever accepted above it.")
    seal: int = column(_INTEGER, "Stores of sequencers of this epoch and earlier ones are refused.")
    sealed_by: int | None = column(_INTEGER, "The node whose recovery set the seal.")
    soft_seal: int | None = column(_INTEGER, "The epoch that the first store of a later one sealed.")
    soft_sealed_by: int | None = column(_INTEGER, "The node whose store it was.")
    lce: int = column(_INTEGER, "Last clean epoch: how it and all earlier ones ended is known here.")
    unclean_epochs: int = column(_INTEGER, "Epochs with something stored of which it does not know how they ended.")
    first_lossy_epoch: int | None = column(_INTEGER, "The first epoch that may lack entries after a crash.")
    last_lossy_epoch: int | None = column(_INTEGER, "The last such epoch.")
    dirty_ranges: str | None = column(_TEXT, "The LSNs at which it may lack entries after a crash; NULL: nowhere.")
    repair: str | None = column(
        _TEXT,
        "What is done to repair what is dirty, unreadable or missing of the log, or waited for; NULL: nothing is.",
    )
    read_streams: int = column(_INTEGER, "Read streams of the log.")


@table("purges", _STORAGE)
@dataclass(slots=True)
class PurgesRow:
    """A purge, at work or queued. By it a shard learns how epochs ended whose recovery it missed."""

    log_id: int = column(_LOG, "The log.")
    shard: int = column(_INTEGER, "Index of the shard within its node.")
    state: str = column(_TEXT, "WAITING, READING_HISTORY, ASKING, WRITING or DONE.")
    current_last_clean_epoch: int = column(_INTEGER, "How far the shard is clean.")
    purge_to: int = column(_INTEGER, "How far it will be.")
    unknown_epochs: int = column(_INTEGER, "Epochs of which no shard has said yet how they ended.")
    waits_for: str = column(_TEXT, "The shards that have not answered.")


@table("readers", _STORAGE)
@dataclass(slots=True)
class ReadersRow:
    """A read stream that a shard serves."""

    shard: int = column(_INTEGER, "Index of the shard within its node.")
    client: str = column(_TEXT, "Whose it is: C17 is a client's connection.")
    log_id: int = column(_LOG, "The log.")
    stream: int = column(_INTEGER, "Its number at the client, but for the highest bit.")
    state: str = column(_TEXT, "WAITING, QUEUED, THROTTLED (it is over a quota), READING or CLOSED.")
    read_pointer: int = column(_LSN, "The first LSN of which the reader was not told.")
    until_lsn: int = column(_LSN, "Where it ends.")
    window_high: int = column(_LSN, "The last LSN that the reader takes.")
    last_released: int = column(_LSN, "What may be read from the shard.")
    bytes_sent: int = column(
        _INTEGER, "Bytes of entries that were sent to the reader since the stream was last begun anew."
    )
    bytes_left: int = column(_INTEGER, "Bytes that the reader still takes before it moves its window.")
    filter_version: int = column(_INTEGER, "How often it was begun anew.")
    single_copy: int = column(_FLAG, "The reader gets each entry from one shard.")
    known_down: str = column(_TEXT, "Shards whose entries the others deliver.")
    reading_order: str = column(
        _TEXT, "Shards that the reader wants to send, first to last: N1:S0, N2:S0 | N3:S0; empty: as in the copysets."
    )
    hedge: int = column(_FLAG, "It asks for what another shard had not sent in time.")


@table("record", _STORAGE, required=("log_id", "lsn"))
@dataclass(slots=True)
class RecordRow:
    """A copy of an entry at a shard. Give log_id, and lsn as a value or as a range with both ends."""

    log_id: int = column(_LOG, "The log; a metadata log has bit 62 set.")
    lsn: int = column(_LSN, "Its position.")
    shard: int = column(_INTEGER, "Index of the shard within its node.")
    is_current: int = column(
        _FLAG, "It is the copy that counts; 0: the shard also has one of a later wave, or of recovery, at the LSN."
    )
    status: str = column(
        _TEXT, "OK; CORRUPT: it cannot be read (lsn: where the damage begins); NO_BODY: only its header is there."
    )
    wave: int | None = column(_INTEGER, "The wave that stored it; NULL when recovery did.")
    recovery_epoch: int | None = column(_INTEGER, "Seal epoch of the recovery that stored it.")
    timestamp: int | None = column(_TIME, "When the sequencer gave the LSN.")
    last_known_good: int | None = column(_INTEGER, "Everything of the epoch up to this ESN was replicated then.")
    copyset: str | None = column(_TEXT, "The shards that were to store it.")
    flags: str | None = column(_TEXT, "HOLE, BRIDGE, WRITTEN_BY_RECOVERY, AMEND, WRITE_STREAM, EPOCH_BEGIN, METADATA.")
    records: int | None = column(_INTEGER, "Records in it.")
    body_bytes: int | None = column(_INTEGER, "Bytes of its body.")
    payload: str | None = column(
        _TEXT, "Its records, decoded, as a JSON array; what is no text is escaped, long ones are cut."
    )


@table("record_csi", _STORAGE, required=("log_id", "lsn"))
@dataclass(slots=True)
class RecordCsiRow:
    """What an index of copysets would hold of a copy of an entry.

    It tells who has copies of it, and of which wave. There is no such index: the shard takes this from the headers of the entries,
    and reads no body of those in blob files. Give log_id, and lsn as a value or as a range with both ends.
    """

    log_id: int = column(_LOG, "The log; a metadata log has bit 62 set.")
    lsn: int = column(_LSN, "Its position.")
    shard: int = column(_INTEGER, "Index of the shard within its node.")
    is_current: int = column(
        _FLAG, "It is the copy that counts; 0: the shard also has one of a later wave, or of recovery."
    )
    wave: int | None = column(_INTEGER, "The wave that stored it; NULL when recovery did, or when it cannot be read.")
    recovery_epoch: int | None = column(_INTEGER, "Seal epoch of the recovery that stored it.")
    copyset: str | None = column(_TEXT, "The shards that were to store it; NULL when it cannot be read.")
    flags: str | None = column(_TEXT, "HOLE, BRIDGE, WRITTEN_BY_RECOVERY, AMEND, WRITE_STREAM, EPOCH_BEGIN, METADATA.")


@table("copyset_distribution", _STORAGE, required=("log_id", "lsn"))
@dataclass(slots=True)
class CopysetDistributionRow:
    """How many entries of a log a shard holds of one copyset. Give log_id, and lsn as a range with both ends."""

    log_id: int = column(_LOG, "The log; a metadata log has bit 62 set.")
    lsn: int = column(_LSN, "The first of the entries.")
    shard: int = column(_INTEGER, "Index of the shard within its node.")
    copyset: str = column(_TEXT, "The shards that were to store the entries.")
    last_lsn: int = column(_LSN, "The last of the entries.")
    entries: int = column(_INTEGER, "How many.")
    records: int = column(_INTEGER, "Records in them.")
    body_bytes: int = column(_INTEGER, "Bytes of their bodies.")


@table("under_replicated_logs", _STORAGE)
@dataclass(slots=True)
class UnderReplicatedLogsRow:
    """Epochs of a log that are short of copies.

    Shards of their nodeset began as new generations or left the cluster file, and what they held was not re-replicated. Nodes find
    this out in the background; column `copies_reviewed` of table `info` says whether they have.
    """

    shard: int = column(_INTEGER, "Index of the shard that tells this within its node.")
    log_id: int = column(_LOG, "The data log.")
    state: str = column(_TEXT, "How bad it is.", words=CopiesState)
    since_epoch: int = column(_INTEGER, "The first of the epochs.")
    until_epoch: int = column(_INTEGER, "The last of the epochs.")
    first_lsn: int | None = column(_LSN, "SHORT: the first entry here that is short of a copy.")
    lost_shards: str = column(
        _TEXT, "The shards that have lost what they held, each with the generation of these epochs."
    )


@table("log_placement", TableSource.COMPARISON, required=("log_id", "lsn"))
@dataclass(slots=True)
class LogPlacementRow:
    """How far apart the copies of a log are, at one scope, and what may fail.

    Give log_id, and lsn as a range with both ends: the copysets of these entries are looked at. One row for each nodeset that they were stored by and each scope, but for
    those whose domains are those of a larger scope, or single nodes. Domains are those of today's cluster file, recovery goes by the labels of the epochs. What may fail comes on top of the nodes that do not
    answer; -1: it is impossible now. In large clusters these are lower bounds.
    """

    log_id: int = column(_LOG, "The data log.")
    lsn: int = column(_LSN, "From where on entries of the nodeset were looked at.")
    since_epoch: int = column(_INTEGER, "The first epoch of the nodeset.")
    until_epoch: int = column(_INTEGER, "The last epoch of it.")
    scope: str = column(_TEXT, "node, rack, row, cluster, datacenter or region.")
    asked: int = column(_INTEGER, "In how many domains copies must be by `replicate` as it is configured now.")
    domains: int = column(_INTEGER, "Domains that the nodeset lies in.")
    entries: int = column(_INTEGER, "Entries that were looked at.")
    copysets: int = column(_INTEGER, "Different copysets of them.")
    spanned_min: int | None = column(_INTEGER, "Domains that the narrowest copyset lies in; NULL: no entries.")
    spanned_max: int | None = column(_INTEGER, "Domains that the widest one lies in.")
    entries_short: int = column(_INTEGER, "Entries whose copyset lies in fewer domains than `asked`.")
    entries_partial: int = column(
        _INTEGER,
        "Copies' headers that not all members of their copyset have: aborted waves, or entries short of copies (table under_replicated tells which).",
    )
    data_survives: int | None = column(_INTEGER, "How many domains may be lost so that each entry keeps a copy.")
    data_fatal: str = column(_TEXT, "A smallest loss that takes all copies of an entry.")
    appends_survive: int | None = column(
        _INTEGER, "How many may be lost so that records can be stored in the epoch; NULL for nodesets of the past."
    )
    appends_fatal: str = column(_TEXT, "A smallest loss that stops appends.")
    recovery_survives: int = column(
        _INTEGER, "How many may be silent so that the epochs can be recovered, and gaps be told from losses."
    )
    recovery_fatal: str = column(_TEXT, "A smallest loss that stops recovery.")


@table("under_replicated", TableSource.COMPARISON, required=("log_id", "lsn"))
@dataclass(slots=True)
class UnderReplicatedRow:
    """An entry of which the nodes that answered have too few sound copies.

    Give log_id, and lsn as a range with both ends. Entries without any copy are not seen, and what is trimmed is left out; beyond
    the release pointer entries may only be on their way.
    """

    log_id: int = column(_LOG, "The data log.")
    lsn: int = column(_LSN, "Its position.")
    replication: str = column(_TEXT, "What the epoch asks for.")
    copyset: str = column(_TEXT, "The shards that were to store it.")
    copies: int = column(_INTEGER, "Sound copies that there are.")
    stored_on: str = column(_TEXT, "The shards that have them.")
    missing_on: str = column(_TEXT, "Shards of the copyset that answered and have none.")
    damaged_on: str = column(_TEXT, "Shards that have one which cannot be read.")
    unknown_on: str = column(_TEXT, "Shards of the copyset whose nodes did not answer.")
