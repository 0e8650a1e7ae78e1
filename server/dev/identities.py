"""Certificates of a development cluster: an authority of its own, a certificate for each node, and one for the operator, which programs find beside the
cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.permits import Permits
from logdevice_py.config.security import TLS_OFF, parse_security
from logdevice_py.core.principal import Permission, Principal
from logdevice_py.runtime.certificates import CertificateAuthority
from server.dev import layout

OPERATOR: Final = Principal("operator")
ZOOKEEPER: Final = Principal("zookeeper")
"""Whose certificate the server has that a cluster brings along."""
SECURITY: Final[Mapping[str, Any]] = {
    "tls": "require",
    "permissions": True,
    "ca_file": "identity/ca.pem",
    "certificate_file": "identity/{node}.pem",
    "revoked_file": "identity/revoked.txt",
    "token_key_file": "identity/token.pem",
}
"""Section ``[settings.security]`` of a secure one."""
OPERATOR_ONLY: Final = Permits(frozenset({(Permission.ADMIN, OPERATOR.name)}))
"""What its logs permit at first."""


def is_secure(config: ClusterConfig) -> bool:
    """Whether the cluster has certificates."""
    return parse_security(config.settings).tls != TLS_OFF


def make_identities(directory: Path, config: ClusterConfig) -> None:
    """Make what is missing.

    Raises:
        LogDeviceError: NOTSUPPORTED: what makes certificates is not installed.
    """
    if not is_secure(config):
        return
    authority = CertificateAuthority(directory / "identity", config.uuid)
    authority.make()
    for node, member in config.nodes.items():
        if not (directory / "identity" / f"N{node}.pem").exists():
            authority.certify_node(node, host=member.host)
    if config.epoch_store.startswith("zookeeper:"):
        authority.make_zookeeper_auth()
        server = directory / "identity" / "zookeeper.pem"
        if not server.exists():
            addresses = config.epoch_store.removeprefix("zookeeper://").partition("/")[0].split(",")
            hosts = [address.rpartition(":")[0] for address in addresses]
            authority.certify_principal(ZOOKEEPER, hosts=hosts)
    operator = layout.cluster_file(directory).with_suffix(".pem")
    if not operator.exists():
        authority.certify_principal(OPERATOR, path=operator)
