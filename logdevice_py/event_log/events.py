"""The records of the event log. Each is a msgpack array that begins with its kind; fields are only ever added at the end."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgpack

from logdevice_py.core.ids import NODE_ID_MAX, SHARD_INDEX_MAX, Generation, ShardId
from logdevice_py.core.lsn import EPOCH_MAX, ESN_MAX, Lsn, compose_lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.unpacking import check_complete

SOURCE_MAX: Final = 256
"""Characters of a text that says who asked, and why."""
DONORS_MAX: Final = 16_384
"""Shards that an event or a snapshot lists."""
ENCODED_MAX: Final = 1 << 20
"""Bytes of an event, and of a snapshot: what the event log takes at a time."""
LSN_LAST: Final = compose_lsn(EPOCH_MAX - 1, ESN_MAX)
"""No event stands beyond it."""
GENERATION_MAX: Final = 2**31 - 1
_SHARD_MAX: Final = NODE_ID_MAX << 8 | SHARD_INDEX_MAX


class RebuildMode(enum.IntEnum):
    """What is the matter with the shard."""

    RESTORE = 0  # it lost its data: others that have copies store them again
    RELOCATE = 1  # it is to be emptied: it serves, and gives, until its records are elsewhere


class DonorFlags(enum.IntFlag):
    """How a donor finished."""

    NONE = 0
    UNPLACED = 1  # of some record or log there were too few shards in the nodeset to hold all copies
    UNCERTAIN = 2  # so many shards were lost together that some record may have had no other copy


@dataclass(frozen=True, slots=True)
class ShardNeedsRebuild:
    """The shard lost its data, or is to be emptied; all its generations up to this one."""

    shard: ShardId
    generation: Generation
    mode: RebuildMode
    candidates: tuple[tuple[ShardId, Generation], ...]
    """Every storage shard of the cluster file, ascending, with the latest generation that its writer heard of (0: of none). Which of them are
    donors follows from the events before: the writer need not know them."""
    recoverable: bool = True
    """The data may come back with the node."""
    source: str = ""


@dataclass(frozen=True, slots=True)
class ShardIsRebuilt:
    """A donor has done its part of a round."""

    donor: ShardId
    generation: Generation
    """That of the donor; 0: it left the cluster, and others say that nobody waits for it."""
    round: Lsn
    flags: DonorFlags = field(default=DonorFlags.NONE)


@dataclass(frozen=True, slots=True)
class ShardAbortRebuild:
    """The shard is back with its data, or is not to be emptied after all."""

    shard: ShardId
    generation: Generation
    mode: RebuildMode | None
    """Of what is called off. Whoever says twice that a shard is back must not end what a person began in between. None: of whatever there is, in
    records without it."""


@dataclass(frozen=True, slots=True)
class ShardUnrecoverable:
    """Nobody waits for the shard's data any more."""

    shard: ShardId
    generation: Generation


@dataclass(frozen=True, slots=True)
class ShardTookRecords:
    """A drained shard took records, or may take some because too few others live, or cannot tell that it took none: it is emptied once more."""

    shard: ShardId
    generation: Generation
    since: Lsn
    """The event that began the drain of which this is said."""


@dataclass(frozen=True, slots=True)
class ShardsNeverUsed:
    """Nobody ever had these shards: what events said of them was made up."""

    shards: tuple[ShardId, ...]


Event: TypeAlias = (
    ShardNeedsRebuild | ShardIsRebuilt | ShardAbortRebuild | ShardUnrecoverable | ShardTookRecords | ShardsNeverUsed
)

_NEEDS_REBUILD: Final = 1
_IS_REBUILT: Final = 2
_ABORT_REBUILD: Final = 3
_UNRECOVERABLE: Final = 4
_TOOK_RECORDS: Final = 5
_NEVER_USED: Final = 6


def encode_event(event: Event) -> bytes:
    """The bytes of a record."""
    fields: list[Any]
    if isinstance(event, ShardNeedsRebuild):
        fields = [
            _NEEDS_REBUILD,
            event.shard,
            event.generation,
            int(event.mode),
            [list(each) for each in event.candidates],
            event.recoverable,
            event.source[:SOURCE_MAX],
        ]
    elif isinstance(event, ShardIsRebuilt):
        fields = [_IS_REBUILT, event.donor, event.generation, event.round, int(event.flags)]
    elif isinstance(event, ShardAbortRebuild):
        fields = [_ABORT_REBUILD, event.shard, event.generation, *([] if event.mode is None else [int(event.mode)])]
    elif isinstance(event, ShardTookRecords):
        fields = [_TOOK_RECORDS, event.shard, event.generation, event.since]
    elif isinstance(event, ShardsNeverUsed):
        fields = [_NEVER_USED, list(event.shards)]
    else:
        fields = [_UNRECOVERABLE, event.shard, event.generation]
    encoded: bytes = msgpack.packb(fields)
    return encoded


def decode_event(data: bytes) -> Event | None:
    """From `encode_event`; None: a kind that this version does not know, which changes nothing.

    Raises:
        CorruptEntryError: the bytes are no event.
    """
    try:
        fields = unpack_bounded(data)
        kind = whole(fields[0], 0, 1 << 16)
        if kind == _NEEDS_REBUILD:
            if type(fields[5]) is not bool or type(fields[6]) is not str:
                raise ValueError("a flag and a text expected")
            return ShardNeedsRebuild(
                shard_field(fields[1]),
                generation_field(fields[2]),
                RebuildMode(whole(fields[3], 0, 1)),
                candidates_field(fields[4]),
                fields[5],
                fields[6],
            )
        if kind == _IS_REBUILT:
            generation = Generation(whole(fields[2], 0, GENERATION_MAX))
            round_ = Lsn(whole(fields[3], 1, LSN_LAST))
            return ShardIsRebuilt(shard_field(fields[1]), generation, round_, DonorFlags(whole(fields[4], 0, 3)))
        if kind == _ABORT_REBUILD:
            mode = RebuildMode(whole(fields[3], 0, 1)) if len(fields) > 3 else None
            return ShardAbortRebuild(shard_field(fields[1]), generation_field(fields[2]), mode)
        if kind == _UNRECOVERABLE:
            return ShardUnrecoverable(shard_field(fields[1]), generation_field(fields[2]))
        if kind == _TOOK_RECORDS:
            since = Lsn(whole(fields[3], 1, LSN_LAST))
            return ShardTookRecords(shard_field(fields[1]), generation_field(fields[2]), since)
        if kind == _NEVER_USED:
            if type(fields[1]) is not list:
                raise ValueError("an array expected")
            return ShardsNeverUsed(tuple(map(shard_field, fields[1])))
    except (ValueError, IndexError, msgpack.UnpackException) as error:
        raise CorruptEntryError(f"this is no event: {error}") from None
    return None


def unpack_bounded(data: bytes) -> list[Any]:
    """A msgpack array, with limits on all that is in it.

    Raises:
        ValueError, msgpack.UnpackException: it is something else.
    """
    if len(data) > ENCODED_MAX:
        raise ValueError(f"{len(data)} bytes are over the limit")
    check_complete(data)
    fields = msgpack.unpackb(
        data, max_array_len=DONORS_MAX, max_str_len=4 * SOURCE_MAX, max_bin_len=0, max_map_len=0, max_ext_len=0
    )
    if type(fields) is not list or not fields:
        raise ValueError("an array expected")
    return fields


def whole(value: Any, lo: int, hi: int) -> int:
    """An integer within bounds; ValueError when it is none."""
    if type(value) is not int or not lo <= value <= hi:
        raise ValueError(f"an integer from {lo} to {hi} expected")
    return value


def shard_field(value: Any) -> ShardId:
    """A shard id; ValueError when it is none."""
    return ShardId(whole(value, 0, _SHARD_MAX))


def candidates_field(value: Any) -> tuple[tuple[ShardId, Generation], ...]:
    """Shards with generations, ascending; ValueError when it is something else."""
    if type(value) is not list or any(type(each) is not list or len(each) != 2 for each in value):
        raise ValueError("an array of pairs expected")
    found = {shard_field(shard): Generation(whole(generation, 0, GENERATION_MAX)) for shard, generation in value}
    return tuple(sorted(found.items()))


def generation_field(value: Any) -> Generation:
    """A generation; ValueError when it is none."""
    return Generation(whole(value, 1, GENERATION_MAX))
