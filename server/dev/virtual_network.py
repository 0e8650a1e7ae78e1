"""Machines for real nodes on one machine: a network namespace each on one bridge. It takes root, see `may_make_networks`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

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
    """A bridge, and for each node a namespace with one interface on it. This process itself is on the bridge, too. One a process."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._tag = f"{os.getpid() & 0xFFFFF:x}"
        self._net = f"10.{200 + (os.getpid() >> 8) % 50}.{os.getpid() & 0xFF}"
        self._nodes = list(nodes)
        self.bridge = f"ldb{self._tag}"

    def address(self, node: int) -> str:
        """Of a node; -1: of this process."""
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
            name, outside = self.namespace(node), self._port(node)
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

    def unplug(self, node: int) -> None:
        """What a node sends and what is sent to it is lost from one moment on, as when its cable is pulled."""
        run("ip", "link", "set", self._port(node), "down")

    def plug(self, node: int) -> None:
        """Put the cable back."""
        run("ip", "link", "set", self._port(node), "up")

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

    def _port(self, node: int) -> str:
        """The bridge's end of the node's cable."""
        return f"lv{self._tag}n{node}"

    def _neighbour(self, source: int, verb: str, address: str, *more: str) -> None:
        where = [] if source < 0 else ["-n", self.namespace(source)]
        run("ip", *where, "neighbour", verb, address, *more, "dev", self.bridge if source < 0 else "eth0")
