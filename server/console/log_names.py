"""Names of logs as the console shows them."""

from __future__ import annotations

from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core import ids
from logdevice_py.core.ids import LogId

_INTERNAL: Final[dict[LogId, str]] = {
    ids.EVENT_LOG_DELTAS: "event log",
    ids.EVENT_LOG_SNAPSHOTS: "event log, snapshots",
    ids.LOG_TREE_DELTAS: "log tree",
    ids.LOG_TREE_SNAPSHOTS: "log tree, snapshots",
    ids.MAINTENANCE_DELTAS: "maintenances",
    ids.MAINTENANCE_SNAPSHOTS: "maintenances, snapshots",
}


def log_name(config: ClusterConfig, log: LogId) -> str:
    """The path of a log; what an internal one is for; the bare id where neither is known."""
    return _INTERNAL.get(log) or config.log_name(log)
