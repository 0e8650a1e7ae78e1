"""Makes certificates and tokens: of an authority (CA), of nodes, of principals. Needs `cryptography`, and PyJWT for tokens.

In one directory: ``ca.pem`` and ``ca.key``, the authority; ``N3.pem``, of a node, and ``svc-clicks.pem``, of a principal, each a certificate and its key in one
file; ``zookeeper.auth``, by which nodes authenticate to ZooKeeper; ``token.key`` and ``token.pem``, with which tokens are signed and checked; ``revoked.txt``, serial numbers that count no longer; ``issued.txt``, those of
all certificates that were made. What holds keys is readable by its owner only. ``ca.key`` and ``token.key`` belong on no node.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from logdevice_py.config.identity_names import certified_names, format_uuid, node_uri, principal_uris
from logdevice_py.core.ids import NodeId
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.runtime.clock import wall_us
from logdevice_py.runtime.durable_file import write_durably
from logdevice_py.runtime.tokens import ALGORITHM, LIFETIME_MAX

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CA_DAYS: Final = 3650
NODE_DAYS: Final = 397
PRINCIPAL_DAYS: Final = 90
_OWN_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_OWN_NAMES: Final = re.compile(r"ca|token|N\d+")
"""Principals whose certificates would take the place of the authority's files, or of a node's."""
_BEFORE: Final = datetime.timedelta(minutes=5)
"""Clocks differ."""


def check_installed() -> None:
    """LogDeviceError: what makes certificates is not installed."""
    try:
        import cryptography  # noqa: F401
        import jwt  # noqa: F401
    except ImportError:
        text = "certificates and tokens need cryptography and PyJWT: pip install 'logdevice-py[security]'"
        raise LogDeviceError(Status.NOTSUPPORTED, text) from None


def expiry(path: Path) -> Timestamp:
    """When the first certificate of a file expires; 0: `cryptography` is not installed to tell.

    Raises:
        OSError, ValueError: there is no certificate.
    """
    try:
        from cryptography.x509 import load_pem_x509_certificate
    except ImportError:
        return Timestamp(0)
    return Timestamp(round(load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()) * SECOND)


def principal_of(path: Path, cluster: bytes) -> Principal | None:
    """Whom the first certificate of a file names to a cluster; None: nobody, or `cryptography` is not installed to tell.

    Raises:
        OSError, ValueError: there is no certificate.
    """
    try:
        from cryptography import x509
    except ImportError:
        return None
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    return certified_names(uris, str(common[0].value) if common else "", cluster).principal


@dataclass(frozen=True, slots=True)
class MadeIdentity:
    """A certificate that was made."""

    path: Path
    serial: str
    """In hexadecimal, as in ``revoked.txt``."""


class CertificateAuthority:
    """Signs certificates and tokens of one cluster."""

    def __init__(self, directory: Path, cluster: bytes) -> None:
        """
        Args:
            directory: where its files are; what is missing there is made when it is needed.
            cluster: UUID of the cluster that certificates and tokens are for.

        Raises:
            LogDeviceError: NOTSUPPORTED: what makes certificates is not installed.
        """
        check_installed()
        self.directory = directory
        self._cluster = cluster

    def make(self) -> bool:
        """Make the authority, and the keys for tokens, where there are none. False: there was an authority.

        Raises:
            LogDeviceError: INVALID_CONFIG: the directory has the certificate of an authority and not its key.
        """
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        path, certificate = self.directory / "ca.key", self.directory / "ca.pem"
        is_new = not path.exists()
        if is_new and certificate.exists():
            raise LogDeviceError(
                Status.INVALID_CONFIG,
                f"{certificate} is the certificate of an authority whose key is not there: do this where ca.key is, or name another directory for another authority",
            )
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if is_new:
            _write_private(path, _private_pem(ec.generate_private_key(ec.SECP256R1())))
        if not certificate.exists():  # a crash may have left the key alone
            # no two of a cluster have one name: of those in a trust store ZooKeeper keeps one for each
            key, name = _read_key(path), _name(f"logdevice {format_uuid(self._cluster)} {secrets.token_hex(8)}")
            made = self._sign(key.public_key(), name, key, name, [], CA_DAYS, authority=True)
            _write(certificate, made.public_bytes(Encoding.PEM))
        signer, public = self.directory / "token.key", self.directory / "token.pem"
        if not (signer.exists() or public.exists()):
            _write_private(signer, _private_pem(ed25519.Ed25519PrivateKey.generate()))
        if not public.exists():
            key = _read_key(signer).public_key()
            _write(public, key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        revoked = self.directory / "revoked.txt"
        if not revoked.exists():
            _write(revoked, b"# serial numbers of certificates that count no longer, one a line, in hexadecimal\n")
        return is_new

    def certify_node(self, node: NodeId, days: int = NODE_DAYS, *, host: str | None = None) -> MadeIdentity:
        """A certificate for a node; it replaces an earlier one.

        Args:
            host: of the node: browsers and others that know no node by its number look for it. They may ask on the node's own machine too.
        """
        hosts = [*dict.fromkeys([*([host] if host else []), *_OWN_HOSTS])]
        return self._certify(f"N{node}", [node_uri(self._cluster, node)], days, hosts=hosts)

    def certify_principal(
        self, principal: Principal, days: int = PRINCIPAL_DAYS, path: Path | None = None, *, hosts: Sequence[str] = ()
    ) -> MadeIdentity:
        """A certificate for a principal; it replaces an earlier one.

        Args:
            hosts: names and addresses under which it serves others; none: it is a client only.

        Raises:
            LogDeviceError: INVALID_PARAM: the authority has a file of that name for itself, or for a node.
        """
        if path is None and _OWN_NAMES.fullmatch(principal.name):
            raise LogDeviceError(
                Status.INVALID_PARAM,
                f"{principal.name}.pem is a file of the authority, or of a node: give the principal another name",
            )
        uris = principal_uris(self._cluster, principal)
        return self._certify(principal.name, uris, days, hosts=hosts, path=path)

    def make_token(self, principal: Principal, seconds: int = 3600) -> str:
        """A signed token.

        Raises:
            LogDeviceError: INVALID_PARAM: it would count for too long.
        """
        import jwt

        if not 0 < seconds <= LIFETIME_MAX:
            raise LogDeviceError(Status.INVALID_PARAM, f"a token counts for at most {LIFETIME_MAX // 3600} hours")
        now = wall_us() // 1_000_000
        claims: dict[str, Any] = {
            "sub": principal.name,
            "aud": format_uuid(self._cluster),
            "iat": now,
            "exp": now + seconds,
        }
        if principal.groups:
            claims["groups"] = sorted(principal.groups)
        return jwt.encode(claims, _read_key(self.directory / "token.key"), algorithm=ALGORITHM)

    def make_zookeeper_auth(self) -> bool:
        """A name and a password for nodes at ZooKeeper, in ``zookeeper.auth``, where there is none. False: there was."""
        path = self.directory / "zookeeper.auth"
        if path.exists():
            return False
        _write_private(path, f"logdevice:{secrets.token_hex(16)}\n".encode())
        return True

    def revoke(self, serial: str) -> None:
        """Put a serial number on the list."""
        path = self.directory / "revoked.txt"
        before = path.read_bytes().rstrip(b"\n") + b"\n" if path.exists() else b""
        _write(path, before + f"{serial}\n".encode())

    def _certify(
        self, name: str, uris: Sequence[str], days: int, *, hosts: Sequence[str], path: Path | None = None
    ) -> MadeIdentity:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding

        ca_key = _read_key(self.directory / "ca.key")
        issuer = self._subject_of(ca_key)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(
            key.public_key(), _name(name), ca_key, issuer, uris, days, authority=False, hosts=hosts
        )
        path = path or self.directory / f"{name}.pem"
        serial = f"{certificate.serial_number:x}"
        with open(self.directory / "issued.txt", "a", encoding="utf-8") as issued:
            # before it is used: who has to revoke it later may have nothing but its name
            issued.write(f"{serial} {name} until {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}\n")
        _write_private(path, certificate.public_bytes(Encoding.PEM) + _private_pem(key))
        return MadeIdentity(path, serial)

    def _subject_of(self, ca_key: Any) -> Any:
        """The name of the authority that has this key. ``ca.pem`` may have others too, while one takes the place of another.

        Raises:
            LogDeviceError: INVALID_CONFIG: the file has none with it.
        """
        from cryptography import x509

        path = self.directory / "ca.pem"
        try:
            for each in x509.load_pem_x509_certificates(path.read_bytes()):
                if each.public_key() == ca_key.public_key():
                    return each.subject
        except (OSError, ValueError) as error:
            raise LogDeviceError(Status.INVALID_CONFIG, f"{path}: cannot be read as certificates: {error}") from None
        raise LogDeviceError(
            Status.INVALID_CONFIG,
            f"{path}: none of its certificates belongs to ca.key beside it: put the authority's there",
        )

    def _sign(
        self,
        public: Any,
        subject: Any,
        signer: Any,
        issuer: Any,
        uris: Sequence[str],
        days: int,
        *,
        authority: bool,
        hosts: Sequence[str] = (),
    ) -> Certificate:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

        now = datetime.datetime.fromtimestamp(wall_us() / 1e6, datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=0 if authority else None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .add_extension(_usage(authority), critical=True)
        )
        if not authority:
            names = x509.SubjectAlternativeName(
                [*(x509.UniformResourceIdentifier(uri) for uri in uris), *map(_host_name, hosts)]
            )
            usages = [Usage.CLIENT_AUTH, *([Usage.SERVER_AUTH] if hosts else [])]
            builder = builder.add_extension(names, critical=False).add_extension(
                x509.ExtendedKeyUsage(usages), critical=False
            )
        return builder.sign(signer, hashes.SHA256())


def _host_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(authority: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _private_pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def _read_key(path: Path) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{path}: cannot be read as a private key: {error}") from None


def _write(path: Path, data: bytes) -> None:
    """What everybody may read."""
    write_durably(path, data.decode())
    path.chmod(0o644)


def _write_private(path: Path, data: bytes) -> None:
    """Only its owner ever may read it, not even while it is written."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
