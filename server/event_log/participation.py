"""Which nodes take part in rebuilding.

Rebuilding is on unless the cluster file says otherwise. In versions before that it was off unless the file said otherwise, and while a cluster is upgraded nodes of both
kinds live side by side. A node says in gossip that it keeps an event log; one of an earlier version says nothing, and does so only where the file asks for it.
"""

from __future__ import annotations

from typing import Protocol

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import NodeId
from logdevice_py.membership.cluster_view import ClusterView


class ParticipantView(ClusterView, Protocol):
    """What gossip tells of the other nodes."""

    def keeps_event_log(self, node: NodeId) -> bool:
        """Whether the latest run of the node that was heard of said so."""


def takes_part(node: NodeId, config: ClusterConfig, view: ParticipantView) -> bool:
    """Whether the node, alive or not, takes part when it runs as it did last."""
    return not config.rebuilding_by_default or view.keeps_event_log(node)


def absentees(config: ClusterConfig, view: ParticipantView) -> list[NodeId]:
    """The living nodes that take no part, ascending: their shards give nothing, and their sequencers do not know what is lost or drained."""
    return [node for node in sorted(config.nodes) if view.is_alive(node) and not takes_part(node, config, view)]
