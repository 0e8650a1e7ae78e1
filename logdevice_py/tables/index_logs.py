"""Tables of index logs: what their manifests say, in all of the log tree."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _FLAG = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.FLAG
_LOG, _LSN, _TIME = ColumnKind.LOG, ColumnKind.LSN, ColumnKind.TIME


@table("index_logs", TableSource.INDEX_LOGS)
@dataclass(slots=True)
class IndexLogsRow:
    """An index log. Empty where nobody has made one."""

    index_log: str = column(_TEXT, "Its path in the log tree.")
    store: str = column(_TEXT, "Where its files are.")
    state: int = column(_INTEGER, "Changes of its files so far.")
    indexes: int = column(_INTEGER, "Indexes that have files or slices.")
    parts: int = column(_INTEGER, "These, of all indexes.")
    records: int = column(_INTEGER, "Modifications in these.")
    bytes: int = column(_INTEGER, "What these take in memory, about.")
    retired: int = column(_INTEGER, "Files and slices that were replaced and are kept for readers.")
    forgotten: int = column(_INTEGER, "Page tokens of earlier states have expired.")
    jobs: int = column(_INTEGER, "Jobs that have begun and not ended.")
    drops: int = column(_INTEGER, "How often an index was dropped.")
    unreadable: int = column(_INTEGER, "Records of raw logs that were no modifications.")


@table("indexes", TableSource.INDEX_LOGS)
@dataclass(slots=True)
class IndexesRow:
    """An index that has files or slices."""

    index_log: str = column(_TEXT, "The index log's path.")
    index_code: str = column(_TEXT, "The index.")
    unsorted: int = column(_INTEGER, "Slices of containers.")
    sorted: int = column(_INTEGER, "Files made of slices.")
    optimized: int = column(_INTEGER, "Files made of files.")
    records: int = column(_INTEGER, "Modifications in all of these.")
    bytes: int = column(_INTEGER, "What these take in memory, about.")


@table("index_files", TableSource.INDEX_LOGS)
@dataclass(slots=True)
class IndexFilesRow:
    """A file or slice of an index, oldest modifications first. Those that were replaced and are kept for readers come last."""

    index_log: str = column(_TEXT, "The index log's path.")
    index_code: str = column(_TEXT, "The index.")
    kind: str = column(_TEXT, "unsorted: a slice of a container; sorted; optimized.")
    name: str = column(_TEXT, "For people.")
    path: str = column(_TEXT, "In the store; begins with the token of the job that wrote it.")
    first_row: int | None = column(
        _INTEGER, "Its first row in a file of several indexes; NULL: all of the file is of the index."
    )
    records: int = column(_INTEGER, "Modifications in it.")
    bytes: int = column(_INTEGER, "As it is stored; of a slice what it takes in memory.")
    timestamp: int = column(
        _TIME, "Of a modification in it, by its writer's clock: the oldest; of optimized files the newest."
    )
    made: int = column(_INTEGER, "The state that began with it.")
    since: int = column(_INTEGER, "The state of the first deal that it has modifications of.")
    until: int = column(_INTEGER, "The state of the last deal that it has modifications of.")
    retired: int | None = column(_INTEGER, "The state that began without it; NULL: it is live.")
    retired_at: int | None = column(_TIME, "When that was.")


@table("index_jobs", TableSource.INDEX_LOGS)
@dataclass(slots=True)
class IndexJobsRow:
    """A job that has begun and not ended: somebody does it, or has died."""

    index_log: str = column(_TEXT, "The index log's path.")
    token: int = column(_INTEGER, "Its token.")
    began: int = column(_TIME, "When it began.")
    files: int = column(_INTEGER, "Live files and slices that it has made so far.")


@table("raw_logs", TableSource.INDEX_LOGS)
@dataclass(slots=True)
class RawLogsRow:
    """A raw log that is not dealt whole, or is written to: how much of it waits."""

    index_log: str = column(_TEXT, "The index log's path.")
    generation: int = column(_INTEGER, "The generation of raw logs that it is of.")
    log_id: int = column(_LOG, "The log.")
    dealt_lsn: int = column(_LSN, "It is dealt up to here.")
    tail_lsn: int = column(_LSN, "It can be read up to here.")
    end_lsn: int | None = column(_LSN, "Where it ended; NULL: it has not.")
    is_dealt: int = column(_FLAG, "1: nothing of it waits.")
    waiting: int | None = column(_INTEGER, "LSNs that wait; NULL: they are of several epochs.")
    waiting_since: int | None = column(_TIME, "When the oldest record that waits was sequenced; NULL: there is none.")
