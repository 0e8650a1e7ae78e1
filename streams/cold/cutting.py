"""Where files and row groups end: by the entries alone, so that whoever copies a range again makes the same files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from client.read.items import Gap
from streams.cold.entries import UnpackedEntry, UnpackedItem


@dataclass(frozen=True, slots=True)
class CutLimits:
    """How large parts become. An entry is never cut, so a part may be larger by one entry."""

    row_group_bytes: int = 8 << 20
    """Of keys and payloads, unpacked."""
    row_group_rows: int = 131_072
    file_bytes: int = 64 << 20
    """Of a file, packed: who reads holds one or two files in memory."""


class RowGroupCutter:
    """Collects entries and gaps until they are a row group. Touching gaps of one kind become one."""

    def __init__(self, limits: CutLimits) -> None:
        self._limits = limits
        self._items: list[UnpackedItem] = []
        self._bytes = 0
        self._rows = 0

    def add(self, item: UnpackedItem) -> Iterator[list[UnpackedItem]]:
        """Take the next one; a row group when one is full."""
        last = self._items[-1] if self._items else None
        if type(item) is Gap and type(last) is Gap and (joined := last.joined(item)) is not None:
            self._items[-1] = joined
            return
        # cut before an item, so that the last gap of a group is whole
        if self._bytes >= self._limits.row_group_bytes or self._rows >= self._limits.row_group_rows:
            yield self.rest()
        self._items.append(item)
        self._rows += 1
        if type(item) is UnpackedEntry:
            self._bytes += item.unpacked_bytes
            self._rows += max(len(item.records) - 1, 0)

    def rest(self) -> list[UnpackedItem]:
        """What is there, be it full or not."""
        items, self._items, self._bytes, self._rows = self._items, [], 0, 0
        return items
