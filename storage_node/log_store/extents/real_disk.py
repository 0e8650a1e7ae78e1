"""A directory of the file system as a `StoreDisk`."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from logdevice_py.core.status import LogDeviceError, Status
from storage_node.log_store.extents.disk import DiskError, NoSpaceError

_PARTS_MAX: Final = 1_000
"""The operating system refuses more than 1,024."""
_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_SCRATCH: Final = bytearray(512 << 10)
"""What `read_cached` reads into: one thread does."""
_FETCH_BYTES: Final = 256 << 10
LOCK: Final = "LOCK"
HELD: Final = "lock held by another process"


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _error_of(error) from None


def _error_of(error: OSError) -> DiskError:
    return NoSpaceError(str(error)) if error.errno in (errno.ENOSPC, errno.EDQUOT) else DiskError(str(error))


class HeldDescriptor:
    """An open file of the operating system. Whoever uses its number refers to it: numbers are used again."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class _OpenFiles:
    """Which files of a disk have a descriptor: not more than so many, where there are others that can be closed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: OrderedDict[int, weakref.ref[RealFile]] = OrderedDict()
        """Those that are open, by identity; the first is looked at first when one has to be closed."""
        self._all: weakref.WeakSet[RealFile] = weakref.WeakSet()
        """Those that are closed, too."""
        self._lock = threading.Lock()

    def add(self, file: RealFile) -> None:
        """A file was opened."""
        with self._lock:
            self._all.add(file)
            self._files[id(file)] = weakref.ref(file)
            if len(self._files) > self._most:
                self._close_some()

    def keep(self, name: str) -> list[RealFile]:
        """The name is about to be another file's, or nobody's: those of that name are opened, and stay so. Returns them."""
        with self._lock:
            named = [file for file in self._all if file.name == name]
            for file in named:
                file.stays_open = True
        for file in named:
            file.hold_open()
        return named

    def _close_some(self) -> None:
        for at, reference in list(self._files.items()):
            if len(self._files) <= self._most:
                return
            file = reference()
            if file is None or file.can_close():
                self._files.pop(at, None)
            else:
                self._files.move_to_end(at)


class RealFile:
    """A file of a `RealDisk`. One that was not used for long may be closed, and is opened again when it is."""

    def __init__(self, name: str, descriptor: int, disk: RealDisk) -> None:
        self.name = name
        self.stays_open = False
        """Its name is not its own any more."""
        self._gone = False
        """So it is, and it was not open."""
        self._disk = disk
        self._open: HeldDescriptor | None = HeldDescriptor(descriptor)
        self._used = True
        self._unsynced = False
        disk.open_files.add(self)

    def can_close(self) -> bool:
        """Close it, if nobody used it since this was asked last and nothing is unsynced: then an error of the disk would be told to nobody."""
        used, self._used = self._used, False
        if used or self._unsynced or self.stays_open:
            return False
        self._open = None
        return True

    def hold_open(self) -> None:
        """It has to be open from now on: by its name another file will be found. Where it cannot be opened, nothing is read of it any more."""
        try:
            self._descriptor()
        except DiskError:
            self._gone = True

    def take_name(self, name: str) -> None:
        """It has another name, by which it is found."""
        self.name, self.stays_open, self._gone = name, False, False

    def _descriptor(self) -> HeldDescriptor:
        """To be held while its number is used. DiskError where the file is gone."""
        self._used = True
        held = self._open
        if held is None:
            if self._gone:
                raise DiskError(f"{self.name} is another file now")
            held = self._open = HeldDescriptor(self._disk.open_number(self.name))
            self._disk.open_files.add(self)
        return held

    def write(self, parts: Sequence[bytes], offset: int) -> None:
        """As of `File`."""
        if len(parts) > _PARTS_MAX:
            parts = [b"".join(parts)]
        size = sum(map(len, parts))
        self._unsynced = True
        held = self._descriptor()
        try:
            written = os.pwritev(held.number, parts, offset)
        except OSError as error:
            raise _error_of(error) from None
        if written < size:
            with _errors():
                rest = memoryview(b"".join(parts))
                while written < size:
                    more = os.pwrite(held.number, rest[written:], offset + written)
                    if not more:
                        raise DiskError(f"{self.name} takes nothing more")
                    written += more

    def read(self, offset: int, length: int) -> bytes:
        """As of `File`."""
        held = self._descriptor()
        try:
            data = os.pread(held.number, length, offset)
        except OSError as error:
            raise _error_of(error) from None
        if len(data) == length or not data:
            return data
        with _errors():
            pieces, had = [data], len(data)
            while had < length:
                more = os.pread(held.number, length - had, offset + had)
                if not more:
                    break
                pieces.append(more)
                had += len(more)
            return b"".join(pieces)

    def read_cached(self, offset: int, length: int) -> bytes | None:
        """As of `File`."""
        if _NOWAIT is None:
            return self.read(offset, length)
        into = memoryview(_SCRATCH if length <= len(_SCRATCH) else bytearray(length))[:length]
        held = self._descriptor()
        try:
            count = os.preadv(held.number, [into], offset, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError:
            # the file system does not know how, or it cannot be read: that is told here
            return self.read(offset, length)
        if count < length and offset + count < self.size():
            return None
        return bytes(into[:count])

    def fetch(self, offset: int, length: int) -> None:
        """As of `File`."""
        into = memoryview(bytearray(min(length, _FETCH_BYTES)))
        held = self._descriptor()
        with _errors():
            end = offset + length
            while offset < end:
                count = os.preadv(held.number, [into[: end - offset]], offset)
                if not count:
                    return
                offset += count

    def mark(self) -> int:
        """As of `File`."""
        return 0

    def begin_sync(self) -> HeldDescriptor:
        """For whoever has the kernel sync the file, to be held until that has ended. DiskError where the file is gone.

        An error fails the whole store; a sync that is not made after all is told by `abandon_sync`.
        """
        held = self._descriptor()
        # a write that comes meanwhile has it set again
        self._unsynced = False
        return held

    def abandon_sync(self) -> None:
        """What `begin_sync` was asked for is not synced."""
        self._unsynced = True

    def sync(self, mark: int) -> None:
        """As of `File`."""
        held = self._descriptor()
        # a write that comes meanwhile has it set again
        self._unsynced = False
        try:
            with _errors():
                os.fdatasync(held.number)
        except DiskError:
            self._unsynced = True
            raise

    def truncate(self, size: int) -> None:
        """As of `File`."""
        self._unsynced = True
        held = self._descriptor()
        with _errors():
            os.ftruncate(held.number, size)

    def size(self) -> int:
        """As of `File`."""
        held = self._descriptor()
        with _errors():
            return os.fstat(held.number).st_size


class RealDisk:
    """A directory. Whoever has it open has it locked."""

    def __init__(self, directory: str, *, locked: bool = True, open_files_max: int = 2_000) -> None:
        """
        Args:
            locked: False: look only.
            open_files_max: so many files have a descriptor.

        Raises:
            LogDeviceError: FAILED: another process has it open, or it cannot be used.
        """
        self._directory = directory
        self.open_files = _OpenFiles(open_files_max)
        self._lock: int | None = None
        self._looks = not locked
        if not locked:
            return
        try:
            made = not os.path.isdir(directory)
            os.makedirs(directory, exist_ok=True)
            self._lock = os.open(os.path.join(directory, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if made:
                for path in (directory, os.path.dirname(os.path.abspath(directory))):
                    _sync_directory(path)
                _sync_directory(os.path.dirname(os.path.dirname(os.path.abspath(directory))))
        except BlockingIOError:
            self.close()
            raise LogDeviceError(Status.FAILED, f"{directory}: {HELD}") from None
        except OSError as error:
            self.close()
            raise LogDeviceError(Status.FAILED, f"{directory} cannot be used: {error}") from None

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def names(self) -> list[str]:
        """As of `StoreDisk`."""
        with _errors():
            return sorted(name for name in os.listdir(self._directory) if name != LOCK)

    def open(self, name: str) -> RealFile:
        """As of `StoreDisk`."""
        return RealFile(name, self.open_number(name), self)

    def open_number(self, name: str) -> int:
        """The number of a descriptor of a file that is there. DiskError where it is not."""
        flags = os.O_RDONLY if self._looks else os.O_RDWR
        with _errors():
            return os.open(self._path(name), flags | os.O_CLOEXEC)

    def create(self, name: str, size: int) -> RealFile:
        """As of `StoreDisk`."""
        with _errors():
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            file = RealFile(name, descriptor, self)
            try:
                if size:
                    os.posix_fallocate(descriptor, 0, size)
            except OSError:
                with suppress(OSError):
                    os.unlink(self._path(name))
                raise
            return file

    def rename(self, old: str, new: str) -> None:
        """As of `StoreDisk`."""
        renamed = self.open_files.keep(old)
        self.open_files.keep(new)
        with _errors():
            os.rename(self._path(old), self._path(new))
        for file in renamed:
            file.take_name(new)

    def unlink(self, name: str) -> None:
        """As of `StoreDisk`."""
        self.open_files.keep(name)
        with _errors(), suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def sync_names(self) -> None:
        """As of `StoreDisk`."""
        with _errors():
            _sync_directory(self._directory)

    def drop_cache(self, name: str) -> None:
        """As of `StoreDisk`."""
        with suppress(DiskError):
            file = self.open(name)
            with _errors():
                # what was written stays in memory until it is on the disk
                held = file._descriptor()
                with suppress(OSError):
                    os.fsync(held.number)
                os.posix_fadvise(held.number, 0, 0, os.POSIX_FADV_DONTNEED)

    def space(self) -> tuple[int, int]:
        """As of `StoreDisk`."""
        with _errors():
            measured = os.statvfs(self._directory)
            return measured.f_bavail * measured.f_frsize, measured.f_blocks * measured.f_frsize

    def close(self) -> None:
        """As of `StoreDisk`."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
