"""How the two sides of a new connection introduce themselves: HELLO from who dialled, ACK from who was dialled, before anything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from logdevice_py.core.ids import InstanceId, NodeId
from logdevice_py.core.status import TRAITS, LogDeviceError, ProtocolError, Status
from logdevice_py.protocol.messages import Ack, Hello
from logdevice_py.protocol.versions import Versions


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


class Introduction:
    """What a process says of itself on its connections, and whom it accepts."""

    def __init__(self, identity: Identity, is_member: Callable[[NodeId], bool]) -> None:
        """
        Args:
            identity: may change while the process runs.
            is_member: whether a node is in the cluster file.
        """
        self._me = identity
        self._is_member = is_member

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

    def answer(
        self, hello: Hello, *, admit: Callable[[NodeId], str | None], on_config_version: Callable[[int], None]
    ) -> Ack:
        """The answer to a HELLO: OK, or the status for which the connection must be closed.

        Args:
            admit: takes a place for a node (-1: a client) that is accepted otherwise; why there is none, or None.
            on_config_version: the peer has this version of the cluster file; this process may read it within the call.
        """
        me = self._me
        status, detail = self._judge(hello, on_config_version)
        if status is Status.OK and (full := admit(hello.node)) is not None:
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

    def trouble(self, ack: Ack) -> LogDeviceError | None:
        """Why the connection to the node that answered is of no use; None: both sides have agreed."""
        if ack.status is not Status.OK:
            return LogDeviceError(ack.status, ack.detail or TRAITS[ack.status].meaning)
        ours = self._me.versions
        if not ours.least <= ack.protocol <= ours.greatest:
            text = f"it answers in version {ack.protocol} of the protocol, {ours} offered"
            return LogDeviceError(Status.PROTO, text)
        return None

    def _judge(self, hello: Hello, on_config_version: Callable[[int], None]) -> tuple[Status, str]:
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
                on_config_version(hello.config_version)
            if not self._is_member(hello.node):
                return Status.NOTINCONFIG, f"N{hello.node} is not in the cluster file"
            if hello.node == me.node:
                return Status.NOTINCONFIG, f"N{hello.node} is this node itself"
        return Status.OK, ""


def first_message(message: Any, *, dialled: bool) -> Hello | Ack:
    """The first message of a connection, if it is an introduction.

    Args:
        dialled: this process dialled, and waits for ACK.

    Raises:
        ProtocolError: it is none.
    """
    if isinstance(message, Ack if dialled else Hello):
        return message
    raise ProtocolError(f"{'ACK' if dialled else 'HELLO'} expected, {type(message).__name__.upper()} came first")
