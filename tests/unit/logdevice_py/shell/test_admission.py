"""Who may connect."""

from __future__ import annotations

from logdevice_py.shell.admission import Admission
from logdevice_py.shell.settings import RuntimeSettings

CLIENT = -1


def admission(**settings: int) -> Admission:
    return Admission(RuntimeSettings(**settings))


def test_clients_have_places_and_nodes_have_others() -> None:
    doors = admission(connections_max=1)
    for name in "abc":
        assert doors.arrived(name, "10.0.0.1") is None
    assert doors.introduced("a", CLIENT) is None
    assert doors.introduced("b", CLIENT) == "1 clients are here already"
    assert doors.introduced("c", 3) is None
    doors.gone("a")
    assert doors.introduced("b", CLIENT) is None


def test_nobody_takes_all_places_of_a_node() -> None:
    doors = admission(connections_per_node_max=2)
    for name in "abcd":
        assert doors.arrived(name, "10.0.0.1") is None
    assert doors.introduced("a", 3) is None
    assert doors.introduced("b", 3) is None
    assert doors.introduced("c", 3) == "2 connections of N3 are here already"
    assert doors.introduced("d", 4) is None
    doors.gone("a")
    assert doors.introduced("c", 3) is None


def test_who_waits_longest_with_introducing_itself_makes_way() -> None:
    doors = admission(connections_introducing_max=2)
    for name in "abc":
        assert doors.arrived(name, "10.0.0.1") is None
    assert doors.introduced("a", CLIENT) is None
    assert doors.displaced() is None
    assert doors.arrived("d", "10.0.0.1") is None
    assert doors.displaced() == "b"
    doors.gone("b")
    assert doors.displaced() is None


def test_an_address_has_so_many_connections_and_nodes_do_not_count() -> None:
    doors = admission(connections_per_address_max=1)
    assert doors.arrived("a", "10.0.0.1") is None
    assert doors.arrived("b", "10.0.0.1") == "1 connections from 10.0.0.1 are open"
    assert doors.arrived("c", "10.0.0.2") is None
    assert doors.introduced("a", 3) is None
    assert doors.arrived("b", "10.0.0.1") is None
    doors.gone("a")
    assert doors.arrived("d", "10.0.0.1") is not None
    doors.gone("b")
    doors.gone("b")
    assert doors.arrived("d", "10.0.0.1") is None
