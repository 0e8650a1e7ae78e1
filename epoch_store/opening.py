"""Opens the epoch store that a URL names: ``sqlite:///absolute/path``, ``zookeeper://host:port[,host:port][/root]`` or ``memory:``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Any, Final

from epoch_store.interface import EpochStore, WriterIdentity
from epoch_store.memory import MemoryCells, MemoryEpochStore
from epoch_store.sqlite import SqliteEpochStore, SqliteEpochStoreSettings
from epoch_store.zookeeper import ZooKeeperAccess, ZooKeeperEpochStore, ZooKeeperEpochStoreSettings
from logdevice_py.core.status import LogDeviceError, Status

_HOSTS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_ROOT: Final = re.compile(r"(/[A-Za-z0-9._-]+)*")
_CLUSTER: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_EXAMPLES: Final = 'write it like "sqlite:///var/lib/logdevice/epochs.db" or "zookeeper://host:2181,host2:2181/root"'


def open_epoch_store(
    url: str,
    cluster: str,
    writer: WriterIdentity,
    loop: Any,
    *,
    hosts: Iterable[str] = (),
    memory: MemoryCells | None = None,
    sqlite: SqliteEpochStoreSettings | None = None,
    zookeeper: ZooKeeperEpochStoreSettings | None = None,
    access: ZooKeeperAccess | None = None,
) -> EpochStore:
    """The epoch store of a cluster. Returns at once; whether it can be reached shows in the first results.

    Args:
        url: where it is.
        cluster: name of the cluster; several clusters may share a place.
        writer: this run of this node; no other open store may have the same.
        loop: the asyncio event loop whose thread this is, on which answers are delivered.
        hosts: of the cluster's nodes; a file is refused when they are several machines.
        memory: what the nodes that share ``memory:`` share; without it the store is this one's alone.
        sqlite: settings for a file.
        zookeeper: settings for ZooKeeper.
        access: to ZooKeeper; None: in clear text, as nobody.

    Raises:
        LogDeviceError: INVALID_CONFIG: the URL is none of these, or does not suit the cluster.
    """
    check_epoch_store_url(url, hosts)
    if _CLUSTER.fullmatch(cluster) is None:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{cluster!r} is no name of a cluster that an epoch store can hold")
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        return MemoryEpochStore(memory or MemoryCells(), writer, loop.call_soon)
    if scheme == "sqlite":
        return SqliteEpochStore(rest.removeprefix("//"), cluster, writer, loop, sqlite)
    addresses, slash, root = rest.removeprefix("//").partition("/")
    return ZooKeeperEpochStore(addresses, (slash + root).rstrip("/"), cluster, writer, loop, zookeeper, access)


def check_epoch_store_url(url: str, hosts: Iterable[str] = ()) -> None:
    """Whether the URL is well-formed and suits nodes on these hosts.

    Raises:
        LogDeviceError: INVALID_CONFIG: it does not.
    """
    if url == "memory:":
        return
    if url.startswith("sqlite://"):
        path = url.removeprefix("sqlite://")
        if not path.startswith("/") or path.endswith("/"):
            raise LogDeviceError(
                Status.INVALID_CONFIG, f"epoch store {url!r}: the path of a file must be absolute: {_EXAMPLES}"
            )
        machines = {"this machine" if _is_loopback(host) else host for host in hosts}
        if len(machines) > 1:
            listed = ", ".join(sorted(machines))
            raise LogDeviceError(
                Status.INVALID_CONFIG,
                f"epoch store {url!r}: a file serves one machine only, the nodes are on {listed}: use ZooKeeper",
            )
        return
    if url.startswith("zookeeper://"):
        addresses, slash, root = url.removeprefix("zookeeper://").partition("/")
        well_formed = all(_HOSTS.fullmatch(address) for address in addresses.split(","))
        if well_formed and _ROOT.fullmatch((slash + root).rstrip("/")):
            return
    raise LogDeviceError(Status.INVALID_CONFIG, f"epoch store {url!r}: {_EXAMPLES}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
