"""Every format in which bytes leave a process and are read by another, or by a later version: on the wire and on disk.

Not here, because both ends are of one version or the text is for people: the cluster file (TOML, with tests of its parser), the admin API's JSON
(rows name their columns), tokens, the control socket of a development cluster, the lines to a process that reads ahead, what the simulator's
disks write.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import msgpack
from google_crc32c import value as crc32c

from client.guards import Position
from client.log_tree import commands as tree
from client.log_tree.state import LogTreeState
from client.maintenance import commands as maintenance
from client.maintenance.state import MaintenancesState
from client.read.items import Record
from client.replica.applied_state import AppliedState, StateKind
from client.replica.chunked_snapshots import CHUNK_OVERHEAD, cut_snapshot
from client.replica.commands import NOTHING, RequestId, StateVersion, decode_command, encode_command
from client.spark.naming import WriteName
from client.spark.rows import digest
from client.spark.stream import offset_of, positions_of
from epoch_store import sqlite
from epoch_store.cells import (
    ConditionalWrite,
    WriteId,
    decide,
    decode_cell,
    decode_last_clean_epoch,
    decode_shard_identity,
    key_of,
)
from epoch_store.interface import (
    ChangeConfiguration,
    GetLastCleanEpoch,
    NoteIncarnation,
    ReadConfiguration,
    ReadMetadata,
    ReadShardIdentity,
    RegisterShard,
    SetLastCleanEpoch,
    UpdateMetadata,
    WriterIdentity,
)
from logdevice_py.config.attributes import Durability
from logdevice_py.config.location import Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.config.stored import ConfigurationVersion, StoredConfiguration
from logdevice_py.core.batch import decode_batch, encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import (
    BODY_SIZE_MAX,
    Constituent,
    ConstituentFlags,
    EntryFlags,
    EntryHeader,
    body_of,
    encode_body,
    encode_entry,
    encode_header,
    pack_body,
    parse_constituents,
    parse_header,
)
from logdevice_py.core.epoch_summary import EpochCounts, EpochSummary, SummaryFlags
from logdevice_py.core.extensions import (
    Condition,
    TailFlags,
    TailState,
    encode_counts,
    encode_extensions,
    encode_summary,
    parse_extensions,
)
from logdevice_py.core.ids import (
    TREE_LOG_ID_MIN,
    Generation,
    InstanceId,
    LogId,
    NodeId,
    ShardId,
    WriterId,
    metadata_log_of,
)
from logdevice_py.core.lsn import LSN as PublicLsn
from logdevice_py.core.lsn import Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.record_keys import encode_keys, split_keys
from logdevice_py.core.sealed_batch import BatchPlace, SealedBatch, decode_sealed, encode_sealed, proved
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.event_log.events import (
    DonorFlags,
    RebuildMode,
    ShardAbortRebuild,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardsNeverUsed,
    ShardTookRecords,
    ShardUnrecoverable,
    decode_event,
    encode_event,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet, RebuildingShard
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData, TailRecord
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.placement.hashing import jump_hash, mix64
from logdevice_py.placement.sequencer_locator import locate_sequencer
from logdevice_py.protocol import messages as m
from server import instance
from storage_node import stored_metadata as values
from storage_node.log_store import contents, keys
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import EpochMetadataKind, LogMetadataKind
from storage_node.log_store.partitions import DROPPED, Partition
from storage_node.log_store.rocksdb import families, opening
from storage_node.log_store.row_values import unpack_integer, unpack_integers, unpack_pairs
from storage_node.repair.copies import EntriesDigest
from streams import commands as streams
from streams.cold.copies import ColdCopy
from streams.cold.entries import UnpackedEntry
from streams.state import NamespaceState
from streams.subscriptions import commands as groups
from streams.subscriptions.state import SubscriptionsState
from streams.upkeep import commands as upkeep
from streams.upkeep.segment_copy import SegmentCopy
from streams.upkeep.state import StreamUpkeep
from tests.golden.extents import extent_cases
from tests.golden.index_log import index_log_cases
from tests.golden.messages import message_cases
from tests.golden.record import GoldenCase, GoldenFormat
from tests.unit.logdevice_py.placement.clusters import cluster

LOG: Final = LogId(7)
LSN: Final = compose_lsn(3, 17)
TIME: Final = Timestamp(1_700_000_000_123_456)
SHARDS: Final = (ShardId(1), ShardId(2 << 8), ShardId(3 << 8 | 2))
CLUSTER: Final = bytes(range(16))
WRITER: Final = WriterId(b"sixteen bytes id")
SUMMARY: Final = EpochSummary(
    int(SummaryFlags.COUNTED | SummaryFlags.AUTHORITATIVE | SummaryFlags.LISTED),
    Epoch(4),
    Esn(1),
    Esn(17),
    entries=15,
    lost=1,
    records=70,
    size=9000,
    first_timestamp=TIME,
    last_timestamp=Timestamp(TIME + 5),
    completed=Timestamp(TIME + 9),
    first_transaction=3,
    last_transaction=9,
)
_PAYLOAD: Final = b"hello"
_ADDED_AT_THE_END: Final = (
    "Fields may be added at the end, with a default for who does not send them: then run `make goldens` and commit both; the bytes of before stay in the file and must be "
    "read for as long as a release that wrote them is supported."
)


# Entries


def _constituent(flags: int) -> Constituent:
    payload, records = _PAYLOAD, 1
    if flags & ConstituentFlags.BATCH:
        payload, records = encode_batch([b"one", b"", b"three"]), 3
    if flags & ConstituentFlags.KEYS:
        payload = encode_keys([b"key", *[None] * (records - 1)]) + payload
    part = Constituent(payload, records, crc32c(payload), flags)
    if flags & ConstituentFlags.WRITE_STREAM:
        part.writer, part.sequence = WRITER, 42
    return part


def _image(
    flags: int, body: bytes = b"", *, wave: int = 2, copyset: tuple[ShardId, ...] = SHARDS, **changes: Any
) -> bytes:
    values_: dict[str, Any] = {"log": LOG, "lsn": LSN, "timestamp": TIME, "lng": Esn(15), "records": 1, **changes}
    length, crc = values_.pop("body_length", len(body)), values_.pop("body_crc", crc32c(body))
    return encode_entry(
        EntryHeader(wave=wave, copyset=copyset, flags=flags, body_length=length, body_crc=crc, **values_), body
    )


def _read_image(image: bytes) -> dict[str, Any]:
    header = parse_header(image, alone=True)
    body = body_of(image)
    told: dict[str, Any] = {name: getattr(header, name) for name in EntryHeader.__slots__}
    told["flags"] = str(EntryFlags(header.flags).name or EntryFlags(header.flags))
    if told.pop("extensions"):
        told["extensions"] = parse_extensions(header.extensions)
    if body and not header.flags & EntryFlags.METADATA:
        told["constituents"] = parse_constituents(body)
    elif body:
        told["metadata"] = EpochMetaData.decode(parse_constituents(body)[0].payload)
    return told


def entry_cases() -> Iterator[GoldenCase]:
    """Images of entries."""
    for chosen in itertools.product((False, True), repeat=3):
        flags = sum(int(flag) for flag, on in zip(ConstituentFlags, chosen, strict=True) if on)
        part = _constituent(flags)
        of_entry = EntryFlags.NONE
        if flags & ConstituentFlags.WRITE_STREAM:
            of_entry |= EntryFlags.WRITE_STREAM
        if flags & ConstituentFlags.KEYS:
            of_entry |= EntryFlags.KEYED
        name = str(ConstituentFlags(flags).name or "NONE").replace("|", " and ")
        yield _entry(f"one frame: {name}", _image(int(of_entry), encode_body([part]), records=part.records))
    parts = [_constituent(0), _constituent(3), _constituent(5)]
    body = encode_body(parts)
    yield _entry("three frames", _image(int(EntryFlags.KEYED), body, records=7))
    for codec in (Compression.LZ4, Compression.ZSTD):
        of_zeros = encode_body([*parts, Constituent(bytes(200), 1, crc32c(bytes(200)))])
        packed = pack_body(of_zeros, codec)
        assert packed != of_zeros
        yield _entry(f"four frames, packed by {codec.name.lower()}", _image(int(EntryFlags.KEYED), packed, records=8))
    yield _entry(
        "first of its epoch", _image(int(EntryFlags.EPOCH_BEGIN), body, lsn=compose_lsn(3, 1), lng=Esn(0), records=7)
    )
    recovery = EntryFlags.WRITTEN_BY_RECOVERY
    yield _entry("stored again by recovery", _image(int(recovery | EntryFlags.KEYED), body, wave=5, records=7))
    hole = EntryFlags.HOLE | recovery
    yield _entry("hole", _image(int(hole), wave=5, records=0))
    yield _entry("bridge", _image(int(hole | EntryFlags.BRIDGE), wave=5, records=0))
    amend = {"body_length": len(body), "body_crc": crc32c(body), "records": 7}
    yield _entry("AMEND of a sequencer", _image(int(EntryFlags.AMEND | EntryFlags.KEYED), wave=3, **amend))
    yield _entry("AMEND of recovery", _image(int(EntryFlags.AMEND | recovery), wave=5, **amend))
    metadata = encode_body([Constituent(_metadata().encode(), 1, crc32c(_metadata().encode()))])
    yield _entry(
        "record of a metadata log",
        _image(int(EntryFlags.METADATA | EntryFlags.EPOCH_BEGIN), metadata, log=metadata_log_of(LOG)),
    )
    state = TailState(transaction=7, fence=3, flags=int(TailFlags.ENDED))
    condition = Condition(2**63 - 1, compose_lsn(3, 16), 4)
    yield _entry("tail state", _image(0, body, records=7, extensions=encode_extensions(state)))
    guarded = _image(
        int(EntryFlags.CONDITIONAL | EntryFlags.CONTROL),
        encode_body([]),
        records=0,
        extensions=encode_extensions(state, condition),
    )
    yield _entry("tail state and condition of a control entry", guarded)
    counts = EpochCounts(70, 9000, TIME, 3, 9, 8, 9)
    yield _entry("counts of an epoch", _image(0, body, records=7, extensions=encode_counts(counts)))
    bridge = int(EntryFlags.BRIDGE | EntryFlags.HOLE | EntryFlags.WRITTEN_BY_RECOVERY)
    yield _entry("a bridge with a summary", _image(bridge, wave=4, extensions=encode_summary(SUMMARY)))
    later = encode_extensions(state)[:1] + b"\x13" + encode_extensions(state)[2:] + b"xx" + b"\x7f\x01x"
    yield _entry("extensions of a later version", _image(0, body, records=7, extensions=later))
    yield _entry("an extension that must be known", _image(0, body, records=7, extensions=b"\x80\x00"))
    yield _entry(
        "AMEND with extensions",
        _image(int(EntryFlags.AMEND), wave=3, extensions=encode_extensions(state), **amend),
    )
    yield _entry("header alone of a large entry", encode_header(parse_header(_image(0, body, records=7))))
    yield _entry("no copyset, the greatest numbers", _image(
        0, b"", copyset=(), wave=2**32 - 1, log=LogId(2**63 - 1), lsn=Lsn(2**63 - 1), lng=Esn(2**32 - 1), timestamp=Timestamp(-1), records=0
    ))  # fmt: skip


def _entry(name: str, image: bytes) -> GoldenCase:
    return GoldenCase(name, image, _read_image)


# Batches


def batch_cases() -> Iterator[GoldenCase]:
    """Payloads of APPEND."""
    records = [b"one", b"", b"three" * 40]
    for codec in Compression:
        yield GoldenCase(
            f"batch, {codec.name}",
            encode_batch(records, codec),
            lambda data: {"codec": Compression(data[0]), "records": decode_batch(data, 3)},
            written=codec is Compression.NONE,  # a library may pack better one day
        )
    nonce, encrypted = bytes(range(12)), bytes(range(100, 120))
    place = BatchPlace(bytes(range(16)), 513)
    for what, where in (("sealed batch", None), ("sealed batch with a place", place)):
        yield GoldenCase(
            what,
            encode_sealed(SealedBatch("k1", nonce, encrypted, where), 300),
            lambda data: _taken_apart(decode_sealed(data)),
        )
    yield GoldenCase("what a sealed batch proves", proved("k1", LogId(7), 3), lambda data: {"length": len(data)})
    yield GoldenCase(
        "what a sealed batch with a place proves",
        proved("k1", LogId(7), 3, place),
        lambda data: {"length": len(data)},
    )
    yield GoldenCase("batch of one record", encode_batch([b"x"]), lambda data: {"records": decode_batch(data, 1)})
    yield GoldenCase(
        "keys before a record",
        encode_keys([b"key"]) + _PAYLOAD,
        lambda data: dict(zip(("keys", "rest"), split_keys(data, 1), strict=True)),
    )
    yield GoldenCase(
        "keys before a batch",
        encode_keys([b"", None, b"third"]) + encode_batch(records),
        lambda data: dict(zip(("keys", "rest"), split_keys(data, 3), strict=True)),
    )


# A shard's store


def _taken_apart(sealed: SealedBatch) -> dict[str, Any]:
    fields: dict[str, Any] = {"key": sealed.key_name, "nonce": sealed.nonce, "encrypted": sealed.encrypted}
    return fields if sealed.place is None else fields | sealed.place._asdict()


def _dict_of(names: str, split: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> dict[str, Any]:
        found = split(data)
        return dict(zip(names.split(), found if isinstance(found, tuple) else (found,), strict=True))

    return read


def key_cases() -> Iterator[GoldenCase]:
    """Keys of a shard's store, in the order of their description."""
    copy = keys.data_key(LOG, LSN, True, 5)
    yield GoldenCase("copy", copy, _dict_of("lsn rank", keys.split_data_key), {"log": LOG, "recovery": True, "wave": 5})
    body = keys.body_key(copy)
    assert body == keys.body_key_at(LOG, LSN, 1 << 32 | 5)
    yield GoldenCase("body of a large copy", body, _dict_of("lsn rank", keys.split_data_key), {"log": LOG})
    for name, bound in zip(("first copy", "behind the last copy"), keys.data_bounds(LOG, 1, LSN), strict=True):
        yield GoldenCase(f"bounds of copies, {name}", bound, None, {"log": LOG, "first": 1, "last": LSN})
    yield GoldenCase("where a log begins", keys.log_begin(LOG), None, {"log": LOG})
    for kind in LogMetadataKind:
        yield GoldenCase(
            f"log metadata, {kind.name}", keys.log_metadata_key(LOG, kind), _dict_of("log", keys.split_log_metadata_key)
        )
    for of_epoch in EpochMetadataKind:
        key = keys.epoch_metadata_key(LOG, 3, of_epoch)
        yield GoldenCase(f"epoch metadata, {of_epoch.name}", key, _dict_of("log epoch", keys.split_epoch_metadata_key))
    directory = keys.directory_key(LOG, LSN, keys.PARTITION_FIRST)
    yield GoldenCase("directory", directory, _dict_of("log first partition", keys.split_directory_key))
    yield GoldenCase(
        "partition", keys.partition_key(keys.PARTITION_FIRST), _dict_of("partition", keys.split_partition_key)
    )
    for name in ("MARKER", "DURABLE", "LOSSES", "UNMARKED", "WHOLE_FOR", "DRAIN", "FAMILIES"):
        yield GoldenCase(f"of the whole store, {name}", getattr(keys, f"{name}_KEY"), None)


LOG_METADATA: Final[dict[LogMetadataKind, tuple[bytes, Callable[[bytes], Any]]]] = {
    LogMetadataKind.LAST_RELEASED: (values.encode_lsn(LSN), values.decode_lsn),
    LogMetadataKind.TRIM_POINT: (values.encode_lsn(LSN), values.decode_lsn),
    LogMetadataKind.SEAL: (values.encode_seal(Epoch(4), NodeId(2)), _dict_of("epoch node", values.decode_seal)),
    LogMetadataKind.SOFT_SEAL: (
        values.SoftSealValue(Epoch(4), NodeId(2), True, Epoch(1), Epoch(3)).encode(),
        values.SoftSealValue.decode,
    ),
    LogMetadataKind.LAST_CLEAN: (values.encode_epoch(Epoch(3)), values.decode_epoch),
    LogMetadataKind.REMOVED: (values.encode_micros(3_600_000_000), values.decode_micros),
    LogMetadataKind.TAIL: (
        encode_header(parse_header(_image(0, encode_body([]), extensions=encode_extensions(TailState(7, 3))))),
        _read_image,
    ),
    LogMetadataKind.DIRTY: (values.encode_ranges([(Lsn(5), LSN), (Lsn(LSN + 2), Lsn(LSN + 9))]), values.decode_ranges),
}
EPOCH_METADATA: Final[dict[EpochMetadataKind, tuple[bytes, Callable[[bytes], Any]]]] = {
    EpochMetadataKind.RECOVERY: (
        values.RecoveredEpoch(Epoch(4), Esn(15), Esn(18), LSN, TIME, True).encode(),
        values.RecoveredEpoch.decode,
    ),
    EpochMetadataKind.MUTABLE: (values.encode_lng(Esn(15)), values.decode_lng),
}


def _partition() -> Partition:
    partition = Partition(keys.PARTITION_FIRST, TIME, Timestamp(TIME - 5), Timestamp(TIME + 5))
    partition.closed = Timestamp(TIME + 9)
    return partition


def _read_partition(data: bytes) -> Any:
    found = Partition.decode(keys.PARTITION_FIRST, data)
    if found is None:
        return "dropped"
    return {name: getattr(found, name) for name in ("number", "created", "closed", "oldest", "newest")}


def value_cases() -> Iterator[GoldenCase]:
    """Values in a shard's store, beside images of entries."""
    for kind, (value, read) in LOG_METADATA.items():
        yield GoldenCase(f"log metadata, {kind.name}", value, read)
    for of_epoch, (value, read) in EPOCH_METADATA.items():
        yield GoldenCase(f"epoch metadata, {of_epoch.name}", value, read)
    counted = values.RecoveredEpoch(Epoch(4), Esn(15), Esn(18), LSN, TIME, True, SUMMARY.encode())
    yield GoldenCase("epoch metadata, RECOVERY of a counted epoch", counted.encode(), values.RecoveredEpoch.decode)
    yield GoldenCase(
        "directory", keys.directory_value(LSN, 0, 123_456), _dict_of("highest flags size", keys.split_directory_value)
    )
    yield GoldenCase("partition", _partition().encode(), _read_partition)
    yield GoldenCase("partition, dropped", DROPPED, _read_partition)
    what = "the row"
    yield GoldenCase("durable", contents.encode_durable(TIME), lambda data: unpack_integer(data, what))
    yield GoldenCase("losses", contents.encode_losses([(Timestamp(1), TIME)]), lambda data: unpack_pairs(data, what))
    yield GoldenCase("whole for", contents.encode_whole_for(SHARDS), lambda data: unpack_integers(data, what))
    yield GoldenCase("drain", contents.encode_drain(LSN), lambda data: unpack_integer(data, what))
    versions: bytes = msgpack.packb({keys.UNPARTITIONED: 1, keys.PARTITION_FIRST: 3})
    yield GoldenCase(
        "families: version by partition", versions, lambda data: msgpack.unpackb(data, strict_map_key=False)
    )
    files = {
        "failed": opening._FAILED,
        "opened": opening._OPENED,
        "instance": instance._NAME,
        "metadata": families.METADATA,
        "unpartitioned": families.UNPARTITIONED,
        "partition 1000000": families.split_name("1000000"),
        "partition 1000000, rewritten 3 times": families.split_name("1000000.3"),
    }
    yield GoldenCase("names of files and column families", b"", None, files)
    marker = ShardMarker(CLUSTER, SHARDS[2], Generation(4), True, "boot id", 17, b"birth")
    yield GoldenCase("marker", marker.encode(), ShardMarker.decode)
    fields = msgpack.unpackb(marker.encode())
    yield GoldenCase("marker without birth", msgpack.packb(fields[:8]), ShardMarker.decode, written=False)
    yield GoldenCase("marker without incarnation", msgpack.packb(fields[:7]), ShardMarker.decode, written=False)


# Epoch metadata and the epoch store


def _metadata() -> EpochMetaData:
    two = ReplicationProperty.of({Scope.RACK: 2, Scope.NODE: 3})
    one = ReplicationProperty.of({Scope.NODE: 2})
    nodeset = tuple((shard, Generation(index + 1)) for index, shard in enumerate(SHARDS))
    return EpochMetaData(
        Epoch(9),
        (EpochInterval(Epoch(1), nodeset[:2], one, 3, ()), EpochInterval(Epoch(4), nodeset, two, 5, ((0, 1, 1),))),
        written=True,
        disabled=False,
        writer=NodeId(2),
        replication_changed_at=Timestamp(TIME - 7),
        epoch_given_at=TIME,
    )


def metadata_cases() -> Iterator[GoldenCase]:
    """Records of epoch metadata, in the epoch store and in metadata logs."""
    encoded = _metadata().encode()
    yield GoldenCase("two intervals", encoded, EpochMetaData.decode)
    first, second = _metadata().history
    history = first, dataclasses.replace(second, extra_copies=2)
    with_extras = dataclasses.replace(_metadata(), history=history)
    yield GoldenCase("extra copies", with_extras.encode(), EpochMetaData.decode)
    promised = dataclasses.replace(with_extras, guarded_since=Epoch(5), strict_since=Epoch(7))
    yield GoldenCase("guarded, strictly ordered, extra copies", promised.encode(), EpochMetaData.decode)
    wide = dataclasses.replace(first, nodeset=second.nodeset, joined=SHARDS[2:], widened=Epoch(8))
    widened = dataclasses.replace(_metadata(), history=(wide, second))
    yield GoldenCase("a nodeset that was made wider", widened.encode(), EpochMetaData.decode)
    fields = msgpack.unpackb(encoded)
    yield GoldenCase("without labels", msgpack.packb(fields[:8]), EpochMetaData.decode, written=False)
    without_version = [fields[0], fields[1], [each[:3] for each in fields[2]], *fields[3:8]]
    yield GoldenCase(
        "without version of the cluster file", msgpack.packb(without_version), EpochMetaData.decode, written=False
    )


def _written(operation: Any, **kept: Any) -> bytes:
    write = WriteId(WriterIdentity(NodeId(2), InstanceId(1_700_000_000_000_000)), 5)
    made = decide(operation, kept.get("cell"), write)
    assert isinstance(made, ConditionalWrite), made
    return made.content


def _cell(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read_cell(content: bytes) -> dict[str, Any]:
        write, payload = decode_cell(content)
        return {"write": write, "payload": read(payload)}

    return read_cell


def _last_clean(content: bytes) -> dict[str, Any]:
    return {"write": decode_cell(content)[0], "payload": decode_last_clean_epoch(content)}


def epoch_store_cases() -> Iterator[GoldenCase]:
    """Cells of an epoch store and their names."""
    shard = ReadShardIdentity(NodeId(3), 2)
    register = RegisterShard(CLUSTER, NodeId(3), 2, None, 0, b"birth")
    update = UpdateMetadata(LOG, lambda before: _metadata(), NodeId(2))
    last_clean = SetLastCleanEpoch(LOG, Epoch(8), TailRecord(LSN, TIME))
    read_shard = _cell(lambda payload: decode_shard_identity(shard, payload))
    yield GoldenCase("sequencer", _written(update), _cell(EpochMetaData.decode))
    yield GoldenCase("last clean epoch", _written(last_clean), _last_clean)
    no_tail = SetLastCleanEpoch(LOG, Epoch(8), None)
    yield GoldenCase("last clean epoch without a record", _written(no_tail), _last_clean)
    guarded = TailRecord(LSN, TIME, 7, TailState(11, 3, 1), 12)
    for name, tail in (("a counted tail", replace(guarded, state=None, condition=0)), ("a tail state", guarded)):
        content = _written(SetLastCleanEpoch(LOG, Epoch(8), tail))
        yield GoldenCase(f"last clean epoch with {name}", content, _last_clean)
        *cell, payload, later = msgpack.unpackb(content)
        within = msgpack.packb([*cell, msgpack.packb([*msgpack.unpackb(payload), *later])])
        yield GoldenCase(f"last clean epoch with {name} in its payload", within, _last_clean, written=False)
    yield GoldenCase("shard", _written(register), read_shard)
    write, payload = decode_cell(_written(register))
    cell = [1, write.writer.node, write.writer.instance, write.attempt]
    for count, lacks in ((4, "birth"), (3, "incarnation")):
        content = msgpack.packb([*cell, msgpack.packb(msgpack.unpackb(payload)[:count])])
        yield GoldenCase(f"shard without {lacks}", content, read_shard, written=False)
    versions = [ConfigurationVersion(number, TIME, "ann@desk", "why", f"version = {number}\n") for number in (7, 8)]
    change = ChangeConfiguration(lambda before: StoredConfiguration(tuple(versions)))
    yield GoldenCase("configuration", _written(change), _cell(StoredConfiguration.decode))
    for operation in (ReadMetadata(LOG), update, GetLastCleanEpoch(LOG), last_clean, shard, register, NoteIncarnation(NodeId(3), 2, Generation(1), 5), ReadConfiguration(), change):  # fmt: skip
        yield GoldenCase(
            f"name of the cell for {type(operation).__name__}",
            key_of(operation).encode(),
            None,
            {"name": key_of(operation)},
        )
    schema = " ".join(sqlite._SCHEMA.split())
    inputs = {"application id": sqlite.APPLICATION_ID, "version": sqlite.SCHEMA_VERSION, "schema": schema}
    yield GoldenCase("SQLite file", b"", None, inputs)


# The event log


def event_cases() -> Iterator[GoldenCase]:
    """Events, and a snapshot of the state that follows from them."""
    shard, generation = SHARDS[1], Generation(2)
    candidates = ((SHARDS[0], Generation(1)), (SHARDS[1], Generation(3)))
    events = {
        "lost": ShardNeedsRebuild(shard, generation, RebuildMode.RESTORE, candidates, True, "N2 is gone"),
        "to be emptied": ShardNeedsRebuild(shard, generation, RebuildMode.RELOCATE, candidates, False, ""),
        "done": ShardIsRebuilt(shard, generation, LSN, DonorFlags.UNPLACED | DonorFlags.UNCERTAIN),
        "back": ShardAbortRebuild(shard, generation, RebuildMode.RESTORE),
        "back, whatever it was": ShardAbortRebuild(shard, generation, None),
        "unrecoverable": ShardUnrecoverable(shard, generation),
        "took records": ShardTookRecords(shard, generation, LSN),
        "never used": ShardsNeverUsed(SHARDS),
    }
    for name, event in events.items():
        yield GoldenCase(f"{type(event).__name__}, {name}", encode_event(event), decode_event)
    yield GoldenCase("of a later version", msgpack.packb([99, 1, "x"]), decode_event, written=False)
    state = RebuildingSet()
    state.version, state.round = Lsn(LSN + 3), LSN
    mode = RebuildMode.RELOCATE
    for each in (
        RebuildingShard(
            SHARDS[0], Generation(1), mode, LSN, True, True, DonorFlags.UNPLACED, "somebody", True, Generation(1)
        ),
        RebuildingShard(SHARDS[1], Generation(2), RebuildMode.RESTORE, LSN, False),
    ):
        state.shards[each.shard] = each
    state.donors = {SHARDS[0]: None, SHARDS[2]: DonorFlags.UNCERTAIN}
    state.candidates = dict(candidates)
    yield GoldenCase("snapshot", state.encode(), _read_snapshot)
    fields = msgpack.unpackb(state.encode())
    fields[3] = [row[:9] for row in fields[3]]
    yield GoldenCase("snapshot without restored_before", msgpack.packb(fields), _read_snapshot, written=False)


# Replicas


class _Words:
    """A state of one text."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    def apply(self, command: bytes, at: StateVersion, time: Timestamp) -> bytes:
        self.data += command
        return b"done"

    def encode(self) -> bytes:
        return self.data


def replica_cases() -> Iterator[GoldenCase]:
    """A command, and the records of a snapshot."""
    kind = StateKind("words", _Words, _Words)
    version = StateVersion(LSN, 2)
    command = encode_command("words", RequestId(WRITER, NOTHING), b"hello")
    yield GoldenCase("command", command, lambda data: decode_command(data, "words"))
    state = AppliedState(kind)
    state.take(Record(LOG, version.lsn, version.offset, TIME, command))

    def read_state(data: bytes) -> list[Any]:
        found = AppliedState.decode(data, kind)
        return [
            found.position,
            found.horizon,
            found.commands,
            found.outcome(RequestId(WRITER, NOTHING)),
            found.value.data,
        ]

    yield GoldenCase("state, whole", state.encode(), read_state)
    for name, record in zip(("chunk", "commit"), cut_snapshot(b"hello", WRITER, CHUNK_OVERHEAD + 5), strict=True):
        yield GoldenCase(name, record, msgpack.unpackb)


def log_tree_cases() -> Iterator[GoldenCase]:
    """Each command, and a tree."""
    version = StateVersion(LSN, 2)
    commands: list[tree.TreeCommand] = [
        tree.MakeDirectory("/team", {"backlog_us": "7d", "sequencer_batching": False}, parents=True),
        tree.MakeLogGroup("/team/clicks", 8, {"replicate": "rack:2,node:3", "nodeset_size": 5}),
        tree.SetAttributes("/team/clicks", {"backlog_us": "1h"}, ["nodeset_size"], version),
        tree.Rename("/team/clicks", "/team/old", version),
        tree.Remove("/team/old", version),
        tree.Retired(TREE_LOG_ID_MIN),
    ]
    for command in commands:
        yield GoldenCase(type(command).__name__, tree.encode(command), tree.decode)
    state = LogTreeState()
    made = [*commands[:5], tree.MakeLogGroup("/a")]
    for number, command in enumerate(made):
        expected = StateVersion(Lsn(number), 0)
        if isinstance(command, tree.SetAttributes | tree.Rename | tree.Remove):
            command = dataclasses.replace(command, expect=expected)
        state.apply(tree.encode(command), StateVersion(Lsn(number + 1), 0), TIME)

    def read_tree(data: bytes) -> list[Any]:
        found = LogTreeState.decode(data)
        groups = [
            [each.path, each.lo, each.count, each.attributes, each.version, each.removing] for each in found.groups()
        ]
        team = found.find("/team")
        assert team is not None
        return [found.next_id, groups, team.attributes, team.version]

    yield GoldenCase("tree", state.encode(), read_tree)


def maintenance_cases() -> Iterator[GoldenCase]:
    """Each command, and a state with maintenances that are under way and over."""
    away, drain = maintenance.MaintenanceKind.AWAY, maintenance.MaintenanceKind.DRAIN
    first = StateVersion(Lsn(1), 0)
    commands: list[maintenance.MaintenanceCommand] = [
        maintenance.ApplyMaintenance(away, [NodeId(1)], [ShardId(256), ShardId(257)], 7_200_000_000, "ann", "disk"),
        maintenance.GrantMaintenance(1, StateVersion(Lsn(0), 0)),
        maintenance.ApplyMaintenance(drain, [], [ShardId(512)], 0, "bob", "moves"),
        maintenance.WithdrawMaintenance(1, StateVersion(Lsn(2), 0)),
        maintenance.EndMaintenance(1, maintenance.EndCause.DONE, StateVersion(Lsn(4), 0)),
        maintenance.GrantMaintenance(2, StateVersion(Lsn(4), 0)),
        maintenance.ShardsDrained(2, StateVersion(Lsn(6), 0)),
        maintenance.BeginRestart([NodeId(3), NodeId(4)], "ann", "upgrade"),
        maintenance.TakeRestart(3, "bob"),
        maintenance.ApplyMaintenance(away, [NodeId(3)], [ShardId(768)], 0, "bob", "upgrade", 3),
        maintenance.GrantMaintenance(5, StateVersion(Lsn(7), 0)),
        maintenance.RestartNode(3, 4, NodeId(3), 77),
    ]
    others: list[maintenance.MaintenanceCommand] = [
        maintenance.ShardsReturned(2, first),
        maintenance.NodeRestarted(3, 4, NodeId(3)),
        maintenance.AbandonRestart(3),
    ]
    for number, command in enumerate([*commands, *others], 1):
        yield GoldenCase(f"{type(command).__name__} {number}", maintenance.encode(command), maintenance.decode)
    state = MaintenancesState()
    for number, command in enumerate(commands, 1):
        state.apply(maintenance.encode(command), StateVersion(Lsn(number), 0), TIME)

    def read_maintenances(data: bytes) -> list[Any]:
        found = MaintenancesState.decode(data)
        return [*found.live.values(), *found.ended, found.restart, found.basis]

    yield GoldenCase("maintenances", state.encode(), read_maintenances)


def namespace_cases() -> Iterator[GoldenCase]:
    """Each command, and a namespace."""
    version = StateVersion(LSN, 2)
    commands: list[streams.NamespaceCommand] = [
        streams.CreateStream("team/orders", {"txid": "writer", "ttl_us": 7}, {"replicate": "rack:2,node:3"}),
        streams.StreamCreated(1, TREE_LOG_ID_MIN),
        streams.RenameStream("team/orders", "orders", version),
        streams.TruncateStream(1, Position(PublicLsn(LSN), 3)),
        streams.UntruncateStream(1),
        streams.AcquireStream(1, "host:1", 5_000_000),
        streams.RenewLease(1, 1),
        streams.ReleaseStream(1, 1),
        streams.EndStream(1),
        streams.StreamEnded(1, PublicLsn(LSN)),
        streams.DeleteStream("orders", version),
        streams.StreamDeleted(1),
        upkeep.AcquireUpkeep("host:1", 5_000_000),
        upkeep.RenewUpkeep(1, "trimmed orders"),
        upkeep.BeginTrim(1, 1, PublicLsn(LSN), upkeep.TrimCause.EXPIRED, version),
        upkeep.BeginCopy(1, 1, PublicLsn(1), PublicLsn(LSN)),
        upkeep.CommitCopy(1, 1, 1, segment_copy()),
        upkeep.EndCopy(1, 1, 1),
        upkeep.RemoveCopies(1, 1, PublicLsn(LSN)),
        upkeep.ReleaseUpkeep(1),
    ]
    for command in commands:
        yield GoldenCase(type(command).__name__, streams.encode(command), streams.decode)
    state = NamespaceState()
    made = [
        *commands[:2],
        streams.TruncateStream(1, Position(PublicLsn(LSN), 3)),
        streams.AcquireStream(1, "host:1", 5_000_000),
        streams.RenewLease(1, 1),
        streams.CreateStream("gone"),
        streams.DeleteStream("gone"),
        streams.CreateStream("ended"),
        streams.StreamCreated(3, LogId(TREE_LOG_ID_MIN + 1)),
        streams.EndStream(3),
        streams.StreamEnded(3, PublicLsn(LSN)),
    ]
    for number, command in enumerate(made):
        state.apply(streams.encode(command), StateVersion(Lsn(number + 1), 0), TIME)

    def read_namespace(data: bytes) -> list[Any]:
        found = NamespaceState.decode(data)
        rows = [dataclasses.astuple(entry) for entry in found.streams.values()]
        rows = [row if row[-1] != dataclasses.astuple(StreamUpkeep()) else row[:-1] for row in rows]
        return [found.next_number, rows, *([dataclasses.astuple(found.role)] if found.role.last_token else [])]

    yield GoldenCase("namespace", state.encode(), read_namespace)
    kept_up = [
        streams.CreateStream("orders", {"cold": "file:///cold"}),
        streams.StreamCreated(4, segment_copy().copy.log),
        upkeep.AcquireUpkeep("host:1", 5_000_000),
        upkeep.BeginCopy(1, 4, PublicLsn(1), PublicLsn(LSN)),
        upkeep.CommitCopy(1, 4, 1, segment_copy()),
        upkeep.BeginTrim(1, 4, PublicLsn(LSN), upkeep.TrimCause.EXPIRED, StateVersion(Lsn(100), 0)),
        upkeep.RenewUpkeep(1, "trimmed orders"),
    ]
    for number, command in enumerate(kept_up):
        state.apply(streams.encode(command), StateVersion(Lsn(number + 100), 0), TIME)
    yield GoldenCase("namespace that is kept up", state.encode(), read_namespace)


def segment_copy() -> SegmentCopy:
    """A committed copy."""
    copy = ColdCopy(
        "36b1105d-e131-4a7a-b688-7cdb5ecf28d2",
        LogId(TREE_LOG_ID_MIN + 2),
        "a1",
        PublicLsn(1),
        PublicLsn(LSN),
        "0123456789abcdef" * 4,
        *(1, 2000, 3, 30, 3000, (1 << 64) - 1),
    )
    return SegmentCopy(copy, Timestamp(TIME), Timestamp(TIME), Timestamp(TIME), 7, 9)


def subscriptions_cases() -> Iterator[GoldenCase]:
    """Each operation, and a state."""
    version, nonce = StateVersion(LSN, 2), b"nonce  1"
    operations: list[groups.Operation] = [
        groups.AddStreams("billing", [("orders", 5), ("clicks", TREE_LOG_ID_MIN)]),
        groups.Join("billing", "host1", nonce, 1_200_000, 5_000_000),
        groups.Beat("billing", "host1", nonce),
        groups.Commit("billing", "orders", Position(PublicLsn(LSN), 3), token=2),
        groups.Commit("audit", "orders", Position(PublicLsn(LSN), 3), version, 0, True),
        groups.Join("billing", "host2", b"nonce  2", 1_200_000, 5_000_000),
        groups.HandOver("billing", "orders", 2, True),
        groups.Expel("billing", "host3", nonce, 7),
        groups.Leave("billing", "host3", nonce),
        groups.RemoveStreams("billing", ["views"]),
        groups.Delete("audit", "orders", version),
        groups.Delete("audit"),
    ]
    for number, operation in enumerate(operations):
        yield GoldenCase(f"{number} {type(operation).__name__}", groups.encode([operation]), groups.decode)
    state = SubscriptionsState()
    answers = state.apply(groups.encode(operations), version, TIME)

    def read_subscriptions(data: bytes) -> list[Any]:
        found = SubscriptionsState.decode(data)
        rows: list[Any] = [found.next_token]
        for name, each in found.subscriptions.items():
            rows.append([name, [[key, *getattr_all(value)] for key, value in each.checkpoints.items()]])
            rows.append([[key, *getattr_all(value)] for key, value in each.streams.items()])
            rows.append([[key, *getattr_all(value)] for key, value in each.members.items()])
        return rows

    def getattr_all(value: Any) -> list[Any]:
        return [getattr(value, slot) for slot in value.__slots__]

    yield GoldenCase("answers", answers, lambda data: [groups.OperationAnswer(each).name for each in data])
    yield GoldenCase("state", state.encode(), read_subscriptions)


def _read_snapshot(data: bytes) -> dict[str, Any]:
    state = RebuildingSet.decode(data)
    return {
        "version": state.version,
        "round": state.round,
        "shards": list(state.shards.values()),
        "donors": state.donors,
        "candidates": state.candidates,
    }


# What all have to work out alike


def agreement_cases() -> Iterator[GoldenCase]:
    """Results on which processes of different versions have to agree."""
    for number in (0, 1, 7, 2**64 - 1):
        yield GoldenCase(f"mix64 of {number}", mix64(number).to_bytes(8, "big"), None)
    buckets = bytes(jump_hash(mix64(log), 100) for log in range(64))
    yield GoldenCase("jump_hash of mix64 of 0 to 63 into 100 buckets", buckets, None)
    config = cluster([f"r.d.c.w.k{index % 3}" for index in range(9)], replicate="rack:2,node:3")
    located = [locate_sequencer(LogId(log), config, lambda node: node != 4) for log in range(1, 65)]
    assert None not in located
    yield GoldenCase("where logs 1 to 64 are sequenced among N0 to N8 when N4 is dead", bytes(map(int, located)), None)  # type: ignore[arg-type]
    entries = EntriesDigest()
    for lsn, case in zip((LSN, Lsn(LSN + 1)), entry_cases(), strict=False):
        entries.add(lsn, case.data)
    yield GoldenCase(
        "digest of COMPARE over two entries", entries.value.to_bytes(8, "big"), None, {"count": entries.count}
    )
    for name, write in {"query": WriteName.of_query("a query", 3, 4), "job": WriteName.of_job("a job", 4)}.items():
        yield GoldenCase(
            f"write stream of a Spark {name}", write.writer, None, {"batch": write.batch, "partition": write.partition}
        )
    for key in (None, b"", b"key"):
        yield GoldenCase(f"digest of a Spark row with key {key!r}", digest(_PAYLOAD, key), None, {"payload": _PAYLOAD})
    offset = json.dumps(offset_of({10: LSN, 9: 5})).encode()
    yield GoldenCase(
        "offset in a Spark checkpoint", offset, lambda data: positions_of(json.loads(data)), {"text": offset.decode()}
    )
    kept = UnpackedEntry(LSN, 1_700_000_000_000_000, 0, 10, 7, b"x", [b"hello", None], [b"key", None])
    yield GoldenCase(
        "digest of an entry in a cold file", kept.digest(9, kept.record_checksums()).to_bytes(4, "big"), None
    )
    yield GoldenCase("instance of a node", b"1700000000000000", lambda data: int(data), written=False)


NUMBERED: Final = (
    m.MessageType, m.AppendFlags, m.AppendedFlags, m.StoreFlags, m.StoredFlags, m.SeqStateFlags, m.StartFlags, m.GapReason, m.NodeState,
    m.FindFlags, Status, Durability, EntryFlags, TailFlags, ConstituentFlags, Compression, LogMetadataKind, EpochMetadataKind, RebuildMode, DonorFlags,
    Scope, Authority,
)  # fmt: skip
"""Enumerations of which the numbers are on the wire or on disk."""


def number_cases() -> Iterator[GoldenCase]:
    """Numbers by name."""
    for kind in NUMBERED:
        yield GoldenCase(kind.__name__, b"", None, {str(member.name): int(member.value) for member in kind})


def formats() -> list[GoldenFormat]:
    """All of them, as this version writes them."""
    assert BODY_SIZE_MAX == 64 << 20, "entries of other versions may be larger than this one takes"
    protocol = f"protocol version {m.PROTOCOL_VERSION_MAX} (PROTOCOL_VERSION_MAX in logdevice_py/protocol/messages.py)"
    on_disk = "An incompatible layout gets another version number, and the one before is read as well until no store can hold it."
    return [
        GoldenFormat(
            "messages",
            protocol,
            f"{_ADDED_AT_THE_END} The same holds for places of rows. Anything else is another version of the protocol: raise PROTOCOL_VERSION_MAX, "
            "and go on speaking the version before to who knows no other (docs/protocol.md, Versions).",
            list(message_cases()),
        ),
        GoldenFormat(
            "entries",
            "entry versions 1 and 2 (ENTRY_VERSION in logdevice_py/core/entry.py): images are on disk, in all messages with entries, and are never rewritten",
            f"A free flag may be used where whoever does not know it does no harm. {on_disk}",
            list(entry_cases()),
        ),
        GoldenFormat(
            "batches",
            "payloads of APPEND, which stand in entries for ever (logdevice_py/core/batch.py, record_keys.py)",
            "Another layout gets another codec number or ConstituentFlags; the ones before are always read.",
            list(batch_cases()),
        ),
        GoldenFormat(
            "stored_keys",
            "keys of every shard's store (storage_node/log_store/keys.py), which have no version",
            "Take another first byte for another kind of key; a store whose keys are unknown does not open. The ones before are read, or rewritten at the opening.",
            list(key_cases()),
        ),
        GoldenFormat(
            "stored_values",
            "version 1 of stored metadata (storage_node/stored_metadata.py) and of the marker (MARKER_VERSION in log_store/identity.py)",
            f"What is msgpack may get further elements at the end. {on_disk}",
            list(value_cases()),
        ),
        GoldenFormat(
            "extents",
            "EXTENT_VERSION 1 (storage_node/log_store/extents/block_format.py) and tables LDTABLE1 (sorted_table.py, rows.py), of stores in extents",
            f"Arrays and maps of msgpack may get further elements at the end. {on_disk}",
            list(extent_cases()),
        ),
        GoldenFormat(
            "epoch_metadata",
            "METADATA_VERSION 1 (logdevice_py/metadata/epoch_metadata.py): in the epoch store and in metadata logs, read by all nodes and clients",
            _ADDED_AT_THE_END,
            list(metadata_cases()),
        ),
        GoldenFormat(
            "epoch_store",
            "CELL_VERSION 1 (epoch_store/cells.py) and SCHEMA_VERSION 1 (epoch_store/sqlite.py): nodes of two versions share one epoch store while a cluster is upgraded",
            _ADDED_AT_THE_END,
            list(epoch_store_cases()),
        ),
        GoldenFormat(
            "event_log",
            "events (logdevice_py/event_log/events.py) and snapshot version 2 (rebuilding_set.py): every node and client must come to the same state",
            f"{_ADDED_AT_THE_END} A new kind of event changes nothing for who does not know it, who then has another state: it waits until all nodes know it.",
            list(event_cases()),
        ),
        GoldenFormat(
            "replicas",
            "commands of state machines (client/replica/commands.py) format 1, and their snapshots (applied_state.py, chunked_snapshots.py) format 1: every replica must "
            "come to the same state",
            "A later format is skipped by who does not know it, who then has another state: it is written only when a command of the earlier one has said that all replicas know it.",
            list(replica_cases()),
        ),
        GoldenFormat(
            "log_tree",
            "commands to the log tree (client/log_tree/commands.py) format 1, and the tree in snapshots (state.py) format 1: every replica must come to the same tree",
            "A later format is refused by who does not know it, who then has another tree: it is written only when a command of the earlier one has said that all replicas know it.",
            list(log_tree_cases()),
        ),
        GoldenFormat(
            "maintenances",
            "commands to the maintenances (client/maintenance/commands.py) format 1, and their state in snapshots (state.py) format 1: every replica must come to the same state.",
            "A later format is refused by who does not know it, who then has another state: it is written only when a command of the earlier one has said that all replicas know it.",
            list(maintenance_cases()),
        ),
        GoldenFormat(
            "namespace",
            "commands to a namespace of streams (streams/commands.py) format 1, and its state in snapshots (state.py) format 1: every replica must come to the same state.",
            "A later format is refused by who does not know it, who then has another state: it is written only when a command of the earlier one has said that all replicas know it.",
            list(namespace_cases()),
        ),
        GoldenFormat(
            "subscriptions",
            "commands to subscriptions (streams/subscriptions/commands.py) format 1, what they came to, and the state in snapshots (state.py) format 1: every replica must come to the same state",
            "A later format is refused by who does not know it, who then has another state: it is written only when a command of the earlier one has said that all replicas know it.",
            list(subscriptions_cases()),
        ),
        GoldenFormat(
            "index_log",
            "modifications in raw logs and files (indexlog/records.py) format 1, commands to the manifest (indexlog/manifest) format 2, the manifest format 4, page tokens "
            "(indexlog/paging.py) format 2, routing (indexlog/routing.py), raw files and their summaries (indexlog/raw_files.py) format 1",
            "Records, contents and raw files of format 1 are read for ever. A later format of commands is refused by who does not know it, who then has another manifest. Routing never changes.",
            list(index_log_cases()),
        ),
        GoldenFormat(
            "numbers",
            "numbers on the wire and on disk, of all versions",
            "New members take numbers that were never used: run `make goldens`. A number keeps its meaning for ever, also when nothing uses it any more.",
            list(number_cases()),
        ),
        GoldenFormat(
            "agreements",
            "what processes of different versions work out by themselves and have to agree on, or find again after an upgrade",
            "These never change. Another way of working it out needs a version that all nodes agree on first.",
            list(agreement_cases()),
        ),
    ]
