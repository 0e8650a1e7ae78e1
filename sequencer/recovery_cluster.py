"""What recovery may ask about shards, answered from the cluster file and the view of the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from logdevice_py.config.location import Location
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId, is_internal_log
from logdevice_py.placement.failure_domains import Authority
from sequencer.context import SequencerContext


class NodeRecoveryCluster:
    """Implements `sequencer.recovery.context.RecoveryCluster`."""

    __slots__ = ("_context", "awaited", "lost", "presumed_lost")

    def __init__(self, context: SequencerContext) -> None:
        self._context = context
        self.lost: Mapping[ShardId, Generation] = {}
        """Shards of which nobody waits for the data any more, up to these generations. What they held of epochs that are not clean was not stored
        again, so that they hold nothing proves nothing."""

        self.awaited: Mapping[ShardId, Generation] = {}
        """Lost shards, up to these generations, of which the data may come back."""
        self.presumed_lost: frozenset[ShardId] = frozenset()
        """Shards that served nobody for so long that they are taken for lost, as far as this node sees."""

    def location(self, shard: ShardId) -> Location | None:
        """Of a shard; None when it is not in the cluster file."""
        return self._context.config.location(shard)

    def in_cluster(self, shard: ShardId) -> bool:
        """The shard is in the cluster file."""
        return self._context.config.location(shard) is not None

    def has_left(self, shard: ShardId, since: int) -> bool:
        """The shard, which was in version `since` of the cluster file, is in it no more. False while this node has an older version."""
        return not self.in_cluster(shard) and self._context.config.version >= since

    def is_writable(self, shard: ShardId) -> bool:
        """The shard takes new entries."""
        return self._context.config.is_writable(shard)

    def authority(self, log: LogId, shard: ShardId, generation: Generation) -> Authority:
        """What the cluster knows of the shard's data. Of what the cluster keeps for itself a shard that is gone is taken for lost without the event log, which
        else could never say that a shard is lost for whose data its own recovery waits; entries of users may get fewer copies than they should only
        when it says so."""
        if generation <= self.lost.get(shard, 0):
            return Authority.UNDERREPLICATION
        if generation <= self.awaited.get(shard, 0) or (is_internal_log(log) and shard in self.presumed_lost):
            return Authority.UNAVAILABLE
        return Authority.FULLY_AUTHORITATIVE

    def is_alive(self, node: NodeId) -> bool:
        """The node is not known to be dead."""
        return self._context.cluster.is_alive(node)
