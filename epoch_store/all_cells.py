"""All cells of a cluster at once, wherever its epoch store is: for copies. See `epoch_store.backup`."""

from __future__ import annotations

from collections.abc import Mapping

from epoch_store.opening import check_epoch_store_url
from epoch_store.sqlite import read_all_cells as read_file
from epoch_store.sqlite import write_all_cells as write_file
from epoch_store.zookeeper import ZooKeeperAccess
from epoch_store.zookeeper_cells import read_all_cells as read_zookeeper
from epoch_store.zookeeper_cells import write_all_cells as write_zookeeper
from logdevice_py.core.status import LogDeviceError, Status


def read_cells(url: str, cluster: str, access: ZooKeeperAccess | None = None) -> dict[str, bytes]:
    """The contents of all cells of a cluster by key. Blocks; nodes may run.

    Args:
        access: how ZooKeeper is reached; None: in clear text and without a password.

    Raises:
        LogDeviceError: INVALID_CONFIG: the URL is none; NOTSUPPORTED: of a store in memory there is no copy; FAILED: it cannot be read.
    """
    scheme, place, root = _split(url)
    return read_file(place, cluster) if scheme == "sqlite" else read_zookeeper(place, root, cluster, access)


def write_cells(url: str, cluster: str, cells: Mapping[str, bytes], access: ZooKeeperAccess | None = None) -> None:
    """Store all cells of a cluster that has none. Blocks. No node may run.

    Args:
        access: as for `read_cells`. With a password, nobody else may read or change what is made.

    Raises:
        LogDeviceError: as `read_cells`; EXISTS: the cluster has some.
    """
    scheme, place, root = _split(url)
    if scheme == "sqlite":
        write_file(place, cluster, cells)
    else:
        write_zookeeper(place, root, cluster, cells, access)


def _split(url: str) -> tuple[str, str, str]:
    """Scheme, path or servers, and ZooKeeper's root."""
    check_epoch_store_url(url)
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        raise LogDeviceError(Status.NOTSUPPORTED, "an epoch store in memory cannot be copied")
    place = rest.removeprefix("//")
    if scheme == "sqlite":
        return scheme, place, ""
    addresses, slash, root = place.partition("/")
    return scheme, addresses, (slash + root).rstrip("/")
