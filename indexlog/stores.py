"""Where files are: immutable, named by the job that wrote them, and whole as soon as they have their name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
from pyarrow import fs

from indexlog.manifest.commands import is_path
from logdevice_py.core.status import LogDeviceError, Status


class StoreUnavailable(OSError):
    """The store did not give what was asked for: it may do so later."""


class FileStore(Protocol):
    """Files by path; all calls block."""

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Write a file. It has its name, durably, once the block is left; an error in the block leaves no file of that name."""

    def open(self, path: str) -> Any:
        """A `pyarrow.NativeFile` to read it, at any place.

        Raises:
            FileNotFoundError: there is none.
            StoreUnavailable: as reading it does.
        """

    def list(self) -> list[tuple[str, int]]:
        """All files that jobs wrote, with their sizes in bytes."""

    def delete(self, path: str) -> None:
        """Remove a file. Harmless when there is none."""


class MemoryStore:
    """Files of one process, for tests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Write a file: as `FileStore`."""
        assert path not in self.files, path
        sink = pa.BufferOutputStream()
        yield sink
        self.files[path] = sink.getvalue().to_pybytes()

    def open(self, path: str) -> Any:
        """Read a file."""
        if path not in self.files:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.files[path])

    def list(self) -> list[tuple[str, int]]:
        """All files."""
        return [(path, len(data)) for path, data in self.files.items()]

    def delete(self, path: str) -> None:
        """Remove a file."""
        self.files.pop(path, None)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreUnavailable(str(error)) from None


class _RemoteFile:
    """A file to be read whose store may fail: readers tell that from a file that is damaged."""

    def __init__(self, file: Any) -> None:
        self._file = file

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return bool(self._file.closed)

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes, or all that are left."""
        with _store_errors():
            data: bytes = self._file.read(None if size < 0 else size)
            return data

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place."""
        with _store_errors():
            return int(self._file.seek(place, whence))

    def tell(self) -> int:
        """The place."""
        return int(self._file.tell())


class ArrowStore:
    """Files of a file system that pyarrow knows: objects of S3, which have their name when they are complete.

    All are in one directory: where there are none, as in S3, pyarrow leaves an object for each directory that became empty.
    """

    def __init__(self, system: fs.FileSystem, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def _at(self, path: str) -> str:
        return f"{self._root}/{path.replace('/', _BEHIND_TOKEN, 1)}"

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Write a file."""
        sink = self._system.open_output_stream(self._at(path), compression=None)
        try:
            yield sink
        except BaseException:
            # pyarrow completes the object whatever happens; nobody knows of it, and its job's garbage is collected if this fails too
            with suppress(OSError):
                sink.close()
                self._system.delete_file(self._at(path))
            raise
        sink.close()

    def open(self, path: str) -> Any:
        """Read a file."""
        with _store_errors():
            return pa.PythonFile(_RemoteFile(self._system.open_input_file(self._at(path))), "r")

    def list(self) -> list[tuple[str, int]]:
        """All files."""
        chosen = fs.FileSelector(self._root, allow_not_found=True)
        named = [
            (each.base_name.replace(_BEHIND_TOKEN, "/", 1), each.size)
            for each in self._system.get_file_info(chosen)
            if each.type == fs.FileType.File
        ]
        return [(path, size) for path, size in named if is_path(path)]

    def delete(self, path: str) -> None:
        """Remove a file."""
        try:
            self._system.delete_file(self._at(path))
        except FileNotFoundError:
            return


_BEHIND_TOKEN: Final = "-"
"""In the place of the first slash of a path: a token has digits only."""
LOCAL_SCHEME: Final = "file://"


def remote_store(url: str) -> ArrowStore:
    """The store of a URL like ``s3://bucket/path?region=...``.

    Raises:
        LogDeviceError: INVALID_PARAM: pyarrow knows no such file system.
    """
    try:
        system, root = fs.FileSystem.from_uri(url)
    except (ValueError, OSError, NotImplementedError) as error:
        raise LogDeviceError(Status.INVALID_PARAM, f"the store {url}: {error}") from None
    if isinstance(system, fs.LocalFileSystem):  # pyarrow's own does not sync
        raise LogDeviceError(Status.INVALID_PARAM, f"the store {url}: file:///DIRECTORY expected")
    return ArrowStore(system, root)
