"""The seam between an extent store and its files: one directory, whose files hold what the store writes.

Promises of a `StoreDisk` that works:
  - What was written before a `sync` that returned is there after the machine dies, and what was not may be there, in part or whole, in any order,
    in sectors of `SECTOR` bytes. While the machine lives, everything that was written is read back.
  - Names (of files created, renamed, removed) outlive the machine after `sync_names`; before, any of them may come back or be gone.
  - A write or sync that raises has an unknown effect. After a failed sync the operating system may take for written what it could not write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

SECTOR: Final = 512
"""A disk writes so many bytes whole or not at all."""


class DiskError(Exception):
    """The disk did not do what it was asked for."""


class NoSpaceError(DiskError):
    """There is no room for it."""


class ColdReadError(Exception):
    """Memory does not have what is to be read, and who reads must not wait for the disk. Have it fetched, and ask again."""

    def __init__(self, file: File, offset: int, length: int) -> None:
        super().__init__(f"{file.name} at {offset}")
        self.file = file
        self.offset = offset
        self.length = length


class ReadMode:
    """Whether the reads of a store's own thread may wait for the disk."""

    __slots__ = ("nowait",)

    def __init__(self) -> None:
        self.nowait = False


def read_file(file: File, offset: int, length: int, mode: ReadMode | None) -> bytes:
    """Read a file; without a mode whoever reads may wait.

    Raises:
        ColdReadError: it would have to wait, and must not.
        DiskError: it cannot be read.
    """
    if mode is None or not mode.nowait:
        return file.read(offset, length)
    data = file.read_cached(offset, length)
    if data is None:
        raise ColdReadError(file, offset, length)
    return data


class File(Protocol):
    """An open file. It is closed when nobody refers to it any more: numbers of descriptors are used again, and a sync in another thread must not
    come upon somebody else's file."""

    name: str

    def write(self, parts: Sequence[bytes], offset: int) -> None:
        """Write parts one behind the other, all of them.

        Raises:
            DiskError: the effect is unknown.
        """
        ...

    def read(self, offset: int, length: int) -> bytes:
        """What is there; less where the file ends.

        Raises:
            DiskError: it cannot be read.
        """
        ...

    def read_cached(self, offset: int, length: int) -> bytes | None:
        """The same without waiting for the disk; None: memory does not have all of it. Of the thread that writes."""
        ...

    def fetch(self, offset: int, length: int) -> None:
        """Bring what is there into memory. In any thread.

        Raises:
            DiskError: it cannot be read.
        """
        ...

    def mark(self) -> int:
        """A token for `sync`: what is written by now."""
        ...

    def sync(self, mark: int) -> None:
        """Make durable what was written before the mark. May be called from any thread.

        Raises:
            DiskError: it is not, and nothing that was written since the last sync may be relied upon.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file off behind so many bytes. Durable with `sync`."""
        ...

    def size(self) -> int:
        """Bytes of the file."""
        ...


class StoreDisk(Protocol):
    """A directory of files, which belongs to one store."""

    def names(self) -> list[str]:
        """Of the files that are there, ascending."""
        ...

    def open(self, name: str) -> File:
        """A file that is there. DiskError where it is not."""
        ...

    def create(self, name: str, size: int) -> File:
        """A new file, in place of one of that name, with room for so many bytes, which read as zeros.

        Raises:
            NoSpaceError: there is no room; the file is not there.
        """
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of one that has it."""
        ...

    def unlink(self, name: str) -> None:
        """Remove a file. It goes when nobody has it open any more."""
        ...

    def sync_names(self) -> None:
        """Make durable which files there are."""
        ...

    def drop_cache(self, name: str) -> None:
        """Have what is in memory of a file read from the disk again, as far as that can be done."""
        ...

    def space(self) -> tuple[int, int]:
        """(free bytes, all bytes) of the file system."""
        ...

    def close(self) -> None:
        """Let others have the directory."""
        ...
