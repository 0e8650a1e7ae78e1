"""Raw files: the bytes to which independent writers append modifications, what a file covers, and how the files of several writers come to one history.

A file is frames one behind the other: length and crc32c (4 bytes each, little-endian), then a modification as raw logs hold it. Beside it lies its summary.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from typing import Final

from google_crc32c import value as crc32c

from indexlog.manifest.commands import NUMBER_MAX
from indexlog.records import RECORD_BYTES_MAX, TIMESTAMP_MAX, LogRecord, check_index
from logdevice_py.core.status import CorruptEntryError

RAW_FILE_BYTES_MAX: Final = 50_000_000
"""Of a file; a writer goes on in another one."""
_FORMAT: Final = 1
_FRAME: Final = struct.Struct("<II")
_ALIGNED_MAX: Final = 4_000_000
"""Comparisons for one document and millisecond."""


# Bytes


def raw_frame(payload: bytes) -> bytes:
    """A modification in a raw file."""
    return _FRAME.pack(len(payload), crc32c(payload)) + payload


def raw_frames(data: bytes) -> tuple[list[bytes], int]:
    """The modifications of a raw file, and how many of its bytes are sound: what is behind them is damaged, or was not written to its end."""
    payloads: list[bytes] = []
    at = 0
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        if length > RECORD_BYTES_MAX or len(payload) < length or crc32c(payload) != checksum:
            break
        payloads.append(payload)
        at += _FRAME.size + length
    return payloads, at


@dataclass(frozen=True, slots=True)
class RawFileSummary:
    """What the writer of a raw file says of it: it got every modification of this time, and they are in the file."""

    writer: str
    """Nobody else's name; who stopped never writes again under it."""
    number: int
    """Of the file, among those of its writer: 0, 1, 2 and so on."""
    begin: int
    """Milliseconds since 1970: the first that it covers."""
    end: int
    """The first one that it does not cover."""
    records: int
    size: int
    """Bytes."""
    crc32c: int
    """Of the file."""

    def encode(self) -> bytes:
        """As a file of JSON."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> RawFileSummary:
        """From `encode`.

        Raises:
            CorruptEntryError: it is none.
        """
        try:
            raw = json.loads(data)
            if type(raw) is not dict or raw.pop("format", None) != _FORMAT:
                raise ValueError(f"format {_FORMAT} expected")
            found = cls(**raw)
            check_index(found.writer)
            for name in (each.name for each in fields(cls) if each.name != "writer"):
                number = getattr(found, name)
                if type(number) is not int or not 0 <= number <= NUMBER_MAX:
                    raise ValueError(f"{name}: a number expected")
            if not found.begin <= found.end <= TIMESTAMP_MAX + 1:
                raise ValueError("it ends before it begins")
            return found
        except (ValueError, TypeError, RecursionError) as error:
            raise CorruptEntryError(f"this is no summary of a raw file: {str(error)[:200]}") from None


# Time


@dataclass(frozen=True, slots=True, order=True)
class TimeRange:
    """From `begin` up to, not including, `end`: milliseconds since 1970."""

    begin: int
    end: int


def covered(ranges: Iterable[TimeRange]) -> list[TimeRange]:
    """What some range covers, as few ranges that do not touch, in order. What lies between two of them is a gap of all."""
    found: list[TimeRange] = []
    for each in sorted(ranges):
        if found and each.begin <= found[-1].end:
            found[-1] = TimeRange(found[-1].begin, max(found[-1].end, each.end))
        else:
            found.append(each)
    return found


# Order


@dataclass(frozen=True, slots=True)
class RawSource:
    """A raw file as a part of a history."""

    rank: int
    """Of its writer: of modifications of one millisecond, those of a lower rank come first."""
    number: int
    """Among the files of its writer."""
    first: int
    """The earliest timestamp in it."""
    read: Callable[[], Iterable[LogRecord]]
    """Its modifications, in the order in which they were written."""


def merged_sources(sources: Iterable[RawSource]) -> Iterator[LogRecord]:
    """One history of the files of several writers, each of which has a part of it, and most of which several have.

    The order is that of timestamps; within a millisecond that of writers, and each writer's own. A modification of one document that several writers have counts
    once, as many times as one of them has it. Files are in memory only while their time is at hand.
    """
    for _, group in groupby(_by_time(sources), lambda each: each[0]):
        of_document: dict[tuple[str, str], dict[int, list[LogRecord]]] = {}
        for _, rank, record in group:
            of_document.setdefault((record.index, record.docid), {}).setdefault(rank, []).append(record)
        for of_writers in of_document.values():
            merged: Sequence[LogRecord] = ()
            # who has all of a millisecond has most of it, and decides
            for records in sorted(of_writers.values(), key=len, reverse=True):
                merged = aligned(merged, records)
            yield from merged


def _by_time(sources: Iterable[RawSource]) -> Iterator[tuple[int, int, LogRecord]]:
    """By timestamp, writer and place: timestamp, rank of the writer, modification."""
    unread = {(source.rank, source.number): source for source in sources}
    reading: dict[tuple[int, int], Iterator[LogRecord]] = {}
    at_hand: dict[tuple[int, int], LogRecord] = {}
    heap = [(source.first, *key) for key, source in unread.items()]
    heapq.heapify(heap)
    while heap:
        time, rank, number = heapq.heappop(heap)
        key = rank, number
        if key in unread:
            found = unread.pop(key).read()
            reading[key] = iter(sorted(found, key=lambda each: each.change.timestamp))
        else:
            yield time, rank, at_hand[key]
        following = next(reading[key], None)
        if following is not None:
            at_hand[key] = following
            heapq.heappush(heap, (following.change.timestamp, rank, number))
        else:
            del reading[key]


def aligned(one: Sequence[LogRecord], other: Sequence[LogRecord]) -> Sequence[LogRecord]:
    """The shortest sequence in which both are, each in its order; where nothing decides, `one` comes first."""
    if not one or one == other:
        return other
    begin = 0
    while begin < min(len(one), len(other)) and one[begin] == other[begin]:
        begin += 1
    rest_one, rest_other = one[begin:], other[begin:]
    if len(rest_one) * len(rest_other) > _ALIGNED_MAX:
        return [*one, *_not_among(rest_other, rest_one)]
    return [*one[:begin], *_shortest(rest_one, rest_other)]


def _not_among(records: Sequence[LogRecord], others: Sequence[LogRecord]) -> Iterator[LogRecord]:
    known = Counter(repr(record) for record in others)
    for record in records:
        known[repr(record)] -= 1
        if known[repr(record)] < 0:
            yield record


def _shortest(one: Sequence[LogRecord], other: Sequence[LogRecord]) -> Iterator[LogRecord]:
    # common[i][j]: the length of the longest sequence in one[i:] and other[j:]
    common = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i in reversed(range(len(one))):
        for j in reversed(range(len(other))):
            same = one[i] == other[j]
            common[i][j] = common[i + 1][j + 1] + 1 if same else max(common[i + 1][j], common[i][j + 1])
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i] == other[j]:
            yield one[i]
            i, j = i + 1, j + 1
        elif common[i + 1][j] >= common[i][j + 1]:
            yield one[i]
            i += 1
        else:
            yield other[j]
            j += 1
    yield from one[i:]
    yield from other[j:]
