"""Who a client is to nodes: a certificate with its key, or a token, and where programs look for them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.security import TLS_OFF, parse_security
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.tls import TlsContexts, TlsFiles

IDENTITY_VARIABLE: Final = "LOGDEVICE_IDENTITY"
TOKEN_VARIABLE: Final = "LOGDEVICE_TOKEN_FILE"
CLEAR_TEXT_VARIABLE: Final = "LOGDEVICE_TOKEN_IN_CLEAR_TEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """How a client proves who it is. Whoever reads these files is the principal."""

    certificate: str | Path | None = None
    """File of the certificate (PEM) and what it is signed with, perhaps with the key in it."""
    key: str | Path | None = None
    """File of the private key (PEM), where that is another one."""
    token: str = field(default="", repr=False)
    """A signed token. It is sent to nodes that have proved to be nodes, over TLS, and never else."""
    token_file: str | Path | None = None
    """File of such a token, instead of `token`. It is read again for each connection: whoever renews the token puts the next one there."""
    ca: str | Path | None = None
    """File of the certificates (PEM) of those who sign nodes' certificates; None: as the cluster file says."""

    def newest_token(self) -> str:
        """The token; empty: there is none.

        Raises:
            LogDeviceError: INVALID_CONFIG: its file cannot be read, or is empty.
        """
        return self.token if self.token_file is None else read_token("token_file", self.token_file)


def default_identity(cluster_file: Path | None) -> ClientIdentity:
    """What the environment names, else the certificate that stands beside the cluster file: its name with the suffix .pem; where there is none, nothing."""
    token_file = os.environ.get(TOKEN_VARIABLE, "")
    if token_file:
        read_token(TOKEN_VARIABLE, token_file)  # what is wrong with it is told at once
    certificate: str | Path | None = os.environ.get(IDENTITY_VARIABLE) or None
    if certificate is None and not token_file and cluster_file is not None:
        beside = cluster_file.with_suffix(".pem")
        certificate = beside if os.access(beside, os.R_OK) else None
    return ClientIdentity(certificate=certificate, token_file=token_file or None)


def may_send_in_clear_text() -> bool:
    """Whether the environment lets programs send the token of the admin API to other machines in clear text, although the cluster has TLS."""
    return os.environ.get(CLEAR_TEXT_VARIABLE) == "1"


def read_token(named_by: str, token_file: str | Path) -> str:
    """A signed token from a file.

    Args:
        named_by: what names the file, for the error.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    try:
        token = Path(token_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{named_by}: {token_file} cannot be read: {error}") from None
    if not token:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{named_by}: {token_file} is empty")
    return token


def client_contexts(config: ClusterConfig, cluster_file: Path | None, identity: ClientIdentity) -> TlsContexts | None:
    """With what a client makes TLS connections; None: the cluster speaks clear text.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    settings = parse_security(config.settings)
    if settings.tls == TLS_OFF:
        return None
    directory = Path() if cluster_file is None else cluster_file.parent
    ca = Path(identity.ca) if identity.ca is not None else directory / settings.ca_file if settings.ca_file else None
    if ca is None:
        raise LogDeviceError(
            Status.INVALID_CONFIG, "[settings.security] ca_file is needed to know nodes by their certificates"
        )
    certificate = None if identity.certificate is None else Path(identity.certificate)
    key = None if identity.key is None else Path(identity.key)
    revoked = directory / settings.revoked_file if settings.revoked_file else None
    return TlsContexts(TlsFiles(ca, certificate, key, revoked, may_lack_revoked=True), config.uuid)
