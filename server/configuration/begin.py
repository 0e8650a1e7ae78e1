"""What a node begins with: the stored configuration; where there is none, the cluster file."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Final

from epoch_store.interface import ReadConfiguration, Result, WriterIdentity
from epoch_store.opening import open_epoch_store
from epoch_store.zookeeper import ZooKeeperAccess
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.stored import StoredConfiguration
from logdevice_py.core.ids import InstanceId, NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.clock import wall_us
from server.cluster_file import read_cluster_file
from server.configuration.keeper import InForce, ask_epoch_store, parse_stored, read_kept

log = logging.getLogger("logdevice.node")

_RETRY: Final = 0.5
_AWAY: Final = (Status.AGAIN, Status.TIMEDOUT)


def known_configuration(path: Path, node: NodeId, data: Path | None) -> tuple[ClusterConfig, Path | None]:
    """What the disk of a node tells of the configuration, without asking anybody: what it kept, or its cluster file; and where its data are.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    config = read_cluster_file(path)
    directory = data or _data_of(config, node)
    kept = None if directory is None else read_kept(directory, config)
    return kept or config, directory


def _data_of(config: ClusterConfig, node: NodeId) -> Path | None:
    member = config.nodes.get(node)
    return None if member is None or member.data_dir is None else Path(member.data_dir)


async def starting_configuration(file: ClusterConfig, directory: Path | None, access: ZooKeeperAccess) -> InForce:
    """What the node begins with. It waits for the epoch store, unless an earlier run kept a stored configuration.

    Args:
        file: what the cluster file says.
        directory: of the node's data, as far as it is known; None: nothing can have been kept.
        access: how the node reaches ZooKeeper, by its cluster file.

    Raises:
        LogDeviceError: INVALID_CONFIG, INVALID_CLUSTER: what is stored cannot be used; FAILED: it cannot be read.
    """
    if file.epoch_store.startswith("memory:"):
        return InForce(config=file)
    kept = None if directory is None else await asyncio.to_thread(read_kept, directory, file)
    result = await _read(file, access, wait=kept is None)
    if result.status not in (Status.OK, Status.EMPTY):
        if kept is None:
            raise LogDeviceError(result.status, f"the configuration in {file.epoch_store}: {result.detail}")
        log.warning(
            "the epoch store %s does not tell the configuration (%s); the node begins with version %d, which it kept",
            file.epoch_store,
            result.detail or result.status.name,
            kept.version,
        )
        return InForce(config=kept, is_stored=True)
    stored = result.value if isinstance(result.value, StoredConfiguration) else None
    if stored is None or (kept is not None and kept.version > stored.version):
        return InForce(config=kept or file, is_stored=kept is not None, stored=stored, read_at=wall_us())
    where = f"version {stored.version} in {file.epoch_store}"
    try:
        config = parse_stored(stored.current.text, file, where)
    except LogDeviceError as error:
        if kept is None or error.status is not Status.INVALID_CONFIG:
            raise
        log.error("%s; the node begins with version %d, which it kept", error.detail, kept.version)
        config = kept
    return InForce(config=config, is_stored=True, stored=stored, read_at=wall_us())


async def _read(file: ClusterConfig, access: ZooKeeperAccess, *, wait: bool) -> Result:
    store = open_epoch_store(
        file.epoch_store,
        file.name,
        WriterIdentity(NodeId(-1), InstanceId(time.time_ns())),
        asyncio.get_running_loop(),
        hosts=[each.host for each in file.nodes.values()],
        access=access,
    )
    told = False
    try:
        while True:
            result = await ask_epoch_store(store.submit, ReadConfiguration())
            if result.status not in _AWAY or not wait:
                return result
            if not told:
                told = True
                log.warning("the epoch store %s does not answer (%s); waiting", file.epoch_store, result.detail)
            await asyncio.sleep(_RETRY)
    finally:
        store.close()
