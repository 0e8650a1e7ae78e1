"""The file of a node's audit log: lines are only ever added to it, and it is for its owner alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from logdevice_py.core.status import LogDeviceError, Status
from server.audit.audit_log import WriteAuditLine
from server.private_files import append_to_private

_WAITING_MAX: Final = 100_000
"""Lines that wait to be written. While the disk does not keep up, those are left out for which nobody waits."""


class AuditFile:
    """Appends lines in a thread, and syncs where somebody waits. A file that is full is called like it, with ``.1`` behind; older ones have greater
    numbers."""

    def __init__(
        self,
        path: Path,
        bytes_max: int,
        files_max: int,
        on_written: Callable[[list[int], bool], None],
        on_failure: Callable[[int, str], None],
    ) -> None:
        """
        Args:
            path: of the file; its directory is there.
            bytes_max: size at which another file is begun.
            files_max: how many are kept, this one included.
            on_written: called on the loop with the tokens of lines that are on disk (True), or could not be written.
            on_failure: called on the loop with how many lines could not be written, and why.

        Raises:
            LogDeviceError: INVALID_CONFIG: the file cannot be opened.
        """
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._on_written = on_written
        self._on_failure = on_failure
        self._waiting: list[WriteAuditLine] = []
        self._writing: asyncio.Task[None] | None = None
        self._descriptor: int | None = None
        """None: it must be opened, which failed the last time."""
        self._size = 0
        self._is_doubtful = False
        """What was written last may be there in part, or not be on disk: nothing is added behind it."""
        self._holds_lines = False
        """The file has something that was written in full: it is kept when another one is begun."""
        try:
            self._open()
        except OSError as error:
            raise LogDeviceError(Status.INVALID_CONFIG, f"audit_file {path}: {error.strerror}") from None

    def _open(self) -> int:
        with append_to_private(self._path) as file:
            descriptor = self._descriptor = os.dup(file.fileno())
        self._size = os.fstat(descriptor).st_size
        self._holds_lines = self._size > 0
        if self._size and self._ends_within_a_line():
            self._add(descriptor, b"\n")
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return descriptor

    def _ends_within_a_line(self) -> bool:
        """A crash, or a disk that was full, left a part of one."""
        with open(self._path, "rb") as written:
            written.seek(-1, os.SEEK_END)
            return written.read(1) != b"\n"

    def run(self, effects: list[WriteAuditLine]) -> None:
        """Write lines; who waits is told later."""
        room = max(0, _WAITING_MAX - len(self._waiting))
        kept = effects[:room] + [each for each in effects[room:] if each.token]
        if len(kept) < len(effects):
            self._on_failure(len(effects) - len(kept), "the disk does not keep up")
        self._waiting += kept
        if self._writing is None and self._waiting:
            self._writing = asyncio.get_running_loop().create_task(self._write_all(), name="audit log")

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            tokens = [each.token for each in batch if each.token]
            ok = True
            try:
                await asyncio.to_thread(self._append, [each.line for each in batch], bool(tokens))
            except OSError as error:
                ok = False
                self._on_failure(len(batch), f"{self._path}: {error.strerror or error}")
            if tokens:
                self._on_written(tokens, ok)
        self._writing = None

    def _append(self, lines: list[str], sync: bool) -> None:
        if self._is_doubtful or self._size >= self._bytes_max:
            self._rotate()
        descriptor = self._open() if self._descriptor is None else self._descriptor
        whole = self._size
        self._is_doubtful = True
        try:
            self._add(descriptor, "".join(f"{line}\n" for line in lines).encode())
        except OSError:
            self._cut_off(descriptor, whole)
            raise
        if sync:
            os.fsync(descriptor)
        self._is_doubtful = False
        self._holds_lines = True

    def _cut_off(self, descriptor: int, whole: int) -> None:
        """Take away what was written in part, so that the file can go on: while a disk is full, others would be begun until those with lines are gone."""
        os.ftruncate(descriptor, whole)
        self._size = whole
        self._is_doubtful = False

    def _add(self, descriptor: int, data: bytes) -> None:
        while data:
            written = os.write(descriptor, data)
            self._size += written
            data = data[written:]

    def _rotate(self) -> None:
        """Begin another file. One without a line that was written in full is not kept: as long as a disk fails, those with lines would make way for it."""
        held_lines = self._holds_lines
        self._close()
        if held_lines:
            for number in range(self._files_max - 1, 0, -1):
                older = self._path if number == 1 else self._numbered(number - 1)
                with contextlib.suppress(FileNotFoundError):
                    os.replace(older, self._numbered(number))
        if not held_lines or self._files_max == 1:
            self._path.unlink(missing_ok=True)
        self._is_doubtful = self._holds_lines = False
        self._size = 0

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    async def close(self) -> None:
        """Write what waits."""
        if self._writing is not None:
            await self._writing
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._close)
