from __future__ import annotations

import pytest

from logdevice_py.config.location import Scope
from logdevice_py.config.replication import ReplicationProperty


def test_factors_go_from_the_largest_scope_to_the_smallest() -> None:
    replication = ReplicationProperty.parse("node:4, rack:3,region:2")
    assert replication.factors == ((Scope.REGION, 2), (Scope.RACK, 3), (Scope.NODE, 4))
    assert replication.copies == 4
    assert str(replication) == "region:2,rack:3,node:4"


def test_a_scope_that_asks_for_no_more_than_a_larger_one_is_left_out() -> None:
    assert ReplicationProperty.parse("rack:3,node:3") == ReplicationProperty.parse("rack:3")
    assert ReplicationProperty.parse("rack:3").copies == 3


def test_equal_properties_are_one_key() -> None:
    assert len({ReplicationProperty.parse("rack:2,node:3"), ReplicationProperty.parse("NODE:3,Rack:2")}) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no scope with a factor.*rack:2,node:3"),
        ("3", "'3' is no scope with a factor"),
        ("node:3,", "'' is no scope"),
        ("shelf:2", "'shelf' is no scope; there are node, rack, row, cluster, datacenter, region"),
        ("node:0", "node:0: a replication factor is 1 to 127"),
        ("node:128", "1 to 127"),
        ("node:2,node:3", "named twice"),
        ("rack:3,node:2", "node:2 is less than rack:3, which needs 3"),
    ],
)
def test_what_is_no_property_is_refused_with_what_would_be_right(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ReplicationProperty.parse(text)


class TestWire:
    def test_plain_lists_carry_it(self) -> None:
        replication = ReplicationProperty.parse("region:2,rack:3,node:4")
        assert replication.to_wire() == [[5, 2], [1, 3], [0, 4]]
        assert ReplicationProperty.from_wire(replication.to_wire()) == replication

    @pytest.mark.parametrize(
        "raw", [None, 7, [], [7], [[0]], [[0, "3"]], [[9, 1]], [[0, True]], "x", [[0, 0]], [[0, 1]] * 9]
    )
    def test_anything_else_is_refused(self, raw: object) -> None:
        with pytest.raises(ValueError, match=r".+"):
            ReplicationProperty.from_wire(raw)
