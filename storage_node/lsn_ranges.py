"""Sets of LSNs as disjoint ascending ranges."""

from __future__ import annotations

from collections.abc import Sequence

from logdevice_py.core.lsn import Lsn, format_lsn

Range = tuple[Lsn, Lsn]


def add_range(ranges: list[Range], first: Lsn, last: Lsn) -> bool:
    """Add a range to disjoint ascending ones; False: it was covered already."""
    if any(low <= first and last <= high for low, high in ranges):
        return False
    merged = [first, last]
    kept = []
    for low, high in ranges:
        if high + 1 < merged[0] or low > merged[1] + 1:
            kept.append((low, high))
        else:
            merged = [min(low, merged[0]), max(high, merged[1])]
    kept.append((Lsn(merged[0]), Lsn(merged[1])))
    ranges[:] = sorted(kept)
    return True


def remove_range(ranges: list[Range], first: Lsn, last: Lsn) -> None:
    """Take a range out of disjoint ascending ones."""
    kept = []
    for low, high in ranges:
        if high < first or low > last:
            kept.append((low, high))
            continue
        if low < first:
            kept.append((low, Lsn(first - 1)))
        if high > last:
            kept.append((Lsn(last + 1), high))
    ranges[:] = kept


def overlaps(ranges: Sequence[Range], first: int, last: int) -> bool:
    """Whether some LSN of [first, last] is covered."""
    return any(low <= last and high >= first for low, high in ranges)


def alike_until(ranges: Sequence[Range], first: Lsn, last: Lsn) -> tuple[bool, Lsn]:
    """Whether `first` is covered, and how far into [first, last] the same is so of the LSNs that follow."""
    for low, high in ranges:
        if first < low:
            return False, min(last, Lsn(low - 1))
        if first <= high:
            return True, min(last, high)
    return False, last


def join_nearest(ranges: list[Range], most: int) -> None:
    """Cover what lies between ranges until no more than `most` are left, the narrowest gaps first."""
    while len(ranges) > most:
        at = min(range(1, len(ranges)), key=lambda index: ranges[index][0] - ranges[index - 1][1])
        ranges[at - 1 : at + 1] = [(ranges[at - 1][0], ranges[at][1])]


def format_ranges(ranges: Sequence[Range]) -> str:
    """Several ranges for people."""
    return ", ".join(format_range(first, last) for first, last in ranges)


def format_range(first: Lsn, last: Lsn) -> str:
    """A range for people."""
    return format_lsn(first) if first == last else f"{format_lsn(first)} to {format_lsn(last)}"
