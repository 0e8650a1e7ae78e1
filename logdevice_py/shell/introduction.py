"""How the two sides of a new connection introduce themselves, in production and in the simulator.

1. Who dialled says HELLO, and nothing more until it is answered.
2. Who was dialled answers ACK: OK and the version that both speak from here on, or why it closes the connection.
3. Only then a peer is at the other end: the node that was dialled, the node that HELLO names, or a client, which gets a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from logdevice_py.core.ids import InstanceId, NodeId, PeerId
from logdevice_py.core.status import TRAITS, LogDeviceError, ProtocolError, Status
from logdevice_py.protocol.framing import FRAME_SIZE_MAX, FRAME_SIZE_MAX_BEFORE_HELLO, TYPE_AT, FrameReader
from logdevice_py.protocol.messages import Ack, Hello, MessageType
from logdevice_py.protocol.versions import Versions, later_messages
from logdevice_py.shell.admission import Admission
from logdevice_py.shell.settings import RuntimeSettings

_LARGE_FROM_CLIENTS: Final = frozenset({int(MessageType.APPEND)})


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


class Introduction:
    """The introductions of a process: what it says of itself, whom it accepts, and under which number it knows each."""

    def __init__(
        self,
        identity: Identity,
        is_member: Callable[[NodeId], bool],
        settings: RuntimeSettings,
        on_config_version: Callable[[int], None],
    ) -> None:
        """
        Args:
            identity: may change while the process runs.
            is_member: whether a node is in the cluster file.
            on_config_version: a peer has this version of the cluster file; this process may read it within the call.
        """
        self._me = identity
        self._is_member = is_member
        self._on_config_version = on_config_version
        self.admission = Admission(settings)
        self._next_client = -1

    def hello(self, to: NodeId) -> Hello:
        """What is said to a node that was dialled."""
        me = self._me
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
        )

    def receive(self, connection: Hashable, first: Any, *, more: bool, dialled: PeerId | None) -> Introduced:
        """The first message of a connection.

        Args:
            connection: one that has arrived in `admission`, unless it was dialled.
            more: further bytes came behind it.
            dialled: the node that this process dialled; None: somebody else dialled.

        Raises:
            ProtocolError: it is no introduction, or something came behind a HELLO that is not answered.
        """
        if dialled is not None:
            if not isinstance(first, Ack):
                raise ProtocolError(f"ACK expected, {_name(first)} came first")
            return self._acknowledged(dialled, first)
        if not isinstance(first, Hello):
            raise ProtocolError(f"HELLO expected, {_name(first)} came first")
        if more:
            raise ProtocolError("something came before HELLO was answered")
        return self._greeted(connection, first)

    def _acknowledged(self, node: PeerId, ack: Ack) -> Introduced:
        trouble = self._trouble(ack)
        if trouble is not None:
            return Introduced(ack, None, trouble)
        self._on_config_version(ack.config_version)
        return Introduced(ack, node, None, later_messages(ack.protocol))

    def _greeted(self, connection: Hashable, hello: Hello) -> Introduced:
        ack = self._answer(connection, hello)
        if ack.status is not Status.OK:
            return Introduced(ack, None)
        self._on_config_version(hello.config_version)
        peer = PeerId(hello.node) if hello.node >= 0 else self._number_client()
        return Introduced(ack, peer, None, later_messages(ack.protocol))

    def _number_client(self) -> PeerId:
        """Never the number of an earlier client: answers to that one may be on their way out."""
        number = self._next_client
        self._next_client -= 1
        return PeerId(number)

    def _answer(self, connection: Hashable, hello: Hello) -> Ack:
        """OK, or the status for which the connection must be closed."""
        me = self._me
        status, detail = self._judge(hello)
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


def newcomer_frames(*, dialled: bool) -> int:
    """How large frames may be before the introduction."""
    return FRAME_SIZE_MAX if dialled else FRAME_SIZE_MAX_BEFORE_HELLO


def let_in(reader: FrameReader, peer: PeerId) -> None:
    """Let frames be as large as those of a peer may be: of a client, only those that carry records."""
    reader.frame_size_max = FRAME_SIZE_MAX
    if peer < 0:
        reader.large_types = _LARGE_FROM_CLIENTS


def spoken(frames: Sequence[list[bytes]], unspoken: frozenset[int]) -> list[list[bytes]]:
    """Those of some frames that the peer knows."""
    return [frame for frame in frames if frame[0][TYPE_AT] not in unspoken]


def _name(message: Any) -> str:
    return type(message).__name__.upper()
