"""What a node proves with, and whom it believes: its certificates and the keys of tokens, as its cluster file names them."""

from __future__ import annotations

from pathlib import Path

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.security import TLS_OFF, parse_security
from logdevice_py.core.ids import NodeId
from logdevice_py.runtime.tls import TlsContexts, TlsFiles
from logdevice_py.runtime.tokens import TokenChecker
from logdevice_py.shell.introduction import CheckToken, no_tokens


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
