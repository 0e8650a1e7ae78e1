"""Where nodes serve their admin API, and what protects it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final

from logdevice_py.config.cluster import ClusterConfig, NodeConfig
from logdevice_py.config.permits import parse_grantees
from logdevice_py.config.security import TLS_OFF, parse_security
from logdevice_py.core.declare import setting, settings_from
from logdevice_py.core.status import LogDeviceError, Status

LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings:
    """Section ``[settings.admin]`` of the cluster file."""

    expose: bool = setting(
        False,
        unit="flag",
        doc="Serve at the node's host although that is no loopback address, rather than at 127.0.0.1. A token is required then.",
    )
    token_file: str = setting(
        "",
        unit="text",
        doc="File of a node with the token that requests must carry; a relative path begins beside the cluster file. Empty: the file there "
        "that has its name and the suffix .token, where programs look too; without that reads are open and actions are refused.",
    )
    open_reads: bool = setting(
        False,
        unit="flag",
        doc="What only reads needs no token where only programs of the same machine reach the API.",
    )
    readers: str = setting(
        "",
        unit="text",
        doc='Principals and groups ("prometheus, group/monitoring") who may read tables and metrics by their certificate or signed token over TLS. '
        "Administrators may in any case.",
    )
    requests_max: int = setting(
        4,
        unit="requests",
        lo=1,
        hi=1000,
        doc="Requests that are worked on at a time; further ones are answered OVERLOADED.",
    )
    streams_max: int = setting(
        8,
        unit="requests",
        lo=0,
        hi=1000,
        doc="Consoles that are watched at a time at one node; further ones are answered OVERLOADED. 0: nobody watches.",
    )
    connections_max: int = setting(
        64,
        unit="connections",
        lo=1,
        hi=10_000,
        doc="Beside eight for health checks. While as many are open, the one that has been idle for longest is ended for the next one.",
    )
    connections_per_address_max: int = setting(
        32,
        unit="connections",
        lo=1,
        hi=10_000,
        doc="Of one address: its connection that has been idle for longest is ended for its next one.",
    )
    metrics_logs_max: int = setting(
        50,
        unit="logs",
        lo=0,
        hi=10_000,
        doc="Logs of which /metrics has series of their own: the busiest ones of the last minute.",
    )
    request_timeout_us: int = setting(
        10_000_000,
        unit="us",
        lo=100_000,
        hi=600_000_000,
        doc="A request that takes longer, or a connection without a request for that long, is ended.",
    )


@dataclass(frozen=True, slots=True)
class AdminEndpoint:
    """Where one node serves its admin API."""

    host: str
    port: int
    is_loopback: bool
    """Only programs of the same machine reach it."""


def is_loopback(host: str) -> bool:
    """Whether a host of the cluster file names the machine itself and can name nothing else."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def admin_settings(config: ClusterConfig) -> AdminSettings:
    """The settings of the admin API.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    try:
        settings = settings_from(AdminSettings, config.settings.get("admin", {}))
        parse_grantees(settings.readers)
        return settings
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"[settings.admin] {error}") from None


def admin_endpoint(config: ClusterConfig, member: NodeConfig) -> AdminEndpoint | None:
    """Where a node serves its admin API; None when it does not: it has no admin_port."""
    if member.admin_port is None:
        return None
    if is_loopback(member.host):
        return AdminEndpoint(member.host, member.admin_port, True)
    exposed = bool(config.settings.get("admin", {}).get("expose", False))
    return AdminEndpoint(member.host if exposed else LOOPBACK, member.admin_port, not exposed)


def console_url(config: ClusterConfig) -> str | None:
    """The console of the first node that has an admin API, for a browser on the machine of that node; None: no node has one."""
    for member in config.nodes.values():
        endpoint = admin_endpoint(config, member)
        if endpoint is not None:
            return f"{scheme(config)}://{format_address(endpoint.host, endpoint.port)}/"
    return None


def scheme(config: ClusterConfig) -> str:
    """How nodes of the cluster are asked: http, or https where they have TLS."""
    return "http" if parse_security(config.settings).tls == TLS_OFF else "https"


def format_address(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
