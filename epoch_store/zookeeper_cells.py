"""All cells of a cluster in ZooKeeper at once: for copies of an epoch store. `epoch_store.zookeeper` is what nodes use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from epoch_store.sqlite import holds_cells
from epoch_store.zookeeper import ZooKeeperAccess
from logdevice_py.core.status import LogDeviceError, Status

_CONNECT_SECONDS: Final = 15.0


def read_all_cells(hosts: str, root: str, cluster: str, access: ZooKeeperAccess | None = None) -> dict[str, bytes]:
    """The contents of all cells of a cluster by key. Blocks; nodes may run. Cells are read one after the other: each is as it was at some moment while that
    went on, which is all that restoring asks for.

    Raises:
        LogDeviceError: FAILED: ZooKeeper does not answer, or knows no such cluster.
    """
    base = f"{root}/logdevice/{cluster}"
    with _connected(hosts, access) as client:
        try:
            return {key: client.get(f"{base}/{key}")[0] for key in _keys(client, base)}
        except NoNodeError:
            raise LogDeviceError(Status.FAILED, f"ZooKeeper at {hosts} has no {base}") from None


def write_all_cells(
    hosts: str, root: str, cluster: str, cells: Mapping[str, bytes], access: ZooKeeperAccess | None = None
) -> None:
    """Store the cells of a cluster that has none. Blocks. Where that fails in the middle, delete what is below the cluster's root and begin again: no node starts on it, because
    shards are written last.

    Raises:
        LogDeviceError: EXISTS: the cluster has some; FAILED: ZooKeeper does not answer.
    """
    base = f"{root}/logdevice/{cluster}"
    with _connected(hosts, access) as client:
        if client.exists(base) is not None and any(True for _ in _keys(client, base)):
            raise holds_cells(f"ZooKeeper at {hosts}", cluster)
        for key in sorted(cells):
            client.create(f"{base}/{key}", cells[key], makepath=True)


def _keys(client: KazooClient, base: str) -> Iterator[str]:
    for kind in client.get_children(base):
        for name in client.get_children(f"{base}/{kind}"):
            below = client.get_children(f"{base}/{kind}/{name}")
            yield from (f"{kind}/{name}/{each}" for each in below) if below else (f"{kind}/{name}",)


@contextmanager
def _connected(hosts: str, access: ZooKeeperAccess | None) -> Iterator[KazooClient]:
    client = KazooClient(hosts=hosts, **({} if access is None else access.options()))
    try:
        client.start(timeout=_CONNECT_SECONDS)
        yield client
    except (KazooException, KazooTimeoutError) as error:
        raise LogDeviceError(Status.FAILED, f"ZooKeeper at {hosts}: {type(error).__name__} {error}".rstrip()) from None
    finally:
        client.stop()
        client.close()
