"""A disk in memory that does what real ones do when the power goes, when they rot, fill up or lie.

Crash model: each write is kept as it was made. A power cut keeps of each sector that was written since the last sync what any of these writes
left there, or what was there before, independently of other sectors (torn, lost and reordered writes); of each name that changed since the last
`sync_names` likewise. A lying sync answers and makes nothing durable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from logdevice_py.core.machine import Rng
from storage_node.log_store.extents.disk import SECTOR, DiskError, NoSpaceError

Survives = Callable[[], bool]
"""Whether the next thing that is not durable outlives a power cut."""
_ZEROS: Final = bytes(SECTOR)
PIECE: Final = 16 << 10
"""What memory has of a file, it has in pieces of so many bytes."""


def _pieces(offset: int, length: int) -> range:
    return range(offset // PIECE, -(-(offset + length) // PIECE))


class _Inode:
    """What a file holds: as it is read, and for each sector that is not durable what the disk may have of it."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.durable_size = 0
        self.pending: dict[int, list[tuple[int, bytes]]] = {}
        """Per sector the (number of the write, what was there before it), oldest first."""
        self.writes = 0
        self.unreadable: set[int] = set()
        """Sectors."""
        self.warm: set[int] = set()
        """Pieces of `PIECE` bytes that memory has."""

    def write(self, data: bytes, offset: int) -> None:
        self.writes += 1
        if len(self.data) < offset + len(data):
            self.data.extend(bytes(offset + len(data) - len(self.data)))
        for sector in range(offset // SECTOR, -(-(offset + len(data)) // SECTOR)):
            before = bytes(self.data[sector * SECTOR : (sector + 1) * SECTOR])
            self.pending.setdefault(sector, []).append((self.writes, before))
            self.unreadable.discard(sector)
        self.data[offset : offset + len(data)] = data
        self.warm.update(_pieces(offset, len(data)))

    def sync(self, mark: int) -> None:
        self.durable_size = len(self.data)
        for sector in list(self.pending):
            left = [each for each in self.pending[sector] if each[0] > mark]
            if left:
                self.pending[sector] = left
            else:
                del self.pending[sector]

    def power_cut(self, survives: Survives) -> bool:
        """Returns whether something was lost."""
        lost = False
        for sector, history in self.pending.items():
            keep = len(history)
            while keep and not survives():
                keep -= 1
            if keep < len(history):
                lost = True
                before = history[keep][1]
                self.data[sector * SECTOR : sector * SECTOR + len(before)] = before
        if len(self.data) > self.durable_size and not survives():
            del self.data[self.durable_size :]
        self.pending.clear()
        self.warm.clear()
        self.durable_size = len(self.data)
        return lost


class SimulatedFile:
    """A file of a `SimulatedDisk`."""

    def __init__(self, disk: SimulatedDisk, name: str, inode: _Inode) -> None:
        self.name = name
        self._disk = disk
        self._inode = inode

    def write(self, parts: Sequence[bytes], offset: int) -> None:
        """As of `File`."""
        self._disk.step("write")
        if self._disk.fail_write:
            self._disk.fired["failing_write"] += 1
            raise DiskError("the write failed")
        self._inode.write(b"".join(parts), offset)

    def read(self, offset: int, length: int) -> bytes:
        """As of `File`."""
        inode = self._inode
        if inode.unreadable:
            for sector in range(offset // SECTOR, -(-(offset + length) // SECTOR)):
                if sector in inode.unreadable:
                    self._disk.fired["read_error"] += 1
                    raise DiskError("a sector cannot be read")
        return bytes(inode.data[offset : offset + length])

    def read_cached(self, offset: int, length: int) -> bytes | None:
        """As of `File`."""
        end = min(offset + length, len(self._inode.data))
        if self._disk.forgets and not self._inode.warm.issuperset(_pieces(offset, end - offset)):
            return None
        return self.read(offset, length)

    def fetch(self, offset: int, length: int) -> None:
        """As of `File`."""
        self.read(offset, length)
        self._disk.fetches += 1
        self._inode.warm.update(_pieces(offset, length))

    def mark(self) -> int:
        """As of `File`."""
        return self._inode.writes

    def sync(self, mark: int) -> None:
        """As of `File`."""
        self._disk.step("sync")
        if self._disk.fail_sync:
            self._disk.fired["failing_sync"] += 1
            raise DiskError("the sync failed")
        if not self._disk.lying:
            self._inode.sync(mark)
        else:
            self._disk.lied = True

    def truncate(self, size: int) -> None:
        """As of `File`."""
        self._disk.step("truncate")
        inode = self._inode
        if size < len(inode.data):
            del inode.data[size:]
            for sector in [each for each in inode.pending if each * SECTOR >= size]:
                del inode.pending[sector]
        else:
            inode.data.extend(bytes(size - len(inode.data)))

    def size(self) -> int:
        """As of `File`."""
        return len(self._inode.data)


class PowerCutError(Exception):
    """The machine died at this call."""


class SimulatedDisk:
    """A `StoreDisk` in memory. It outlives the stores on it."""

    def __init__(self, fired: Counter[str] | None = None, *, total: int = 1 << 40) -> None:
        """
        Args:
            fired: counts what faults did to somebody, by kind.
            total: bytes of the file system.
        """
        self.fired: Counter[str] = Counter() if fired is None else fired
        self.total = total
        self.taken = 0
        """Bytes that others take up of the file system."""
        self.fail_write = False
        self.fail_sync = False
        self.lying = False
        self.lied = False
        """A sync made nothing durable, since the last power cut."""
        self.forgets = False
        """Memory has only what was written or fetched since the last power cut; else all of it."""
        self.fetches = 0
        """How often something was brought into memory."""
        self.steps = 0
        """Calls that change something."""
        self.dies_at: int | None = None
        """The power goes at this step, before it has an effect."""
        self._files: dict[str, _Inode] = {}
        self._durable: dict[str, _Inode] = {}

    def step(self, what: str) -> None:
        """A call that changes something."""
        if self.dies_at is not None and self.steps >= self.dies_at:
            raise PowerCutError(what)
        self.steps += 1

    # ---- as of `StoreDisk`

    def names(self) -> list[str]:
        """As of `StoreDisk`."""
        return sorted(self._files)

    def open(self, name: str) -> SimulatedFile:
        """As of `StoreDisk`."""
        inode = self._files.get(name)
        if inode is None:
            raise DiskError(f"there is no {name}")
        return SimulatedFile(self, name, inode)

    def create(self, name: str, size: int) -> SimulatedFile:
        """As of `StoreDisk`."""
        self.step("create")
        if size > self.space()[0]:
            self.fired["disk_full"] += bool(self.taken)
            raise NoSpaceError(f"there is no room for {name}")
        inode = self._files[name] = _Inode(size)
        return SimulatedFile(self, name, inode)

    def rename(self, old: str, new: str) -> None:
        """As of `StoreDisk`."""
        self.step("rename")
        self._files[new] = self._files.pop(old)

    def unlink(self, name: str) -> None:
        """As of `StoreDisk`."""
        self.step("unlink")
        self._files.pop(name, None)

    def sync_names(self) -> None:
        """As of `StoreDisk`."""
        self.step("sync names")
        if self.fail_sync:
            self.fired["failing_sync"] += 1
            raise DiskError("the sync of names failed")
        if not self.lying:
            self._durable = dict(self._files)
        else:
            self.lied = True

    def drop_cache(self, name: str) -> None:
        """As of `StoreDisk`."""
        self._files[name].warm.clear()

    def space(self) -> tuple[int, int]:
        """As of `StoreDisk`."""
        return max(0, self.total - self.used - self.taken), self.total

    def close(self) -> None:
        """As of `StoreDisk`."""

    # ---- what happens to it

    @property
    def used(self) -> int:
        """Bytes of the files."""
        return sum(len(inode.data) for inode in self._files.values())

    def power_cut(self, survives: Survives) -> None:
        """The machine dies.

        Args:
            survives: asked of each thing that is not durable.
        """
        lost = False
        for name in sorted({*self._files, *self._durable}):
            now, before = self._files.get(name), self._durable.get(name)
            if now is not before and not survives():
                lost = True
                if before is None:
                    del self._files[name]
                else:
                    self._files[name] = before
        for inode in {id(each): each for each in self._files.values()}.values():
            lost = inode.power_cut(survives) or lost
        self.fired["unsynced_lost"] += lost
        if lost and self.lied:
            self.fired["lying_sync"] += 1
        self.lied = False
        self._durable = dict(self._files)
        self.dies_at = None
        self.fail_write = self.fail_sync = False

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        """A bit rots."""
        self._files[name].data[offset] ^= 1 << bit

    def spoil(self, name: str, sector: int, *, readable: bool = False) -> None:
        """A sector cannot be read, or can be again."""
        if readable:
            self._files[name].unreadable.discard(sector)
        else:
            self._files[name].unreadable.add(sector)

    def snapshot(self) -> dict[str, bytes]:
        """What is on it now, as a backup that is taken at this moment."""
        return {name: bytes(inode.data) for name, inode in self._files.items()}

    def replace(self, files: dict[str, bytes]) -> None:
        """Another disk is in its place."""
        self._files = {}
        for name, data in files.items():
            inode = self._files[name] = _Inode(0)
            inode.data = bytearray(data)
            inode.durable_size = len(data)
        self._durable = dict(self._files)
        self.lied = False


def by_chance(rng: Rng, share: float) -> Survives:
    """Each survives with this probability."""
    return lambda: rng.random() < share
