"""How the two sides of a new connection introduce themselves, in production and in the simulator.

1. Who dialled says HELLO, and nothing more until it is answered.
2. Who was dialled answers ACK: OK and the version that both speak from here on, or why it closes the connection.
3. Only then a peer is at the other end: the node that was dialled, the node that HELLO names, or a client, which gets a number of its own.

Where ``[settings.security]`` asks for it, what the connection proves (`shell/proof.py`) counts beside what is said:

4. Clear text is refused where TLS is required.
5. Whoever says that he is a node is one by a certificate of that node of this cluster, and of no other. A certificate of another node is refused in
   any case. Nobody is a node because a client may be one: clients' certificates name principals.
6. A client is the principal of its certificate, or of its token; without both it is `anonymous`. A token counts over an encrypted connection
   only. It is not sent over another one, nor before the node that was dialled has proved that it is that node.
7. A connection ends when what it proves expires or is revoked, or when who signed that is believed no more.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from logdevice_py.config.security import TLS_REQUIRE, SecuritySettings
from logdevice_py.core.ids import InstanceId, NodeId, PeerId
from logdevice_py.core.principal import ANONYMOUS, Principal
from logdevice_py.core.status import TRAITS, LogDeviceError, ProtocolError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.declare import CODECS, Needs
from logdevice_py.protocol.first_rows import with_first_rows
from logdevice_py.protocol.framing import FRAME_SIZE_MAX, FRAME_SIZE_MAX_BEFORE_HELLO, TYPE_AT, FrameReader
from logdevice_py.protocol.messages import Ack, Hello
from logdevice_py.protocol.versions import Versions, later_messages
from logdevice_py.shell.admission import Admission
from logdevice_py.shell.proof import NO_PROOF, PeerProof, Principals
from logdevice_py.shell.settings import RuntimeSettings

_LARGE_FROM_CLIENTS: Final = frozenset(
    number for number, codec in CODECS.items() if codec.payload is not None and codec.needs is not Needs.NODE
)
"""Numbers of the messages with a payload that a client may send."""


@dataclass(slots=True)
class Identity:
    """Who this process is, as it tells its peers."""

    cluster_name: str
    cluster_uuid: bytes
    node: NodeId
    """-1 for a client."""
    instance: InstanceId
    config_version: int
    name: str = ""
    versions: Versions = field(default_factory=Versions)
    """Of the protocol."""
    token: str = field(default="", repr=False)
    """Of a client: what proves which principal it is, where its connection does not."""


@dataclass(frozen=True, slots=True)
class Introduced:
    """What the first message of a connection leads to."""

    ack: Ack
    """From the node that was dialled, or for who dialled. If it is not OK, the connection is closed behind it."""
    peer: PeerId | None
    """Who is at the other end; None: the connection is of no use."""
    trouble: LogDeviceError | None = None
    """Why it is of no use to who dialled."""
    unspoken: frozenset[int] = frozenset()
    """Numbers of the messages that the peer does not know."""


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Believed:
    """Whom a token names, and until when (wall clock)."""

    principal: Principal
    until: Timestamp
    is_valid: Callable[[], bool] = field(default=_always, compare=False)
    """Whether the key that signed it is still believed."""


class BadTokenError(Exception):
    """A token that proves nothing; the text says why and does not repeat it."""


CheckToken = Callable[[str], Believed]
"""Raises BadTokenError."""


def no_tokens(token: str) -> Believed:
    """Of a process that believes no token."""
    raise BadTokenError("this node believes no tokens: token_key_file is not set")


@dataclass(frozen=True, slots=True)
class _Standing:
    """On what an accepted or dialled connection stands."""

    serial: int
    until: Timestamp | None
    authority: bytes
    is_valid: Callable[[], bool]


class Introduction:
    """The introductions of a process: what it says of itself, whom it accepts, and under which number it knows each."""

    def __init__(
        self,
        identity: Identity,
        is_member: Callable[[NodeId], bool],
        settings: RuntimeSettings,
        on_config_version: Callable[[int], None],
        *,
        security: SecuritySettings | None = None,
        principals: Principals | None = None,
        check_token: CheckToken = no_tokens,
    ) -> None:
        """
        Args:
            identity: may change while the process runs.
            is_member: whether a node is in the cluster file.
            on_config_version: a peer has this version of the cluster file; this process may read it within the call.
            security: what has to be proved; None: nothing.
            principals: is told who clients are, and whom nodes take this process for.
            check_token: who a token says its bearer is.
        """
        self._me = identity
        self._is_member = is_member
        self._on_config_version = on_config_version
        self.admission = Admission(settings)
        self._next_client = -1
        self.security = security or SecuritySettings()
        self.principals = Principals() if principals is None else principals
        self._check_token = check_token
        self.revoked: Container[int] = frozenset()
        """Serial numbers of certificates that prove nothing any more."""
        self.authorities: Container[bytes] | None = None
        """Hashes of the certificates of those who may sign others; None: what TLS has accepted is enough."""
        self._standing: dict[Hashable, _Standing] = {}
        """Of connections that end when what they prove expires or is revoked."""

    def hello(self, to: NodeId, proof: PeerProof = NO_PROOF) -> Hello:
        """What is said to a node that was dialled.

        Raises:
            LogDeviceError: the other end did not prove that it is that node. Nothing may be said to it.
        """
        me = self._me
        self._check_answerer(PeerId(to), proof)
        token = me.token if proof.encrypted else ""
        return Hello(
            protocol_min=me.versions.least,
            protocol_max=me.versions.greatest,
            cluster_name=me.cluster_name,
            cluster_uuid=me.cluster_uuid,
            node=me.node,
            instance=me.instance,
            destination=to,
            config_version=me.config_version,
            name=me.name,
            token=token,
        )

    def _check_answerer(self, to: PeerId, proof: PeerProof) -> None:
        if proof.encrypted:
            if (why := self._no_more(proof.serial, proof.authority)) is not None:
                raise LogDeviceError(Status.ACCESS, f"whoever answers there proves nothing: {why}")
            if proof.node is None or PeerId(proof.node) != to or proof.cluster_uuid != self._me.cluster_uuid:
                found = "no node" if proof.node is None else f"N{proof.node} of cluster {proof.cluster_uuid.hex()}"
                text = f"the certificate of whoever answers there names {found}, not N{to} of this cluster"
                raise LogDeviceError(Status.ACCESS, text)
        elif self.security.tls == TLS_REQUIRE or self._me.token:
            raise LogDeviceError(Status.ACCESS, "the connection is in clear text, and this process asks for TLS")

    def receive(
        self, connection: Hashable, first: Any, *, more: bool, dialled: PeerId | None, proof: PeerProof = NO_PROOF
    ) -> Introduced:
        """The first message of a connection.

        Args:
            connection: one that has arrived in `admission`, unless it was dialled.
            more: further bytes came behind it.
            dialled: the node that this process dialled; None: somebody else dialled.
            proof: what the connection proves of the other end.

        Raises:
            ProtocolError: it is no introduction, or something came behind a HELLO that is not answered.
        """
        if dialled is not None:
            if not isinstance(first, Ack):
                raise ProtocolError(f"ACK expected, {_name(first)} came first")
            return self._acknowledged(connection, dialled, first, proof)
        if not isinstance(first, Hello):
            raise ProtocolError(f"HELLO expected, {_name(first)} came first")
        if more:
            raise ProtocolError("something came before HELLO was answered")
        return self._greeted(connection, first, proof)

    def _acknowledged(self, connection: Hashable, node: PeerId, ack: Ack, proof: PeerProof) -> Introduced:
        trouble = self._trouble(ack)
        if trouble is not None:
            return Introduced(ack, None, trouble)
        self._on_config_version(ack.config_version)
        self.principals.own = ack.principal
        self._stand(connection, proof, None)
        return Introduced(ack, node, None, later_messages(ack.protocol))

    def _greeted(self, connection: Hashable, hello: Hello, proof: PeerProof) -> Introduced:
        status, detail = self._judge(hello)
        if status is Status.OK:
            status, detail = self._judge_proof(hello, proof)
        believed: Believed | None = None
        if status is Status.OK and hello.token and hello.node < 0 and proof.principal is None:
            try:
                believed = self._check_token(hello.token)
            except BadTokenError as error:
                status, detail = Status.ACCESS, f"the token is not believed: {error}"
        principal = believed.principal if believed is not None else proof.principal or ANONYMOUS
        ack = self._answer(connection, hello, status, detail, principal)
        if ack.status is not Status.OK:
            return Introduced(ack, None)
        self._on_config_version(hello.config_version)
        peer = PeerId(hello.node) if hello.node >= 0 else self._number_client()
        if peer < 0 and principal is not ANONYMOUS:
            self.principals.add(peer, principal)
        self._stand(connection, proof, believed)
        return Introduced(ack, peer, None, later_messages(ack.protocol))

    def _stand(self, connection: Hashable, proof: PeerProof, believed: Believed | None) -> None:
        ends = [until for until in (proof.until, None if believed is None else believed.until) if until is not None]
        if ends or proof.serial:
            is_valid = _always if believed is None else believed.is_valid
            self._standing[connection] = _Standing(proof.serial, min(ends, default=None), proof.authority, is_valid)

    def gone(self, connection: Hashable, peer: PeerId | None) -> None:
        """A connection is closed."""
        self.admission.gone(connection)
        self._standing.pop(connection, None)
        if peer is not None and peer < 0:
            self.principals.remove(peer)

    def fallen(self, now: Timestamp) -> list[tuple[Hashable, str]]:
        """Connections that must end, and why: what they prove counts no longer. now: of the wall clock."""
        found: list[tuple[Hashable, str]] = []
        for connection, standing in self._standing.items():
            if (why := self._no_more(standing.serial, standing.authority)) is not None:
                found.append((connection, why))
            elif not standing.is_valid():
                found.append((connection, "its token is signed with a key that is not in token_key_file any more"))
            elif standing.until is not None and standing.until <= now:
                found.append((connection, "its certificate or token has expired"))
        return found

    def _no_more(self, serial: int, authority: bytes) -> str | None:
        """Why a certificate proves nothing any more; None: it does."""
        if serial in self.revoked:
            return f"its certificate {serial:x} is revoked"
        if authority and self.authorities is not None and authority not in self.authorities:
            return f"the authority of its certificate {serial:x} is not in ca_file any more"
        return None

    def _number_client(self) -> PeerId:
        """Never the number of an earlier client: answers to that one may be on their way out."""
        number = self._next_client
        self._next_client -= 1
        return PeerId(number)

    def _answer(self, connection: Hashable, hello: Hello, status: Status, detail: str, principal: Principal) -> Ack:
        """OK, or the status for which the connection must be closed."""
        me = self._me
        if status is Status.OK and (full := self.admission.introduced(connection, hello.node)) is not None:
            status, detail = Status.OVERLOADED, full
        welcome = status is Status.OK
        version = me.versions.agree(Versions(hello.protocol_min, hello.protocol_max))
        return Ack(
            status=status,
            protocol=me.versions.greatest if version is None else version,
            # a stranger does not learn from a refusal whose node this is
            cluster_uuid=me.cluster_uuid if welcome else b"",
            node=me.node if welcome else NodeId(-1),
            instance=me.instance if welcome else InstanceId(0),
            config_version=me.config_version if welcome else 0,
            detail=detail,
            principal=str(principal) if welcome and hello.node < 0 else "",
        )

    def _trouble(self, ack: Ack) -> LogDeviceError | None:
        """Why the connection to the node that answered is of no use; None: both sides have agreed."""
        if ack.status is not Status.OK:
            return LogDeviceError(ack.status, ack.detail or TRAITS[ack.status].meaning)
        ours = self._me.versions
        if not ours.least <= ack.protocol <= ours.greatest:
            text = f"it answers in version {ack.protocol} of the protocol, {ours} offered"
            return LogDeviceError(Status.PROTO, text)
        return None

    def _judge(self, hello: Hello) -> tuple[Status, str]:
        me = self._me
        offered = Versions(hello.protocol_min, hello.protocol_max)
        if me.versions.agree(offered) is None:
            return (
                Status.PROTO,
                f"no common version of the protocol: {offered} offered, {me.versions} spoken here; upgrade whichever is older",
            )
        if hello.cluster_name != me.cluster_name or (hello.cluster_uuid and hello.cluster_uuid != me.cluster_uuid):
            return Status.INVALID_CLUSTER, "a node of another cluster than the cluster file describes answers"
        if hello.destination not in (-1, me.node):
            return Status.NOTINCONFIG, f"this is N{me.node}, not N{hello.destination}"
        if hello.node >= 0:
            if not self._is_member(hello.node):
                # it may have been added by a cluster file that is not read here yet
                self._on_config_version(hello.config_version)
            if not self._is_member(hello.node):
                return Status.NOTINCONFIG, f"N{hello.node} is not in the cluster file"
            if hello.node == me.node:
                return Status.NOTINCONFIG, f"N{hello.node} is this node itself"
        return Status.OK, ""

    def _judge_proof(self, hello: Hello, proof: PeerProof) -> tuple[Status, str]:
        security = self.security
        if (why := self._no_more(proof.serial, proof.authority)) is not None:
            return Status.ACCESS, why
        if security.tls == TLS_REQUIRE and not proof.encrypted:
            return Status.ACCESS, "clear text is not taken here: connect with TLS"
        if hello.token and not proof.encrypted:
            return (
                Status.ACCESS,
                "a token came in clear text: it is not believed, and others may have read it; withdraw it",
            )
        if hello.node < 0:
            return Status.OK, ""
        if proof.node is None:
            if proof.principal is not None or security.proves_nodes:
                return Status.ACCESS, f"it says that it is N{hello.node}, and has no certificate of that node"
        elif proof.node != hello.node or proof.cluster_uuid != self._me.cluster_uuid:
            return Status.ACCESS, f"it says that it is N{hello.node}, and has the certificate of another node"
        return Status.OK, ""


def newcomer_frames(*, dialled: bool) -> int:
    """How large frames may be before the introduction."""
    return FRAME_SIZE_MAX if dialled else FRAME_SIZE_MAX_BEFORE_HELLO


def let_in(reader: FrameReader, peer: PeerId) -> None:
    """Let frames be as large as those of a peer may be: of a client, only those that carry records."""
    reader.frame_size_max = FRAME_SIZE_MAX
    if peer < 0:
        reader.large_types = _LARGE_FROM_CLIENTS


def spoken(frames: Sequence[list[bytes]], unspoken: frozenset[int]) -> list[list[bytes]]:
    """Those of some frames that the peer knows, as it reads them.

    Args:
        unspoken: numbers of the messages that came after the agreed version; none: it is the latest, and all stays as it is.
    """
    if not unspoken:
        return list(frames)
    return [with_first_rows(frame) for frame in frames if frame[0][TYPE_AT] not in unspoken]


def _name(message: Any) -> str:
    return type(message).__name__.upper()
