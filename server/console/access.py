"""Who somebody is to whom the console shows something, and what he may do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from client.identity import default_identity
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.security import TLS_OFF, parse_security
from logdevice_py.core.principal import ANONYMOUS, Permission
from logdevice_py.runtime.certificates import expiry, principal_of
from server.permissions import is_administrator

GROUPS_MAX: Final = 2000
_OF_LOGS: Final = (Permission.APPEND, Permission.READ, Permission.TRIM)


def describe_access(
    config: ClusterConfig, path: Path, given: Mapping[str, Any], *, shown: bool, wanted: bool
) -> dict[str, Any]:
    """Of the admin API, by the token; and of logs, which the console reads as the client of its node's machine.

    Args:
        path: the cluster file.
        given: `from`: the address of the viewer.
        shown: the viewer has shown the token.
        wanted: the node has one.
    """
    settings = parse_security(config.settings)
    identity = default_identity(path)
    file = None if identity.certificate is None or settings.tls == TLS_OFF else Path(identity.certificate)
    principal = None
    expires = 0
    if file is not None:
        try:
            principal, expires = principal_of(file, config.uuid), int(expiry(file))
        except (OSError, ValueError):
            file = None
    by_token = identity.token_file is not None and file is None and settings.tls != TLS_OFF
    if principal is None and file is None and not by_token:
        principal = ANONYMOUS
    rows: list[dict[str, Any]] = []
    administers = principal is not None and is_administrator(principal, config)
    for group in config.groups():
        permit = group.attributes.permit
        may = {
            each.value: not settings.permissions
            or administers
            or (principal is not None and permit.allow(principal, each))
            for each in _OF_LOGS
        }
        rows.append({"path": group.path, "logs": len(group), "permit": str(permit), **may})
    return {
        "from": given.get("from", ""),
        "token": "shown" if shown else "not shown" if wanted else "none",
        "principal": None if principal is None else principal.name,
        "principal_groups": [] if principal is None else sorted(principal.groups),
        "proof": "certificate" if file is not None else "token" if by_token else "nothing",
        "certificate": None if file is None else str(file),
        "expires": expires,
        "tls": settings.tls,
        "permissions": settings.permissions,
        "administrator": administers,
        "groups": rows[:GROUPS_MAX],
        "left_out": max(0, len(rows) - GROUPS_MAX),
    }
