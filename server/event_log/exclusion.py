"""Which shards new epochs are to do without."""

from __future__ import annotations

from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import ShardId
from logdevice_py.core.marks import hit
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.membership.cluster_view import ClusterView, metadata_logs_writable

_FEW_US: Final = 10 * SECOND
"""So long the others must have been too few. A node that was taken out of the cluster file, and has the old file still, loses sight of the others one by
one, as the new file reaches them: what drained shards took from it meanwhile would leave the cluster with them."""


class Exclusion:
    """Decides which shards new epochs do without: those that are lost or drained, until they come back with a later generation.

    Where the event log could not be written without them, those that serve take records all the same: they may be back, and can only say so
    there. So do drained ones: without them nobody could even say that they shall be used again. They are drained once more then. Who is cut off does
    not judge what others lack.
    """

    __slots__ = ("_few_since", "needed")

    def __init__(self) -> None:
        self.needed: frozenset[ShardId] = frozenset()
        """Shards that are lost or drained, and take records all the same."""
        self._few_since: Micros | None = None
        """Since when the others have been too few for the event log."""

    def judge(self, config: ClusterConfig, state: RebuildingSet, view: ClusterView, now: Micros) -> frozenset[ShardId]:
        """The shards that are left out from now on.

        Args:
            config: the cluster file, of a cluster that keeps an event log.
        """
        self.needed = frozenset()
        listed = frozenset(shard for shard, entry in state.shards.items() if view.generation(shard) <= entry.generation)
        if not listed or view.isolated() or _suffice(listed, config, view):
            self._few_since = None
            return listed
        if self._few_since is None:
            self._few_since = now
        if now < self._few_since + _FEW_US:
            return listed
        self.needed = frozenset(shard for shard in listed if view.serves(shard))
        if any(state.shards[shard].mode is RebuildMode.RELOCATE for shard in self.needed):
            hit("drained_shard_takes_records")
        return listed - self.needed


def _suffice(without: frozenset[ShardId], config: ClusterConfig, view: ClusterView) -> bool:
    """Whether the event log can be written without these shards: what metadata logs take is enough, as a new epoch begins with a record there, and the
    event log itself has no more copies than those, and more shards to choose from."""
    return metadata_logs_writable(config, view, without)
