"""Section ``[settings.security]`` of the cluster file: encryption of connections, who is believed to be whom, and whether permissions are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from logdevice_py.core.declare import setting, settings_from
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import suggestion

TLS_OFF: Final = "off"
TLS_ACCEPT: Final = "accept"
TLS_REQUIRE: Final = "require"
_MODES: Final = (TLS_OFF, TLS_ACCEPT, TLS_REQUIRE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Section ``[settings.security]`` of the cluster file."""

    tls: str = setting(
        TLS_OFF,
        unit="text",
        doc='"off": connections are in clear text; "require": TLS 1.3 only; "accept": nodes take both at the same port, for the time of a change, which '
        "protects nobody who speaks clear text.",
    )
    permissions: bool = setting(
        False,
        unit="flag",
        doc="Messages of clients are obeyed as far as the attribute `permit` of their logs allows, and a node is one only by its certificate.",
    )
    ca_file: str = setting(
        "",
        unit="text",
        doc="File of the certificates (PEM) of those who sign certificates of nodes and clients; a relative path begins beside the cluster file.",
    )
    certificate_file: str = setting(
        "", unit="text", doc="File of a node's certificate (PEM); {node} in it stands for the node's name, like N3."
    )
    key_file: str = setting(
        "", unit="text", doc="File of a node's private key (PEM), {node} in it as in certificate_file."
    )
    revoked_file: str = setting(
        "",
        unit="text",
        doc="File of serial numbers of certificates that count no longer, one a line, in hexadecimal; read again when it changes.",
    )
    token_key_file: str = setting(
        "",
        unit="text",
        doc="File of the public keys (PEM, Ed25519) of those who sign tokens of clients. Empty: no token is believed.",
    )

    zookeeper_tls: bool = setting(
        False,
        unit="flag",
        doc="Nodes speak TLS to ZooKeeper, with ca_file, certificate_file and key_file. The certificate of a server names its host as epoch_store does.",
    )
    zookeeper_auth_file: str = setting(
        "",
        unit="text",
        doc="File with a name and a password, as name:password, by which nodes authenticate to ZooKeeper (digest); what they make there is open to them alone. "
        "Empty: they do not, and it is open to whoever reaches ZooKeeper.",
    )

    audit_file: str = setting(
        "",
        unit="text",
        doc="File to which a node appends who did what, {node} in it as in certificate_file; a relative path begins beside the cluster file. Empty: it keeps none.",
    )
    audit_lines_per_s: int = setting(
        10,
        unit="lines/s",
        lo=1,
        hi=100_000,
        doc="Refusals of one principal that are written into the audit log, on average; more are counted.",
    )
    audit_file_bytes: int = setting(
        64 << 20, unit="bytes", lo=4096, hi=1 << 40, doc="Size at which the audit log goes on in another file."
    )
    audit_files: int = setting(
        8, unit="files", lo=1, hi=10_000, doc="Files of the audit log that are kept, the current one included."
    )

    @property
    def proves_nodes(self) -> bool:
        """Whoever says that he is a node has to prove it."""
        return self.permissions or self.tls == TLS_REQUIRE


_FILES: Final = ("ca_file", "certificate_file", "key_file", "revoked_file", "token_key_file")


def with_files_of(
    sections: Mapping[str, Mapping[str, Any]], named: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """Sections of a configuration in which certificates and keys are where others say: names of files hold for the machine that they were written for."""
    security = {key: value for key, value in sections.get("security", {}).items() if key not in _FILES}
    security |= {key: value for key, value in named.get("security", {}).items() if key in _FILES}
    return {**sections, "security": security} if security else sections


def parse_security(sections: Mapping[str, Mapping[str, Any]]) -> SecuritySettings:
    """The settings from the sections of a cluster file.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    where = "[settings.security]"
    try:
        settings = settings_from(SecuritySettings, sections.get("security", {}))
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{where} {error}") from None
    if settings.tls not in _MODES:
        raise LogDeviceError(
            Status.INVALID_CONFIG, f"{where} tls: found {settings.tls!r}{suggestion(settings.tls, list(_MODES))}"
        )
    if settings.zookeeper_tls and not (settings.ca_file and settings.certificate_file):
        raise LogDeviceError(
            Status.INVALID_CONFIG, f"{where} zookeeper_tls: ca_file and certificate_file say with which certificates"
        )
    if settings.audit_file and "{node}" not in settings.audit_file:
        raise LogDeviceError(
            Status.INVALID_CONFIG,
            f'{where} audit_file: found {settings.audit_file!r}, each node has a file of its own: write {{node}} into it, like "audit/{{node}}.jsonl"',
        )
    if settings.permissions and settings.tls == TLS_OFF:
        raise LogDeviceError(
            Status.INVALID_CONFIG,
            f'{where} permissions: nodes prove who they are by certificates: set tls = "require" (or "accept" for a while)',
        )
    return settings
