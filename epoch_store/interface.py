"""What an epoch store does: operations and their results as data, and the face that every implementation has.

Guarantees of every implementation:
  - An operation is atomic, also among processes; operations of one batch are independent of each other.
  - A change is durable before it is answered OK.
  - No two `UpdateMetadata` that move a log's epoch are both answered OK with the same epoch, whatever is lost on the way. An epoch whose
    answer was lost is never used: the next activation gets the one after it.
  - Every operation is answered within a time that the implementation's settings bound (a file: as long as its disk answers). Unless `Result.maybe_applied` is set, a failed one changed nothing and never will.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from logdevice_py.config.stored import StoredConfiguration
from logdevice_py.core.declare import counter
from logdevice_py.core.ids import Generation, InstanceId, LogId, NodeId, ShardId, is_metadata_log, shard_id
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch
from logdevice_py.core.status import Status
from logdevice_py.metadata.epoch_metadata import EpochMetaData, TailRecord

Updater: TypeAlias = Callable[[EpochMetaData | None], "EpochMetaData | Status"]
"""A pure function from the stored metadata (None: there is none) to what shall be stored, or why nothing shall be.

It may be called several times, also on another thread. Returning the metadata that it was given, or equal, is OK without a write.
"""


@dataclass(frozen=True, slots=True)
class WriterIdentity:
    """Which run of which node writes: with the number of the attempt it names every write uniquely, so that a writer whose answer was lost
    can tell its own write from others'. No two stores that are open at the same time may have the same identity."""

    node: NodeId
    """-1 for a tool that is no node."""
    instance: InstanceId


@dataclass(frozen=True, slots=True)
class LastCleanEpoch:
    """Up to which epoch a log is recovered, and its last record up to there."""

    epoch: Epoch = EPOCH_INVALID
    tail: TailRecord | None = None


@dataclass(frozen=True, slots=True)
class ShardIdentity:
    """Who a shard is: what stands in its marker on disk and in the epoch store."""

    cluster: bytes
    """UUID of the cluster, 16 bytes."""
    shard: ShardId
    generation: Generation
    incarnation: int = 0
    """The greatest of the generation that was noted: see `NoteIncarnation`."""
    birth: bytes = b""
    """What the disk called itself that the generation was given to; empty: it had a marker, or a version without this registered it."""

    def is_awaited_by(self, birth: bytes) -> bool:
        """Whether it was given to the disk of this birth, which was not known to have its marker since: nothing was ever served."""
        return bool(birth) and birth == self.birth and not self.incarnation


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the epoch metadata of a data log. Value: `EpochMetaData`. EMPTY when there is none."""

    log: LogId

    def __post_init__(self) -> None:
        assert not is_metadata_log(self.log), self.log


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """Run an updater on the epoch metadata of a data log. Value: what is stored then; when the updater refuses, what is stored and made it
    refuse (its `epoch` and `writer` tell who preempted). Status: OK, or what the updater returned."""

    log: LogId
    updater: Updater
    writer: NodeId
    """The node that takes the epoch; stored as `EpochMetaData.writer` when the updater moves the epoch."""

    def __post_init__(self) -> None:
        assert not is_metadata_log(self.log), self.log

    def apply(self, current: EpochMetaData | None) -> EpochMetaData | Status:
        """What the updater makes of the stored metadata, with the writer in place."""
        updated = self.updater(current)
        if isinstance(updated, Status):
            assert updated is not Status.OK, "an updater that has nothing to change returns what it was given"
            return updated
        assert current is None or updated.epoch >= current.epoch, "epochs never go back"
        if current is None or updated.epoch != current.epoch:
            updated = replace(updated, writer=self.writer)
        return updated


@dataclass(frozen=True, slots=True)
class GetLastCleanEpoch:
    """Read up to which epoch a log is recovered. Value: `LastCleanEpoch`; epoch 0 when none is. Never EMPTY."""

    log: LogId


@dataclass(frozen=True, slots=True)
class SetLastCleanEpoch:
    """Note that all epochs up to `epoch` are recovered. Value: what is stored then. STALE when that epoch or a later one is stored already:
    for most callers as good as OK."""

    log: LogId
    epoch: Epoch
    tail: TailRecord | None


@dataclass(frozen=True, slots=True)
class ReadShardIdentity:
    """Read the identity of a shard. Value: `ShardIdentity`. EMPTY when it was never registered."""

    node: NodeId
    index: int

    @property
    def shard(self) -> ShardId:
        """The shard as one number."""
        return shard_id(self.node, self.index)


@dataclass(frozen=True, slots=True)
class RegisterShard:
    """A shard comes up with this marker on its disk: who is it from here on? Value: `ShardIdentity`.

    - The store has the generation of the marker: OK, nothing changes.
    - The marker is missing, of another cluster or shard (pass None), of an older generation, or of this one with a lower incarnation than
      the store has (an older state of the disk was put back): the disk is not the one that the cluster knows. The shard takes the next generation, which the caller must write to its disk durably before it serves anything. Should that
      fail, the next registration takes a further one.
    - The same, but the generation was given to a disk of this birth and no incarnation of it was noted: OK, nothing changes. The process ended before the disk had its
      marker, so nothing was ever served, and nothing is missing.
    - The store has none, and the disk neither: OK, generation 1.
    - The store has none or an older one than the disk: FAILED. The store itself was lost or rolled back, so it would also give epochs again
      that it gave before; nothing may run on it until it is restored.
    - The store has the shard for another cluster: INVALID_CLUSTER.
    """

    cluster: bytes
    node: NodeId
    index: int
    generation: Generation | None
    """From the marker on disk; None when it is missing, unreadable or names another cluster, node or shard."""
    incarnation: int = 0
    """From the marker on disk."""
    birth: bytes = b""
    """Random bytes that a disk without a marker was given, durably, before it is registered; at most 16."""

    def __post_init__(self) -> None:
        assert len(self.cluster) == 16, self.cluster
        assert len(self.birth) <= (16 if self.generation is None else 0), self
        assert self.generation is None or self.generation >= 1, self.generation

    @property
    def shard(self) -> ShardId:
        """The shard as one number."""
        return shard_id(self.node, self.index)


@dataclass(frozen=True, slots=True)
class NoteIncarnation:
    """The marker on a shard's disk durably has this incarnation: from here on a lower one is an older state of the disk. Value: `ShardIdentity`.

    The disk is always written first, so that it is never behind the store by itself. STALE when the shard has another generation by now.
    """

    node: NodeId
    index: int
    generation: Generation
    incarnation: int

    @property
    def shard(self) -> ShardId:
        """The shard as one number."""
        return shard_id(self.node, self.index)


@dataclass(frozen=True, slots=True)
class ReadConfiguration:
    """Read the configuration of the cluster. Value: `StoredConfiguration`. EMPTY when there is none."""


@dataclass(frozen=True, slots=True)
class ChangeConfiguration:
    """Run an updater on the configuration of the cluster. Value: what is stored then, also when the updater refuses. Status: OK, or what the updater returned."""

    updater: Callable[[StoredConfiguration | None], StoredConfiguration | Status]
    """A pure function of what is stored, which may be called several times."""


Operation: TypeAlias = (
    ReadMetadata
    | UpdateMetadata
    | GetLastCleanEpoch
    | SetLastCleanEpoch
    | ReadShardIdentity
    | RegisterShard
    | NoteIncarnation
    | ReadConfiguration
    | ChangeConfiguration
)
Value: TypeAlias = EpochMetaData | LastCleanEpoch | ShardIdentity | StoredConfiguration


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an operation.

    status: OK; EMPTY, ABORTED, DISABLED, TOOBIG, STALE, INVALID_CLUSTER as the operations and updaters say; AGAIN: the store cannot be
    reached, nothing was changed; TIMEDOUT: a change was sent and no answer came; SHUTDOWN: the store was closed; FAILED: the store or
    what it holds is broken, and `detail` says how.
    """

    status: Status
    value: Value | None = None
    version: int = 0
    """Of the stored cell; grows by one with every change. 0 when nothing is stored."""
    detail: str = ""
    maybe_applied: bool = False
    """The change may have been made, or may still be made, although it is not answered OK."""


@dataclass(slots=True)
class EpochStoreMetrics:
    """What an epoch store counts."""

    operations: int = counter("Operations submitted to the epoch store.", unit="operations")
    batches: int = counter("Batches submitted to the epoch store.", unit="batches")
    writes: int = counter("Changes made in the epoch store.", unit="writes")
    conflicts: int = counter("Compare-and-sets that lost against another writer and were tried again.", unit="writes")
    unknown_outcomes: int = counter("Writes whose answer was lost, so that the outcome was read back.", unit="writes")
    unavailable: int = counter(
        "Operations that failed because the epoch store did not answer in time.", unit="operations"
    )
    reconnects: int = counter("Connections or sessions made after the first one.", unit="connections")


class EpochStore(Protocol):
    """An epoch store that is open."""

    metrics: EpochStoreMetrics

    def submit(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        """Run independent operations, in no particular order.

        Never blocks. `done` is called once, later, on the thread of the event loop, with the results in the order of the operations.
        """

    def close(self) -> None:
        """Give everything back. Never blocks. Operations without an answer get SHUTDOWN; so do later ones."""


@dataclass(slots=True)
class EpochStoreRequest:
    """Effect of a machine: run the operation and report its result with the token."""

    token: int
    operation: Operation = field(repr=False)
