"""Fuzz targets for the decoders of bytes and text that others wrote."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lz4.block
import msgpack
import zstandard
from google_crc32c import extend, value
from google_crc32c import value as crc32c

from client.cli.positions import parse_position
from client.cli.program import parse_timeout
from client.read.decoding import entry_keys, entry_records, verify_image
from epoch_store import cells
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
from ldquery.ctl import event_log as rebuilding
from ldquery.ctl.nodes import parse_setting_name
from ldquery.ctl.verb import parse_instant, parse_node
from logdevice_py.config.edit import parse_assignment
from logdevice_py.config.location import Location
from logdevice_py.config.logs import parse_ids
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.render import render_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.config.stored import ConfigurationVersion, StoredConfiguration, ToNextConfiguration
from logdevice_py.core.batch import decode_batch, encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import (
    HEADER_SIZE_MIN,
    Constituent,
    ConstituentFlags,
    EntryFlags,
    EntryHeader,
    body_of,
    check_body,
    encode_body,
    encode_entry,
    encode_header,
    header_size,
    pack_body,
    parse_constituents,
    parse_header,
)
from logdevice_py.core.epoch_summary import SUMMARY_SIZE
from logdevice_py.core.extensions import Condition, TailFlags, TailState, encode_extensions, parse_extensions
from logdevice_py.core.ids import Generation, InstanceId, LogId, NodeId, ShardId, WriterId, format_shard, parse_shard
from logdevice_py.core.lsn import LSN, LSN_MAX, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.record_keys import encode_keys, split_keys
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, ProtocolError
from logdevice_py.core.units import Timestamp, format_duration, format_size, parse_duration, parse_size
from logdevice_py.event_log.events import (
    DonorFlags,
    RebuildMode,
    ShardAbortRebuild,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardTookRecords,
    ShardUnrecoverable,
    decode_event,
    encode_event,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData, TailRecord
from logdevice_py.protocol.declare import (
    CODECS,
    BoolKind,
    BytesKind,
    FieldKind,
    IntKind,
    ListKind,
    StatusKind,
    TextKind,
    TupleKind,
)
from logdevice_py.protocol.framing import FRAME_SIZE_MAX, HEAD_SIZE, FrameReader, decode_frame, encode_frame
from logdevice_py.protocol.messages import MessageType
from server.node_settings import NodeSettings
from storage_node import stored_metadata
from storage_node.log_store import keys as store_keys
from storage_node.log_store.contents import ContentsBuilder, decode_losses, encode_losses
from storage_node.log_store.identity import AcceptedLoss, CorruptMarkerError, PreviousEnd, ShardMarker
from storage_node.log_store.interface import Contents, LogMetadataKind
from storage_node.log_store.later_format import LaterFormatError
from storage_node.log_store.partitions import Partition
from storage_node.log_store.rocksdb.wal_check import find_log_damage
from storage_node.log_store.row_values import UnknownRowError
from tests.fuzz.checking import RoundTripError, Target
from tests.fuzz.pieces import cut, piece

_ROOT = Path(__file__).resolve().parents[2]


def same(found: object, wanted: object) -> None:
    if found != wanted:
        raise RoundTripError(f"{found!r:.300} is not {wanted!r:.300}")


# Frames

_NUMBERS = sorted(MessageType)


def framed(number: int, fields: bytes, payload: bytes, flags: int = 0) -> bytes:
    """A frame whose head is right, whatever its fields are."""
    fields = fields[:65535]
    head = struct.pack(">IHBB", HEAD_SIZE - 4 + len(fields) + len(payload), len(fields), number, flags)
    return head + extend(value(head), fields).to_bytes(4, "big") + fields + payload


def _frames(data: bytes) -> None:
    """``u8 which message, u16 length of the fields, fields, payload``."""
    if len(data) < 3:
        return
    size = int.from_bytes(data[1:3], "big")
    message = decode_frame(framed(_NUMBERS[data[0] % len(_NUMBERS)], data[3 : 3 + size], data[3 + size :]))
    repr(message)
    same(decode_frame(b"".join(encode_frame(message))), message)


def _least(kind: FieldKind, *, filled: bool) -> Any:
    if isinstance(kind, IntKind):
        return kind.hi if filled else max(kind.lo, 0)
    if isinstance(kind, BytesKind):
        return bytes(kind.hi) if filled else b""
    if isinstance(kind, TextKind):
        return "name" if filled else ""
    if isinstance(kind, BoolKind):
        return filled
    if isinstance(kind, StatusKind):
        return 1
    if isinstance(kind, ListKind):
        return [_least(kind.element, filled=True)] * (2 if filled else 0)
    assert isinstance(kind, TupleKind), kind
    return [_least(element, filled=filled) for element in kind.elements]


def _fields(number: int, *, filled: bool) -> bytes:
    packed: bytes = msgpack.packb([_least(kind, filled=filled) for _, kind in CODECS[number].fields])
    return packed


def _frame_seeds() -> list[bytes]:
    found = []
    for index, number in enumerate(_NUMBERS):
        payload = b"payload" if CODECS[number].payload else b""
        fields = _fields(number, filled=True)
        found.append(bytes([index]) + len(fields).to_bytes(2, "big") + fields + payload)
    return found


def _with_checksums(data: bytes) -> bytes:
    """The frames of a byte stream with checksums that are right, as far as their heads make sense."""
    stream, at = bytearray(data), 0
    while at + HEAD_SIZE <= len(stream):
        length, fields = struct.unpack_from(">IH", stream, at)
        head = bytes(stream[at : at + 8])
        end = at + HEAD_SIZE + fields
        stream[at + 8 : at + HEAD_SIZE] = extend(value(head), bytes(stream[at + HEAD_SIZE : end])).to_bytes(4, "big")
        at += 4 + length
    return bytes(stream)


def _received(reader: FrameReader, pieces: Iterator[bytes]) -> tuple[list[Any], bool]:
    messages: list[Any] = []
    try:
        for piece in pieces:
            messages += reader.feed(piece)
    except ProtocolError:
        return messages, True
    return messages, False


def _cut(stream: bytes, sizes: tuple[int, int]) -> Iterator[bytes]:
    at = 0
    for size in itertools.cycle(sizes):
        if at >= len(stream):
            return
        yield stream[at : at + size]
        at += size


def _stream(data: bytes) -> None:
    """``u8 1 for checksums that are right, u8 and u8 lengths of pieces in turn`` (up to 63, or 1,000), then the bytes of a connection."""
    if len(data) < 3:
        return
    stream = _with_checksums(data[3:]) if data[0] & 1 else data[3:]
    limit = 4096 if data[0] & 2 else FRAME_SIZE_MAX
    whole, refused = _received(FrameReader(limit), iter([stream]))
    if len(stream) > 2048:
        return
    cut, cut_refused = _received(FrameReader(limit), _cut(stream, (data[1] % 64 or 1000, data[2] % 64 or 1000)))
    same(cut_refused, refused)
    if not refused:
        same(cut, whole)


def _stream_seeds() -> list[bytes]:
    frames = [framed(number, _fields(number, filled=False), b"") for number in (1, 3, 25, 31)]
    return [bytes([flag, 2, size]) + b"".join(frames) for flag in (0, 1, 3) for size in (20, 255)]


# Entries

_U32 = struct.Struct(">I")


def _entry_with_checksums(data: bytes) -> bytes:
    """The image with lengths and checksums that are right."""
    image = bytearray(data)
    if len(image) < HEADER_SIZE_MIN:
        return data
    end = header_size(data) - 4
    if len(image) < end + 4:
        return data
    body = image[end + 4 :]
    if len(body) >= 4:
        count, at, rows = _U32.unpack_from(body)[0], 4, []
        for _ in range(min(count, 2000)):
            if at + 13 > len(body):
                break
            rows.append((at, _U32.unpack_from(body, at)[0]))
            at += 13 + (24 if body[at + 12] & int(ConstituentFlags.WRITE_STREAM) else 0)
        for row, length in rows:
            body[row + 8 : row + 12] = _U32.pack(crc32c(bytes(body[at : at + length])))
            at += length
    image[end + 4 :] = body
    if not image[3] & int(EntryFlags.AMEND):
        image[16:20] = _U32.pack(len(body))
        image[20:24] = _U32.pack(crc32c(bytes(body)))
    image[end : end + 4] = _U32.pack(crc32c(bytes(image[:end])))
    return bytes(image)


def _entries(data: bytes) -> None:
    """``u8 1 for checksums that are right``, then the image."""
    if not data:
        return
    image = _entry_with_checksums(data[1:]) if data[0] & 1 else data[1:]
    header = parse_header(image)
    same(parse_header(encode_header(header), alone=True), header)
    check_body(image, header)
    same(encode_entry(header, image[header_size(image) :]), image)
    verify_image(header.log, header.lsn, image)
    with contextlib.suppress(CorruptEntryError):
        parse_extensions(header.extensions)
    found = len(entry_records(header, image))
    if not header.flags & int(EntryFlags.METADATA):
        same(found, header.records)
    given = entry_keys(header, image)
    if given is not None:
        same(len(given), header.records)
    body = body_of(image)
    parts = parse_constituents(body)
    again = encode_body(parts)
    if again != body:  # it is packed, by a codec that may have many ways to say one thing
        same(body[:3], b"\xff\xff\xff")
        same(parse_constituents(again), parts)


def _image(
    parts: list[Constituent],
    flags: int = 0,
    copyset: tuple[int, ...] = (0, 256, 512),
    compression: Compression = Compression.NONE,
    extensions: bytes = b"",
) -> bytes:
    body = pack_body(encode_body(parts), compression)
    header = EntryHeader(
        LogId(7),
        compose_lsn(Epoch(3), Esn(17)),
        Timestamp(1_700_000_000_000_000),
        1,
        tuple(map(ShardId, copyset)),
        Esn(16),
        sum(part.records for part in parts),
        flags,
        len(body),
        crc32c(body),
        extensions,
    )
    return encode_entry(header, body)


def _constituents() -> list[Constituent]:
    records = [b"one", b"two" * 20, b""]
    keyed = encode_keys([b"key", None, b"k"]) + encode_batch(records)
    found = [Constituent(b"alone", 1, 0)]
    found += [Constituent(encode_batch(records * 9, codec), 27, 0, 1) for codec in Compression]
    found.append(Constituent(keyed, 3, 0, int(ConstituentFlags.BATCH | ConstituentFlags.KEYS)))
    found.append(Constituent(b"in a stream", 1, 0, int(ConstituentFlags.WRITE_STREAM), WriterId(bytes(16)), 5))
    for part in found:
        part.crc = crc32c(part.payload)
    return found


def _entry_seeds() -> list[bytes]:
    parts = _constituents()
    images = [_image([part]) for part in parts]
    images += [_image(parts, int(EntryFlags.KEYED)), _image([], int(EntryFlags.HOLE)), _image([], 0, ())]
    images += [_image(parts * 3, compression=codec) for codec in Compression]
    state = encode_extensions(TailState(7, 3, int(TailFlags.ENDED)), Condition(5, Lsn(9), 1))
    images += [_image(parts, extensions=state), _image([], int(EntryFlags.CONTROL), extensions=b"\x80\x01x" + state)]
    return [b"\x01" + image for image in images]


# Batches and keys


def _batches(data: bytes) -> None:
    """``u8 codec, u8 1 to pack what follows by it, u16 records``, then the batch without its codec, or its array."""
    if len(data) < 4:
        return
    codec, records, rest = data[0] % 4, int.from_bytes(data[2:4], "big"), data[4:]
    if data[1] & 1:
        packed = rest
        if codec == Compression.LZ4:
            packed = lz4.block.compress(rest, store_size=False)
        elif codec == Compression.ZSTD:
            packed = zstandard.ZstdCompressor(level=1).compress(rest)
        rest = _U32.pack(len(rest)) + packed
    found = decode_batch(bytes([codec]) + rest, records)
    same(len(found), records)
    for each in Compression:
        same(decode_batch(encode_batch(found, each), len(found)), found)


def _batch_seeds() -> list[bytes]:
    array: bytes = msgpack.packb([b"one", b"two" * 20, b""])
    found = [bytes([codec, 1, 0, 3]) + array for codec in range(3)]
    for codec in Compression:
        packed = encode_batch([b"x" * 1000] * 3, codec)
        found.append(bytes([packed[0], 0, 0, 3]) + packed[1:])
    return found


def _keys(data: bytes) -> None:
    """``u16 records``, then the payload."""
    if len(data) < 2:
        return
    records = int.from_bytes(data[:2], "big")
    found, rest = split_keys(data[2:], records)
    same(len(found), records)
    same(split_keys(encode_keys(found) + rest, records), (found, rest))


def _key_seeds() -> list[bytes]:
    lists: list[list[bytes | None]] = [[b"a"], [None, b"key" * 9, b""], [None] * 70]
    return [len(each).to_bytes(2, "big") + encode_keys(each) + b"rest" for each in lists]


# The event log


def _apply_all(state: RebuildingSet, pieces: Iterator[bytes]) -> None:
    for body in itertools.islice(pieces, 200):
        try:
            event = decode_event(body)
        except CorruptEntryError:
            event = None
        if event is not None:
            same(decode_event(encode_event(event)), event)
        if state.version < LSN_MAX:
            if isinstance(event, ShardNeedsRebuild):
                state.says_something_new(event)
            state.apply(event, Lsn(state.version + 1))
    for shard, entry in list(state.shards.items()):
        state.authority(shard, entry.generation)
        state.find(shard, entry.generation)
        state.speaks_for(shard, entry.generation)
        repr((entry.authority, entry.silent_up_to, entry.status))
    for donor in state.donors:
        state.awaits(donor)


def _states_are_equal(one: RebuildingSet, other: RebuildingSet) -> None:
    same(vars(one), vars(other))


def _events(data: bytes) -> None:
    """Events as pieces, applied one after the other to a state that is empty at first."""
    state = RebuildingSet()
    _apply_all(state, cut(data))
    _states_are_equal(RebuildingSet.decode(state.encode()), state)


def _snapshots(data: bytes) -> None:
    """A snapshot as the first piece; events that follow it as the others."""
    pieces = cut(data)
    state = RebuildingSet.decode(next(pieces, b""))
    _states_are_equal(RebuildingSet.decode(state.encode()), state)
    _apply_all(state, pieces)
    _states_are_equal(RebuildingSet.decode(state.encode()), state)


def _some_events() -> list[bytes]:
    candidates = tuple((ShardId(node << 8), Generation(1)) for node in range(4))
    first = ShardId(256)
    events = [
        ShardNeedsRebuild(first, Generation(1), RebuildMode.RESTORE, candidates, True, "who"),
        ShardIsRebuilt(ShardId(0), Generation(1), Lsn(1)),
        ShardIsRebuilt(ShardId(512), Generation(1), Lsn(1), DonorFlags.UNPLACED),
        ShardIsRebuilt(ShardId(768), Generation(1), Lsn(1)),
        ShardUnrecoverable(first, Generation(1)),
        ShardAbortRebuild(first, Generation(1), RebuildMode.RESTORE),
        ShardNeedsRebuild(ShardId(512), Generation(1), RebuildMode.RELOCATE, candidates),
        ShardTookRecords(ShardId(512), Generation(1), Lsn(7)),
    ]
    return list(map(encode_event, events))


def _event_seeds() -> list[bytes]:
    events = list(map(piece, _some_events()))
    return [*events, b"".join(events), b"".join(events[:3]), b"".join(events[:4] + events[6:])]


def _snapshot_seeds() -> list[bytes]:
    events = _some_events()
    found = []
    for count in range(len(events) + 1):
        state = RebuildingSet()
        for lsn, event in enumerate(events[:count], 1):
            state.apply(decode_event(event), Lsn(lsn))
        found.append(piece(state.encode()) + b"".join(map(piece, events[count:])))
    return found


# Metadata of epochs, and the epoch store


def _metadata(data: bytes) -> None:
    found = EpochMetaData.decode(data)
    same(EpochMetaData.decode(found.encode()), found)
    for interval in found.history:
        found.interval(interval.since)


def _some_metadata() -> EpochMetaData:
    property_ = ReplicationProperty.parse("rack:2,node:3")
    shards = tuple((ShardId(node << 8), Generation(1)) for node in range(4))
    labels = ((0, 0, 1, 1),)
    history = (
        EpochInterval(Epoch(1), shards[:3], ReplicationProperty.parse("node:2"), 1),
        EpochInterval(Epoch(4), shards, property_, 2, labels),
    )
    return EpochMetaData(Epoch(9), history, True, False, NodeId(2), Timestamp(11), Timestamp(12))


def _metadata_seeds() -> list[bytes]:
    whole = _some_metadata()
    return [whole.encode(), dataclasses.replace(whole, history=whole.history[:1], written=False).encode()]


_UUID = bytes(range(16))
_OPERATIONS = (
    ReadMetadata(LogId(7)),
    UpdateMetadata(LogId(7), lambda current: _some_metadata() if current is None else current, NodeId(1)),
    GetLastCleanEpoch(LogId(7)),
    SetLastCleanEpoch(LogId(7), Epoch(5), TailRecord(Lsn(3), Timestamp(4))),
    ReadShardIdentity(NodeId(1), 0),
    RegisterShard(_UUID, NodeId(1), 0, None, 0, b"birth"),
    RegisterShard(_UUID, NodeId(1), 0, Generation(2), 3),
    NoteIncarnation(NodeId(1), 0, Generation(2), 4),
    ReadConfiguration(),
    ChangeConfiguration(ToNextConfiguration(7, ConfigurationVersion(8, Timestamp(1), "who", "why", "version = 8"))),
)
_WRITE = cells.WriteId(WriterIdentity(NodeId(1), InstanceId(2)), 3)


def _cells(data: bytes) -> None:
    """``u8 operation, u8 1 for a payload in a whole cell``, then the cell or its payload."""
    if len(data) < 2:
        return
    operation = _OPERATIONS[data[0] % len(_OPERATIONS)]
    content = cells.encode_cell(_WRITE, data[2:]) if data[1] & 1 else data[2:]
    cell = cells.Cell(3, content)
    cells.won_by(cell, {})
    outcome = cells.decide(operation, cell, _WRITE)
    if isinstance(outcome, cells.ConditionalWrite):
        write, payload = cells.decode_cell(outcome.content)
        same((write, cells.encode_cell(write, payload)), (_WRITE, outcome.content))


def _some_configuration() -> StoredConfiguration:
    return StoredConfiguration(
        tuple(ConfigurationVersion(number, Timestamp(1), "ann", "why", f"version = {number}") for number in (3, 7))
    )


def _cell_seeds() -> list[bytes]:
    payloads: list[Callable[[], bytes]] = [
        _some_metadata().encode,
        _some_metadata().encode,
        lambda: msgpack.packb([4, 3, 2]),
        lambda: msgpack.packb([4, 0, 0]),
        *([lambda: msgpack.packb([_UUID, 256, 2, 3, b"birth"])] * 4),
        *([_some_configuration().encode] * 2),
    ]
    found = [bytes([index, 1]) + make() for index, make in enumerate(payloads)]
    return [*found, b"\x00\x00" + cells.encode_cell(_WRITE, _some_metadata().encode())]


# What stores read back

_VALUES: list[tuple[Callable[[bytes], Any], Callable[[Any], bytes]]] = [
    (stored_metadata.SoftSealValue.decode, lambda found: found.encode()),
    (stored_metadata.RecoveredEpoch.decode, lambda found: found.encode()),
    (stored_metadata.decode_ranges, stored_metadata.encode_ranges),
    (stored_metadata.decode_seal, lambda found: stored_metadata.encode_seal(*found)),
    (stored_metadata.decode_epoch, stored_metadata.encode_epoch),
    (stored_metadata.decode_lsn, stored_metadata.encode_lsn),
    (stored_metadata.decode_lng, stored_metadata.encode_lng),
    (stored_metadata.decode_micros, stored_metadata.encode_micros),
    (ShardMarker.decode, lambda found: found.encode()),
    (
        lambda data: Partition.decode(1, data),
        lambda found: b"dropped" if found is None else found.encode(),
    ),
    (
        lambda data: decode_losses(data, None, PreviousEnd.CLEAN, Timestamp(0)),
        encode_losses,
    ),
]


def _comparable(found: Any) -> Any:
    if isinstance(found, Partition):
        return found.number, found.created, found.closed, found.oldest, found.newest
    return found


def _rows(data: bytes) -> None:
    """``u8 which kind of value``, then the value; from the number of kinds on: a row of metadata as pieces of key and value."""
    if not data:
        return
    kind = data[0]
    if kind < len(_VALUES):
        decode, encode = _VALUES[kind]
        found = decode(data[1:])
        same(_comparable(decode(encode(found))), _comparable(found))
        return
    builder = ContentsBuilder(Contents(None, PreviousEnd.CLEAN))
    pieces = list(itertools.islice(cut(data[1:]), 40))
    for key, content in itertools.pairwise(pieces):
        if key:
            builder.add(key, content)


def _row_seeds() -> list[bytes]:
    marker = ShardMarker(_UUID, ShardId(256), Generation(2), False, "boot", 3, b"birth")
    values = [
        stored_metadata.SoftSealValue(Epoch(3), NodeId(1), True, Epoch(1), Epoch(2)).encode(),
        stored_metadata.RecoveredEpoch(Epoch(3), Esn(4), Esn(5), Lsn(6), Timestamp(7), True).encode(),
        stored_metadata.encode_ranges([(Lsn(1), Lsn(2)), (Lsn(4), Lsn(9))]),
        stored_metadata.encode_seal(Epoch(3), NodeId(1)),
        stored_metadata.encode_epoch(Epoch(3)),
        stored_metadata.encode_lsn(Lsn(3)),
        stored_metadata.encode_lng(Esn(3)),
        stored_metadata.encode_micros(3),
        marker.encode(),
        Partition(1, Timestamp(5), Timestamp(6), Timestamp(7)).encode(),
        encode_losses([(Timestamp(1), Timestamp(2))]),
    ]
    summarised = stored_metadata.RecoveredEpoch(
        Epoch(3), Esn(4), Esn(5), Lsn(6), Timestamp(7), True, bytes(SUMMARY_SIZE)
    )
    found = [bytes([kind]) + content for kind, content in enumerate(values)]
    found.append(bytes([1]) + summarised.encode())
    rows = [
        (store_keys.directory_key(7, 1, 1), store_keys.directory_value(9, 0, 100)),
        (store_keys.partition_key(1), values[9]),
        (store_keys.WHOLE_FOR_KEY, msgpack.packb([256])),
        (store_keys.DRAIN_KEY, msgpack.packb(7)),
        (store_keys.log_metadata_key(7, next(iter(LogMetadataKind))), values[5]),
    ]
    return [*found, *(bytes([200]) + piece(key) + piece(content) for key, content in rows)]


_FILE = os.memfd_create("fuzz")


def _write_ahead_logs(data: bytes) -> None:
    """``u8 1 for a file that is the last one``, then the file."""
    if not data:
        return
    os.ftruncate(_FILE, 0)
    os.pwrite(_FILE, data[1:], 0)
    find_log_damage(f"/proc/self/fd/{_FILE}", last=bool(data[0] & 1))


def _log_record(content: bytes, kind: int) -> bytes:
    crc = crc32c(bytes([kind]) + content)
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(content), kind) + content


def _write_ahead_log_seeds() -> list[bytes]:
    records = [_log_record(b"first", 1), _log_record(b"number" * 4, 5), _log_record(b"", 1)]
    return [b"\x01" + b"".join(records), b"\x00" + b"".join(records) + bytes(20)]


# What people write


def _cluster_files(data: bytes) -> None:
    config = load_cluster(data.decode("utf-8", "replace"))
    same(load_cluster(render_cluster(config)), config)
    NodeSettings.of(config.settings)


def cluster_seeds() -> list[bytes]:
    small = """
version = 3
name = "dev"
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "sqlite:///epochs.db"
[nodes.N0]
host = "127.0.0.1"
port = 4440
admin_port = 4540
roles = ["sequencer", "storage"]
location = "region.dc.cluster.row.rack0"
storage_capacity = 2.5
state = "read-only"
[metadata_log]
replicate = "node:1"
nodeset = [0]
[settings.storage]
digest_bytes_max = "1MiB"
[settings.sequencer]
append_buffer_frames = 100
[defaults]
replicate = "node:1"
[logs."/events"]
durability = "async"
[logs."/events/clicks"]
ids = "1..8"
backlog_us = "2d"
"""
    return [small.encode()]


Word = tuple[Callable[[str], Any], Callable[[Any], str] | None]
_WORDS: list[Word] = [
    (LSN.parse, str),
    (parse_shard, format_shard),
    (ReplicationProperty.parse, str),
    (Location.parse, str),
    (parse_duration, format_duration),
    (parse_size, format_size),
    (parse_ids, None),
    (parse_assignment, None),
    (parse_position, None),
    (parse_node, None),
    (parse_setting_name, None),
    (parse_instant, None),
    (parse_timeout, None),
    (rebuilding.parse_shard, format_shard),
    (lambda text: AcceptedLoss.parse([text]), None),
]


def _words(data: bytes) -> None:
    """``u8 which parser``, then the word."""
    if not data:
        return
    parse, render = _WORDS[data[0] % len(_WORDS)]
    found = parse(data[1:].decode("utf-8", "replace"))
    if render is not None:
        same(parse(render(found)), found)


def _word_seeds() -> list[bytes]:
    words = [
        "e3n17",
        "N3:S0",
        "rack:2,node:3",
        "region.dc.cluster.row.rack",
        "1.5s",
        "64MiB",
        "1..8",
        "replicate=rack:2,node:3",
        "2026-01-31T12:00:00Z",
        "N3",
        "settings.sequencer.window",
        "2026-01-31T12:00:00+02:00",
        "1.5",
        "N3",
        "N2:S0=1",
    ]
    return [bytes([index]) + word.encode() for index, word in enumerate(words)]


DECODERS = (
    Target("frames", _frames, _frame_seeds, (ProtocolError,)),
    Target("stream", _stream, _stream_seeds, (ProtocolError,)),
    Target("entries", _entries, _entry_seeds, (CorruptEntryError,)),
    Target("batches", _batches, _batch_seeds, (CorruptEntryError,)),
    Target("keys", _keys, _key_seeds, (CorruptEntryError,)),
    Target("events", _events, _event_seeds, (CorruptEntryError,)),
    Target("snapshots", _snapshots, _snapshot_seeds, (CorruptEntryError,)),
    Target("metadata", _metadata, _metadata_seeds, (CorruptEntryError,)),
    Target("cells", _cells, _cell_seeds, ()),
    Target("rows", _rows, _row_seeds, (CorruptEntryError, CorruptMarkerError, LaterFormatError, UnknownRowError)),
    Target("wal", _write_ahead_logs, _write_ahead_log_seeds, ()),
    Target(
        "cluster_file",
        _cluster_files,
        cluster_seeds,
        (LogDeviceError,),
        seconds_max=1.0,  # tomllib takes quadratic time for keys of thousands of parts; who writes the file has the cluster
        words=tuple(b'[nodes.N [logs." [[ ]] """ inf nan 0x 1e9 \\u0000 ids replicate location'.split()),
    ),
    Target("words", _words, _word_seeds, (ValueError, argparse.ArgumentTypeError, LogDeviceError)),
)
