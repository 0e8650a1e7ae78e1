"""How much hedges may cost: a share of what streams read, so that they cannot make a slow cluster slower."""

from __future__ import annotations

from typing import Final

ENTRIES_PER_HEDGE: Final = 64
BYTES_PER_HEDGE: Final = 256 << 10
_SAVED: Final = 4
"""Hedges of full size that may be saved up."""


class HedgeBudget:
    """Entries and bytes that hedges of a client may still bring. A hedge may bring more than there is, as its last entry passes whole; what follows then
    waits until that is earned."""

    __slots__ = ("_bytes", "_entries", "_percent")

    def __init__(self, percent: int) -> None:
        """
        Args:
            percent: of what the streams read.
        """
        self._percent = percent
        self._entries = 100 * ENTRIES_PER_HEDGE
        self._bytes = 100 * BYTES_PER_HEDGE

    def earn(self, entries: int, size: int) -> None:
        """Streams read so much."""
        saved = 100 * _SAVED
        self._entries = min(saved * ENTRIES_PER_HEDGE, self._entries + self._percent * entries)
        self._bytes = min(saved * BYTES_PER_HEDGE, self._bytes + self._percent * size)

    def spend(self, entries: int, size: int) -> None:
        """Hedges brought so much, or made a stream begin anew that had so much."""
        self._entries -= 100 * entries
        self._bytes -= 100 * size

    @property
    def entries(self) -> int:
        """That the next hedge may bring; none: there is none."""
        return min(ENTRIES_PER_HEDGE, self._entries // 100)

    @property
    def bytes(self) -> int:
        """As `entries`."""
        return min(BYTES_PER_HEDGE, self._bytes // 100)

    @property
    def allows(self) -> bool:
        """There may be a hedge."""
        return self._percent > 0 and self._entries >= 100 and self._bytes >= 100

    @property
    def allows_rewinds(self) -> bool:
        """A stream may be begun anew for another order: no earlier one is still to be paid for."""
        return self._bytes >= 0
