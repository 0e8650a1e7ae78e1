"""Sets of LSNs as disjoint ascending ranges."""

from __future__ import annotations

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


def format_range(first: Lsn, last: Lsn) -> str:
    """A range for people."""
    return format_lsn(first) if first == last else f"{format_lsn(first)} to {format_lsn(last)}"
