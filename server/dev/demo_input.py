"""What the demo writes: the lines of a file, or of Python's standard library."""

from __future__ import annotations

import contextlib
import os
import stat
import sysconfig
from pathlib import Path

from server.os_errors import explain

RECORD_MAX = 1 << 20
"""Bytes that a record of a development cluster may have."""
MEMORY_SHARE = 8
"""A file may have this share of the memory that is available: what is read back is compared with it, and lines take more than their bytes."""


class DemoInputError(Exception):
    """There is nothing to write, or it cannot be written; the text says why."""


def lines_of(path: Path | None) -> list[bytes]:
    """The records: the lines without their ends. None: of the standard library.

    Raises:
        DemoInputError: the file cannot be used.
    """
    lines = _standard_library() if path is None else _split(_read(path))
    if not lines:
        raise DemoInputError(
            f"{path} is empty: there is nothing to write" if path is not None else "no source text is here"
        )
    for number, line in enumerate(lines, 1):
        if len(line) > RECORD_MAX:
            raise DemoInputError(
                f"{path}: line {number:,} has {len(line):,} bytes, a record may have {RECORD_MAX:,}; is it a text file?"
            )
    return lines


def _split(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()  # behind the end of the last line
    return lines


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise DemoInputError(f"{path} is a directory: name a file whose lines to write")
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if status.st_size > available / MEMORY_SHARE:
            raise DemoInputError(
                f"{path} has {status.st_size / 1e9:.1f} GB; the demo keeps its input in memory, where it has room for "
                f"{available / MEMORY_SHARE / 1e9:.1f} GB: name a part of it"
            )
        return path.read_bytes()
    except OSError as error:
        raise DemoInputError(explain(error)) from None


def _standard_library() -> list[bytes]:
    lines: list[bytes] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" not in path.parts:
            with contextlib.suppress(OSError):
                lines += _split(path.read_bytes())
    return lines
