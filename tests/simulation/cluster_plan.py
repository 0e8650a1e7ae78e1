"""The cluster file of a run, and how operators change it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from logdevice_py.config.location import Scope
from logdevice_py.config.replication import ReplicationProperty

_TOLERANT = {"node:2": ("node:2", "node:3")}
"""What a log may be changed to: no property that tolerates less than the one it begins with, on which the damage done depends."""


_COPIES_MAX: Final = 3
"""Of any property that a log may have."""


@dataclass(slots=True)
class NodePlan:
    """A node of the file."""

    roles: list[str]
    rack: int
    state: str = "read-write"


@dataclass(slots=True)
class ClusterPlan:
    """What varies in the file."""

    replicate: str
    """Of logs until an operator changes it."""
    racks: int
    attributes: dict[str, str]
    """Of all logs; values as they stand in the file."""
    nodes: dict[int, NodePlan]
    settings: list[str] = field(default_factory=list)
    version: int = 1
    removed: set[int] = field(default_factory=set)
    """Nodes that were in the file and are not any more; their numbers are not given again."""
    absent: set[int] = field(default_factory=set)
    """Logs that are not in the file."""
    regions: int = 1
    """Nodes stand in regions in turn; 1: in none in particular."""
    metadata_replicate: str = ""
    """Of metadata logs; empty: as logs have it at first."""
    metadata_nodeset: list[int] = field(default_factory=list)
    """Nodes that keep metadata logs; empty: all."""

    def render(self) -> str:
        """The file."""
        attributes = {"replicate": f'"{self.replicate}"', **self.attributes}
        lines = [
            'name = "simulation"',
            f"version = {self.version}",
            'uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"',
            'epoch_store = "memory:"',
            "[metadata_log]",
            f'replicate = "{self.metadata_replicate or self.replicate}"',
            *([f"nodeset = {self.metadata_nodeset}"] if self.metadata_nodeset else []),
            "[defaults]",
            *(f"{name} = {value}" for name, value in attributes.items()),
            *self._groups(),
        ]
        for number, node in self.nodes.items():
            lines += [
                f"[nodes.N{number}]",
                f'host = "127.0.0.{number + 1}"',
                "port = 7000",
                f"roles = {node.roles}".replace("'", '"'),
                f'location = "{self._location(number, node)}"',
                f'state = "{node.state}"',
            ]
        section = "[settings.rebuilding]"
        rebuilding = [] if any(section in each for each in self.settings) else [section, "enabled = false"]
        return "\n".join([*lines, *self.settings, *rebuilding])

    def _location(self, number: int, node: NodePlan) -> str:
        rack = f"rack{node.rack}"
        return rack if self.regions == 1 else f"region{number % self.regions}.d.c.r.{rack}"

    def _groups(self) -> list[str]:
        lines: list[str] = []
        first = 1
        for log in [*sorted(self.absent), 101]:
            if first < log:
                lines += [f'[logs."/from{first}"]', f'ids = "{first}..{log - 1}"']
            first = log + 1
        return lines

    def changes(self) -> list[Callable[[random.Random], None]]:
        """What an operator may do."""
        possible: list[Callable[[random.Random], None]] = [self.change_attributes, self.change_nodeset_size]
        possible.append(self.undrain if any(node.state != "read-write" for node in self.nodes.values()) else self.drain)
        if len(self.nodes) < 7:
            possible.append(self.add_node)
        if self.replicate in _TOLERANT:
            possible.append(self.change_replication)
        return possible

    def change_attributes(self, rng: random.Random) -> None:
        """Settings of logs that hold from the next entry on."""
        self.attributes |= {
            "sequencer_batching": rng.choice(["true", "false"]),
            "max_writes_in_flight": str(rng.choice([2, 5, 100, 1000])),
            "sticky_copysets": rng.choice(["true", "false"]),
        }
        if "extra_copies" in self.attributes:
            self.let_have_extras(rng.choice([0, 1, 2]))

    def change_nodeset_size(self, rng: random.Random) -> None:
        """Fewer or more shards an epoch."""
        self.attributes["nodeset_size"] = str(rng.choice([0, max(3, len(self.nodes) - 1), len(self.nodes)]))
        self._fit_nodeset_size()

    def let_have_extras(self, extras: int) -> None:
        """Entries have copies beside those that `replicate` asks for."""
        self.attributes["extra_copies"] = str(extras)
        self._fit_nodeset_size()

    def _fit_nodeset_size(self) -> None:
        """Nodesets have room for extra copies, whatever `replicate` may be changed to."""
        extras = int(self.attributes.get("extra_copies", "0"))
        if extras and int(self.attributes.get("nodeset_size", "0")) < _COPIES_MAX + extras:
            self.attributes["nodeset_size"] = "0"

    def begin_small(self) -> None:
        """As many nodes take records at first as entries have copies: the nodesets of the first epochs have no spare. `undrain` lets the cluster grow."""
        copies = ReplicationProperty.parse(self.replicate).copies
        for node in list(self.nodes.values())[copies:]:
            node.state = "disabled"

    def change_replication(self, rng: random.Random) -> None:
        """More or fewer copies."""
        self.attributes["replicate"] = f'"{rng.choice(_TOLERANT[self.replicate])}"'

    def drain(self, rng: random.Random) -> None:
        """A node takes nothing new."""
        self.nodes[rng.choice(list(self.nodes))].state = rng.choice(["read-only", "disabled"])

    def undrain(self, rng: random.Random) -> None:
        """All nodes take records again."""
        for node in self.nodes.values():
            node.state = "read-write"

    def add_node(self, rng: random.Random) -> None:
        """One node more."""
        number = 1 + max([*self.nodes, *self.removed])
        self.nodes[number] = NodePlan(["sequencer", "storage"], number % self.racks)

    def removable(self) -> list[int]:
        """Nodes that take nothing any more and without which the file says nothing impossible."""
        return [number for number, node in self.nodes.items() if node.state != "read-write" and self._suffices(number)]

    def _suffices(self, without: int) -> bool:
        left = {number: node for number, node in self.nodes.items() if number != without and node.state == "read-write"}
        rest = list(left.values())
        enough = len(rest) >= 3 and len({node.rack for node in rest}) == self.racks
        enough = enough and len({number % self.regions for number in left}) == self.regions
        return enough and any("sequencer" in node.roles for node in rest)

    def remove_node(self, number: int) -> None:
        """One node less; what lies on it is gone for good."""
        del self.nodes[number]
        self.removed.add(number)

    def put_back(self, number: int) -> None:
        """A node that was in the file is in it again."""
        self.removed.remove(number)
        self.nodes[number] = NodePlan(["sequencer", "storage"], number % self.racks)

    def holds_copies(self, without: Collection[int]) -> bool:
        """Whether the nodes that take records, but for some, have racks and are many enough for all copies of a record."""
        left = [node for number, node in self.nodes.items() if node.state == "read-write" and number not in without]
        factors = dict(ReplicationProperty.parse(self.replicate).factors)
        return len({node.rack for node in left}) >= factors.get(Scope.RACK, 1) and len(left) >= factors.get(
            Scope.NODE, 1
        )
