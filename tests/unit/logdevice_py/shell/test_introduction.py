"""Who is accepted on a connection, and what each side learns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.core.ids import InstanceId, NodeId
from logdevice_py.core.status import LogDeviceError, ProtocolError, Status
from logdevice_py.protocol.messages import PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN, Ack, Hello
from logdevice_py.shell.introduction import Identity, Introduction, first_message
from tests.unit.logdevice_py.shell.test_turn import urgent

UUID = b"u" * 16
MEMBERS = {NodeId(0), NodeId(1)}
NODE = Identity("c", UUID, NodeId(0), InstanceId(5), 3)
OTHER = Identity("c", UUID, NodeId(1), InstanceId(6), 2)
CLIENT = Identity("c", b"", NodeId(-1), InstanceId(7), 4, "reader")


class Accepting:
    """The node that is dialled."""

    def __init__(self, full: str | None = None) -> None:
        self.members = set(MEMBERS)
        self.asked: list[NodeId] = []
        self.versions: list[int] = []
        self.full = full
        self.reads_new_file = False
        self.introduction = Introduction(NODE, lambda node: node in self.members)

    def answer(self, hello: Hello) -> Ack:
        return self.introduction.answer(hello, admit=self.admit, on_config_version=self.on_config_version)

    def admit(self, node: NodeId) -> str | None:
        self.asked.append(node)
        return self.full

    def on_config_version(self, version: int) -> None:
        self.versions.append(version)
        if self.reads_new_file:
            self.members.add(NodeId(9))


def trouble_of(ack: Ack) -> LogDeviceError | None:
    return Introduction(OTHER, lambda node: True).trouble(ack)


def hello(identity: Identity = OTHER, to: int = 0) -> Hello:
    return Introduction(identity, lambda node: True).hello(NodeId(to))


@pytest.mark.parametrize("identity", [OTHER, CLIENT])
def test_a_node_and_a_client_are_accepted_and_learn_who_answers(identity: Identity) -> None:
    node = Accepting()
    ack = node.answer(hello(identity))
    assert trouble_of(ack) is None
    assert (ack.cluster_uuid, ack.node, ack.instance, ack.config_version) == (UUID, NodeId(0), InstanceId(5), 3)
    assert node.asked == [identity.node]


STRANGERS = {
    "of a later version": (replace(hello(), protocol_min=PROTOCOL_VERSION_MAX + 1), Status.PROTO, "spoken here"),
    "of an earlier version": (replace(hello(), protocol_max=PROTOCOL_VERSION_MIN - 1), Status.PROTO, "spoken here"),
    "of a cluster with another name": (
        hello(replace(OTHER, cluster_name="d")),
        Status.INVALID_CLUSTER,
        "another cluster",
    ),
    "of another cluster of the name": (
        hello(replace(OTHER, cluster_uuid=b"v" * 16)),
        Status.INVALID_CLUSTER,
        "another cluster",
    ),
    "that wants another node": (hello(to=1), Status.NOTINCONFIG, "this is N0, not N1"),
    "that is no member": (hello(replace(OTHER, node=NodeId(9))), Status.NOTINCONFIG, "N9 is not in"),
    "with the own name": (hello(replace(OTHER, node=NodeId(0))), Status.NOTINCONFIG, "this node itself"),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_is_refused_takes_no_place_and_learns_nothing(stranger: str) -> None:
    said, status, text = STRANGERS[stranger]
    node = Accepting()
    ack = node.answer(said)
    trouble = trouble_of(ack)
    assert trouble is not None
    assert trouble.status is ack.status is status
    assert text in trouble.detail
    assert node.asked == []
    assert (ack.cluster_uuid, ack.node, ack.instance, ack.config_version) == (b"", NodeId(-1), InstanceId(0), 0)


def test_who_finds_no_place_hears_why() -> None:
    ack = Accepting("2 clients are here already").answer(hello(CLIENT))
    assert (ack.status, ack.detail, ack.cluster_uuid) == (Status.OVERLOADED, "2 clients are here already", b"")


def test_a_node_of_a_cluster_file_that_is_not_read_yet_is_accepted_when_it_is() -> None:
    node = Accepting()
    said = hello(replace(OTHER, node=NodeId(9), config_version=8))
    assert node.answer(said).status is Status.NOTINCONFIG
    node.reads_new_file = True
    assert node.answer(said).status is Status.OK
    assert node.versions == [8, 8]


def test_an_answer_in_a_version_that_was_not_offered_is_no_agreement() -> None:
    ack = Accepting().answer(hello())
    trouble = trouble_of(replace(ack, protocol=PROTOCOL_VERSION_MAX + 1))
    assert trouble is not None
    assert trouble.status is Status.PROTO


def test_the_greatest_version_that_both_speak_is_agreed_on() -> None:
    later = replace(hello(), protocol_max=PROTOCOL_VERSION_MAX + 1)
    assert Accepting().answer(later).protocol == PROTOCOL_VERSION_MAX


def test_any_destination_will_do_for_who_does_not_know_it() -> None:
    assert Accepting().answer(hello(to=-1)).status is Status.OK


def test_the_first_message_introduces() -> None:
    said, ack = hello(), Accepting().answer(hello())
    assert first_message(said, dialled=False) is said
    assert first_message(ack, dialled=True) is ack
    for wrong, dialled in ((said, True), (ack, False), (urgent(1), False)):
        with pytest.raises(ProtocolError, match="came first"):
            first_message(wrong, dialled=dialled)
