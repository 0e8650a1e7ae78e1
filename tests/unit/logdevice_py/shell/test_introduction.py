"""Who is accepted on a connection, and what each side learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.core.ids import InstanceId, NodeId, PeerId
from logdevice_py.core.status import LogDeviceError, ProtocolError, Status
from logdevice_py.protocol.framing import FRAME_SIZE_MAX, FrameReader
from logdevice_py.protocol.messages import PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN, Ack, Hello, MessageType
from logdevice_py.shell.introduction import Identity, Introduced, Introduction, let_in, newcomer_frames
from logdevice_py.shell.settings import RuntimeSettings
from tests.unit.logdevice_py.shell.test_turn import urgent

UUID = b"u" * 16
MEMBERS = {NodeId(0), NodeId(1)}
NODE = Identity("c", UUID, NodeId(0), InstanceId(5), 3)
OTHER = Identity("c", UUID, NodeId(1), InstanceId(6), 2)
CLIENT = Identity("c", b"", NodeId(-1), InstanceId(7), 4, "reader")


class Accepting:
    """The node that is dialled."""

    def __init__(self, **settings: int) -> None:
        self.members = set(MEMBERS)
        self.versions: list[int] = []
        self.reads_new_file = False
        self.connections = 0
        self.introduction = Introduction(
            NODE, lambda node: node in self.members, RuntimeSettings(**settings), self.on_config_version
        )

    def receive(self, *messages: Any) -> Introduced:
        """What is made of the first messages of another connection."""
        self.connections += 1
        assert self.introduction.admission.arrived(self.connections, "10.0.0.1") is None
        return self.introduction.receive(self.connections, messages[0], more=len(messages) > 1, dialled=None)

    def answer(self, hello: Hello) -> Ack:
        return self.receive(hello).ack

    def on_config_version(self, version: int) -> None:
        self.versions.append(version)
        if self.reads_new_file:
            self.members.add(NodeId(9))


def dialler(identity: Identity = OTHER) -> Introduction:
    return Introduction(identity, lambda node: True, RuntimeSettings(), lambda version: None)


def acknowledged(ack: Any) -> Introduced:
    """What N1 makes of the answer of N0."""
    return dialler().receive("c", ack, more=False, dialled=PeerId(0))


def trouble_of(ack: Ack) -> LogDeviceError | None:
    return acknowledged(ack).trouble


def hello(identity: Identity = OTHER, to: int = 0) -> Hello:
    return dialler(identity).hello(NodeId(to))


@pytest.mark.parametrize("identity", [OTHER, CLIENT])
def test_a_node_and_a_client_are_accepted_and_learn_who_answers(identity: Identity) -> None:
    node = Accepting()
    ack = node.answer(hello(identity))
    assert trouble_of(ack) is None
    assert (ack.cluster_uuid, ack.node, ack.instance, ack.config_version) == (UUID, NodeId(0), InstanceId(5), 3)
    assert acknowledged(ack).peer == PeerId(0)


def test_a_node_is_known_by_its_own_number_and_each_client_by_another() -> None:
    node = Accepting()
    assert [node.receive(hello(each)).peer for each in (OTHER, CLIENT, OTHER, CLIENT)] == [1, -1, 1, -2]
    node.introduction.admission.gone(2)
    assert node.receive(hello(CLIENT)).peer == -3


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
    node = Accepting(connections_max=1, connections_per_node_max=1)
    introduced = node.receive(said)
    ack = introduced.ack
    assert introduced.peer is None
    heard = acknowledged(ack)
    assert heard.peer is None
    assert heard.trouble is not None
    assert heard.trouble.status is ack.status is status
    assert text in heard.trouble.detail
    assert node.receive(hello(OTHER)).peer == 1
    assert node.receive(hello(CLIENT)).peer == -1
    assert (ack.cluster_uuid, ack.node, ack.instance, ack.config_version) == (b"", NodeId(-1), InstanceId(0), 0)


def test_who_finds_no_place_hears_why() -> None:
    node = Accepting(connections_max=2)
    assert [node.receive(hello(CLIENT)).peer for _ in range(2)] == [-1, -2]
    refused = node.receive(hello(CLIENT))
    assert refused.peer is None
    ack = refused.ack
    assert (ack.status, ack.detail, ack.cluster_uuid) == (Status.OVERLOADED, "2 clients are here already", b"")
    node.introduction.admission.gone(1)
    assert node.receive(hello(CLIENT)).peer is not None


def test_a_node_of_a_cluster_file_that_is_not_read_yet_is_accepted_when_it_is() -> None:
    node = Accepting()
    said = hello(replace(OTHER, node=NodeId(9), config_version=8))
    assert node.answer(said).status is Status.NOTINCONFIG
    node.reads_new_file = True
    assert node.answer(said).status is Status.OK
    assert node.versions == [8, 8, 8]


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


def test_nothing_comes_before_the_introduction() -> None:
    for wrong in (Accepting().answer(hello()), urgent(1)):
        with pytest.raises(ProtocolError, match="HELLO expected"):
            Accepting().receive(wrong)
    for wrong in (hello(), urgent(1)):
        with pytest.raises(ProtocolError, match="ACK expected"):
            acknowledged(wrong)


@pytest.mark.parametrize("second", [urgent(1), hello()], ids=["message", "HELLO"])
def test_who_dialled_says_nothing_more_before_it_is_answered(second: Any) -> None:
    node = Accepting(connections_per_node_max=1)
    with pytest.raises(ProtocolError, match="before HELLO was answered"):
        node.receive(hello(), second)
    assert node.receive(hello()).peer == 1


def test_who_was_dialled_may_go_on_behind_its_answer() -> None:
    ack = Accepting().answer(hello())
    assert dialler().receive("c", ack, more=True, dialled=PeerId(0)).peer == 0


def test_a_refused_dialler_is_told_no_version_of_the_cluster_file() -> None:
    node = Accepting()
    node.receive(hello(to=1))
    assert node.versions == []
    node.receive(hello())
    assert node.versions == [2]


def test_frames_are_small_before_the_introduction_and_those_of_clients_after_it_unless_they_carry_records() -> None:
    small = newcomer_frames(dialled=False)
    assert small < FRAME_SIZE_MAX == newcomer_frames(dialled=True)
    readers = {peer: FrameReader(small) for peer in (PeerId(1), PeerId(-1))}
    for peer, reader in readers.items():
        let_in(reader, peer)
        assert reader.frame_size_max == FRAME_SIZE_MAX
    assert readers[PeerId(1)].large_types is None
    assert readers[PeerId(-1)].large_types == {int(MessageType.APPEND), int(MessageType.GUARDED_APPEND)}
