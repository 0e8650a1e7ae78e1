"""What a node begins with: the stored configuration; where there is none, the cluster file.

A node that has no cluster file is told where the epoch store is, and writes the file from what is stored there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from epoch_store.interface import ReadConfiguration, Result, WriterIdentity
from epoch_store.opening import open_epoch_store
from epoch_store.zookeeper import ZooKeeperAccess
from epoch_store.zookeeper_access import zookeeper_access_by
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import SecuritySettings, parse_security
from logdevice_py.config.stored import StoredConfiguration
from logdevice_py.core.declare import parse_setting, written_value
from logdevice_py.core.ids import InstanceId, NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import suggestion
from logdevice_py.core.units import Timestamp
from logdevice_py.runtime.clock import wall_us
from logdevice_py.runtime.durable_file import write_durably
from server.cluster_file import read_cluster_file
from server.configuration.keeper import Ask, ConfigurationFile, InForce, ask_epoch_store, parse_stored
from server.private_files import make_private_directory

log = logging.getLogger("logdevice.node")

_RETRY: Final = 0.5
_AWAY: Final = (Status.AGAIN, Status.TIMEDOUT)
_REACH: Final = ("zookeeper_tls", "zookeeper_auth_file", "ca_file", "certificate_file", "key_file")
"""Settings of ``[settings.security]`` that say how a node reaches ZooKeeper."""


@dataclass(frozen=True, slots=True)
class EpochStorePlace:
    """Where a node finds its configuration that is told the epoch store: it holds, whatever a cluster file says."""

    url: str
    cluster: str
    """Name of the cluster."""
    security: Mapping[str, Any] = field(default_factory=dict)
    """How ZooKeeper is reached: settings as in ``[settings.security]``."""

    def reached_from(self, config: ClusterConfig) -> ClusterConfig:
        """A configuration that says where the epoch store is, and how it is reached, as the node was told.

        Raises:
            LogDeviceError: INVALID_CLUSTER: it is another cluster's.
        """
        if config.name != self.cluster:
            raise LogDeviceError(
                Status.INVALID_CLUSTER, f'the configuration is of the cluster "{config.name}", not of "{self.cluster}"'
            )
        security = {**config.settings.get("security", {}), **self.security}
        return replace(config, epoch_store=self.url, settings={**config.settings, "security": security})


def parse_reach(text: str) -> tuple[str, Any]:
    """A setting of how ZooKeeper is reached, from ``zookeeper_auth_file=/run/secrets/zookeeper``: as in the cluster file, without quotes.

    Raises:
        ValueError: it is none of them, or the value is none for it.
    """
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r}: write KEY=VALUE, like zookeeper_auth_file=/run/secrets/zookeeper")
    if key not in _REACH:
        raise ValueError(f"{key}: write one of {', '.join(_REACH)}{suggestion(key, list(_REACH))}")
    setting = next(each for each in fields(SecuritySettings) if each.name == key)
    return key, parse_setting(setting, written_value(setting, value))


def known_configuration(path: Path, node: NodeId, data: Path | None) -> tuple[ClusterConfig, Path | None]:
    """What the disk of a node tells of the configuration, without asking anybody: what it kept, or its cluster file; and where its data are.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    config = read_cluster_file(path)
    directory = data or _data_of(config, node)
    kept = None if directory is None else ConfigurationFile(directory).read(config)
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
    kept = None if directory is None else await asyncio.to_thread(ConfigurationFile(directory).read, file)
    hosts = [each.host for each in file.nodes.values()]
    return begin_with(file, kept, await _read(file.epoch_store, file.name, hosts, access, wait=kept is None))


def begin_with(
    file: ClusterConfig, kept: ClusterConfig | None, result: Result, wall: Callable[[], Timestamp] = wall_us
) -> InForce:
    """What a node begins with that knows what is stored, or that the epoch store does not tell it.

    Args:
        file: what the cluster file says.
        kept: the stored configuration of an earlier run; None: there is none.
        result: of reading what is stored.
        wall: the wall clock.

    Raises:
        LogDeviceError: as `starting_configuration`.
    """
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
        return InForce(config=kept or file, is_stored=kept is not None, stored=stored, read_at=wall())
    where = f"version {stored.version} in {file.epoch_store}"
    try:
        config = parse_stored(stored.current.text, file, where)
    except LogDeviceError as error:
        if kept is None or error.status is not Status.INVALID_CONFIG:
            raise
        log.error("%s; the node begins with version %d, which it kept", error.detail, kept.version)
        config = kept
    return InForce(config=config, is_stored=True, stored=stored, read_at=wall())


async def write_cluster_file(path: Path, place: EpochStorePlace, node: NodeId) -> None:
    """Write the cluster file from the stored configuration, unless there is one. It waits for an epoch store that does not answer.

    Raises:
        LogDeviceError: INVALID_CONFIG: the place cannot be used, or what is stored cannot be read; NOTFOUND: nothing is stored; INVALID_CLUSTER: another
            cluster's configuration is; FAILED: it cannot be read.
        OSError: the file cannot be written.
    """
    if await asyncio.to_thread(path.exists):
        return
    if place.url.startswith("memory:"):
        raise LogDeviceError(Status.INVALID_CONFIG, f"{place.url} is in no other process: give the cluster file")
    if place.url.startswith("sqlite:") and not Path(place.url.removeprefix("sqlite://")).exists():
        raise LogDeviceError(Status.NOTFOUND, f"there is no epoch store {place.url}")
    access = zookeeper_access_by(parse_security({"security": place.security}), path.parent, node)
    result = await _read(place.url, place.cluster, (), access, wait=True)
    if result.status not in (Status.OK, Status.EMPTY):
        raise LogDeviceError(result.status, f"the configuration in {place.url}: {result.detail or result.status.name}")
    if not isinstance(result.value, StoredConfiguration):
        raise LogDeviceError(
            Status.NOTFOUND,
            f'{place.url} has no configuration of a cluster "{place.cluster}": ldctl config apply FILE stores one, on a machine of the cluster',
        )
    text = result.value.current.text
    try:
        place.reached_from(load_cluster(text))
    except LogDeviceError as error:
        where = f"version {result.value.version} in {place.url}"
        raise LogDeviceError(error.status, f"{where}: {error.detail}") from None
    await asyncio.to_thread(_write_private, path, text)
    log.info("%s: written from configuration version %d in %s", path, result.value.version, place.url)


def _write_private(path: Path, text: str) -> None:
    if not path.parent.exists():
        make_private_directory(path.parent)
    write_durably(path, text, alone=True)


async def _read(url: str, cluster: str, hosts: Iterable[str], access: ZooKeeperAccess, *, wait: bool) -> Result:
    store = open_epoch_store(
        url,
        cluster,
        WriterIdentity(NodeId(-1), InstanceId(time.time_ns())),
        asyncio.get_running_loop(),
        hosts=hosts,
        access=access,
    )
    try:
        return await read_stored(store.submit, url, wait=wait)
    finally:
        store.close()


async def read_stored(ask: Ask, where: str, *, wait: bool) -> Result:
    """What an epoch store holds, or why it does not tell.

    Args:
        ask: runs operations of it.
        where: its name, for people.
        wait: go on asking while it is away.
    """
    told = False
    while True:
        result = await ask_epoch_store(ask, ReadConfiguration())
        if result.status not in _AWAY or not wait:
            return result
        if not told:
            told = True
            log.warning("the epoch store %s does not answer (%s); waiting", where, result.detail)
        await asyncio.sleep(_RETRY)
