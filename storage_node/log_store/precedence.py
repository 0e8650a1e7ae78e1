"""Which copy of an LSN counts, and how copies become the answer to a read. Shared by all stores."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from logdevice_py.core.entry import (
    HEADER_SIZE_MIN,
    EntryFlags,
    EntryHeader,
    body_of,
    check_body,
    encode_header,
    header_size,
    lacks_body,
    merged_header,
    parse_header,
    whole_size,
)
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from storage_node.log_store.interface import ReadLast, ReadResult, ReadShard
from storage_node.log_store.wanted import Wants

_AMEND: Final = int(EntryFlags.AMEND)
_HEADER_SIZE_USUAL: Final = 128
_LATE_ENTRIES: Final = 8
"""It is looked after so many entries whether the answer is late."""
_HEADER_COST: Final = 256
"""What a header whose body is passed over counts for of the bytes that a read may return: it takes as long as a small entry."""
Bodies = Callable[[Lsn, int], bytes | None]
"""What is stored as the body of the copy of (LSN, rank), apart from its header; None: nothing, or it cannot be read."""


def header_apart(image: bytes) -> bytes | None:
    """The header that is stored apart from the body of a large image; None: the image stays together."""
    if len(image) <= HEADER_SIZE_MIN or len(image) != whole_size(image):
        return None
    size = header_size(image)
    return image[:size] if size < len(image) else None


class Missing(enum.Enum):
    """Why an LSN at which something is stored yields no entry."""

    CORRUPT = "corrupt"  # the copy that counts, or the only body for it, does not match its checksum
    BODILESS = "bodiless"  # an AMEND without its body


def resolve(
    log: LogId, lsn: Lsn, copies: Sequence[tuple[int, bytes]], bodies: Bodies, wants: Wants | None = None
) -> bytes | Missing:
    """The image that counts among the copies (rank, image) of one LSN, given by ascending rank.

    A damaged copy of highest rank is never replaced by one of lower rank: that may be an entry which recovery turned into a hole. A header
    whose body is missing is damage as well.

    Args:
        wants: of which entry the body is wanted; None: of each. Otherwise a header that lies alone is the answer.
    """
    rank, image = copies[-1]
    header = None
    if len(image) >= _HEADER_SIZE_USUAL or not lacks_body(image):
        header = _checked(log, lsn, rank, image)
    if header is None:
        header = _checked_alone(log, lsn, rank, image)
        if header is None:
            return Missing.CORRUPT
        if wants is not None and not wants(image):
            return image
        return _joined(image, header, bodies(lsn, rank)) or Missing.CORRUPT
    if not header.flags & _AMEND:
        return image
    merged = encode_header(merged_header(header))
    if not header.body_length:
        return merged
    missing = Missing.BODILESS
    for rank, image in reversed(copies[:-1]):
        below = _checked(log, lsn, rank, image) or _checked_alone(log, lsn, rank, image)
        if below is None:
            missing = Missing.CORRUPT
        elif not below.flags & _AMEND and below.body_crc == header.body_crc and below.body_length == header.body_length:
            whole: bytes | None = image
            if lacks_body(image):
                if wants is not None and not wants(merged):
                    return merged
                whole = _joined(image, below, bodies(lsn, rank))
            if whole is not None:
                return merged + body_of(whole)
            missing = Missing.CORRUPT
    return missing


def _joined(image: bytes, header: EntryHeader, stored: bytes | None) -> bytes | None:
    """The image of a header that lies alone, from what is stored as its body; None: that is missing, damaged, or the body of another one.

    The header that is stored with the body is the first that the copy had. The one that lies alone may have got another copyset since.
    """
    if stored is None:
        return None
    try:
        if not stored.startswith(image):
            before = parse_header(stored)
            if not is_header_of_same_body(header, before):
                return None
            stored = image + body_of(stored)
        elif len(stored) != whole_size(image):
            return None
        check_body(stored, header)
    except CorruptEntryError:
        return None
    return stored


def is_header_of_same_body(header: EntryHeader, other: EntryHeader) -> bool:
    """Whether both are headers of the same copy: but for its copyset they say the same."""
    return replace(other, copyset=header.copyset) == header


def with_header(header: bytes, row: bytes | None) -> bytes | None:
    """What takes the place of the row of a copy that gets another header: the header where the body lies apart, else the image; None: it is another copy."""
    if row is None:
        return None
    try:
        before = parse_header(row, alone=True)
        if not is_header_of_same_body(parse_header(header, alone=True), before):
            return None
    except CorruptEntryError:
        return None
    return header if lacks_body(row) else header + body_of(row)


def joined(image: bytes, stored: bytes | None) -> bytes:
    """The whole image of a header that lies alone, whose own damage is for others to notice; without a sound body that header."""
    try:
        return _joined(image, parse_header(image, alone=True), stored) or image
    except CorruptEntryError:
        return image


def _checked(log: LogId, lsn: Lsn, rank: int, image: bytes, *, alone: bool = False) -> EntryHeader | None:
    """Of a sound image of the copy; with `alone`, of a sound header that lies alone."""
    try:
        header = parse_header(image, alone=alone)
        if not alone:
            check_body(image, header)
    except CorruptEntryError:
        return None
    by_recovery, wave = header.rank
    # a sound image under another's key is a misdirected write
    if header.log != log or header.lsn != lsn or by_recovery << 32 | wave != rank:
        return None
    return header


def _checked_alone(log: LogId, lsn: Lsn, rank: int, image: bytes) -> EntryHeader | None:
    return _checked(log, lsn, rank, image, alone=True) if lacks_body(image) else None


class _NoRoomError(Exception):
    """A body would be read in vain: the answer has no room for it."""


class PrecedenceCollector:
    """Makes a `ReadResult` from copies that come by ascending (lsn, rank)."""

    __slots__ = ("_bodies", "_bytes_left", "_copies", "_entries_left", "_is_late", "_log", "_lsn", "_wants", "result")

    def __init__(self, request: ReadShard, bodies: Bodies, is_late: Callable[[], bool] | None = None) -> None:
        """
        Args:
            is_late: asked now and then; whether the answer shall end with what it has, one entry at least.
        """
        self.result = ReadResult(Status.OK, request.last)
        self._log = request.log
        self._lsn = Lsn(-1)
        self._copies: list[tuple[int, bytes]] = []
        self._bytes_left = request.bytes_max
        self._entries_left = request.entries_max
        self._bodies = bodies
        self._is_late = is_late
        self._wants = request.wants

    def add(self, lsn: Lsn, rank: int, image: bytes) -> bool:
        """Take a copy; False: the answer was full before it."""
        if lsn != self._lsn:
            if self._copies and not self._settle():
                return False
            if self.result.entries and (self._bytes_left <= 0 or self._entries_left < 1):
                # full to the last byte: what comes at this LSN need not be read to the end
                self.result.through = Lsn(lsn - 1)
                return False
            self._lsn = lsn
        self._copies.append((rank, image))
        return True

    def finish(self) -> None:
        """No copies follow."""
        if self._copies:
            self._settle()

    def end_before_open(self) -> None:
        """The answer ends before the LSN whose copies were coming in, or being looked at: they cannot be had yet."""
        self._copies = []
        self.result.through = Lsn(self._lsn - 1)

    def drop_open(self) -> Lsn | None:
        """Forget the LSN whose copies were coming in, if any: the copy that counts cannot be read."""
        if not self._copies:
            return None
        self._copies = []
        return self._lsn

    def add_corrupt(self, first: Lsn, last: Lsn) -> None:
        """Note damage; ranges that touch become one."""
        corrupt = self.result.corrupt
        if corrupt and corrupt[-1][1] + 1 >= first:
            corrupt[-1] = (corrupt[-1][0], last)
        else:
            corrupt.append((first, last))
        hit("log_store_read_corrupt")

    def _settle(self) -> bool:
        """Decide the open LSN; False: it does not fit the answer, which ends before it."""
        lsn, result = self._lsn, self.result
        try:
            found = resolve(self._log, lsn, self._copies, self._body, self._wants)
        except _NoRoomError:
            result.through = Lsn(lsn - 1)
            return False
        finally:
            self._copies = []
        if found is Missing.CORRUPT:
            self.add_corrupt(lsn, lsn)
        elif found is Missing.BODILESS:
            result.bodiless.append(lsn)
            hit("log_store_read_bodiless")
        else:
            assert type(found) is bytes
            if result.entries and (self._bytes_left < len(found) or self._entries_left < 1):
                result.through = Lsn(lsn - 1)
                return False
            result.entries.append((lsn, found))
            size = len(found)
            self._bytes_left -= _HEADER_COST if size < _HEADER_SIZE_USUAL and lacks_body(found) else size
            self._entries_left -= 1
            if self._is_late is not None and not len(result.entries) % _LATE_ENTRIES and self._is_late():
                self._entries_left = 0
        return True

    def _body(self, lsn: Lsn, rank: int) -> bytes | None:
        if self.result.entries and self._bytes_left < whole_size(self._copies[-1][1]):
            raise _NoRoomError
        return self._bodies(lsn, rank)


class LastFinder:
    """Finds the answer to a `ReadLast` among copies that come by descending (lsn, rank)."""

    __slots__ = ("_bodies", "_copies", "_lsn", "_request", "_result")

    def __init__(self, request: ReadLast, result: ReadResult, bodies: Bodies) -> None:
        self._bodies = bodies
        self._request = request
        self._result = result
        self._lsn = Lsn(-1)
        self._copies: list[tuple[int, bytes]] = []

    def add(self, lsn: Lsn, rank: int, image: bytes) -> bool:
        """Take a copy; True: the search ended before it."""
        if lsn != self._lsn:
            if self.finish():
                return True
            self._lsn = lsn
        self._copies.append((rank, image))
        return False

    def drop_open(self) -> Lsn | None:
        """Forget the LSN whose copies were coming in, if any; that LSN."""
        if not self._copies:
            return None
        self._copies = []
        return self._lsn

    def finish(self) -> bool:
        """Decide the LSN whose copies came in; True: the search has ended."""
        if not self._copies:
            return False
        self._copies.reverse()
        copies, self._copies = self._copies, []
        found = resolve(self._request.log, self._lsn, copies, self._bodies, self._request.wants)
        if found is Missing.CORRUPT:
            self._result.corrupt.append((self._lsn, self._lsn))
            return True
        if found is Missing.BODILESS:
            self._result.bodiless.append(self._lsn)
            return False
        assert type(found) is bytes
        if self._request.skip_holes and parse_header(found, alone=True).is_hole:
            return False
        self._result.entries.append((self._lsn, found))
        return True
