"""What a client takes for the state of the cluster when nodes tell it different things."""

from __future__ import annotations

import pytest

from client.known_cluster import KnownCluster
from client.settings import ClientSettings
from logdevice_py.core.ids import InstanceId, NodeId, PeerId
from logdevice_py.protocol.messages import ClusterNode, ClusterState, NodeState
from tests.unit.logdevice_py.membership.test_gossip import config_of

ALIVE, DEAD, STARTING = int(NodeState.ALIVE), int(NodeState.DEAD), int(NodeState.STARTING)


def push(version: int, *states: int, file: int = 1) -> ClusterState:
    """Of the nodes from N0 on."""
    nodes = [ClusterNode(NodeId(node), state, InstanceId(1)) for node, state in enumerate(states)]
    return ClusterState(version=version, config_version=file, nodes=nodes)


def alive(view: KnownCluster) -> list[int]:
    return [node for node in range(3) if view.is_alive(NodeId(node))]


def made() -> KnownCluster:
    return KnownCluster(ClientSettings())


def test_the_latest_push_holds_whoever_it_comes_from() -> None:
    view = made()
    view.on_cluster_state(PeerId(0), push(7, ALIVE, ALIVE, ALIVE))
    assert view.on_cluster_state(PeerId(1), push(3, ALIVE, ALIVE, DEAD)) == [2]
    assert alive(view) == [0, 1]


def test_an_older_push_of_the_same_node_is_ignored() -> None:
    view = made()
    view.on_cluster_state(PeerId(0), push(7, ALIVE, ALIVE, ALIVE))
    view.on_cluster_state(PeerId(0), push(6, ALIVE, DEAD, ALIVE))
    assert alive(view) == [0, 1, 2]


def test_a_node_that_was_taken_out_of_the_cluster_file_does_not_make_the_others_dead() -> None:
    """It hears nobody and runs on; the others have said what they had to say, and nothing changes."""
    view = made()
    view.on_cluster_state(PeerId(0), push(7, ALIVE, ALIVE, file=6))
    changes = view.changes
    assert view.on_cluster_state(PeerId(2), push(12, DEAD, DEAD, ALIVE, file=3)) == []
    assert alive(view) == [0, 1]
    assert (view.changes, view.config_version) == (changes, 6)


@pytest.mark.parametrize("states", [(DEAD, DEAD, ALIVE), (ALIVE, DEAD, STARTING), (DEAD, ALIVE)])
def test_a_node_that_has_not_heard_of_the_others_yet_does_not_make_them_dead(states: tuple[int, ...]) -> None:
    """It was just restarted, or is on the smaller side of a partition: what is under way with the others goes on."""
    view = made()
    view.on_cluster_state(PeerId(0), push(7, ALIVE, ALIVE, DEAD))
    changes = view.changes
    assert view.on_cluster_state(PeerId(2), push(1, *states)) == []
    assert (alive(view), view.changes) == ([0, 1], changes)
    assert view.on_cluster_state(PeerId(2), push(2, ALIVE, DEAD, ALIVE)) == [1]
    assert alive(view) == [0, 2]


def test_where_there_are_three_regions_the_word_of_those_that_see_two_of_them_counts() -> None:
    """N0 to N4 stand in one region, which is cut off from the two others."""
    view = made()
    view.use_config(config_of(7, ["us"] * 5 + ["eu", "ap"]))
    view.on_cluster_state(PeerId(5), push(7, *[DEAD] * 5, ALIVE, ALIVE))
    assert not view.hears_no_witness()
    assert view.on_cluster_state(PeerId(0), push(9, *[ALIVE] * 5, DEAD, DEAD)) == []
    assert not view.is_alive(NodeId(0))
    assert view.is_alive(NodeId(5))


def test_a_node_that_finds_itself_alone_takes_back_what_it_said_of_others() -> None:
    view = made()
    view.on_cluster_state(PeerId(0), push(7, ALIVE, ALIVE, ALIVE))
    view.on_cluster_state(PeerId(1), push(3, ALIVE, ALIVE, DEAD))
    assert view.on_cluster_state(PeerId(1), push(4, DEAD, ALIVE, DEAD)) == []
    assert alive(view) == [0, 1, 2]


def test_a_node_that_is_alone_is_believed_when_nobody_else_is_connected() -> None:
    view = made()
    assert view.on_cluster_state(PeerId(2), push(1, DEAD, DEAD, ALIVE)) == [0, 1]
    assert alive(view) == [2]


@pytest.mark.parametrize("states", [(DEAD, DEAD, ALIVE), (ALIVE, ALIVE, STARTING)])
def test_a_node_that_cannot_know_is_no_witness(states: tuple[int, ...]) -> None:
    view = made()
    assert not view.hears_no_witness(), "nobody has been asked yet"
    view.on_cluster_state(PeerId(2), push(1, *states))
    assert view.hears_no_witness()
    view.on_cluster_state(PeerId(0), push(1, ALIVE, ALIVE, DEAD))
    assert not view.hears_no_witness()
    view.on_peer_down(PeerId(0))
    assert view.hears_no_witness()


def test_what_a_node_said_is_forgotten_when_its_connection_is_gone() -> None:
    view = made()
    view.on_cluster_state(PeerId(0), push(7, ALIVE, ALIVE, DEAD))
    view.on_cluster_state(PeerId(2), push(12, DEAD, ALIVE, ALIVE))
    assert alive(view) == [1, 2]
    changes = view.changes
    assert view.on_peer_down(PeerId(2)) == [2]
    assert alive(view) == [0, 1]
    assert view.changes > changes


def test_every_node_counts_as_alive_when_nobody_is_connected_any_more() -> None:
    view = made()
    view.on_cluster_state(PeerId(0), push(7, ALIVE, DEAD, DEAD))
    assert view.on_peer_down(PeerId(0)) == []
    assert alive(view) == [0, 1, 2]


def test_a_node_that_was_restarted_numbers_its_pushes_anew() -> None:
    view = made()
    view.on_cluster_state(PeerId(0), push(7, ALIVE, ALIVE, ALIVE))
    view.on_peer_down(PeerId(0))
    view.on_peer_up(PeerId(0))
    view.on_cluster_state(PeerId(0), push(1, ALIVE, DEAD, ALIVE))
    assert alive(view) == [0, 2]
