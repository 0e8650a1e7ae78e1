"""What a placement policy is: the interface behind which nodesets, copysets and orders of reading are chosen.

A policy is pure: no clock, no I/O, randomness as an argument. It proposes; whether a proposal is safe is judged outside of it, by the replication
property and the failure domains of the epoch (`logdevice_py.placement.cluster_placement`). So no policy can lose data: the worst one stores it badly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.location import Location
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.machine import Rng
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.reading_order import ReadHealth
from logdevice_py.placement.topology import Topology


class CopysetSource(Protocol):
    """Chooses the copysets of one nodeset."""

    @property
    def nodeset(self) -> tuple[ShardId, ...]:
        """The shards that it chooses from, ascending."""

    def pick(self, available: Callable[[ShardId], bool]) -> tuple[ShardId, ...] | None:
        """A copyset of available shards, in the order in which they send records to readers; None exactly when they cannot satisfy the replication
        property. Asked for each block of entries, so it should take microseconds."""

    def replace(self, kept: Sequence[ShardId], available: Callable[[ShardId], bool]) -> tuple[ShardId, ...] | None:
        """`kept`, then as few available shards as make the whole satisfy the property; None when they cannot.

        Shards of `kept` count whether they are available or not; those outside the nodeset do not count.
        """


class PlacementPolicy(Protocol):
    """Where the entries of a cluster's logs are stored. A plug-in is a class of this kind that takes `PlacementSettings` as its one argument."""

    def on_cluster_changed(self, topology: Topology) -> frozenset[ShardId]:
        """There is another version of the cluster's storage. Called before the first choice, and whenever the configuration or what is lost or drained
        changes, never because a node is silent for a while.

        Returns:
            The shards that could be chosen before and are gone: neither writable nor read-only.
        """

    def select_nodeset(self, log: LogId, attributes: LogAttributes) -> tuple[ShardId, ...] | None:
        """The shards over which new epochs of a log are spread; None when the writable ones cannot satisfy the replication property.

        Must give the same answer as long as the topology and the attributes are the same: another answer means another epoch. Ask for each data log
        alone; a metadata log has its data log's.
        """

    def copysets(self, domains: FailureDomains, at: Location | None, rng: Rng) -> CopysetSource:
        """Who chooses the copysets of an epoch.

        Args:
            domains: nodeset, replication property and failure domains of the epoch, which are not always those of today.
            at: where the sequencer stands that asks; None: no sequencer asks, a shard is rebuilt.
            rng: where choices come from.
        """

    def reading_order(
        self, shards: Sequence[ShardId], at: Location | None, health: Callable[[ShardId], ReadHealth], rng: Rng
    ) -> Sequence[ShardId]:
        """All the shards, in the order in which a reader should ask them: those of a copyset for a record, those of a nodeset for how far a log goes.

        Args:
            at: where the reader stands; None: not known.
            health: what it knows of them.
        """

    def close(self) -> None:
        """The policy is replaced by another one, or the process ends: release what `__init__` took."""
