"""From the image of an entry to its records."""

from __future__ import annotations

from functools import partial
from typing import Final

from logdevice_py.core.batch import constituent_records
from logdevice_py.core.entry import (
    RECORDS_PER_ENTRY_MAX,
    EntryFlags,
    EntryHeader,
    body_of,
    body_view,
    check_body,
    parse_constituents,
    parse_header,
)
from logdevice_py.core.extensions import parse_extensions
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.record_keys import body_keys
from logdevice_py.core.sealed_batch import OpenBatches, OpenSealed, decode_sealed
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status

_METADATA: Final = int(EntryFlags.METADATA)
_KEYED: Final = int(EntryFlags.KEYED)


def verify_image(log: int, lsn: int, image: bytes) -> EntryHeader:
    """The header of a copy that a shard sent for `lsn`, after its header and body were compared with their checksums.

    Raises:
        CorruptEntryError: the copy is damaged, or not of this entry.
    """
    header = parse_header(image)
    if header.lsn != lsn or header.log != log:
        raise CorruptEntryError("the copy belongs to another entry")
    if header.is_amend:
        raise CorruptEntryError("the copy has lost its body")
    if header.records > RECORDS_PER_ENTRY_MAX:
        raise CorruptEntryError(f"an entry of {header.records} records is over the limit of {RECORDS_PER_ENTRY_MAX}")
    check_body(image, header)
    return header


def ends_log(header: EntryHeader) -> bool:
    """Whether nothing follows a verified entry, from nobody, for ever."""
    try:
        state = parse_extensions(header.extensions).tail
    except CorruptEntryError:
        return False
    return state is not None and state.ended


def rank_of(image: bytes) -> tuple[int, int]:
    """`EntryHeader.rank` without parsing the rest of a verified image."""
    flags = image[2] << 8 | image[3]
    return (1 if flags & EntryFlags.WRITTEN_BY_RECOVERY else 0, int.from_bytes(image[4:8], "big"))


def no_keys(log: LogId, lsn: Lsn) -> OpenBatches:
    """What a reader without keys does with the sealed batches of an entry: it raises NOKEY."""
    return partial(_refuse, log)


def _refuse(log: LogId, payload: bytes, records: int) -> bytes:
    name = decode_sealed(payload).key_name
    text = f"log {log} has records that are encrypted by key {name!r}: give the reader its keys (encryption=; of programs --keys or LOGDEVICE_KEYS_FILE)"
    raise LogDeviceError(Status.NOKEY, text)


def entry_records(header: EntryHeader, image: bytes, open_sealed: OpenSealed = no_keys) -> list[bytes | None]:
    """The records of a verified entry: exactly as many as its header declares, None for each that cannot be read.

    Raises:
        LogDeviceError: NOKEY, MISPLACED, or what else `open_sealed` raises: they are encrypted.
    """
    if header.flags & _METADATA:
        return [body_of(image)]
    if header.extensions and not _is_readable(header):
        return [None] * header.records
    try:
        parts = parse_constituents(body_view(image))
    except CorruptEntryError:
        return [None] * header.records
    opened = open_sealed(header.log, header.lsn)
    if len(parts) == 1 and parts[0].records == header.records:
        return constituent_records(parts[0], opened)
    if sum(part.records for part in parts) != header.records:
        return [None] * header.records
    records: list[bytes | None] = []
    for part in parts:
        records += constituent_records(part, opened)
    return records


def _is_readable(header: EntryHeader) -> bool:
    """Whether this version knows how the body is stored."""
    try:
        return parse_extensions(header.extensions).readable
    except CorruptEntryError:
        return False


def entry_keys(header: EntryHeader, image: bytes) -> list[bytes | None] | None:
    """The keys of a verified entry's records, as many as `entry_records`; None when none has one."""
    if not header.flags & _KEYED or (header.extensions and not _is_readable(header)):
        return None
    try:
        keys = body_keys(body_view(image))
    except CorruptEntryError:
        return None
    return keys if len(keys) == header.records else None
