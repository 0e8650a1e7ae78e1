"""Rows of the tables of the log tree."""

from __future__ import annotations

import json
from collections.abc import Iterator

from client.log_tree.state import Node as TreeNode
from client.log_tree.state import TreeDirectory, TreeGroup
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.log_tree import LogTreeReplicasRow, LogTreeRow
from server.node import Node


def log_tree_rows(node: Node, constraints: Constraints) -> Iterator[LogTreeRow]:
    """Table `log_tree`. What is added or removed while the rows are taken may be among them or not."""
    if node.log_tree is None:
        return
    state, config = node.log_tree.view.state, node.config
    if constraints.log_id is not None:
        group = state.group(constraints.log_id)
        if group is not None:
            yield _row(group, config)
        return
    waiting: list[TreeNode] = list(state.root.children.values())
    while waiting:
        each = waiting.pop()
        yield _row(each, config)
        if isinstance(each, TreeDirectory):
            waiting += each.children.values()


def _row(each: TreeNode, config: ClusterConfig) -> LogTreeRow:
    group = each if isinstance(each, TreeGroup) else None
    return LogTreeRow(
        path=each.path,
        kind="directory" if group is None else "group",
        state="removing" if group is not None and group.removing else "live",
        logid_lo=None if group is None else group.lo,
        logid_hi=None if group is None else group.hi,
        attributes=json.dumps(each.attributes, separators=(",", ":")),
        version=str(each.version),
        hidden=int(group is not None and config.logs.group_at(each.path) is not None),
    )


def log_tree_replicas_rows(node: Node) -> Iterator[LogTreeReplicasRow]:
    """Table `log_tree_replicas`."""
    if node.log_tree is None:
        return
    replica = node.log_tree.replica
    yield LogTreeReplicasRow(
        version=str(replica.version),
        lsn=replica.version.lsn,
        groups=len(replica.state.value),
        removing=len(replica.state.value.removing),
        is_known=int(replica.caught_up),
        waits_for=replica.waiting_for(),
        commands=replica.state.commands,
    )
