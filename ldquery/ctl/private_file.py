"""Files that operators keep: written whole or not at all, for their owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from logdevice_py.core.status import LogDeviceError, Status


def write_text(path: Path, text: str) -> None:
    """Replace a file, durably.

    Raises:
        LogDeviceError: FAILED: it cannot be written; the one that was there stays.
    """
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        written.rename(path)
    except OSError as error:
        raise LogDeviceError(Status.FAILED, f"{path}: {error.strerror}") from None


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        LogDeviceError: INVALID_PARAM: it cannot be read, or is no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LogDeviceError(Status.INVALID_PARAM, f"{path}: {error}") from None
