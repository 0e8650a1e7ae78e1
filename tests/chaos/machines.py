"""Machines for real nodes: a network namespace each on one bridge, and a small disk of their own.

Both need privileges; where these are missing the nodes share the host's network and disk, and `can_partition` and `can_fill` say so.
"""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

DISK_BYTES = 192 << 20
"""Of the small disk of a node: some memtables and files of RocksDB fit, and filling it takes a moment."""
NOWHERE = "02:00:00:00:00:01"
"""A link-layer address that no interface has: what is sent to it is lost without a word."""


def run(*command: str) -> str:
    """Run a command of the system to its end; CalledProcessError with what it printed."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def may_make_networks() -> bool:
    """Whether this process may make network namespaces and bridges."""
    probe = f"ldprobe{os.getpid()}"
    try:
        run("ip", "netns", "add", probe)
    except (OSError, subprocess.CalledProcessError):
        return False
    run("ip", "netns", "del", probe)
    return True


class VirtualNetwork:
    """A bridge, and for each node a namespace with one interface on it. The test itself is on the bridge, too."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._tag = f"{os.getpid() & 0xFFFFF:x}"
        self._net = f"10.{200 + (os.getpid() >> 8) % 50}.{os.getpid() & 0xFF}"
        self._nodes = list(nodes)
        self.bridge = f"ldb{self._tag}"

    def address(self, node: int) -> str:
        """Of a node; -1: of the test."""
        return f"{self._net}.{node + 2}"

    def namespace(self, node: int) -> str:
        """The name of a node's namespace."""
        return f"ld{self._tag}n{node}"

    def open(self) -> None:
        """Make everything."""
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "address", "add", f"{self.address(-1)}/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        for node in self._nodes:
            name, outside = self.namespace(node), f"lv{self._tag}n{node}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", outside, "master", self.bridge, "up")
            run("ip", "-n", name, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")

    def close(self) -> None:
        """Take everything away."""
        for node in self._nodes:
            subprocess.run(["ip", "netns", "del", self.namespace(node)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True)

    def block(self, source: int, target: int) -> None:
        """What `source` sends to `target` is lost."""
        self._neighbour(source, "replace", self.address(target), "lladdr", NOWHERE, "nud", "permanent")

    def unblock(self, source: int, target: int) -> None:
        """It arrives again. Harmless when nothing was blocked."""
        try:
            self._neighbour(source, "del", self.address(target))
        except subprocess.CalledProcessError as error:
            if "No such file" not in error.stderr:
                raise

    def _neighbour(self, source: int, verb: str, address: str, *more: str) -> None:
        where = [] if source < 0 else ["-n", self.namespace(source)]
        run("ip", *where, "neighbour", verb, address, *more, "dev", self.bridge if source < 0 else "eth0")


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


async def off_loop(function: object, *arguments: object) -> object:
    """Run something that waits for the kernel beside the loop."""
    return await asyncio.to_thread(function, *arguments)  # type: ignore[arg-type]
