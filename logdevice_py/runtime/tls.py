"""TLS 1.3 of connections: contexts from files, which are read again when they change, and the channel of one connection over bytes.

A channel does no I/O: the connection hands it what came and sends what it makes. So the first byte tells clear text from TLS at the same port, and limits,
turns and flow control of connections are the same for both. Sessions are never resumed: every connection shows its certificate anew.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from logdevice_py.config.identity_names import certified_names
from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.runtime.certificates import expiry
from logdevice_py.shell.proof import PeerProof

log = logging.getLogger("logdevice.tls")

HANDSHAKE_RECORD: Final = 0x16
"""The first byte of a TLS connection. A frame begins with a length that is never so large."""
_RECORD_SIZE: Final = 17 << 10
"""A record of TLS is never longer."""
_FED_AT_ONCE: Final = 2 * _RECORD_SIZE
"""What came is decrypted in pieces of a few records: they stay in the processor's cache, and a connection does not keep a buffer as large as all that came
at once."""
_LARGE: Final = 16 << 10
"""Pieces as large as a record are encrypted where they are, not joined with others."""
_DER: Final = 2
"""The form of certificates: bytes."""
_UNWELCOME: Final = ("certificate", "unknown ca", "access denied")
"""What is in an alert of a peer that does not accept who this process is."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where a process has its certificates."""

    ca: Path
    certificate: Path | None = None
    """With its chain; None: the process has none."""
    key: Path | None = None
    """None: it is in the file of the certificate."""
    revoked: Path | None = None
    may_lack_revoked: bool = False
    """There need not be such a file: not every client gets it."""

    @classmethod
    def of_node(cls, settings: SecuritySettings, directory: Path, node: NodeId) -> TlsFiles:
        """Those that a cluster file names for a node.

        Args:
            directory: of the cluster file.
        Raises:
            LogDeviceError: INVALID_CONFIG: one is not named.
        """

        def path(name: str) -> Path | None:
            text = str(getattr(settings, name)).replace("{node}", f"N{node}")
            return directory / text if text else None

        ca, certificate = path("ca_file"), path("certificate_file")
        if ca is None or certificate is None:
            missing = "ca_file" if ca is None else "certificate_file"
            raise LogDeviceError(
                Status.INVALID_CONFIG, f'[settings.security] {missing} is needed with tls = "{settings.tls}"'
            )
        return cls(ca, certificate, path("key_file"), path("revoked_file"))

    def all(self) -> list[Path]:
        """Every one that is named."""
        return [each for each in (self.ca, self.certificate, self.key, self.revoked) if each is not None]


class TlsContexts:
    """What a process makes its TLS connections with."""

    def __init__(self, files: TlsFiles, cluster: bytes) -> None:
        """
        Raises:
            LogDeviceError: INVALID_CONFIG: a file cannot be used.
        """
        self.files = files
        self.cluster = cluster
        self.revoked: frozenset[int] = frozenset()
        self.authorities: frozenset[bytes] = frozenset()
        """Hashes of the certificates in the file `ca`."""
        self._expires: Timestamp | None = None
        """None: nobody has asked since the files were read."""
        self._asking: dict[NodeId, ssl.SSLContext] = {}
        self._seen = self._look_at_files()
        for load in self._loads:
            load()

    def _look_at_files(self) -> list[tuple[int, int, int]]:
        found = []
        for path in self.files.all():
            try:
                stat = path.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return found

    def reload(self) -> bool:
        """Read the files again if they changed: True. What cannot be used is told, and what was read before stays in use."""
        seen = self._look_at_files()
        if seen == self._seen:
            return False
        self._seen = seen
        is_read = True
        for load in self._loads:
            try:
                load()
            except LogDeviceError as error:
                log.error("%s; what was read before stays in use", error.detail)
                is_read = False
        if is_read:
            log.info("certificates were read again")
        return is_read

    @property
    def _loads(self) -> tuple[Callable[[], None], ...]:
        """Each by itself: whoever is shut out stays so while another file cannot be used."""
        return self._load_revoked, self._load_authorities, self._load_contexts

    def _load_revoked(self) -> None:
        path = self.files.revoked
        if path is None or (self.files.may_lack_revoked and not os.access(path, os.R_OK)):
            return
        self.revoked = read_revoked(path)

    def _load_authorities(self) -> None:
        found = _context(ssl.PROTOCOL_TLS_CLIENT, TlsFiles(self.files.ca)).get_ca_certs(binary_form=True)
        self.authorities = frozenset(sha256(each).digest() for each in found)

    def _load_contexts(self) -> None:
        files = self.files
        server = None
        client = _context(ssl.PROTOCOL_TLS_CLIENT, files)
        client.check_hostname = False  # the introduction asks for the node, which is more
        client.verify_mode = ssl.CERT_REQUIRED
        if files.certificate is not None:
            server = _context(ssl.PROTOCOL_TLS_SERVER, files)
            server.verify_mode = ssl.CERT_OPTIONAL
            server.num_tickets = 0
        self._client, self._server = client, server
        self._asking.clear()
        self._expires = None

    def believes(self, proof: PeerProof) -> bool:
        """Whether a certificate is not revoked, and its authority still believed."""
        return proof.serial not in self.revoked and (not proof.authority or proof.authority in self.authorities)

    @property
    def expires(self) -> Timestamp:
        """When the certificate of this process does; 0: it has none, or nothing here can tell. Found out when it is asked for: clients need not know, and
        what TLS takes may be more than the library for certificates does."""
        if self._expires is None:
            self._expires = Timestamp(0)
            if self.files.certificate is not None:
                with contextlib.suppress(OSError, ValueError):
                    self._expires = expiry(self.files.certificate)
        return self._expires

    def asking(self, node: NodeId) -> ssl.SSLContext:
        """For requests to a node's HTTP service: the handshake fails unless the certificate is that of the node."""
        context = self._asking.get(node)
        if context is None:
            context = self._asking[node] = _context(ssl.PROTOCOL_TLS_CLIENT, self.files)
            context.check_hostname = False  # the certificate's node is looked at, which is more
            context.verify_mode = ssl.CERT_REQUIRED
            context.sslobject_class = _certified_node(node, self)
        return context

    def dial(self) -> TlsChannel:
        """For a connection that this process makes."""
        return TlsChannel(self._client, self.cluster, server_side=False)

    def accept(self) -> TlsChannel:
        """For one that it accepts."""
        assert self._server is not None, "only nodes accept connections"
        return TlsChannel(self._server, self.cluster, server_side=True)


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    at = files.ca
    try:
        context.load_verify_locations(cafile=at)
        if files.certificate is not None:
            at = files.certificate
            context.load_cert_chain(files.certificate, files.key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise LogDeviceError(Status.INVALID_CONFIG, f"{at}: cannot be used for TLS: {why}") from None
    return context


def _certified_node(node: NodeId, contexts: TlsContexts) -> type[ssl.SSLObject]:
    """The TLS of connections whose other end has to be a node."""

    class CertifiedNode(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            proof = _proof_of(self, contexts.cluster)
            if not contexts.believes(proof):
                raise ssl.SSLCertVerificationError(f"its certificate {proof.serial:x} is revoked")
            if proof.node != node:
                found = "no node" if proof.node is None else f"N{proof.node}"
                raise ssl.SSLCertVerificationError(f"its certificate names {found}, not N{node} of this cluster")

    return CertifiedNode


def read_revoked(path: Path) -> frozenset[int]:
    """Serial numbers, one a line, in hexadecimal; # begins a remark.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    found = set()
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            text = line.partition("#")[0].strip().replace(":", "")
            if text:
                found.add(int(text, 16))
    except (OSError, ValueError) as error:
        raise LogDeviceError(
            Status.INVALID_CONFIG, f"{path}: cannot be read as revoked serial numbers: {error}"
        ) from None
    return frozenset(found)


class TlsChannel:
    """The TLS of one connection, between the bytes on the wire and those of frames."""

    __slots__ = (
        "_cluster",
        "_failure",
        "_fresh",
        "_incoming",
        "_is_lent",
        "_object",
        "_outgoing",
        "ended",
        "established",
        "heard",
    )

    def __init__(self, context: ssl.SSLContext, cluster: bytes, *, server_side: bool) -> None:
        self._cluster = cluster
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._fresh: memoryview | None = None
        """What came behind what `_incoming` has."""
        self._is_lent = False
        """It is somebody else's memory."""
        self._failure: ssl.SSLError | None = None
        """What ended it, behind what was read before."""
        self.established = False
        self.heard = False
        """The other end has sent something."""
        self.ended = False
        """The other end sends nothing more."""

    def feed(self, data: memoryview | bytes) -> None:
        """Bytes of the handshake, or of what follows it, came."""
        self.heard = True
        self._incoming.write(data)

    def lend(self, data: memoryview) -> None:
        """Bytes came behind the handshake; they stay as they are until `keep`."""
        if self._fresh is not None:
            self._incoming.write(self._fresh)
        self._fresh, self._is_lent = data, True

    def keep(self) -> None:
        """What was lent and not read is copied."""
        if self._fresh is not None and self._is_lent:
            self._fresh = memoryview(bytes(self._fresh))
        self._is_lent = False

    def _feed_next(self, fresh: memoryview) -> None:
        """The next piece of what was lent."""
        self._incoming.write(fresh[:_FED_AT_ONCE])
        self._fresh = fresh[_FED_AT_ONCE:] if len(fresh) > _FED_AT_ONCE else None

    @property
    def waiting_bytes(self) -> int:
        """What came and was not looked at."""
        return self._incoming.pending + (len(self._fresh) if self._fresh is not None else 0)

    def shake_hands(self) -> bool:
        """Go on with the handshake. True: it is over, and the certificates hold.

        Raises:
            LogDeviceError: PROTO or ACCESS: there will be no connection. What `take` gives tells the other end why.
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLCertVerificationError as error:
            raise LogDeviceError(Status.ACCESS, f"its certificate is not accepted: {error.verify_message}") from None
        except (ssl.SSLError, ValueError) as error:
            raise LogDeviceError(Status.PROTO, f"no TLS connection: {_reason(error)}") from None
        self.established = True
        return True

    def read_into(self, buffer: memoryview) -> int:
        """The next bytes of frames; how many there are, 0: none for now. As many as there is room for: to handle what came record by record, 16 KiB at
        most, costs more than to decrypt it.

        Raises:
            LogDeviceError: PROTO or ACCESS: the connection is of no use any more.
        """
        read, incoming, count, room = self._object.read, self._incoming, 0, len(buffer)
        try:
            while count < room:
                if self._fresh is not None and incoming.pending < _RECORD_SIZE:
                    self._feed_next(self._fresh)
                with buffer[count:] as rest:
                    came: int = read(room - count, rest)  # type: ignore[assignment]
                if not came:
                    break
                count += came
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            self._failure = self._failure or error
        if self._failure is not None and not count:
            reason = _reason(self._failure)
            status = Status.ACCESS if any(word in reason for word in _UNWELCOME) else Status.PROTO
            raise LogDeviceError(status, f"the TLS connection failed: {reason}")
        return count

    def write(self, pieces: Iterable[bytes]) -> bytes:
        """What is to be sent for bytes of frames.

        Raises:
            LogDeviceError: PROTO: the connection is of no use any more.
        """
        try:
            small: list[bytes] = []
            for piece in pieces:
                if len(piece) < _LARGE:
                    small.append(piece)
                    continue
                self._encrypt(b"".join(small))
                self._encrypt(piece)
                small.clear()
            # each piece by itself would be a record by itself, and a turn has many small ones
            self._encrypt(b"".join(small))
        except ssl.SSLError as error:
            raise LogDeviceError(Status.PROTO, f"the TLS connection failed: {_reason(error)}") from None
        return self._outgoing.read()

    def _encrypt(self, data: bytes) -> None:
        write, size = self._object.write, len(data)
        done = write(data) if size else 0
        while done < size:
            done += write(memoryview(data)[done:])

    def close(self) -> bytes:
        """What tells the other end that nothing more is sent, behind what was."""
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._object.unwrap()
        return self._outgoing.read()

    def take(self) -> bytes:
        """What is to be sent beside frames."""
        return self._outgoing.read()

    def proof(self) -> PeerProof:
        """What the other end has proved."""
        return _proof_of(self._object, self._cluster)


def _proof_of(tls: ssl.SSLObject, cluster: bytes) -> PeerProof:
    certificate: Any = tls.getpeercert() or {}
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    subject = {key: value for part in certificate.get("subject", ()) for key, value in part}
    names = certified_names(uris, str(subject.get("commonName", "")), cluster)
    until: Timestamp | None = None
    if "notAfter" in certificate:
        until = Timestamp(int(ssl.cert_time_to_seconds(certificate["notAfter"])) * 1_000_000)
    serial = 0
    with contextlib.suppress(ValueError):
        serial = int(certificate.get("serialNumber", "0"), 16)
    return PeerProof(
        encrypted=True,
        node=names.node,
        cluster_uuid=cluster if names.node is not None else b"",
        principal=names.principal,
        serial=serial,
        until=until,
        authority=_authority_of(tls),
    )


def _authority_of(tls: ssl.SSLObject) -> bytes:
    """A hash of the certificate in `ca` to which that of the other end leads back; empty: it has shown none."""
    told: Any = tls
    if sys.version_info >= (3, 13):
        chain = told.get_verified_chain()
    else:  # what is public since then
        chain = [each.public_bytes(_DER) for each in told._sslobj.get_verified_chain() or ()]
    return sha256(chain[-1]).digest() if chain else b""


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error)
