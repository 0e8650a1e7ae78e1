"""What a node proves with, and whom it believes: its certificates and the keys of tokens, as its cluster file names them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from epoch_store.zookeeper import ZooKeeperAccess
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.security import TLS_OFF, SecuritySettings, parse_security
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.tls import TlsContexts, TlsFiles
from logdevice_py.runtime.tokens import TokenChecker
from logdevice_py.shell.introduction import CheckToken, no_tokens

_PASSWORD_MIN: Final = 16


def zookeeper_access(path: Path, config: ClusterConfig, node: NodeId) -> ZooKeeperAccess:
    """How a node reaches ZooKeeper, and who it is there.

    Args:
        path: of the cluster file.

    Raises:
        LogDeviceError: INVALID_CONFIG: the file of the password cannot be used.
    """
    return zookeeper_access_by(parse_security(config.settings), path.parent, node)


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


def open_security(path: Path, config: ClusterConfig, node: NodeId) -> tuple[TlsContexts | None, CheckToken]:
    """Read them. No contexts: the node speaks clear text.

    Args:
        path: of the cluster file.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    settings = parse_security(config.settings)
    contexts: TlsContexts | None = None
    check_token: CheckToken = no_tokens
    if settings.tls != TLS_OFF:
        contexts = TlsContexts(TlsFiles.of_node(settings, path.parent, node), config.uuid)
    if settings.token_key_file:
        check_token = TokenChecker(path.parent / settings.token_key_file, config.uuid)
    return contexts, check_token
