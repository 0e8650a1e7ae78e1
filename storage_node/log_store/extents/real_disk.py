"""A directory of the file system as a `StoreDisk`."""

from __future__ import annotations

import errno
import fcntl
import os
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


class RealFile:
    """A file of a `RealDisk`."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor

    @property
    def descriptor(self) -> int:
        """Open for as long as somebody refers to the file."""
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def write(self, parts: Sequence[bytes], offset: int) -> None:
        """As of `File`."""
        if len(parts) > _PARTS_MAX:
            parts = [b"".join(parts)]
        size = sum(map(len, parts))
        try:
            written = os.pwritev(self._descriptor, parts, offset)
        except OSError as error:
            raise _error_of(error) from None
        if written < size:
            with _errors():
                rest = memoryview(b"".join(parts))
                while written < size:
                    more = os.pwrite(self._descriptor, rest[written:], offset + written)
                    if not more:
                        raise DiskError(f"{self.name} takes nothing more")
                    written += more

    def read(self, offset: int, length: int) -> bytes:
        """As of `File`."""
        try:
            data = os.pread(self._descriptor, length, offset)
        except OSError as error:
            raise _error_of(error) from None
        if len(data) == length or not data:
            return data
        with _errors():
            pieces, had = [data], len(data)
            while had < length:
                more = os.pread(self._descriptor, length - had, offset + had)
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
        try:
            count = os.preadv(self._descriptor, [into], offset, _NOWAIT)
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
        with _errors():
            end = offset + length
            while offset < end:
                count = os.preadv(self._descriptor, [into[: end - offset]], offset)
                if not count:
                    return
                offset += count

    def mark(self) -> int:
        """As of `File`."""
        return 0

    def sync(self, mark: int) -> None:
        """As of `File`."""
        with _errors():
            os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        """As of `File`."""
        with _errors():
            os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        """As of `File`."""
        with _errors():
            return os.fstat(self._descriptor).st_size


class RealDisk:
    """A directory. Whoever has it open has it locked."""

    def __init__(self, directory: str, *, locked: bool = True) -> None:
        """
        Args:
            locked: False: look only.

        Raises:
            LogDeviceError: FAILED: another process has it open, or it cannot be used.
        """
        self._directory = directory
        self._lock: int | None = None
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
        flags = os.O_RDONLY if self._lock is None else os.O_RDWR
        with _errors():
            return RealFile(name, os.open(self._path(name), flags | os.O_CLOEXEC))

    def create(self, name: str, size: int) -> RealFile:
        """As of `StoreDisk`."""
        with _errors():
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            file = RealFile(name, descriptor)
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
        with _errors():
            os.rename(self._path(old), self._path(new))

    def unlink(self, name: str) -> None:
        """As of `StoreDisk`."""
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
                with suppress(OSError):
                    os.fsync(file._descriptor)
                os.posix_fadvise(file._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

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
