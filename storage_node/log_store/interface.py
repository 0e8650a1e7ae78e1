"""The seam between the shard's machines and its disk: effects, results, and the `LogStore` that executes them.

A machine emits `WriteShard`, `ReadShard`, `ReadLast` and `ReadDirectory`; whoever runs it (the asyncio shell, the simulator) executes them on a
`LogStore` and brings back `Written`, `ReadDone` and `DirectoryRead` as events of a later turn, never within the call that emitted them.

Promises:
  - A batch is applied whole or not at all, also across crashes, and is never split. Batches of one shard are applied in the order in
    which they were emitted. A refused batch has no effect; batches after it may have been applied.
  - After a crash of the machine the store holds a prefix of the applied batches, which includes everything up to the last sync.
  - Several copies of one LSN may be stored; the one of highest rank (written by recovery, wave or seal epoch) counts. Writing the same
    rank again replaces it.
  - A failed write or sync is final: every later operation of the shard answers FAILED until it is opened again.
  - A read sees every batch that was emitted before it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import LSN_INVALID, Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.identity import PreviousEnd as PreviousEnd
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.wanted import Wants

BATCH_BYTES_SOFT_MAX: Final = 1 << 20
"""A machine begins another batch when `WriteBatch.size` has reached this: large batches hold up the event loop."""

PER_ENTRY_BYTES: Final = 64
"""What `WriteBatch.size` counts for an entry beside its image."""

NO_RECORD: Final = Timestamp(-1)
"""Below every timestamp."""


class LogMetadataKind(enum.IntEnum):
    """What is kept per log. The numbers are the first byte of keys on disk: never reused. Values are opaque to the store.

    Each says when it is written. *Synced*: a `WriteShard` with sync, and nobody is answered who relies on it before that is. *Lazily*: without
    a sync of its own, so that a power cut may take it, with all that was written after it. The death of the process alone takes nothing that
    was written.
    """

    LAST_RELEASED = 0x6D  # 'm'
    """The release pointer. Lazily, every `last_released_persist_interval_us` and when the node stops; synced with a trim that deletes entries,
    since these told of the LNG. Lost: an earlier one stands, which is as true. Readers get less from here until the next RELEASE,
    recovery digests more, and of a log that was answered before a sync more is marked `DIRTY`."""
    TRIM_POINT = 0x74  # 't'
    """Synced, before TRIMMED; also where nobody is answered, when another shard, retention or the removal of the log moves it. What it covers
    is deleted, as far as it is released, in its batch or a later one; of a log that is deleted also what is not released. It holds in
    memory at once: readers may be told TRIM before it is durable. Lost, which nobody was told of as done: what was deleted with it is there again
    and is served, until the TRIM is repeated, or another shard or retention moves it again."""
    SEAL = 0x73  # 's'
    """Synced, before SEALED, by each SEAL that is accepted, also a repeated one; and before the trim point at the end of a removed log's
    epoch. STOREs are refused from its acceptance on. Lost, which no recovery counts on: STOREs of the sealed epochs are accepted again
    until the SEAL is repeated."""
    SOFT_SEAL = 0x69  # 'i'
    """Synced, in the batch of the first STORE of a sequencer that raises it, and before any that a sequencer sends of such an epoch is
    answered. With it lies whether STOREs may have been answered before a sync: durable before the first that is. Both bound what a
    power cut marks `DIRTY`. STOREs are refused from its acceptance on. Lost, with the STORE that brought it and was not answered:
    earlier sequencers are accepted again, until a STORE raises it again or a SEAL comes."""
    LAST_CLEAN = 0x63  # 'c'
    """Synced, in one batch with how the epochs ended (`EpochMetadataKind.RECOVERY`), of a purge also with what is deleted; before CLEANED, and
    before it counts in memory. Lost, which nobody was told of: recovery repeats its CLEAN, or a RELEASE or CLEAN of a later epoch has
    the epochs purged."""
    REMOVED = 0x65  # 'e'
    """For how long the log was seen not to be in the cluster file. Lazily, each `removed_logs_interval_us`, and as 0 when it is back. Lost:
    the count goes on from an earlier value, so that the log is deleted later. A 0 is written again at the start; only of a log that is
    gone from the file again by then the count from before goes on."""
    TAIL = 0x54  # 'T'
    """The header of the last entry of a guarded log that a sequencer stored here. In the batch of the entry. It tells recovery of the end of the
    log when all of it is trimmed that is released. Lost: with the entry, of which nobody was told."""
    DIRTY = 0x44  # 'D'
    """Where a power cut may have taken entries. Synced, before anything else that the shard writes after it; until the last of these batches
    is durable the store itself says that marks are missing (`WriteBatch.mark_loss`), and the next start makes them again. Narrower
    ones: synced, in one batch with the copies that repair the range, before they count in memory; but lazily where the sequencer's next
    LSN ends it, and not at all where it is trimmed. Lost: the wider range stands, and is repaired again."""


class EpochMetadataKind(enum.IntEnum):
    """What is kept per log and epoch. The numbers are the first byte of keys on disk: never reused. Values are opaque to the store. *Synced*
    and *lazily* as in `LogMetadataKind`."""

    RECOVERY = 0x56  # 'V'
    """How the recovery of the epoch ended. Synced, in one batch with the `LAST_CLEAN` that covers it, with which it would be lost. Deleted
    synced, with a trim that reaches a later epoch."""
    MUTABLE = 0x57  # 'W'
    """The LNG; that there is one says that the epoch has something stored. In the batch of the STOREs that told of it: synced where one of
    these is, else lazily; after a batch that was refused, with the next one or lazily. Lost, with those entries: an earlier one stands,
    and recovery digests more; the first of an epoch lies in the batch of its first entry. Deleted lazily when the epoch is clean,
    synced with a trim: one that is back is of a clean epoch, and nobody looks at it."""


class Purpose(enum.Enum):
    """What the entries of a batch are stored for: it decides how much free space they must leave. See `SpaceGuard`."""

    ESSENTIAL = enum.auto()  # without it no space becomes free: of recovery, of the cluster's own logs
    USUAL = enum.auto()  # what is appended
    REBUILDING = enum.auto()  # copies that donors bring: another shard may take them, or they wait


class WriteBatch:
    """Changes of one shard that are applied together. Within a batch puts come after deletes, whatever the order of calls."""

    __slots__ = (
        "consolidations",
        "deletes",
        "drain",
        "entries",
        "epoch_deletes",
        "epoch_metadata",
        "headers",
        "log_metadata",
        "marks_loss",
        "metadata_whole_for",
        "must_pass",
        "purpose",
        "repaired",
        "restored",
        "size",
    )

    def __init__(self) -> None:
        self.entries: list[tuple[LogId, Lsn, bool, int, bytes]] = []
        """(log, lsn, written by recovery, wave or seal epoch, image)"""
        self.headers: list[tuple[LogId, Lsn, bool, int, bytes]] = []
        """The same with a header alone."""
        self.log_metadata: list[tuple[LogId, LogMetadataKind, bytes]] = []
        self.epoch_metadata: list[tuple[LogId, Epoch, EpochMetadataKind, bytes]] = []
        self.epoch_deletes: list[tuple[LogId, Epoch, EpochMetadataKind]] = []
        self.deletes: list[tuple[LogId, Lsn, Lsn]] = []
        self.consolidations: list[tuple[LogId, Lsn]] = []
        self.restored: list[tuple[LogId, Lsn, Lsn]] = []
        self.repaired: list[tuple[LogId, Lsn]] = []
        """Which of the entries are copies that are stored again."""
        self.must_pass = False
        """It is never answered OVERLOADED: the store waits until it can write."""
        self.purpose = Purpose.USUAL
        """Of its entries."""
        self.marks_loss = False
        """With it, all is marked that may be missing since the machine stopped: later starts need not hear of that stop again."""
        self.metadata_whole_for: Sequence[ShardId] | None = None
        """With what was written before it, the shard has a record of each metadata log that is no older than any that was fully stored on a copyset of these
        shards before it started a new generation."""
        self.drain: Lsn | None = None
        """The drain (`RebuildingShard.since`) that the shard has done its part of; 0: it takes records. None: nothing is said."""
        self.size = 0
        """About how many bytes the batch takes on disk."""

    def put_entry(self, log: LogId, lsn: Lsn, *, by_recovery: bool, wave: int, image: bytes) -> None:
        """Store a copy; `by_recovery` and `wave` (or seal epoch) are those of the image's header."""
        self.entries.append((log, lsn, by_recovery, wave, image))
        self.size += len(image) + PER_ENTRY_BYTES

    def put_again(self, log: LogId, lsn: Lsn, *, by_recovery: bool, wave: int, image: bytes) -> None:
        """Store a copy of which another shard has the like: what lies there is immutable."""
        self.put_entry(log, lsn, by_recovery=by_recovery, wave=wave, image=image)
        self.repaired.append((log, lsn))

    def put_header(self, log: LogId, lsn: Lsn, *, by_recovery: bool, wave: int, header: bytes) -> None:
        """Give the copy of this rank another header for the body that it has.

        Looks at what was stored before the batch, which must not put another copy of the LSN. Does nothing where no such copy with that body
        is stored, or the batch deletes it. Of a large entry the header alone is written.
        """
        self.headers.append((log, lsn, by_recovery, wave, header))
        self.size += len(header) + PER_ENTRY_BYTES

    def takes_away(self, log: LogId, lsn: Lsn) -> bool:
        """Whether the copies of an LSN that were stored before the batch are gone with it."""
        return any(log == each and first <= lsn <= last for each, first, last in (*self.deletes, *self.restored))

    def put_log_metadata(self, log: LogId, kind: LogMetadataKind, value: bytes) -> None:
        """Replace what is kept of the log."""
        self.log_metadata.append((log, kind, value))
        self.size += len(value) + 16

    def put_epoch_metadata(self, log: LogId, epoch: Epoch, kind: EpochMetadataKind, value: bytes) -> None:
        """Replace what is kept of the log's epoch."""
        self.epoch_metadata.append((log, epoch, kind, value))
        self.size += len(value) + 20

    def delete_epoch_metadata(self, log: LogId, epoch: Epoch, kind: EpochMetadataKind) -> None:
        """Forget what is kept of the log's epoch (trimmed)."""
        self.epoch_deletes.append((log, epoch, kind))
        self.size += 20

    def delete_entries(self, log: LogId, first: Lsn, last: Lsn) -> None:
        """Delete all copies in [first, last], of every rank (purging, trimming)."""
        self.deletes.append((log, first, last))
        self.size += PER_ENTRY_BYTES

    def restore(self, log: LogId, first: Lsn, last: Lsn) -> None:
        """Replace whatever is stored in [first, last], where something cannot be read, by the entries of the batch that lie there.

        Where files are damaged, reads may go on to report the damage until the files are replaced, which is done in the background.
        """
        self.restored.append((log, first, last))
        self.size += PER_ENTRY_BYTES

    def consolidate(self, log: LogId, lsn: Lsn) -> None:
        """Replace the copies at an LSN by the one that counts, with its body merged in.

        Looks at what was stored before the batch. Does nothing where the copy that counts is damaged or lacks its body.
        """
        self.consolidations.append((log, lsn))
        self.size += PER_ENTRY_BYTES

    def mark_loss(self) -> None:
        """See `marks_loss`."""
        self.marks_loss = self.must_pass = True
        self.size += PER_ENTRY_BYTES

    @property
    def looks(self) -> bool:
        """Whether what it does depends on what is stored."""
        return bool(self.consolidations or self.headers)

    def note_metadata_whole_for(self, shards: Sequence[ShardId]) -> None:
        """See `metadata_whole_for`. It takes the place of what was noted before."""
        self.metadata_whole_for = shards
        self.must_pass = True
        self.size += PER_ENTRY_BYTES

    def note_drain(self, drain: Lsn) -> None:
        """See `drain`. It takes the place of what was noted before."""
        self.drain = drain
        self.must_pass = True
        self.size += PER_ENTRY_BYTES

    @property
    def full(self) -> bool:
        """Whether the next change belongs into another batch."""
        return self.size >= BATCH_BYTES_SOFT_MAX

    @property
    def empty(self) -> bool:
        """Whether nothing was put in."""
        return self.size == 0


@dataclass(slots=True)
class WriteShard:
    """Apply a batch. Answered by `Written` with OK, FAILED, OVERLOADED or NOSPC.

    OK means: with `sync` after a sync that covers the batch, without it as soon as the operating system has it. OVERLOADED: the disk
    does not keep up, try later; not of a batch that must pass. NOSPC: only batches that hold entries are refused for lack of space,
    as their purpose says sooner or later.
    """

    token: int
    shard: ShardId
    batch: WriteBatch
    sync: bool
    deferrable: bool = False
    """With `sync`: it may wait a moment for the next sync that is wanted for others, rather than hold that up with one of its own."""


@dataclass(slots=True)
class Written:
    """Outcome of a `WriteShard`."""

    token: int
    shard: ShardId
    status: Status


@dataclass(slots=True)
class ReadShard:
    """Read the copies that count in [first, last]. Answered by `ReadDone`.

    At least one entry is returned if there is one, then no more than fit `bytes_max` bytes of images and `entries_max` entries; the answer
    may also end earlier, so that it takes no longer where it holds headers alone. It says how far it reaches: ask on from there.
    """

    token: int
    shard: ShardId
    log: LogId
    first: Lsn
    last: Lsn
    bytes_max: int
    entries_max: int = 4096
    onward: bool = True
    """Who asks goes on behind it: where the disk is slow, what follows may be brought into memory before it is asked for."""
    wants: Wants | None = None
    """Of which entries the body is wanted; None: of all. Of others, those whose body lies apart come with their header alone."""


@dataclass(slots=True)
class ReadLast:
    """Read the copy that counts at the greatest LSN in [first, last]. Answered by `ReadDone` with one entry or none.

    With `skip_holes`, plugs and bridges are passed over; so are AMENDs without a body in any case. A damaged copy ends the search: it is
    reported in `corrupt`.
    """

    token: int
    shard: ShardId
    log: LogId
    first: Lsn
    last: Lsn
    skip_holes: bool = False
    wants: Wants | None = None
    """As in `ReadShard`."""


@dataclass(slots=True)
class ReadDirectory:
    """How old the partitions are, and what logs have in the older ones. Answered by `DirectoryRead`."""

    token: int
    shard: ShardId
    logs: list[tuple[LogId, int]]
    """(log, partition): asks for what the log has in the partitions up to that one. May be empty."""
    spans_of: tuple[LogId, Lsn, Lsn] | None = None
    """(log, first, last): asks in which partitions that range lies, and for nothing else."""


class LogSpan(NamedTuple):
    """What a partition holds of a range of a log's LSNs."""

    first: Lsn
    last: Lsn
    """Every LSN stored is within; it may be wider than what is stored."""
    oldest: Timestamp
    newest: Timestamp
    """Bounds of the timestamps of all that the partition holds, of any log."""
    size: int
    """About how many bytes of the log the partition holds, of each LSN one copy, whatever part of its LSNs the range covers."""


@dataclass(slots=True)
class DirectoryResult:
    """What a `ReadDirectory` found."""

    status: Status
    """OK, or FAILED: the shard does not answer and the rest means nothing."""
    partitions: list[tuple[int, Timestamp]] = field(default_factory=list)
    """Number of each closed partition, ascending, and how old the youngest of its entries may be at most: the greater of their greatest
    record timestamp (sequencers' clocks) and the time when the partition was closed (the node's clock)."""
    newest_record: Timestamp = NO_RECORD
    """A timestamp not above that of the newest record stored, and at most a second below it; `NO_RECORD` without records."""
    highest: list[tuple[LogId, Lsn]] = field(default_factory=list)
    """For the logs asked for: every LSN up to this one was given out before the partition asked for was closed; 0: the log has nothing up to
    there. It may lie above the greatest LSN stored."""
    space_end: int = 0
    """The last of the oldest partitions that have to go for there to be enough free space; 0: there is enough, or it is not asked for."""
    spans: list[LogSpan] = field(default_factory=list)
    """Of `spans_of`, by ascending LSN."""


@dataclass(slots=True)
class DirectoryRead:
    """Outcome of a `ReadDirectory`."""

    token: int
    shard: ShardId
    result: DirectoryResult


@dataclass(slots=True)
class ReadResult:
    """What a read found. Everything in [first, through] is accounted for: LSNs in none of the lists are not stored."""

    status: Status
    """OK, or FAILED: the shard does not answer and the rest means nothing."""
    through: Lsn
    """How far the answer reaches: `last` of the request when all was looked at. Of `ReadLast` always `last`."""
    entries: list[tuple[Lsn, bytes]] = field(default_factory=list)
    """(lsn, image) by ascending LSN; header and body match their checksums, AMENDs are merged with their body. Where the body was not
    wanted, it may be missing (`lacks_body`), and nothing is said about whether it can be read."""
    corrupt: list[tuple[Lsn, Lsn]] = field(default_factory=list)
    """Ranges (inclusive) in which something is stored that cannot be read back; also covers LSNs next to the damage."""
    bodiless: list[Lsn] = field(default_factory=list)
    """LSNs at which an AMEND is stored and no body for it."""

    @property
    def damaged(self) -> list[tuple[Lsn, Lsn]]:
        """Ranges, ascending, in which something is stored that is no entry any more, for either reason."""
        return sorted([*self.corrupt, *((lsn, lsn) for lsn in self.bodiless)])


@dataclass(slots=True)
class ReadDone:
    """Outcome of a `ReadShard` or `ReadLast`."""

    token: int
    shard: ShardId
    result: ReadResult


@dataclass(slots=True)
class DamageFound:
    """Files of the shard are damaged: answers nothing that was asked."""

    shard: ShardId
    ranges: list[tuple[LogId, Lsn, Lsn]]
    """What cannot be read; empty: it is not known where."""


Completion = Written | ReadDone | DirectoryRead | DamageFound


@dataclass(slots=True)
class Contents:
    """What a shard holds when it is opened; machines keep the metadata in memory from then on."""

    marker: ShardMarker
    last_stop: PreviousEnd
    """How the run before ended; MACHINE_DIED also as long as no batch after such an end has marked what is lost (`WriteBatch.mark_loss`)."""
    losses: list[tuple[Timestamp, Timestamp]] = field(default_factory=list)
    """Spans of the node's wall clock, of all runs so far: writes without sync that were taken within one may be missing. A span is added
    when a store is opened after MACHINE_DIED; it begins at 0 when nothing is known of its begin."""
    log_metadata: list[tuple[LogId, LogMetadataKind, bytes]] = field(default_factory=list)
    epoch_metadata: list[tuple[LogId, Epoch, EpochMetadataKind, bytes]] = field(default_factory=list)
    """By ascending log and epoch within each kind."""
    highest: list[tuple[LogId, Lsn]] = field(default_factory=list)
    """Per log with data, metadata logs included: the greatest LSN stored, of any rank and state."""
    metadata_whole_for: frozenset[ShardId] = frozenset()
    """As the last batch said that said anything (`WriteBatch.metadata_whole_for`)."""
    drain: Lsn = LSN_INVALID
    """As the last batch said that said anything (`WriteBatch.drain`)."""


class LogStore(Protocol):
    """One shard's store. All calls are synchronous and belong to one thread; `sync` alone may run in another."""

    def load(self) -> Contents:
        """One scan over all metadata."""
        ...

    def write(self, batches: Sequence[WriteBatch]) -> list[Status]:
        """Apply batches in order, without sync; one status each: OK, FAILED, OVERLOADED or NOSPC."""
        ...

    def sync(self) -> Status:
        """Make durable every batch whose `write` returned before the call. OK or FAILED, and FAILED for ever after."""
        ...

    def read(self, request: ReadShard) -> ReadResult:
        """Execute a `ReadShard`."""
        ...

    def read_last(self, request: ReadLast) -> ReadResult:
        """Execute a `ReadLast`."""
        ...

    def read_directory(self, request: ReadDirectory) -> DirectoryResult:
        """Execute a `ReadDirectory`."""
        ...

    def maintain(self, now: Timestamp) -> None:
        """Begin the next partition when it is due by the node's wall clock, and drop partitions that no log needs; to be called about every
        second, on the thread that writes."""
        ...

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed."""
        ...

    @property
    def wants_sync(self) -> bool:
        """Whether so much is not durable that a sync should begin, whoever waits for one."""
        ...

    def mark_durable(self, until: Timestamp) -> None:
        """Note, with the next write, that a sync covered every write before `until`."""
        ...

    def close(self) -> None:
        """Sync, leave the clean-stop mark, and close. A failed store closes without the mark."""
        ...
