"""Raw records as columns, many at a time. Where the values of a record lie is found for all records together, value by value, and their bytes are copied as they are:
Python looks at those records alone that are written in another way than `encode_record` writes them, or are no modifications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexlog.columns import SCHEMA, with_contents
from indexlog.records import (
    CONTENTS_HEAD,
    DOCID_BYTES_MAX,
    RECORD_BYTES_MAX,
    RECORD_HEAD,
    TIMESTAMP_MAX,
    VARIABLE_MAX,
    check_index,
    readable_row,
)

Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
_PAD: Final = bytes(16)
"""Behind the last record, so that what is looked at is there: the head of a value and the number behind it."""
_ENTRIES_MAX: Final = 64
"""Of a map: records with more are looked at by Python, as each entry is a step of its own."""

# msgpack's heads of values
_NONE: Final = 0xC0
_FALSE: Final = 0xC2
_TRUE: Final = 0xC3
_FLOAT64: Final = 0xCB
_INFINITE: Final = 0x7FF0
"""The exponent of a float that is no finite number, in its first 16 bits."""

_IN_PLACE: Final = SCHEMA.set(3, pa.field("contents", pa.dictionary(pa.int32(), pa.binary())))


def _table(default: int, *ranges: tuple[int, int, int]) -> Integers:
    """By the head of a value."""
    found = np.full(256, default, np.int64)
    for first, last, value in ranges:
        found[first : last + 1] = value
    return found


_OTHER: Final = 5
"""A head that is not expected."""
_TEXT_FORM: Final = _table(_OTHER, (0xA0, 0xBF, 0), (0xD9, 0xD9, 1), (0xDA, 0xDA, 2), (0xDB, 0xDB, 3))
_MAP_FORM: Final = _table(_OTHER, (0x80, 0x8F, 0), (0xDE, 0xDE, 2), (0xDF, 0xDF, 3))
_NUMBER_FORM: Final = _table(
    _OTHER, (0x00, 0x7F, 0), (0xCC, 0xCC, 1), (0xCD, 0xCD, 2), (0xCE, 0xCE, 3), (0xCF, 0xCF, 4)
)
_WIDTH: Final = np.array([0, 1, 2, 4, 8, 0])
"""Bytes of the number behind the head, by its form."""
_TEXT_LEAST: Final = np.array([0, 32, 256, 65536, 0, 0])
"""What a shorter form cannot say."""
_MAP_LEAST: Final = np.array([0, 0, 16, 65536, 0, 0])
_NUMBER_LEAST: Final = np.array([0, 128, 256, 65536, 1 << 32, 0])


@dataclass(frozen=True, slots=True)
class RawRows:
    """The modifications among raw records, in the order of these."""

    places: Integers
    """Of each row, which of the records it is."""
    indexes: list[str]
    """Index codes, each once."""
    codes: Integers
    """Of each row, the place of its index in `indexes`."""
    table: pa.Table
    """The columns of files, with contents in place: where the records are."""

    def chosen(self, rows: Flags) -> RawRows:
        """Those that have a flag."""
        if rows.all():
            return self
        return RawRows(self.places[rows], self.indexes, self.codes[rows], self.table.filter(pa.array(rows)))


def raw_rows(payloads: Sequence[bytes], sizes: Integers) -> RawRows:
    """What raw records hold: of each what `readable_row` tells, if anything.

    Args:
        payloads: of the records, less than 2 GiB.
        sizes: of these.
    """
    walk = _Walk(payloads, sizes)
    plain = walk.rows()
    others = [(place, *row) for place in np.flatnonzero(~walk.sound).tolist() if (row := readable_row(payloads[place]))]
    if not others:
        return plain
    indexes = list(dict.fromkeys([*plain.indexes, *(index for _, index, *_ in others)]))
    places, names, *columns = zip(*others, strict=True)
    both = np.concatenate([plain.places, places])
    codes = np.concatenate([plain.codes, list(map({index: code for code, index in enumerate(indexes)}.get, names))])
    order = np.argsort(both)
    tables = [with_contents(plain.table), pa.table(list(map(list, columns)), schema=SCHEMA)]
    table = pa.concat_tables(tables).combine_chunks()
    return RawRows(both[order], indexes, codes[order], table.take(pa.array(order)))


class _Walk:
    """Goes through all records together, from value to value."""

    def __init__(self, payloads: Sequence[bytes], sizes: Integers) -> None:
        self._bytes = np.frombuffer(bytearray().join([*payloads, _PAD]), np.uint8)
        self._ends: Integers = np.cumsum(sizes)
        self._at: Integers = self._ends - sizes
        self._texts: list[tuple[Integers, Integers, Integers]] = []
        self.sound: Flags = sizes <= RECORD_BYTES_MAX
        """Which records are as `encode_record` writes them, as far as was looked."""

    def rows(self) -> RawRows:
        """Those of records that are sound, once all was looked at."""
        everyone = np.arange(len(self._at))
        for byte in RECORD_HEAD:
            self._go(everyone, self._at + 1, self._head(everyone) == byte)
        index = self._text(everyone)
        docid = self._text(everyone)
        length = docid[1] - docid[0]
        deleted = self._head(everyone)
        self._go(
            everyone,
            self._at + 1,
            ((deleted == _TRUE) | (deleted == _FALSE)) & (length > 0) & (length <= DOCID_BYTES_MAX),
        )
        timestamps = self._number(everyone, TIMESTAMP_MAX)
        contents = self._at.copy()
        has_fields = self._head(everyone) != _NONE
        self._go(everyone[~has_fields], self._at[~has_fields] + 1)
        self._text_map(everyone[has_fields])
        has_variables = self._variables(everyone)
        has_categories = self._text_map(everyone)
        is_empty = np.ones(len(everyone), np.bool_)
        is_empty[has_fields] = is_empty[has_variables] = is_empty[has_categories] = False
        self.sound &= (self._at == self._ends) & ((deleted == _TRUE) | ~is_empty)
        self._check_texts()
        indexes, codes = self._indexes(index)

        rows = np.flatnonzero(self.sound)
        for place, byte in enumerate(CONTENTS_HEAD, -len(CONTENTS_HEAD)):
            self._bytes[contents[rows] + place] = byte  # in the place of what was read already
        kept = contents[rows] - len(CONTENTS_HEAD), self._ends[rows]
        table = pa.table(
            [
                self._copied((docid[0][rows], docid[1][rows]), pa.string()),
                pa.array(deleted[rows] == _TRUE),
                pa.array(timestamps[rows]),
                self._kept(kept, pa.binary(), pa.array(is_empty[rows])),
            ],
            schema=_IN_PLACE,
        )
        return RawRows(rows, indexes, codes[rows], table)

    # Steps: each takes the numbers of records, in ascending order, and leaves these behind a value, or unsound

    def _head(self, who: Integers) -> Integers:
        return self._bytes[self._at[who]].astype(np.int64)

    def _go(self, who: Integers, to: Integers, is_sound: Flags | bool = True) -> None:
        ends = self._ends[who]
        self.sound[who] &= is_sound & (to <= ends)
        self._at[who] = np.minimum(to, ends)

    def _at_number(
        self, who: Integers, forms: Integers, leasts: Integers, in_head: int
    ) -> tuple[Integers, Integers, Flags]:
        """The number that a head tells, or that is behind it; where it ends; and whether it is in the shortest form."""
        at = self._at[who]
        head = self._bytes[at].astype(np.int64)
        form = forms[head]
        width = _WIDTH[form]
        number = head & in_head
        for wide in np.unique(width[width > 0]).tolist():
            those = width == wide
            found = np.zeros(np.count_nonzero(those), np.int64)
            for place in range(1, wide + 1):
                found = found << 8 | self._bytes[at[those] + place]
            number[those] = found
        return number, at + 1 + width, (form != _OTHER) & (number >= leasts[form])

    def _text(self, who: Integers) -> tuple[Integers, Integers]:
        length, begin, is_sound = self._at_number(who, _TEXT_FORM, _TEXT_LEAST, 0x1F)
        self._go(who, begin + length, is_sound)
        end = self._at[who]
        begin = np.minimum(begin, end)
        self._texts.append((who, begin, end))
        return begin, end

    def _number(self, who: Integers, most: int) -> Integers:
        number, end, is_sound = self._at_number(who, _NUMBER_FORM, _NUMBER_LEAST, 0x7F)
        self._go(who, end, is_sound & (number <= most))
        return number

    def _count(self, who: Integers) -> Integers:
        count, end, is_sound = self._at_number(who, _MAP_FORM, _MAP_LEAST, 0x0F)
        self._go(who, end, is_sound & (count <= _ENTRIES_MAX))
        return count

    def _text_map(self, who: Integers) -> Integers:
        """Texts by name, in the order of names. Those records that have some."""
        left = self._count(who)
        filled = who = who[has_more := (left > 0) & self.sound[who]]
        left = left[has_more]
        before: tuple[Integers, Integers] | None = None
        while len(who):
            name = self._text(who)
            if before is not None:
                self.sound[who] &= self._are_less(before, name)
            self._text(who)
            left = left - 1
            has_more = (left > 0) & self.sound[who]
            who, left, before = who[has_more], left[has_more], (name[0][has_more], name[1][has_more])
        return filled

    def _variables(self, who: Integers) -> Integers:
        """Finite floats by number, in the order of numbers. Those records that have some."""
        left = self._count(who)
        filled = who = who[has_more := (left > 0) & self.sound[who]]
        left = left[has_more]
        before = np.full(len(who), -1)
        while len(who):
            number = self._number(who, VARIABLE_MAX)
            at = self._at[who]
            exponent = (self._bytes[at + 1].astype(np.int64) << 8 | self._bytes[at + 2]) & _INFINITE
            self._go(who, at + 9, (before < number) & (self._bytes[at] == _FLOAT64) & (exponent != _INFINITE))
            left = left - 1
            has_more = (left > 0) & self.sound[who]
            who, left, before = who[has_more], left[has_more], number[has_more]
        return filled

    # Texts

    def _are_less(self, one: tuple[Integers, Integers], other: tuple[Integers, Integers]) -> Flags:
        less = pc.less(self._copied(one, pa.binary()), self._copied(other, pa.binary()))
        return np.asarray(less.to_numpy(zero_copy_only=False), np.bool_)

    def _copied(self, ranges: tuple[Integers, Integers], kind: pa.DataType) -> pa.Array:
        """The bytes of ranges, which are in ascending order and do not overlap."""
        return self._kept(ranges, kind).cast(kind)

    def _kept(self, ranges: tuple[Integers, Integers], kind: pa.DataType, are_null: pa.Array | None = None) -> pa.Array:
        """As `_copied`, as a dictionary: nothing is copied."""
        numbers = pa.array(np.arange(0, 2 * len(ranges[0]), 2, dtype=np.int32))
        if are_null is not None:
            numbers = pc.if_else(are_null, pa.scalar(None, pa.int32()), numbers)
        return pa.DictionaryArray.from_arrays(numbers, self._with_gaps(ranges, kind, None))

    def _with_gaps(self, ranges: tuple[Integers, Integers], kind: pa.DataType, are_valid: Any) -> pa.Array:
        """The bytes of ranges, and what is between them, in turn."""
        offsets = np.stack(ranges, 1).ravel().astype(np.int32)
        if not len(offsets):
            return pa.array([], kind)
        return pa.Array.from_buffers(
            kind, len(offsets) - 1, [are_valid, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        )

    def _check_texts(self) -> None:
        """Records with a text that is no UTF-8 are not sound."""
        chosen = [(begin[is_sound], end[is_sound]) for who, begin, end in self._texts for is_sound in [self.sound[who]]]
        begins, ends = (np.sort(np.concatenate(each)) for each in zip(*chosen, strict=True))
        if not len(begins):
            return
        every_other = pa.py_buffer(b"\x55" * (len(begins) // 4 + 1))  # what is between texts is null, and not looked at
        texts = self._with_gaps((begins, ends), pa.string(), every_other)
        wrong = begins[[place // 2 for place in _invalid(texts)]]
        self.sound[np.searchsorted(self._ends, wrong, "right")] = False

    def _indexes(self, texts: tuple[Integers, Integers]) -> tuple[list[str], Integers]:
        """Index codes, and of each record the place of its own among them. Those with others are not sound."""
        rows = np.flatnonzero(self.sound)
        found = self._copied((texts[0][rows], texts[1][rows]), pa.string()).dictionary_encode()
        codes = np.zeros(len(self.sound), np.int64)
        codes[rows] = found.indices.to_numpy()
        indexes = found.dictionary.to_pylist()
        wrong = [code for code, index in enumerate(indexes) if not _is_index(index)]
        if wrong:
            self.sound[rows[np.isin(codes[rows], wrong)]] = False
        return indexes, codes


def _is_index(text: str) -> bool:
    try:
        check_index(text)
    except ValueError:
        return False
    return True


def _invalid(texts: pa.Array, first: int = 0) -> list[int]:
    """Places of texts that are no UTF-8."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        half = len(texts) // 2
        return [*_invalid(texts[:half], first), *_invalid(texts[half:], first + half)] if half else [first]
    return []
