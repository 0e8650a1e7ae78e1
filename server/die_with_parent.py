"""Ties the life of a process to that of its parent, however the parent ends.

As a program with the arguments ``PARENT PROGRAM [ARGUMENT...]`` it becomes another program that is tied in the same way.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel send SIGKILL to this process when its parent, process `parent`, is gone. Linux only.

    Exits at once when the parent is gone already.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(f"the parent process {parent} is gone")


def main() -> NoReturn:
    """The program."""
    # the kernel keeps the signal over exec
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
