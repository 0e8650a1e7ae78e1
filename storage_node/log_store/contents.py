"""From the rows of the metadata to the `Contents` that the machines get; the same for all stores."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgpack

from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.identity import PreviousEnd
from storage_node.log_store.interface import Contents, EpochMetadataKind, LogMetadataKind
from storage_node.log_store.row_values import UnknownRowError, unpack_integer, unpack_integers, unpack_pairs

_LOSSES_MAX: Final = 64
_LOG_KINDS: Final = {int(kind): kind for kind in LogMetadataKind}
_EPOCH_KINDS: Final = {int(kind): kind for kind in EpochMetadataKind}
DIRECTORY_PREFIX: Final = 0x70
PARTITION_PREFIX: Final = 0x50


class ContentsBuilder:
    """Fills a `Contents` row by row, in the order of keys."""

    __slots__ = ("contents", "directory", "partitions")

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.directory: dict[LogId, list[tuple[Lsn, int, Lsn, int]]] = {}
        """Per log, by ascending LSN: (first lsn, partition, greatest lsn, bytes)."""
        self.partitions: list[tuple[int, bytes]] = []
        """Number and row of every partition, ascending."""

    def add(self, key: bytes, value: bytes) -> None:
        """Take a row.

        Raises:
            UnknownRowError: the row is of no known kind, or its value cannot be read.
        """
        prefix = key[0] if key else 0
        if prefix in _LOG_KINDS and len(key) == 9:
            self.contents.log_metadata.append((keys.split_log_metadata_key(key), _LOG_KINDS[prefix], value))
        elif prefix in _EPOCH_KINDS and len(key) == 13:
            log, epoch = keys.split_epoch_metadata_key(key)
            self.contents.epoch_metadata.append((log, epoch, _EPOCH_KINDS[prefix], value))
        elif prefix == DIRECTORY_PREFIX and len(key) == 25:
            log, first, partition = keys.split_directory_key(key)
            try:
                highest, _, size = keys.split_directory_value(value)
            except struct.error:
                raise UnknownRowError(f"the directory holds a row of {len(value)} bytes: {value[:40].hex()}") from None
            self.directory.setdefault(log, []).append((first, partition, highest, size))
        elif prefix == PARTITION_PREFIX and len(key) == 9:
            self.partitions.append((keys.split_partition_key(key), value))
        elif key == keys.WHOLE_FOR_KEY:
            self.contents.metadata_whole_for = frozenset(
                map(ShardId, unpack_integers(value, "the row of shards with whole metadata"))
            )
        elif key == keys.DRAIN_KEY:
            self.contents.drain = Lsn(unpack_integer(value, "the row of the drain"))
        elif prefix != 0:
            raise UnknownRowError(f"the metadata holds a row of unknown kind: {key.hex()}")


def encode_durable(until: Timestamp) -> bytes:
    """Value of `keys.DURABLE_KEY`."""
    packed: bytes = msgpack.packb(until)
    return packed


def encode_drain(drain: Lsn) -> bytes:
    """Value of `keys.DRAIN_KEY`."""
    packed: bytes = msgpack.packb(int(drain))
    return packed


def encode_whole_for(shards: Sequence[ShardId]) -> bytes:
    """Value of `keys.WHOLE_FOR_KEY`."""
    packed: bytes = msgpack.packb([int(shard) for shard in shards])
    return packed


def encode_losses(losses: list[tuple[Timestamp, Timestamp]]) -> bytes:
    """Value of `keys.LOSSES_KEY`."""
    packed: bytes = msgpack.packb(losses)
    return packed


def decode_losses(
    losses: bytes | None, durable: bytes | None, stop: PreviousEnd, now: Timestamp
) -> list[tuple[Timestamp, Timestamp]]:
    """The spans of time whose unsynced writes may be missing, after the stop before this run.

    Args:
        losses: what `keys.LOSSES_KEY` holds, None if nothing.
        durable: what `keys.DURABLE_KEY` holds, None if nothing.
        stop: how the last run ended.
        now: end of a span that begins with `durable`.

    Raises:
        UnknownRowError: a row cannot be read.
    """
    pairs = unpack_pairs(losses, "the row of losses") if losses else []
    spans = [(Timestamp(first), Timestamp(last)) for first, last in pairs]
    if stop is PreviousEnd.MACHINE_DIED:
        begin = Timestamp(unpack_integer(durable, "the row of what is durable")) if durable else Timestamp(0)
        spans.append((min(begin, now), now))
    if len(spans) > _LOSSES_MAX:
        # a span too wide is safe, a span forgotten is not
        spans[:2] = [(min(spans[0][0], spans[1][0]), max(spans[0][1], spans[1][1]))]
    return spans
