"""What a node writes is for its owner alone: records, keys and the token of the admin API are in its files."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

UMASK: Final = 0o077
_OTHERS: Final = 0o077

log = logging.getLogger("logdevice.node")


def keep_files_private() -> None:
    """Files and directories that this process and its children make from now on are closed to other users. For programs: an application
    has a umask of its own."""
    os.umask(UMASK)


def make_private_directory(directory: Path) -> None:
    """A directory of data, made with those above it when it is missing. One that is there and is open to other users is closed to them;
    where that is not possible, it is told.

    Raises:
        OSError: it cannot be made.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        if not directory.is_dir():
            raise
    mode = stat.S_IMODE(directory.stat().st_mode)
    if not mode & _OTHERS:
        return
    if mode & stat.S_ISVTX:
        log.warning(
            "%s is for the files of all users (mode %o): name a directory that is the node's alone", directory, mode
        )
        return
    try:
        directory.chmod(mode & ~_OTHERS)
    except OSError as error:
        log.warning("%s is open to other users (mode %o) and stays so: %s", directory, mode, error.strerror)
        return
    log.warning("%s was open to other users (mode %o): it is closed to them now", directory, mode)


def append_to_private(path: Path) -> BinaryIO:
    """A file of its owner alone, opened to append to it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    except OSError as error:
        log.warning("%s: %s", path, error.strerror)
    return os.fdopen(descriptor, "ab")
