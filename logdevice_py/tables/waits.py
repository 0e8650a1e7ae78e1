"""What waits in the cluster, and for what."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _REAL = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.REAL
_LOG, _LSN = ColumnKind.LOG, ColumnKind.LSN


class WaitKind(enum.Enum):
    """What waits; the value says what that is."""

    APPEND = (
        "Entries that are being stored, frames that have no LSN yet, or (with 0 waiting) appends that would be refused."
    )
    ACTIVATION = "A sequencer that wants an epoch."
    METADATA = "The nodeset of a log's epoch on its way into the metadata log."
    RECOVERY = "The recovery of a log's earlier epochs."
    RELEASE = "Entries of a log that are stored and may not be read yet."
    TAIL = "Requests for the state of a log's sequencer."
    READ = "A read stream that a shard serves; or, without `shard`, one that a client or the node itself reads and that no shard serves yet."
    PURGE = "A shard that learns how epochs ended whose recovery it missed."


class WaitCause(enum.Enum):
    """What is waited for; the value says when."""

    STORES = "Answers of `shards` to the first wave of STOREs."
    STORES_AGAIN = "Answers of `shards` to a later wave of STOREs: earlier ones were refused or not answered in time."
    STORE_REFUSED = "The next wave of STOREs: `shards` refused this one."
    NODE_DEAD = "Too few shards can take the entry: the nodes of `shards` are dead or cannot be reached."
    NO_SPACE = "Too few shards can take the entry: the disks of `shards` are full."
    OVERLOADED = "Too few shards can take the entry: the disks of `shards` do not keep up."
    DISABLED = (
        "Too few shards can take the entry: `shards` are not read-write in the cluster file, or their disks failed."
    )
    GRAYLIST = "Too few shards can take the entry: `shards` were slow and are avoided for a while."
    SHARD_LOST = (
        "Too few shards can take the entry: `shards` lost their data since the epoch began; another epoch is needed."
    )
    EARLIER_ENTRY = "The entries before: these are stored, but are acknowledged and released in order."
    WINDOW_FULL = "Room in the sequencer's window: further appends are refused until its oldest entry is stored."
    MEMORY_FULL = "Room among the bytes in flight of all sequencers of the node: further appends are refused."
    BATCH = "More frames for the same entry, or the end of the batching time."
    EPOCH = "An epoch; the row of kind ACTIVATION says what that waits for."
    RECOVERY = "The recovery of earlier epochs; the row of kind RECOVERY says what that waits for."
    DRAINING = "The entries of the epoch before, which are still being stored."
    METADATA = "The metadata log; the row of kind METADATA says what that waits for."
    EPOCH_STORE = "The epoch store."
    ACTIVATION_LIMIT = "The limit of activations of one log in a while."
    NO_NODESET = "Nodes: of `shards` it is not known that they run, and the log's first nodeset needs them, or waits a little for them."
    EVENT_LOG = "The event log, which this node has not read since it started: a log that is used for the first time needs to know what is drained."
    METADATA_LOG = "Shards that keep the log's metadata log: `shards` have not answered."
    OPERATOR = "An operator: the epoch store lost the log's epochs or gives no more; the log is not sequenced here until it is repaired."
    TURN = "Its turn: others are before it."
    NO_SHARDS = "A cluster file that has shards which hold the log's earlier epochs."
    F_MAJORITY = "Enough shards to prove what the epoch holds: `shards` have not been sealed or have not answered."
    STRAGGLERS = "More shards: enough have answered, but `shards` may hold more or better copies and get a moment."
    DAMAGED = "A copy that can be read: those that were found of an entry cannot, and `shards` may hold a better one."
    NON_AUTHORITATIVE = (
        "Shards that lost data: all others have answered, and without `shards` entries may be lost for good."
    )
    RECOVERY_STORES = "Shards that must store what recovery decided: `shards` have not answered."
    CLEAN = "Shards that must confirm that the epoch is final: `shards` have not answered."
    RELEASE = "The release of entries; the row of kind RELEASE, if there is one, says what that waits for."
    PURGE = "The purge of the shard; the row of kind PURGE says what that waits for."
    PEERS = "Shards that may know how epochs ended: `shards` have not said."
    DISK = "The shard's disk."
    QUOTA = "The quota of the log, or of the reader's principal; table `quotas` tells how much there is."
    TAIL = "Records: everything that may be read from the shard is read."
    READER_WINDOW = "The reader: it takes nothing beyond its window."
    READER_CREDIT = "The reader: it takes no more bytes before it moves its window."
    READER_CONGESTED = "The reader: it does not read what was sent to it."


@table("waits", TableSource.EVERY_NODE)
@dataclass(slots=True, kw_only=True)
class WaitsRow:
    """Something that waits at a node, and what for. Things of one kind, log and cause are one row. What waits in clients of this process comes with
    ``LDQuery(config, clients=[client])``, with NULL for node_id."""

    kind: str = column(_TEXT, "What waits.", words=WaitKind)
    log_id: int = column(_LOG, "The log.")
    cause: str = column(_TEXT, "What it waits for.", words=WaitCause)
    shards: str = column(_TEXT, "The shards that are waited for, or that are the reason.")
    lsn: int | None = column(_LSN, "Where: the first of the entries, or the epoch's first LSN.")
    waiting: int = column(_INTEGER, "How many entries, frames, requests or streams wait so.")
    waited_seconds: float | None = column(_REAL, "For how long the oldest of them waits; NULL: not known.")
    shard: int | None = column(_INTEGER, "Index of the shard that waits; NULL when a sequencer or a reader does.")
    detail: str = column(_TEXT, "More, for people.")
