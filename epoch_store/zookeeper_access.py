"""Who reaches ZooKeeper how, as the security settings of a cluster say: nodes, and the programs of whoever looks after them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from epoch_store.zookeeper import ZooKeeperAccess
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.security import SecuritySettings, parse_security
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.tls import TlsFiles

_PASSWORD_MIN: Final = 16


def zookeeper_access(path: Path, config: ClusterConfig, node: NodeId) -> ZooKeeperAccess:
    """How a node reaches ZooKeeper, and who it is there.

    Args:
        path: of the cluster file.

    Raises:
        LogDeviceError: INVALID_CONFIG: the file of the password cannot be used.
    """
    return zookeeper_access_by(parse_security(config.settings), path.parent, node)


def zookeeper_access_of_tool(path: Path, config: ClusterConfig) -> ZooKeeperAccess:
    """How a program on the machine of a node reaches ZooKeeper: as the first node of which the certificate is there.

    Args:
        path: of the cluster file.

    Raises:
        LogDeviceError: INVALID_CONFIG: there is no certificate of a node, or the file of the password cannot be used.
    """
    settings = parse_security(config.settings)
    found = next(iter(config.nodes))
    if settings.zookeeper_tls:
        files = {node: TlsFiles.of_node(settings, path.parent, node) for node in config.nodes}
        there = [node for node, each in files.items() if each.certificate is not None and each.certificate.exists()]
        if not there:
            text = f"ZooKeeper takes certificates of nodes, and none is here, like {files[found].certificate}: run this on the machine of a node"
            raise LogDeviceError(Status.INVALID_CONFIG, text)
        found = there[0]
    return zookeeper_access_by(settings, path.parent, found)


def zookeeper_access_by(settings: SecuritySettings, directory: Path, node: NodeId) -> ZooKeeperAccess:
    """How a node reaches ZooKeeper by these settings.

    Args:
        directory: where relative names of files begin.

    Raises:
        LogDeviceError: INVALID_CONFIG: the file of the password cannot be used.
    """
    credentials = _credentials(directory / settings.zookeeper_auth_file) if settings.zookeeper_auth_file else None
    if not settings.zookeeper_tls:
        return ZooKeeperAccess(credentials=credentials)
    files = TlsFiles.of_node(settings, directory, node)
    return ZooKeeperAccess(
        tls=True,
        ca=str(files.ca),
        certificate=str(files.certificate),
        key=None if files.key is None else str(files.key),
        credentials=credentials,
    )


def _credentials(path: Path) -> tuple[str, str]:
    try:
        if path.stat().st_mode & 0o077:
            raise _wrong(path, f"other users may read or change it: chmod 600 {path}")
        name, colon, password = path.read_text(encoding="ascii").strip().partition(":")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, str(getattr(error, "strerror", None) or "it is no text")) from None
    if not (name and colon and len(password) >= _PASSWORD_MIN):
        raise _wrong(path, f"write name:password, with a password of {_PASSWORD_MIN} characters at least")
    return name, password


def _wrong(path: Path, why: str) -> LogDeviceError:
    return LogDeviceError(Status.INVALID_CONFIG, f"zookeeper_auth_file {path}: {why}")
