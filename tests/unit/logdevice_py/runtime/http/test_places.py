"""Who has a place at the admin API, and who makes way."""

from __future__ import annotations

from logdevice_py.config.admin import AdminSettings
from logdevice_py.runtime.http.places import HEALTH_PLACES, ConnectionPlaces

SETTINGS = AdminSettings(connections_max=2, connections_per_address_max=3)
ALL = 2 + HEALTH_PLACES


def filled() -> ConnectionPlaces:
    """Every place is taken, each by another address."""
    places = ConnectionPlaces(SETTINGS)
    for number in range(ALL):
        assert places.arrived(number, f"10.0.0.{number}", now=number) is None
    return places


def test_the_connection_that_is_idle_for_longest_makes_way() -> None:
    places = filled()
    assert places.arrived("next", "10.0.1.1", now=100) == 0
    places.busy(1)
    places.idle(1, now=101)
    assert places.arrived("one more", "10.0.1.2", now=102) == 2, "the other one had a request since"
    assert len(places) == ALL


def test_a_connection_whose_request_is_worked_on_keeps_its_place() -> None:
    places = filled()
    for number in range(ALL):
        places.busy(number)
    assert places.arrived("next", "10.0.1.1", now=100) == "next", "there is no room for it"
    assert len(places) == ALL
    places.idle(3, now=101)
    assert places.arrived("one more", "10.0.1.2", now=102) == 3


def test_an_address_with_many_connections_displaces_its_own() -> None:
    places = ConnectionPlaces(SETTINGS)
    for number in range(3):
        assert places.arrived(number, "10.0.0.1", now=number) is None
    assert places.arrived("other", "10.0.0.2", now=3) is None
    assert places.arrived(3, "10.0.0.1", now=4) == 0
    for number in (1, 2, 3):
        places.busy(number)
    assert places.arrived(4, "10.0.0.1", now=5) is None, "it may be a health check"


def test_places_of_closed_connections_are_free() -> None:
    places = filled()
    places.gone(4)
    places.gone(4)
    places.idle(4, now=50)
    assert places.arrived("next", "10.0.0.4", now=100) is None
    assert places.idle_before(3) == [0, 1, 2]
