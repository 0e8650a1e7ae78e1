"""Which copy of an LSN counts, and how copies become the answer to a read. Shared by all stores."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from logdevice_py.core.entry import EntryFlags, EntryHeader, body_of, check_body, encode_header, parse_header
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from storage_node.log_store.interface import ReadLast, ReadResult

_AMEND: Final = int(EntryFlags.AMEND)


class Missing(enum.Enum):
    """Why an LSN at which something is stored yields no entry."""

    CORRUPT = "corrupt"  # the copy that counts, or the only body for it, does not match its checksum
    BODILESS = "bodiless"  # an AMEND without its body


def resolve(log: LogId, lsn: Lsn, copies: Sequence[tuple[int, bytes]]) -> bytes | Missing:
    """The image that counts among the copies (rank, image) of one LSN, given by ascending rank.

    A damaged copy of highest rank is never replaced by one of lower rank: that may be an entry which recovery turned into a hole.
    """
    rank, image = copies[-1]
    header = _checked(log, lsn, rank, image)
    if header is None:
        return Missing.CORRUPT
    if not header.flags & _AMEND:
        return image
    merged = encode_header(replace(header, flags=header.flags & ~_AMEND))
    if not header.body_length:
        return merged
    missing = Missing.BODILESS
    for rank, image in reversed(copies[:-1]):
        below = _checked(log, lsn, rank, image)
        if below is None:
            missing = Missing.CORRUPT
        elif not below.flags & _AMEND and below.body_crc == header.body_crc and below.body_length == header.body_length:
            return merged + body_of(image)
    return missing


def _checked(log: LogId, lsn: Lsn, rank: int, image: bytes) -> EntryHeader | None:
    try:
        header = parse_header(image)
        check_body(image, header)
    except CorruptEntryError:
        return None
    by_recovery, wave = header.rank
    # a sound image under another's key is a misdirected write
    if header.log != log or header.lsn != lsn or by_recovery << 32 | wave != rank:
        return None
    return header


class PrecedenceCollector:
    """Makes a `ReadResult` from copies that come by ascending (lsn, rank)."""

    __slots__ = ("_bytes_left", "_copies", "_entries_left", "_log", "_lsn", "result")

    def __init__(self, log: LogId, last: Lsn, bytes_max: int, entries_max: int) -> None:
        self.result = ReadResult(Status.OK, last)
        self._log = log
        self._lsn = Lsn(-1)
        self._copies: list[tuple[int, bytes]] = []
        self._bytes_left = bytes_max
        self._entries_left = entries_max

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
        copies, self._copies = self._copies, []
        lsn, result = self._lsn, self.result
        found = resolve(self._log, lsn, copies)
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
            self._bytes_left -= len(found)
            self._entries_left -= 1
        return True


class LastFinder:
    """Finds the answer to a `ReadLast` among copies that come by descending (lsn, rank)."""

    __slots__ = ("_copies", "_lsn", "_request", "_result")

    def __init__(self, request: ReadLast, result: ReadResult) -> None:
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
        found = resolve(self._request.log, self._lsn, copies)
        if found is Missing.CORRUPT:
            self._result.corrupt.append((self._lsn, self._lsn))
            return True
        if found is Missing.BODILESS:
            self._result.bodiless.append(self._lsn)
            return False
        assert type(found) is bytes
        if self._request.skip_holes and parse_header(found).is_hole:
            return False
        self._result.entries.append((self._lsn, found))
        return True
