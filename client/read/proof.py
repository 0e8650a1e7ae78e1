"""A short summary of a range of a log that tells whether two readers saw the same."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from client.read.items import Gap, GapKind
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, format_lsn

_MASK: Final = (1 << 64) - 1


class Comparison(enum.Enum):
    """What two proofs say of each other."""

    EQUAL = "equal"  # both saw the same entries and gaps
    DIFFERENT = "different"  # the same range, and not the same in it
    INCOMPARABLE = "incomparable"  # of another log or range, or trimmed in between


def entry_mix(log: int, lsn: int, crc: int) -> int:
    """64 well-mixed bits of (log, LSN, crc32c of the body): two rounds of splitmix64."""
    x = (log * 0x9E3779B97F4A7C15 + lsn) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB + crc * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    return x ^ (x >> 31)


@dataclass(frozen=True, slots=True)
class Proof:
    """What lies in [first, last] of a log. Proofs of touching ranges add up; any copy of an entry gives the same."""

    log: LogId
    first: LSN
    last: LSN
    """Inclusive; ``first - 1`` when the range is empty."""
    entries: int = 0
    records: int = 0
    """Corrupt ones included."""
    bytes: int = 0
    """Of entry bodies as they are stored: before batches are unpacked."""
    gaps: tuple[Gap, ...] = ()
    """As maximal runs of one kind, ascending."""
    checksum: int = 0
    """Sum modulo 2^64 of `entry_mix` of all entries."""

    def __add__(self, other: Proof) -> Proof:
        """The proof of both ranges; ValueError when `other` does not follow directly."""
        if self.log != other.log or self.last + 1 != other.first:
            raise ValueError(
                f"proofs add up only when they touch: log {self.log} ends at {format_lsn(self.last)}, "
                f"log {other.log} begins at {format_lsn(other.first)}"
            )
        return Proof(
            self.log,
            self.first,
            other.last,
            self.entries + other.entries,
            self.records + other.records,
            self.bytes + other.bytes,
            merge_gaps((*self.gaps, *other.gaps)),
            (self.checksum + other.checksum) & _MASK,
        )

    def trimmed(self) -> tuple[Gap, ...]:
        """The runs that were trimmed away."""
        return tuple(gap for gap in self.gaps if gap.kind is GapKind.TRIM)

    def compare(self, other: Proof) -> Comparison:
        """Whether both readers saw the same."""
        if (self.log, self.first, self.last) != (
            other.log,
            other.first,
            other.last,
        ) or self.trimmed() != other.trimmed():
            return Comparison.INCOMPARABLE
        return Comparison.EQUAL if self == other else Comparison.DIFFERENT

    def lost(self) -> bool:
        """Whether data loss was reported."""
        return any(gap.kind is GapKind.DATALOSS for gap in self.gaps)

    def as_json(self) -> dict[str, Any]:
        """For tools: LSNs and the checksum as text, because they do not fit a double."""
        return {
            "log": self.log,
            "first": format_lsn(self.first),
            "last": format_lsn(self.last),
            "entries": self.entries,
            "records": self.records,
            "bytes": self.bytes,
            "gaps": [{"kind": gap.kind.value, "lo": format_lsn(gap.lo), "hi": format_lsn(gap.hi)} for gap in self.gaps],
            "checksum": f"{self.checksum:016x}",
        }


def merge_gaps(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Ascending gaps as maximal runs of one kind."""
    merged: list[Gap] = []
    for gap in gaps:
        _append(merged, gap)
    return tuple(merged)


def _append(gaps: list[Gap], gap: Gap) -> None:
    """As a part of the last one when it continues that."""
    joined = gaps[-1].joined(gap) if gaps else None
    if joined is None:
        gaps.append(gap)
    else:
        gaps[-1] = joined


class ProofBuilder:
    """The proof of what a reader has consumed so far, kept up as it goes."""

    __slots__ = ("_bytes", "_checksum", "_entries", "_first", "_gaps", "_last", "_log", "_records")

    def __init__(self, log: LogId, first: int) -> None:
        self._log = log
        self._first = first
        self._last = first - 1
        self._entries = 0
        self._records = 0
        self._bytes = 0
        self._checksum = 0
        self._gaps: list[Gap] = []

    def add_entry(self, lsn: int, records: int, size: int, crc: int) -> None:
        """An entry was consumed to its end."""
        assert lsn == self._last + 1, (lsn, self._last)
        self._last = lsn
        self._entries += 1
        self._records += records
        self._bytes += size
        self._checksum = (self._checksum + entry_mix(self._log, lsn, crc)) & _MASK

    def add_gap(self, gap: Gap) -> None:
        """A gap was consumed."""
        assert gap.lo == self._last + 1, (gap, self._last)
        self._last = gap.hi
        _append(self._gaps, gap)

    @property
    def last(self) -> int:
        """The last LSN consumed."""
        return self._last

    def build(self) -> Proof:
        """The proof as of this moment. An entry whose records were consumed in part is not in it."""
        return Proof(
            self._log,
            LSN(self._first),
            LSN(self._last),
            self._entries,
            self._records,
            self._bytes,
            tuple(self._gaps),
            self._checksum,
        )
