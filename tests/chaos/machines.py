"""Machines for real nodes: beside a network namespace each, a small disk of their own.

Both need privileges; where these are missing the nodes share the host's network and disk.
"""

from __future__ import annotations

import asyncio
import errno
import subprocess
from pathlib import Path
from typing import Any

from server.dev.virtual_network import run

DISK_BYTES = 192 << 20
"""Of the small disk of a node: some memtables and files of RocksDB fit, and filling it takes a moment."""


class SmallDisk:
    """A file system of its own for a node's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ballast = directory / "ballast"

    def open(self) -> None:
        """Mount it. CalledProcessError where that is not allowed."""
        self.directory.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "logdevice-chaos", str(self.directory))

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.directory)], check=False, capture_output=True)

    def fill(self) -> None:
        """Leave no room at all."""
        with open(self._ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)


async def off_loop(function: object, *arguments: object) -> Any:
    """Run something that waits for the kernel beside the loop."""
    return await asyncio.to_thread(function, *arguments)  # type: ignore[arg-type]
