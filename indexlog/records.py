"""Modifications of documents: what they hold, how two that are neighbours merge, and the bytes of a record of a raw log."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status

INDEX_BYTES_MAX: Final = 64
DOCID_BYTES_MAX: Final = 1024
RECORD_BYTES_MAX: Final = 1 << 20
VARIABLE_MAX: Final = (1 << 31) - 1
TIMESTAMP_MAX: Final = (1 << 53) - 1
_FORMAT: Final = 1
_VALUES: Final = 8
"""Of a record."""
RECORD_HEAD: Final = bytes([0x90 + _VALUES, _FORMAT])
"""What a record begins with: an array of so many values, the first of which is the format."""
CONTENTS_HEAD: Final = bytes([0x94, _FORMAT])
"""What contents in files begin with. What follows is as in a record."""
_INDEX: Final = re.compile(r"[A-Za-z0-9_.-]+")

Texts = Mapping[str, str]
Variables = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Modification:
    """What was done to one document, in one step or in several that were merged."""

    deleted: bool = False
    """Everything older is gone. What else stands here was done behind that."""
    fields: Texts | None = None
    """All fields of the document, in place of the ones before; None: they stay."""
    variables: Variables = field(default_factory=dict)
    """Those that are set; others stay."""
    categories: Texts = field(default_factory=dict)
    """Those that are set; others stay."""
    timestamp: int = 0
    """Milliseconds since 1970 by the clock of who wrote the newest step. For people: the order does not depend on it."""

    @property
    def is_empty(self) -> bool:
        """There is nothing besides a delete."""
        return self.fields is None and not self.variables and not self.categories


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A modification, and of which document in which index."""

    index: str
    docid: str
    change: Modification


def merge(older: Modification, newer: Modification) -> Modification:
    """What two neighbours of the order come to. Associative: any grouping of neighbours gives the same."""
    if newer.deleted:
        return newer
    return Modification(
        older.deleted,
        older.fields if newer.fields is None else newer.fields,
        {**older.variables, **newer.variables},
        {**older.categories, **newer.categories},
        newer.timestamp,
    )


def fold(changes: Iterable[Modification]) -> Modification | None:
    """What a document's whole history, oldest first, comes to: the document, or None when there is none."""
    found = Modification(deleted=True)
    for change in changes:
        found = merge(found, change)
    return document(found)


def document(found: Modification) -> Modification | None:
    """What is left of a modification with nothing older before it."""
    if not found.deleted:
        return found
    if found.is_empty:
        return None
    return Modification(False, found.fields, found.variables, found.categories, found.timestamp)


# Validation


def check_record(record: LogRecord) -> LogRecord:
    """The record, its numbers as kept.

    Raises:
        LogDeviceError: INVALID_PARAM, which says what is wrong.
    """
    change = record.change
    try:
        if change.deleted is False and change.is_empty:
            raise ValueError("a modification that neither deletes nor sets anything")
        return LogRecord(
            check_index(record.index),
            check_docid(record.docid),
            Modification(
                _flag(change.deleted),
                None if change.fields is None else _texts("fields", change.fields),
                _variables(change.variables),
                _texts("categories", change.categories),
                _timestamp(change.timestamp),
            ),
        )
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None


def check_index(index: Any) -> str:
    """An index code; ValueError when it is none."""
    if type(index) is not str or len(index) > INDEX_BYTES_MAX or _INDEX.fullmatch(index) is None:
        raise ValueError(
            f"the index code {str(index)[:20]!r}: 1 to {INDEX_BYTES_MAX} letters, digits, _, . and - are allowed"
        )
    return index


def check_docid(docid: Any) -> str:
    """A document id; ValueError when it is none."""
    if not 1 <= len(_text("a document id", docid).encode()) <= DOCID_BYTES_MAX:
        raise ValueError(f"a document id has 1 to {DOCID_BYTES_MAX} bytes of UTF-8")
    return str(docid)


def _text(what: str, value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{what} is a text, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} is no text of Unicode: it holds half a surrogate pair") from None
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"deleted is true or false, not {type(value).__name__}")
    return value


def _texts(what: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} are texts by name, not {type(value).__name__}")
    return {_text(f"a name in {what}", name): _text(f"{name} in {what}", text) for name, text in value.items()}


def _variables(value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise ValueError(f"variables are numbers by number, not {type(value).__name__}")
    found = {}
    for number, worth in value.items():
        if type(number) is not int or not 0 <= number <= VARIABLE_MAX:
            raise ValueError(f"the number of a variable is {str(number)[:20]}; 0 to {VARIABLE_MAX} are allowed")
        if type(worth) not in (int, float) or not _is_finite(worth):
            raise ValueError(f"variable {number} is {str(worth)[:20]}; a finite number is expected")
        found[number] = float(worth)
    return found


def _is_finite(number: int | float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer that is larger than all floats
        return False


def _timestamp(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= TIMESTAMP_MAX:
        raise ValueError("a timestamp is in milliseconds since 1970")
    return value


# Bytes


def encode_record(record: LogRecord) -> bytes:
    """A record of a raw log, from one that `check_record` returned.

    Raises:
        LogDeviceError: TOOBIG.
    """
    change = record.change
    fields = None if change.fields is None else _sorted(change.fields)
    # its end is that of contents in files, so that these are made of it without a look at each value
    of_contents = fields, _sorted(change.variables), _sorted(change.categories)
    values = record.index, record.docid, change.deleted, change.timestamp, *of_contents
    packed: bytes = msgpack.packb([_FORMAT, *values])
    if len(packed) > RECORD_BYTES_MAX:
        text = f"the modification of {record.docid!r} has {len(packed)} bytes; {RECORD_BYTES_MAX} are allowed"
        raise LogDeviceError(Status.TOOBIG, text)
    return packed


def decode_record(data: bytes) -> LogRecord:
    """From `encode_record`.

    Raises:
        CorruptEntryError: it is no modification of this format.
    """
    index, docid, deleted, timestamp, fields, variables, categories = _values_of(data)
    return LogRecord(index, docid, Modification(deleted, fields, variables, categories, timestamp))


def decode_row(data: bytes) -> tuple[str, str, bool, int, bytes | None]:
    """As `decode_record`, as index, document id and the columns of files: `deleted`, `timestamp` and `contents`.

    Raises:
        CorruptEntryError: as `decode_record`.
    """
    index, docid, deleted, timestamp, fields, variables, categories = _values_of(data)
    return index, docid, deleted, timestamp, _packed_contents(fields, variables, categories)


def _values(record: LogRecord) -> tuple[str, str, bool, int, Texts | None, Variables, Texts]:
    """In the order of its bytes, behind the format."""
    change = record.change
    return (
        record.index,
        record.docid,
        change.deleted,
        change.timestamp,
        change.fields,
        change.variables,
        change.categories,
    )


def _values_of(data: bytes) -> tuple[str, str, bool, int, Texts | None, Variables, Texts]:
    """Of a record, in the order of its bytes, behind the format."""
    try:
        if len(data) > RECORD_BYTES_MAX:
            raise ValueError(f"{len(data)} bytes are too many")
        # no array in it is longer than itself: that bounds what is reserved, as `check_complete` does, at half of its cost
        format_, *values = msgpack.unpackb(data, strict_map_key=False, max_array_len=_VALUES, max_ext_len=0)
        index, docid, deleted, timestamp, fields, variables, categories = values
        if format_ != _FORMAT:
            raise ValueError(f"format {_FORMAT} expected")
        if not _is_plain(index, docid, deleted, timestamp, fields, variables, categories):
            change = Modification(deleted, fields, variables, categories, timestamp)
            return _values(check_record(LogRecord(index, docid, change)))
        return index, docid, deleted, timestamp, fields, variables, categories
    except (ValueError, TypeError, LogDeviceError, msgpack.UnpackException) as error:
        raise CorruptEntryError(f"this is no modification of a document: {str(error)[:200]}") from None


def _is_plain(
    index: Any, docid: Any, deleted: Any, timestamp: Any, fields: Any, variables: Any, categories: Any
) -> bool:
    """Whether values that were unpacked, so that their texts are Unicode, pass `check_record` as they are: most do, and this is several times as fast."""
    return (
        type(docid) is str
        and 0 < len(docid) <= DOCID_BYTES_MAX // 4  # of any letters
        and type(index) is str
        and len(index) <= INDEX_BYTES_MAX
        and _INDEX.fullmatch(index) is not None
        and type(deleted) is bool
        and type(timestamp) is int
        and 0 <= timestamp <= TIMESTAMP_MAX
        and (fields is None or _are_texts(fields))
        and type(variables) is dict
        and not variables
        and _are_texts(categories)
        and (deleted or fields is not None or len(categories) > 0)
    )


def _are_texts(values: Any) -> bool:
    if type(values) is not dict:
        return False
    for name, text in values.items():  # noqa: SIM110 - a loop is twice as fast as all() for a few
        if type(name) is not str or type(text) is not str:
            return False
    return True


def readable_record(payload: bytes | None) -> LogRecord | None:
    """What the payload of a raw record holds; None: it is no modification, and whoever reads the raw log passes over it."""
    try:
        return decode_record(payload or b"")
    except CorruptEntryError:
        return None


def readable_row(payload: bytes | None) -> tuple[str, str, bool, int, bytes | None] | None:
    """As `readable_record`, as `decode_row`."""
    try:
        return decode_row(payload or b"")
    except CorruptEntryError:
        return None


def peek_index(data: bytes) -> str | None:
    """Of which index a record is, without looking at the rest of it; None: it is none, as far as can be seen."""
    # what an array declares is reserved before it is read: there is none in what is looked at
    unpacker = msgpack.Unpacker(max_buffer_size=RECORD_BYTES_MAX, max_array_len=_VALUES, max_map_len=0, max_ext_len=0)
    try:
        unpacker.feed(data)
        if unpacker.read_array_header() != _VALUES or unpacker.unpack() != _FORMAT:
            return None
        return check_index(unpacker.unpack())
    except (ValueError, TypeError, msgpack.UnpackException):
        return None


def pack_contents(change: Modification) -> bytes | None:
    """Fields, variables and categories, as columns of files hold them; None: there are none. Equal contents have equal bytes."""
    return _packed_contents(change.fields, change.variables, change.categories)


def _packed_contents(fields: Texts | None, variables: Variables, categories: Texts) -> bytes | None:
    if fields is None and not variables and not categories:
        return None
    of_fields = None if fields is None else _sorted(fields)
    packed: bytes = msgpack.packb([_FORMAT, of_fields, _sorted(variables), _sorted(categories)])
    return packed


def unpack_contents(deleted: bool, contents: bytes | None, timestamp: int) -> Modification:
    """From a row of a file.

    Raises:
        CorruptEntryError: the contents are not of this format.
    """
    if contents is None:
        return Modification(deleted, timestamp=timestamp)
    try:
        format_, fields, variables, categories = msgpack.unpackb(contents, strict_map_key=False)
        if format_ != _FORMAT:
            raise ValueError(f"format {_FORMAT} expected")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptEntryError(f"these are no contents of a document: {error}") from None
    return Modification(deleted, fields, variables, categories, timestamp)


def _sorted(values: Mapping[Any, Any]) -> Mapping[Any, Any]:
    return values if len(values) < 2 else {name: values[name] for name in sorted(values)}
