from __future__ import annotations

import pytest

from logdevice_py.config.location import ANYWHERE, NOWHERE, Areas, Location, Scope
from logdevice_py.core.ids import NodeId


class TestText:
    def test_short_forms_name_the_small_scopes(self) -> None:
        assert Location.parse("rack7").labels == ("", "", "", "", "rack7")
        assert Location.parse("row2.rack7").labels == ("", "", "", "row2", "rack7")

    def test_an_empty_label_keeps_its_place(self) -> None:
        assert Location.parse("eu....").labels == ("eu", "", "", "", "")
        assert str(Location.parse("eu....")) == "eu...."

    def test_nothing_is_nowhere(self) -> None:
        assert Location.parse("") == NOWHERE
        assert str(NOWHERE) == ""

    @pytest.mark.parametrize(
        ("text", "reason"), [("a.b.c.d.e.f", "has 6 labels"), ("rack 7", "label 'rack 7'"), ("r/1", "letters")]
    )
    def test_what_is_no_location_is_refused_with_a_reason(self, text: str, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            Location.parse(text)


class TestDomains:
    def test_racks_of_one_name_in_different_rows_are_different_domains(self) -> None:
        one, other = Location.parse("row1.rack7"), Location.parse("row2.rack7")
        assert one.domain(Scope.RACK, NodeId(1)) != other.domain(Scope.RACK, NodeId(2))
        assert one.domain(Scope.CLUSTER, NodeId(1)) == other.domain(Scope.CLUSTER, NodeId(2))

    def test_a_node_is_a_domain_of_its_own_wherever_it_stands(self) -> None:
        assert NOWHERE.domain(Scope.NODE, NodeId(1)) != NOWHERE.domain(Scope.NODE, NodeId(2))

    def test_nodes_without_a_rack_share_one(self) -> None:
        assert NOWHERE.domain(Scope.RACK, NodeId(1)) == NOWHERE.domain(Scope.RACK, NodeId(2))

    def test_the_largest_scope_is_the_first_label(self) -> None:
        assert Location.parse("eu.d.c.r.k").domain(Scope.REGION, NodeId(0)) == "eu"
        assert Location.parse("eu.d.c.r.k").domain(Scope.RACK, NodeId(0)) == "eu.d.c.r.k"


def test_an_area_holds_what_agrees_in_all_that_it_names() -> None:
    place = Location.parse("eu.d1.c1.r1.k1")
    assert place.within(Location.parse("eu...."))
    assert place.within(Location.parse("eu.d1..."))
    assert place.within(Location.parse("k1"))
    assert place.within(NOWHERE)
    assert not place.within(Location.parse("us...."))
    assert not NOWHERE.within(Location.parse("k1"))


def test_places_are_written_in_order_and_read_back() -> None:
    areas = Areas.parse(" us.... ,eu.d1..., row2.rack7")
    assert areas.ordered == (Location.parse("us...."), Location.parse("eu.d1..."), Location.parse("row2.rack7"))
    assert str(areas) == "us...., eu.d1..., row2.rack7"
    assert Areas.parse(str(areas)) == areas
    assert Areas.parse("  ") == ANYWHERE


@pytest.mark.parametrize(
    ("text", "reason"), [("us....,", "empty"), ("us....,us....", "twice"), ("a b", "may hold letters")]
)
def test_places_that_are_none_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Areas.parse(text)
