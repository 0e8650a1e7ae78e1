"""Keys of the shard's store. Integers are big-endian, so the order of bytes is the order of numbers.

=========================================  =================================================================================
``'d' log u64, lsn u64, recovery u8, wave u32``   a copy of an entry -> its image; of a large one the header alone
``'b' log u64, lsn u64, recovery u8, wave u32``   the same copy, if it is large -> its image, with the body
``kind, log u64``                          metadata of a log (`LogMetadataKind`)
``kind, log u64, epoch u32``               metadata of an epoch (`EpochMetadataKind`)
``'p' log u64, first lsn u64, partition u64``     directory: what a partition holds of a log -> greatest lsn, flags, bytes
``'P' partition u64``                      a partition -> state, when it was begun, bounds of its records' timestamps
``0x00 name``                              of the whole store: marker, durable, losses, unmarked, families, whole for
=========================================  =================================================================================
"""

from __future__ import annotations

import struct
from typing import Final

from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId
from logdevice_py.core.lsn import Epoch, Lsn

_DATA: Final = struct.Struct(">cQQBI")
_DATA_RANGE: Final = struct.Struct(">cQQ")
_DATA_LOG: Final = struct.Struct(">cQ")
_LSN_AND_RANK: Final = struct.Struct(">QBI")
_LOG: Final = struct.Struct(">BQ")
_EPOCH: Final = struct.Struct(">BQI")
_DIRECTORY: Final = struct.Struct(">cQQQ")
_DIRECTORY_VALUE: Final = struct.Struct(">QIQ")
_PARTITION: Final = struct.Struct(">cQ")

MARKER_KEY: Final = b"\x00marker"
DURABLE_KEY: Final = b"\x00durable"
LOSSES_KEY: Final = b"\x00losses"
UNMARKED_KEY: Final = b"\x00unmarked"
"""There from the start after a stop of the machine until what may be missing since is marked."""
WHOLE_FOR_KEY: Final = b"\x00whole for"
"""Of the nodesets of metadata logs for which the shard got back, since it started a new generation, what it had lost."""
DRAIN_KEY: Final = b"\x00drain"
"""The drain that the shard has done its part of: see `WriteBatch.drain`."""
FAMILIES_KEY: Final = b"\x00families"
TIMESTAMP: Final = slice(24, 32)
"""Where in an entry's image its record timestamp is: microseconds, big-endian, signed."""
_BODY: Final = b"b"
LOGS_END: Final = b"e"
"""Above every key of a copy."""
BODIES_END: Final = b"c"
"""Above every key of a body."""
UNPARTITIONED: Final = 0
"""Partition number of what is not partitioned."""
PARTITION_FIRST: Final = 1_000_000
_LSN_KEY_MAX: Final = (1 << 64) - 1


def data_key(log: int, lsn: int, by_recovery: bool, wave: int) -> bytes:
    """Of a copy."""
    return _DATA.pack(b"d", log, lsn, by_recovery, wave)


def data_bounds(log: int, first: int, last: int) -> tuple[bytes, bytes]:
    """(first key, key behind the last) of all copies in [first, last]."""
    assert 0 <= first <= last < _LSN_KEY_MAX, (first, last)
    return _DATA_RANGE.pack(b"d", log, first), _DATA_RANGE.pack(b"d", log, last + 1)


def body_key(key: bytes) -> bytes:
    """Where the body of the copy at `key` lies, if it lies apart."""
    return _BODY + key[1:]


def body_key_at(log: int, lsn: int, rank: int) -> bytes:
    """Where the body of a copy lies, if it lies apart. `rank` is one number, as of `split_data_key`."""
    return _DATA.pack(_BODY, log, lsn, rank >> 32, rank & 0xFFFFFFFF)


def body_bounds(log: int, first: int, last: int) -> tuple[bytes, bytes]:
    """(first key, key behind the last) of all bodies that lie apart in [first, last]."""
    begin, end = data_bounds(log, first, last)
    return body_key(begin), body_key(end)


def copy_bounds(log: int, first: int, last: int) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    """Of everything that copies in [first, last] consist of: `data_bounds` and `body_bounds`."""
    return data_bounds(log, first, last), body_bounds(log, first, last)


def log_begin(log: int) -> bytes:
    """Not above any key of a copy of the log or of a greater one, above all others."""
    return _DATA_LOG.pack(b"d", log)


def split_data_key(key: bytes) -> tuple[Lsn, int]:
    """(lsn, rank as one number) of a copy's key."""
    lsn, by_recovery, wave = _LSN_AND_RANK.unpack_from(key, 9)
    return lsn, by_recovery << 32 | wave


def log_metadata_key(log: int, kind: int) -> bytes:
    """Of metadata of a log."""
    return _LOG.pack(kind, log)


def split_log_metadata_key(key: bytes) -> LogId:
    """The log of a `log_metadata_key`."""
    return LogId(_LOG.unpack(key)[1])


def epoch_metadata_key(log: int, epoch: int, kind: int) -> bytes:
    """Of metadata of an epoch."""
    return _EPOCH.pack(kind, log, epoch)


def split_epoch_metadata_key(key: bytes) -> tuple[LogId, Epoch]:
    """(log, epoch) of an `epoch_metadata_key`."""
    _, log, epoch = _EPOCH.unpack(key)
    return log, epoch


def directory_key(log: int, first: int, partition: int) -> bytes:
    """Of the directory's row on a log in a partition."""
    return _DIRECTORY.pack(b"p", log, first, partition)


def split_directory_key(key: bytes) -> tuple[LogId, Lsn, int]:
    """(log, first lsn, partition) of a `directory_key`."""
    _, log, first, partition = _DIRECTORY.unpack(key)
    return log, first, partition


def directory_value(highest: int, flags: int, size: int) -> bytes:
    """A row of the directory: greatest LSN, flags (none so far), approximate bytes."""
    return _DIRECTORY_VALUE.pack(highest, flags, size)


def split_directory_value(value: bytes) -> tuple[Lsn, int, int]:
    """(greatest lsn, flags, bytes) of a `directory_value`."""
    highest, flags, size = _DIRECTORY_VALUE.unpack_from(value)
    return highest, flags, size


def partition_key(partition: int) -> bytes:
    """Of the row on a partition."""
    return _PARTITION.pack(b"P", partition)


def split_partition_key(key: bytes) -> int:
    """The partition of a `partition_key`."""
    number: int = _PARTITION.unpack(key)[1]
    return number


def timestamp_of(image: bytes) -> int:
    """The record timestamp in an entry's header, which is not checked: some number where the image is damaged."""
    return int.from_bytes(image[TIMESTAMP], "big", signed=True)


def encode_timestamp(timestamp: int) -> bytes:
    """As in an entry's header. From 0 on, the order of bytes is that of timestamps."""
    return timestamp.to_bytes(8, "big", signed=True)


def is_partitioned(log: int) -> bool:
    """Data logs are; metadata logs and internal logs, which live long and hold little, are not."""
    return log <= USER_LOG_ID_MAX
