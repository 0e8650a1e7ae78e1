"""Entry images for tests of log stores."""

from __future__ import annotations

from google_crc32c import value as crc32c

from logdevice_py.core.entry import EntryFlags, EntryHeader, encode_entry
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Esn, Lsn, compose_lsn
from logdevice_py.core.units import Timestamp
from storage_node.log_store.interface import ReadLast, ReadResult, ReadShard, WriteBatch

SHARD = ShardId(3 << 8)
LOG = LogId(7)
LAST = Lsn((1 << 63) - 1)


def at(esn: int, epoch: int = 1) -> Lsn:
    """An LSN."""
    return compose_lsn(epoch, esn)


def image_of(
    lsn: Lsn,
    body: bytes = b"payload",
    *,
    log: LogId = LOG,
    wave: int = 1,
    flags: int = 0,
    copyset: tuple[int, ...] = (768,),
    timestamp: int = 1_000,
) -> bytes:
    """A copy; with AMEND in `flags`, of a header that speaks for `body`."""
    amend = bool(flags & EntryFlags.AMEND)
    header = EntryHeader(
        log, lsn, Timestamp(timestamp), wave, tuple(map(ShardId, copyset)), Esn(0), 1, flags, len(body), crc32c(body)
    )
    return encode_entry(header, b"" if amend else body)


def put(
    batch: WriteBatch,
    lsn: Lsn,
    body: bytes = b"payload",
    *,
    log: LogId = LOG,
    wave: int = 1,
    flags: int = 0,
    copyset: tuple[int, ...] = (768,),
    timestamp: int = 1_000,
) -> bytes:
    """Put a copy into a batch; returns its image."""
    image = image_of(lsn, body, log=log, wave=wave, flags=flags, copyset=copyset, timestamp=timestamp)
    recovery = bool(flags & EntryFlags.WRITTEN_BY_RECOVERY)
    batch.put_entry(log, lsn, by_recovery=recovery, wave=wave, image=image)
    return image


def read_all(
    store: object,
    log: LogId = LOG,
    first: Lsn = Lsn(0),
    last: Lsn = LAST,
    bytes_max: int = 1 << 30,
    entries_max: int = 1 << 20,
) -> ReadResult:
    """Read a range."""
    result = store.read(ReadShard(1, SHARD, log, first, last, bytes_max, entries_max))  # type: ignore[attr-defined]
    assert isinstance(result, ReadResult)
    return result


def read_last(
    store: object, log: LogId = LOG, first: Lsn = Lsn(0), last: Lsn = LAST, *, skip_holes: bool = False
) -> ReadResult:
    """Read the last entry of a range."""
    result = store.read_last(ReadLast(1, SHARD, log, first, last, skip_holes))  # type: ignore[attr-defined]
    assert isinstance(result, ReadResult)
    return result
