"""Tables of streams and their subscriptions, in all namespaces of the log tree."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _FLAG = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.FLAG
_LOG, _LSN, _TIME = ColumnKind.LOG, ColumnKind.LSN, ColumnKind.TIME


@table("streams", TableSource.NAMESPACES)
@dataclass(slots=True)
class StreamsRow:
    """A stream of a namespace. Empty where nobody has made a namespace."""

    namespace: str = column(_TEXT, "Path of the namespace in the log tree.")
    stream: str = column(_TEXT, "Its name.")
    number: int = column(_INTEGER, "Its number, which no other stream of the namespace ever has.")
    state: str = column(_TEXT, "creating: its creator has not finished; live; ended; deleting.")
    log_id: int | None = column(_LOG, "The log that holds its records; NULL: it is not made yet.")
    writers: str = column(_TEXT, "shared, or exclusive: one owner at a time.")
    txid: str = column(_TEXT, "Who numbers records: writer, or time.")
    begins_at: str | None = column(_TEXT, "Position before which everything is truncated; NULL: nothing is.")
    end_lsn: int | None = column(_LSN, "Where it ended; NULL: it has not.")
    version: str = column(_TEXT, "Of its last change of name, truncation or end.")


@table("segments", TableSource.NAMESPACES)
@dataclass(slots=True)
class SegmentsRow:
    """A segment of a stream, in its log or in cold copies alone. Constrain log_id where there are many streams: each is asked for."""

    namespace: str = column(_TEXT, "Path of the namespace in the log tree.")
    stream: str = column(_TEXT, "The stream's name.")
    log_id: int = column(_LOG, "The log that holds its records.")
    epoch: int = column(_INTEGER, "The epoch.")
    state: str = column(
        _TEXT,
        "in progress; completed: nothing of it changes any more; truncated in part: readers begin within it; truncated: they begin behind it; cold: only copies have it; unknown: nobody says what it holds.",
    )
    first_lsn: int = column(_LSN, "No record of it lies before.")
    last_lsn: int | None = column(_LSN, "Its last record so far; NULL: not known.")
    entries: int | None = column(_INTEGER, "LSNs with records; NULL, as what follows: not known.")
    records: int | None = column(_INTEGER, "Records in it.")
    bytes: int | None = column(_INTEGER, "Of their bodies as they are stored, one copy each.")
    first_time: int | None = column(_TIME, "When its first record was sequenced.")
    last_time: int | None = column(_TIME, "When its last record was sequenced.")
    completed: int | None = column(_TIME, "When it was decided what it holds.")
    first_txid: int | None = column(_INTEGER, "Its first transaction id.")
    last_txid: int | None = column(_INTEGER, "Its last transaction id.")
    lost: int = column(_INTEGER, "LSNs of which nothing was readable when it was completed.")
    authoritative: int = column(_FLAG, "0: too many shards had lost their data when it was completed.")
    trimmed_to: int | None = column(_LSN, "The trim point, if it lies within; NULL: nothing of it is trimmed.")
    copied: int = column(_FLAG, "A committed cold copy has it.")


@table("subscriptions", TableSource.NAMESPACES)
@dataclass(slots=True)
class SubscriptionsRow:
    """How far a subscription is in a stream. Empty where nobody has subscribed to anything."""

    namespace: str = column(_TEXT, "Path of the namespace in the log tree.")
    subscription: str = column(_TEXT, "Its name.")
    stream: str = column(_TEXT, "The stream's name.")
    number: int = column(_INTEGER, "The stream's number.")
    position: str | None = column(
        _TEXT, "The last record that is handled, with all before it; NULL: nothing was committed."
    )
    committed: int | None = column(_TIME, "When that was committed last.")
    commits: int = column(_INTEGER, "How often it was committed, as far as commits were not merged.")
    shared: int = column(_FLAG, "The stream belongs to the group of this name.")
    owner: str | None = column(_TEXT, "The member of the group that has the stream; NULL: nobody.")
    token: int = column(_INTEGER, "Of its assignment to the owner; 0: it had none.")


@table("stream_owners", TableSource.NAMESPACES)
@dataclass(slots=True)
class StreamOwnersRow:
    """Who owns an exclusive stream, as far as leases tell. Empty where nobody owns one."""

    namespace: str = column(_TEXT, "Path of the namespace in the log tree.")
    stream: str = column(_TEXT, "The stream's name.")
    log_id: int = column(_LOG, "The log that holds its records.")
    owner: str = column(_TEXT, "How the owner calls itself.")
    token: int = column(_INTEGER, "Its fence token.")
    lease: int = column(_INTEGER, "Microseconds without a sign of life after which others take the stream over.")
    signs: int = column(_INTEGER, "Signs of life since it became the owner.")


@table("stream_janitors", TableSource.NAMESPACES)
@dataclass(slots=True)
class StreamJanitorsRow:
    """Who trims and copies the streams of a namespace, one at a time. A row for each namespace."""

    namespace: str = column(_TEXT, "Path of the namespace in the log tree.")
    janitor: str | None = column(_TEXT, "How it calls itself, a node by its name; NULL: nobody does it.")
    token: int | None = column(_INTEGER, "Its fence token; NULL: as above.")
    lease: int | None = column(_INTEGER, "Microseconds without a sign of life after which another one takes over.")
    signed: int | None = column(_TIME, "When the last one showed life; NULL: nobody ever did.")
    did: str = column(_TEXT, "What was done last, or failed.")
    unattended: int = column(_INTEGER, "Streams whose attributes take a janitor while nobody is it.")
