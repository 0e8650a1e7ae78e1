"""The limit of open files of a node's process: sockets and RocksDB share it, and either fails in ways that nobody foresees when it is reached."""

from __future__ import annotations

import os
import resource
from typing import Final

from logdevice_py.config.admin import AdminSettings
from logdevice_py.core.status import LogDeviceError, Status
from server.node_settings import NodeSettings

_OTHERS: Final = 500
"""Standard streams, the epoch store, write-ahead logs, files that are being written, health checks."""


def files_needed(settings: NodeSettings, admin: AdminSettings, shards: int, nodes: int) -> int:
    """How many files and sockets a node may have open at once.

    Args:
        settings: of the node.
        admin: of its admin API.
        shards: that it stores.
        nodes: in the cluster.
    """
    runtime = settings.runtime
    sockets = runtime.connections_max + runtime.connections_introducing_max + admin.connections_max + 2 * nodes
    return sockets + shards * settings.log_store.open_files_max + _OTHERS


def allow_open_files(needed: int) -> None:
    """Raise the process's limit as far as that is allowed.

    Raises:
        LogDeviceError: FAILED: that is not far enough; the text says what to do.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else hard, hard))
        return
    raise LogDeviceError(
        Status.FAILED,
        f"this node may need {needed} open files and sockets, and its process may have {hard}: raise the limit (LimitNOFILE= of its systemd unit, "
        "ulimit -Hn) or lower connections_max and connections_introducing_max in [settings.runtime] or open_files_max in [settings.storage]",
    )


def open_files() -> int | None:
    """How many files and sockets this process has open; None where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # the directory itself is open meanwhile
    except OSError:
        return None


def open_files_limit() -> int | None:
    """How many it may have; None: any number."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft
