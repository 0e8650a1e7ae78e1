"""Tables of nodes that sequence."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _FLAG, _REAL = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.FLAG, ColumnKind.REAL
_LOG, _LSN, _TIME = ColumnKind.LOG, ColumnKind.LSN, ColumnKind.TIME


@table("sequencers", TableSource.SEQUENCER_NODES)
@dataclass(slots=True)
class SequencersRow:
    """The sequencer of a log at a node that was ever asked for the log. At most one of them can be the log's true one: see is_current."""

    log_id: int = column(_LOG, "The data log.")
    state: str = column(_TEXT, "UNAVAILABLE, ACTIVE, PREEMPTED or REFUSED.")
    epoch: int | None = column(_INTEGER, "The current epoch; NULL when there is none.")
    is_activating: int = column(_FLAG, "An epoch is being got from the epoch store.")
    next_lsn: int | None = column(_LSN, "What the next entry gets.")
    last_released: int = column(_LSN, "Everything up to here may be read.")
    last_known_good: int | None = column(_LSN, "Everything of the epoch up to here is fully replicated.")
    tail_lsn: int = column(_LSN, "The last entry that is released; 0 if there is none or it is not known.")
    tail_time: int | None = column(_TIME, "Its timestamp.")
    in_flight: int = column(_INTEGER, "Entries in the window.")
    max_in_flight: int = column(_INTEGER, "Entries that the window takes.")
    window_bytes: int = column(_INTEGER, "Bytes in the window.")
    max_window_bytes: int = column(_INTEGER, "Bytes that the window takes.")
    waiting_for_epoch: int = column(_INTEGER, "Frames that wait for an epoch.")
    waiting_for_recovery: int = column(_INTEGER, "Frames that wait until earlier epochs are recovered.")
    is_recovered: int = column(_FLAG, "All earlier epochs are recovered.")
    metadata_log_written: int | None = column(_FLAG, "The nodeset of the epoch stands in the metadata log.")
    roll_state: str | None = column(
        _TEXT,
        "EMPTY, FILLING, DUE, QUEUED or ROLLING: how far the epoch is from its end by age or size; NULL: it has none.",
    )
    draining_epoch: int | None = column(_INTEGER, "The epoch before, while entries of it are still stored.")
    draining_in_flight: int = column(_INTEGER, "Entries of it that are on their way.")
    preempted_by: int | None = column(_INTEGER, "The node that took the log over.")
    replication: str | None = column(_TEXT, "Replication property of the epoch.")
    storage_set: str | None = column(_TEXT, "Nodeset of the epoch.")
    is_guarded: int | None = column(_FLAG, "Entries of the epoch carry a tail state: somebody guarded an append once.")
    last_record: int | None = column(
        _LSN, "Of a guarded log: the entry that an append may expect; NULL: not known yet."
    )
    transaction_id: int | None = column(_INTEGER, "Of a guarded log: the greatest one; 0: none.")
    fence: int | None = column(_INTEGER, "Of a guarded log: the token that appends need at least; 0: none.")
    is_ended: int | None = column(_FLAG, "Of a guarded log: nothing follows, for ever.")
    is_tail_lost: int | None = column(_FLAG, "Of a guarded log: its last entries were lost; ldctl fence --accept-loss.")
    is_current: int | None = column(
        _FLAG,
        "It is ACTIVE, and no node that answered knows a later epoch of the log: this is the log's sequencer. Only ldquery knows, which asks all nodes for it; a node says NULL.",
    )


@table("recoveries", TableSource.SEQUENCER_NODES)
@dataclass(slots=True)
class RecoveriesRow:
    """A recovery of a log that is at work or queued."""

    log_id: int = column(_LOG, "The data log.")
    state: str = column(_TEXT, "IDLE (queued), READING_LAST_CLEAN_EPOCH, NO_SHARDS, RECOVERING, DONE; how far it is.")
    next_epoch: int = column(_INTEGER, "The sequencer's epoch: all before it are recovered.")
    epoch: int | None = column(_INTEGER, "The epoch that is being recovered.")
    epoch_state: str | None = column(_TEXT, "SEAL_OR_INACTIVE, DIGEST, MUTATION, CLEAN or ADVANCE_LCE.")
    epochs_recovered: int = column(_INTEGER, "Epochs that it has recovered.")
    waits_for: str = column(_TEXT, "What it waits for.")


@table("append_throughput", TableSource.SEQUENCER_NODES)
@dataclass(slots=True)
class AppendThroughputRow:
    """What was appended to a log at a node, on average over a while.

    Only logs to which something was. Looked at every ten seconds.
    """

    log_id: int = column(_LOG, "The data log.")
    log_group: str | None = column(_TEXT, "Path of its group; NULL when the log is not in the cluster file any more.")
    seconds_1min: float = column(_REAL, "The time that the next two columns cover; less than 60 at the beginning.")
    entries_1min: float = column(_REAL, "Entries per second.")
    bytes_1min: float = column(_REAL, "Bytes of payloads, as they were sent, per second.")
    seconds_10min: float = column(_REAL, "The time that the next two columns cover; less than 600 at the beginning.")
    entries_10min: float = column(_REAL, "Entries per second.")
    bytes_10min: float = column(_REAL, "Bytes of payloads, as they were sent, per second.")


@table("append_latency", TableSource.SEQUENCER_NODES)
@dataclass(slots=True)
class AppendLatencyRow:
    """How long appends of a node's sequencers took lately. Times are rounded up by a quarter at most."""

    operation: str = column(
        _TEXT,
        "append: from the LSN of an entry to all its copies, of one entry of eight, over the last minute; store: from a STORE to its answer "
        "or timeout, over the last 10 to 20 seconds.",
    )
    to_node_id: int | None = column(_INTEGER, "Of store: the node that stores.")
    to_shard: int | None = column(_INTEGER, "Of store: index of the shard within it.")
    samples: int = column(_INTEGER, "How many were measured.")
    p50_us: int = column(_INTEGER, "Half of them took no longer, in microseconds.")
    p90_us: int = column(_INTEGER, "Nine of ten.")
    p99_us: int = column(_INTEGER, "99 of a hundred.")
    p999_us: int = column(_INTEGER, "999 of a thousand.")
    max_us: int = column(_INTEGER, "All.")
    timeout_us: int | None = column(_INTEGER, "Of store: how long the first wave of an entry to that shard may take.")


@table("graylist", TableSource.SEQUENCER_NODES)
@dataclass(slots=True)
class GraylistRow:
    """A shard that a node's sequencers put into no copyset for a while."""

    graylisted_node_id: int = column(_INTEGER, "The node of the shard.")
    graylisted_shard: int = column(_INTEGER, "Index of the shard within it.")
    reason: str = column(_TEXT, "OVERLOADED, NO_SPACE, DISABLED, UNROUTABLE, SLOW or PROBING.")
