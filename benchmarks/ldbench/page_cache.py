"""Makes files cold: what was written is no longer in the kernel's page cache."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_DROP_CACHES: Final = Path("/proc/sys/vm/drop_caches")


def drop_page_cache(directory: Path, *, whole_machine: Path = _DROP_CACHES) -> str:
    """Write everything out, then drop what the page cache holds; takes a while. How it was done, for the report.

    As root the cache of the whole machine goes. Otherwise the kernel is advised to forget the files in the directory, which it does but for
    those that a process has mapped. What servers keep in their own memory stays in either case.

    Args:
        directory: the files that are to be cold.
        whole_machine: the kernel's switch.
    """
    os.sync()
    try:
        with whole_machine.open("w") as switch:
            switch.write("1")
    except OSError:
        return f"posix_fadvise(DONTNEED) on {_forget(directory)} files"
    return "drop_caches"


def _forget(directory: Path) -> int:
    count = 0
    for path in directory.rglob("*"):
        # files come and go under running servers, and there are sockets
        with contextlib.suppress(OSError):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    count += 1
                finally:
                    os.close(descriptor)
    return count
