"""Which copy is read for which part of a range."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from client.read.items import Gap
from logdevice_py.core.lsn import LSN
from streams.cold.copies import ColdCopy
from streams.cold.entries import UnpackedEntry, UnpackedItem


@dataclass(frozen=True, slots=True)
class CopiedStretch:
    """A part of a range, and the copy that holds it."""

    first: LSN
    last: LSN
    """Inclusive."""
    copy: ColdCopy | None
    """None: no copy does."""


def cover(copies: Iterable[ColdCopy], first: int, last: int) -> list[CopiedStretch]:
    """Cut [first, last] into stretches, each in one copy or in none. Copies may overlap: what two of them say of an LSN is the same."""
    ordered = sorted(copies, key=lambda copy: (copy.first, copy.last, copy.manifest))
    stretches: list[CopiedStretch] = []
    at, index, best = first, 0, None
    while at <= last:
        while index < len(ordered) and ordered[index].first <= at:
            if best is None or ordered[index].last > best.last:
                best = ordered[index]
            index += 1
        if best is not None and best.last >= at:
            end = min(last, best.last)
            stretches.append(CopiedStretch(LSN(at), LSN(end), best))
        else:
            end = last if index == len(ordered) else min(last, ordered[index].first - 1)
            stretches.append(CopiedStretch(LSN(at), LSN(end), None))
        at = end + 1
    return stretches


def clip(items: Iterable[UnpackedItem], first: int, last: int) -> list[UnpackedItem]:
    """Those that lie in [first, last]; gaps are cut."""
    clipped: list[UnpackedItem] = []
    for item in items:
        if type(item) is UnpackedEntry:
            if first <= item.lsn <= last:
                clipped.append(item)
            continue
        assert type(item) is Gap
        lo, hi = max(first, item.lo), min(last, item.hi)
        if lo <= hi:
            clipped.append(Gap(item.kind, LSN(lo), LSN(hi), item.loss))
    return clipped
