"""A directory as a store, and how a URL becomes a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from indexlog.manifest.commands import is_path
from indexlog.stores import LOCAL_SCHEME, FileStore, remote_store
from logdevice_py.core.status import LogDeviceError, Status

_UNFINISHED: Final = ".unfinished-"


class LocalStore:
    """Files of a directory that all processes see. A file is synced before it gets its name, and the name before `create` ends."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Write a file."""
        target = self.root / path
        made = not target.parent.exists()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if made:
            sync_directory(self.root)
        descriptor, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.rename(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_directory(target.parent)

    def open(self, path: str) -> Any:
        """Read a file."""
        return pa.memory_map(str(self.root / path))

    def list(self) -> list[tuple[str, int]]:
        """All files, also unfinished ones: who wrote those may have been killed."""
        found = []
        for each in self.root.glob("*/*"):
            name = f"{each.parent.name}/{each.name}"
            if is_path(name):
                try:
                    found.append((name, each.stat().st_size))
                except FileNotFoundError:  # collected, or completed, meanwhile
                    continue
        return found

    def delete(self, path: str) -> None:
        """Remove a file, and its directory when that was the last one."""
        target = self.root / path
        target.unlink(missing_ok=True)
        try:
            target.parent.rmdir()
        except OSError:  # it holds others, or is gone
            return


def sync_directory(path: Path) -> None:
    """The names in a directory are durable when this returns."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_store(url: str) -> FileStore:
    """The store of a URL: ``file:///directory``, or what pyarrow knows.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    if url.startswith(LOCAL_SCHEME):
        parts = urlsplit(url)
        if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise LogDeviceError(Status.INVALID_PARAM, f"the store {url}: file:///DIRECTORY expected")
        return LocalStore(Path(unquote(parts.path)))
    return remote_store(url)
