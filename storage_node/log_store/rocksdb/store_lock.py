"""Which process has a store open. RocksDB locks a file of each database, as stores in extents do, and says no more of it than that it is locked."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from contextlib import suppress
from typing import Final

from storage_node.log_store.extents.opening import EXTENTS
from storage_node.log_store.extents.real_disk import HELD
from storage_node.log_store.rocksdb.families import DATABASE

_LOCK: Final = "LOCK"
_FLOCK: Final = struct.Struct("hhqqi")
"""struct flock of Linux on machines of 64 bits: type, whence, start, length (0: to the end), process."""
_COMMAND_MAX: Final = 160
_REFUSALS: Final = ("While lock file", "lock hold by current process", HELD)
"""What RocksDB says of a database that is locked by another process, and by this one; and what is said of extents."""


def says_locked(text: str) -> bool:
    """Whether RocksDB refused to open a database because it is open already."""
    return any(refusal in text for refusal in _REFUSALS)


def find_user(directory: str) -> str | None:
    """Which process has the store in a directory open, for people; None: nobody, or it cannot be told here. Changes nothing."""
    if not sys.platform.startswith("linux") or sys.maxsize < 1 << 32:
        return None
    for within in (DATABASE, EXTENTS):
        user = _find_user_of(os.path.join(directory, within, _LOCK))
        if user is not None:
            return user
    return None


def _find_user_of(path: str) -> str | None:
    with suppress(OSError):
        # To close a file drops the locks that the process has on it, whichever descriptor they were taken with: one that is open here is not touched.
        if _is_open_here(path):
            return "this process"
        with open(path, "rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        kind, _, _, _, process = _FLOCK.unpack(answer)
        if kind != fcntl.F_UNLCK:
            return _name(process)
    return None


def _is_open_here(path: str) -> bool:
    locked = os.stat(path)
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one of the listing is closed by now
            if os.path.samestat(os.fstat(int(descriptor)), locked):
                return True
    return False


def _name(process: int) -> str:
    if process <= 0:
        return "a process in another container or at another machine"
    command = ""
    with suppress(OSError), open(f"/proc/{process}/cmdline", "rb") as file:
        command = file.read().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "backslashreplace")
    if len(command) > _COMMAND_MAX:
        command = command[:_COMMAND_MAX] + "..."
    return f"process {process} ({command})" if command else f"process {process}"
