"""Clients of worker processes: one a cluster and process, never one of a parent process."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from client.client import read_cluster_file
from client.spark.access import NO_ACCESS, ClusterAccess
from client.spark.options import SourceOptions, logs_named
from client.sync import SyncClient
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.render import render_cluster
from logdevice_py.core.status import LogDeviceError, Status

_CLIENTS_MAX: Final = 4
_clients: dict[tuple[int, str], SyncClient] = {}
"""By process and cluster: what a fork inherits belongs to another process and is neither used nor closed."""


def cluster_text(cluster: str) -> str:
    """The text of a cluster file: what is given when that has several lines, otherwise the file of that name.

    Planning reads the file, tasks get its text: executors need no file.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    try:
        if "\n" in cluster:
            return render_cluster(load_cluster(cluster))
        return render_cluster(_with_path_of_ca(read_cluster_file(cluster), Path(cluster)))
    except LogDeviceError as error:
        raise LogDeviceError(error.status, f"option cluster: {error.detail}") from None


def _with_path_of_ca(config: ClusterConfig, path: Path) -> ClusterConfig:
    """The text is read elsewhere than beside the file."""
    security = dict(config.settings.get("security", {}))
    if not security.get("ca_file"):
        return config
    security["ca_file"] = str((path.parent / str(security["ca_file"])).absolute())
    return replace(config, settings={**config.settings, "security": security})


def planning_client(cluster: str, access: ClusterAccess = NO_ACCESS) -> SyncClient:
    """A client of who plans, which has asked nodes for the configuration that they use. It is later than what they were given where it is stored.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    client = SyncClient(load_cluster(cluster_text(cluster)), name="spark planning", identity=access.identity())
    try:
        client.run(lambda inner: inner.newest_config())
    except BaseException:
        client.close()
        raise
    return client


def check_logs(options: SourceOptions) -> None:
    """That there are the logs that the options name. Nodes are asked only where the cluster file does not have them.

    Raises:
        LogDeviceError: NOTFOUND, INVALID_PARAM, INVALID_CONFIG.
    """
    try:
        logs_named(options.logs, load_cluster(cluster_text(options.cluster)).logs)
    except LogDeviceError as error:
        if error.status is not Status.NOTFOUND:
            raise
        with planning_client(options.cluster, options.access) as client:
            logs_named(options.logs, client.config.logs)


def client_for(text: str, access: ClusterAccess = NO_ACCESS) -> SyncClient:
    """The client of this process for a cluster; it stays open for further tasks."""
    key = (os.getpid(), hashlib.blake2b(f"{text}{access}".encode(), digest_size=16).hexdigest())
    client = _clients.pop(key, None)
    if client is None:
        client = SyncClient(load_cluster(text), name="spark", identity=access.identity())
    _clients[key] = client
    own = [each for each in _clients if each[0] == key[0]]
    for old in own[:-_CLIENTS_MAX]:
        _clients.pop(old).close()
    return client
