"""What stands in one cell of an epoch store, and what an operation makes of it. Shared by all implementations, which only have to read a
cell and to write it on condition of its version.

A cell is the msgpack array ``[1, node, instance, attempt, payload]``: who wrote it last, and the encoded value. Behind it may stand an array of integers that the first
release does not know, and would refuse within the payload of a last clean epoch: nodes of two releases share the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, assert_never

import msgpack

from epoch_store.interface import (
    ChangeConfiguration,
    GetLastCleanEpoch,
    LastCleanEpoch,
    NoteIncarnation,
    Operation,
    ReadConfiguration,
    ReadMetadata,
    ReadShardIdentity,
    RegisterShard,
    Result,
    SetLastCleanEpoch,
    ShardIdentity,
    UpdateMetadata,
    WriterIdentity,
)
from logdevice_py.config.stored import StoredConfiguration
from logdevice_py.core import marks
from logdevice_py.core.extensions import TailState
from logdevice_py.core.ids import Generation, InstanceId, NodeId, format_shard
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MAX, LSN_MAX, Epoch, Lsn
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import ENCODED_SIZE_MAX, EpochMetaData, TailRecord

V = TypeVar("V", EpochMetaData, StoredConfiguration)
CELL_VERSION: Final = 1
CONFIGURATION: Final = "configuration/current"
"""The key of the cell that holds the configuration of the cluster."""
_LIMITS: Final[dict[str, int]] = {"max_str_len": 0, "max_map_len": 0, "max_ext_len": 0, "max_array_len": 8}
_INT64_MAX: Final = 2**63 - 1
_GENERATION_MAX: Final = 2**31 - 1
_RECORDS_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class WriteId:
    """Names one attempt to write: no other write, whoever makes it, has the same."""

    writer: WriterIdentity
    attempt: int


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as it was read."""

    version: int
    """From 1; grows by one with every change."""
    content: bytes


@dataclass(frozen=True, slots=True)
class ConditionalWrite:
    """Store `content` if the version still is `expected_version` (0: if there is no cell); `result` is the answer when that worked."""

    expected_version: int
    content: bytes
    result: Result


def key_of(operation: Operation) -> str:
    """The name of the operation's cell below the cluster's root."""
    if isinstance(operation, ReadShardIdentity | RegisterShard | NoteIncarnation):
        return f"shards/{format_shard(operation.shard)}"
    if isinstance(operation, ReadConfiguration | ChangeConfiguration):
        return CONFIGURATION
    if isinstance(operation, ReadMetadata | UpdateMetadata):
        return f"logs/{operation.log}/sequencer"
    return f"logs/{operation.log}/lce"


def is_read(operation: Operation) -> bool:
    """Whether the operation never writes."""
    return isinstance(operation, ReadMetadata | GetLastCleanEpoch | ReadShardIdentity | ReadConfiguration)


def encode_cell(write: WriteId, payload: bytes, later: Sequence[int] = ()) -> bytes:
    """The content of a cell; `later`: what earlier versions do without."""
    fields = [CELL_VERSION, write.writer.node, write.writer.instance, write.attempt, payload]
    encoded: bytes = msgpack.packb([*fields, list(later)] if later else fields)
    return encoded


def decode_cell(content: bytes) -> tuple[WriteId, bytes]:
    """Who wrote a cell, and its payload; CorruptEntryError when it is none."""
    fields = _unpack(content, [int, int, int, int, bytes], ENCODED_SIZE_MAX)
    if fields[0] != CELL_VERSION:
        raise CorruptEntryError(f"cell version {fields[0]} is not known, this program knows {CELL_VERSION}")
    return WriteId(WriterIdentity(NodeId(fields[1]), InstanceId(fields[2])), fields[3]), fields[4]


def decode_later(content: bytes) -> list[Any]:
    """What stands behind the payload of a cell that `decode_cell` takes; whoever uses it checks it."""
    fields = _unpack(content, [int, int, int, int, bytes], ENCODED_SIZE_MAX)
    return fields[5] if len(fields) > 5 and type(fields[5]) is list else []


def decide(operation: Operation, cell: Cell | None, write: WriteId) -> Result | ConditionalWrite:
    """What an operation comes to, given what its cell holds; `write` names the write if there is one."""
    version = 0 if cell is None else cell.version
    try:
        payload = None if cell is None else decode_cell(cell.content)[1]
        if isinstance(operation, UpdateMetadata):
            current = None if payload is None else EpochMetaData.decode(payload)
            return _update(operation.apply, current, version, write)
        if isinstance(operation, ReadMetadata):
            if payload is None:
                return Result(Status.EMPTY)
            return Result(Status.OK, EpochMetaData.decode(payload), version)
        if isinstance(operation, GetLastCleanEpoch):
            return Result(Status.OK, _last_clean_epoch(cell), version)
        if isinstance(operation, SetLastCleanEpoch):
            return _set_last_clean_epoch(operation, cell, write)
        if isinstance(operation, ReadShardIdentity):
            if payload is None:
                return Result(Status.EMPTY)
            return Result(Status.OK, decode_shard_identity(operation, payload), version)
        if isinstance(operation, RegisterShard):
            return _register_shard(operation, payload, version, write)
        if isinstance(operation, NoteIncarnation):
            return _note_incarnation(operation, payload, version, write)
        if isinstance(operation, ReadConfiguration):
            if payload is None:
                return Result(Status.EMPTY)
            return Result(Status.OK, StoredConfiguration.decode(payload), version)
        if isinstance(operation, ChangeConfiguration):
            stored = None if payload is None else StoredConfiguration.decode(payload)
            return _update(operation.updater, stored, version, write)
        assert_never(operation)
    except CorruptEntryError as error:
        marks.hit("epoch_store_cell_is_corrupt")
        return Result(Status.FAILED, None, version, f"{key_of(operation)} in the epoch store is corrupt: {error}")


def won_by(cell: Cell | None, attempts: dict[WriteId, ConditionalWrite]) -> Result | None:
    """The result of the attempt that is in the cell; None when none of these attempts is.

    Only a cell that carries our write id at the version that the write would have made counts: everything else was written by others.
    """
    if cell is None:
        return None
    try:
        write, _ = decode_cell(cell.content)
    except CorruptEntryError:
        return None
    attempt = attempts.get(write)
    if attempt is None or attempt.expected_version + 1 != cell.version:
        return None
    return attempt.result


def _update(
    update: Callable[[V | None], V | Status], current: V | None, version: int, write: WriteId
) -> Result | ConditionalWrite:
    updated = update(current)
    if isinstance(updated, Status):
        return Result(updated, current, version)
    if updated == current:
        return Result(Status.OK, current, version)
    return ConditionalWrite(version, encode_cell(write, updated.encode()), Result(Status.OK, updated, version + 1))


def _set_last_clean_epoch(operation: SetLastCleanEpoch, cell: Cell | None, write: WriteId) -> Result | ConditionalWrite:
    assert EPOCH_INVALID < operation.epoch <= EPOCH_MAX, operation.epoch
    version = 0 if cell is None else cell.version
    stored = _last_clean_epoch(cell)
    if stored.epoch >= operation.epoch:
        return Result(Status.STALE, stored, version)
    value = LastCleanEpoch(operation.epoch, operation.tail)
    tail = operation.tail
    encoded = msgpack.packb([operation.epoch, *((tail.lsn, tail.timestamp) if tail is not None else (0, 0))])
    content = encode_cell(write, encoded, _later_fields(tail))
    return ConditionalWrite(version, content, Result(Status.OK, value, version + 1))


def _register_shard(
    operation: RegisterShard, payload: bytes | None, version: int, write: WriteId
) -> Result | ConditionalWrite:
    name, marker = format_shard(operation.shard), operation.generation
    stored = None if payload is None else decode_shard_identity(operation, payload)
    if stored is not None and stored.cluster != operation.cluster:
        return Result(
            Status.INVALID_CLUSTER, stored, version, f"{name} is registered for the cluster {stored.cluster.hex()}"
        )
    registered = 0 if stored is None else stored.generation
    if marker is not None and marker > registered:
        marks.hit("epoch_store_is_behind_shard")
        has = "does not know it" if stored is None else f"has generation {registered}"
        detail = f"{name} has generation {marker} on its disk, the epoch store {has}: the store was lost or rolled back"
        return Result(Status.FAILED, stored, version, detail)
    if marker == registered:
        assert stored is not None, "a marker has generation 1 at least"
        if operation.incarnation >= stored.incarnation:
            return Result(Status.OK, stored, version)
        marks.hit("shard_was_rolled_back")
    if stored is not None and stored.is_awaited_by(operation.birth):
        marks.hit("shard_registered_again_before_its_first_marker")
        return Result(Status.OK, stored, version)
    identity = ShardIdentity(operation.cluster, operation.shard, Generation(registered + 1), birth=operation.birth)
    return _write_shard(identity, version, write)


def _note_incarnation(
    operation: NoteIncarnation, payload: bytes | None, version: int, write: WriteId
) -> Result | ConditionalWrite:
    stored = None if payload is None else decode_shard_identity(operation, payload)
    if stored is None or stored.generation != operation.generation:
        return Result(Status.STALE, stored, version)
    if stored.incarnation >= operation.incarnation:
        return Result(Status.OK, stored, version)
    return _write_shard(replace(stored, incarnation=operation.incarnation), version, write)


def _write_shard(identity: ShardIdentity, version: int, write: WriteId) -> ConditionalWrite:
    encoded = encode_shard_identity(identity)
    return ConditionalWrite(version, encode_cell(write, encoded), Result(Status.OK, identity, version + 1))


def encode_shard_identity(identity: ShardIdentity) -> bytes:
    """The payload of the cell of a shard."""
    fields = [identity.cluster, identity.shard, identity.generation, identity.incarnation, identity.birth]
    encoded: bytes = msgpack.packb(fields)
    return encoded


def _later_fields(tail: TailRecord | None) -> list[int]:
    """What versions from before guards did not know of a tail record."""
    if tail is None or (tail.records is None and tail.state is None):
        return []
    fields: list[int] = [_RECORDS_UNKNOWN if tail.records is None else tail.records]
    if tail.state is not None:
        fields += [tail.state.transaction, tail.state.fence, tail.state.flags, tail.condition]
    return fields


def _last_clean_epoch(cell: Cell | None) -> LastCleanEpoch:
    return LastCleanEpoch() if cell is None else decode_last_clean_epoch(cell.content)


def decode_last_clean_epoch(content: bytes) -> LastCleanEpoch:
    """From the content of its cell; CorruptEntryError when it is none."""
    # within the payload: of versions that wrote it where the first release refuses it
    epoch, lsn, timestamp, *within = _unpack(decode_cell(content)[1], [int, int, int], 64)
    later = decode_later(content) or within
    if not (EPOCH_INVALID < epoch <= EPOCH_MAX and 0 <= lsn <= LSN_MAX):
        raise CorruptEntryError(f"last clean epoch {epoch} with tail {lsn} is out of range")
    if any(type(each) is not int or not -1 <= each <= _INT64_MAX for each in later[:5]):
        raise CorruptEntryError("the tail record is out of range")
    records = later[0] if later and later[0] != _RECORDS_UNKNOWN else None
    state = TailState(*later[1:4]) if len(later) >= 5 else None
    if not lsn and state is None:
        return LastCleanEpoch(Epoch(epoch))
    tail = TailRecord(Lsn(lsn), Timestamp(timestamp), records, state, later[4] if state is not None else 0)
    return LastCleanEpoch(Epoch(epoch), tail)


def decode_shard_identity(
    operation: ReadShardIdentity | RegisterShard | NoteIncarnation, payload: bytes
) -> ShardIdentity:
    """From the payload of the cell of a shard; CorruptEntryError when it is not that shard's."""
    cluster, shard, generation, *later = _unpack(payload, [bytes, int, int], 64)
    incarnation = later[0] if later else 0  # of a version that kept none
    birth = later[1] if len(later) > 1 else b""
    if (
        len(cluster) != 16
        or shard != operation.shard
        or not 1 <= generation <= _GENERATION_MAX
        or type(incarnation) is not int
        or type(birth) is not bytes
    ):
        raise CorruptEntryError("this is not the identity of the shard")
    return ShardIdentity(cluster, operation.shard, Generation(generation), incarnation, birth)


def _unpack(encoded: bytes, kinds: list[type], size_max: int) -> list[Any]:
    """A msgpack array whose first elements are of these types; later ones, of a later version, are ignored."""
    if len(encoded) > size_max:
        raise CorruptEntryError(f"{len(encoded)} bytes are over the limit of {size_max}")
    try:
        fields = msgpack.unpackb(encoded, max_bin_len=size_max, **_LIMITS)
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptEntryError(f"not readable: {error}") from None
    if type(fields) is not list or len(fields) < len(kinds):
        raise CorruptEntryError("an array of other fields")
    for field, kind in zip(fields, kinds, strict=False):
        if type(field) is not kind:
            raise CorruptEntryError("a field of another type")
        if isinstance(field, int) and not -1 <= field <= _INT64_MAX:
            raise CorruptEntryError(f"{field} is out of range")
    return fields
