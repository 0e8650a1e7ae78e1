"""Tables of the event log."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _FLAG = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.FLAG
_LOG, _LSN = ColumnKind.LOG, ColumnKind.LSN


@table("shard_rebuildings", TableSource.EVERY_NODE)
@dataclass(slots=True)
class ShardRebuildingsRow:
    """A shard that is lost or drained, as the event log says. Empty where rebuilding is not enabled."""

    rebuilding_shard: str = column(_TEXT, "The shard, like N3:S0.")
    generation: int = column(_INTEGER, "All its generations up to this one.")
    mode: str = column(_TEXT, "RESTORE: it lost its data; RELOCATE: it is drained.")
    status: str = column(
        _TEXT,
        "rebuilding; rebuilt; unplaced: rebuilt, but some records have copies less; uncertain: records may be gone.",
    )
    authoritative_status: str = column(_TEXT, "What its silence proves to readers.")
    recoverable: int = column(_FLAG, "Its data may come back with the node.")
    since_version: int = column(_LSN, "The event that put it there.")
    donors_left: str = column(_TEXT, "Donors that have not finished the present round.")
    rate: int = column(
        _INTEGER,
        "Bytes a second that the donors of the node that tells this may re-replicate at present; 0: none has work.",
    )
    pace: str = column(
        _TEXT,
        "Why: how long the slowest tenth of appends takes to reach a disk beside what it takes while nothing is rebuilt, and where it "
        "takes longest. Empty: no donor of the node has work.",
    )
    source: str = column(_TEXT, "Who asked for it, or why.")
    version: int = column(_LSN, "The last event that the node applied.")


@table("log_rebuildings", TableSource.STORAGE_NODES)
@dataclass(slots=True)
class LogRebuildingsRow:
    """A log on which a donor works, or that waits for space. Those that are queued are counted."""

    shard: int = column(_INTEGER, "Index of the donor within its node.")
    log_id: int = column(_LOG, "The log.")
    round: int = column(_LSN, "The event that began the round.")
    status: str = column(_TEXT, "What it does.")
    logs_left: int = column(_INTEGER, "Logs that the donor has not finished, this one included.")
