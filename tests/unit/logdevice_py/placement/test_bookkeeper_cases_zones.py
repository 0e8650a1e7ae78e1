"""What BookKeeper's tests of its zone-aware policy check, in our terms: a zone is a row and an upgrade domain a rack of it, and copies lie in so many of each.

docs/bookkeeper-placement.md says which of them each test retells.
"""

from __future__ import annotations

import pytest

from logdevice_py.config.cluster import ShardState
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError
from tests.unit.logdevice_py.placement.bookkeeper_cases import (
    capacities,
    chooser,
    chooser_of,
    each_of,
    only,
    regions_of,
    spread,
    up,
)
from tests.unit.logdevice_py.placement.clusters import attributes
from tests.unit.logdevice_py.placement.test_policies import placed

rows_of = regions_of
"""A location of two labels begins with the row."""
SIX_ROWS = [f"z{row}.u" for row in range(6)]
TWO_EACH = [f"z{row}.u{rack}" for row in (1, 2, 3) for rack in (1, 1, 2, 2)]
"""Three rows with two racks of two nodes each."""


@pytest.mark.parametrize("read_only", [range(3, 6), range(6)], ids=["half of them", "all"])
def test_read_only_shards_do_not_make_up_for_writable_ones_that_are_missing(read_only: range) -> None:
    states = {node: {"shard_state": ShardState.READ_ONLY} for node in read_only}
    config, placement = placed("weighted", SIX_ROWS, states)
    with pytest.raises(LogDeviceError, match=rf"the {6 - len(read_only)} writable shards .*6 nodes are needed"):
        placement.select_nodeset(LogId(1), attributes("node:6"))
    assert chooser_of(config, placement, "node:6").pick(config.is_writable) is None


@pytest.mark.parametrize(("replicate", "copies"), [("row:6", 6), ("row:3", 3)])
def test_where_there_are_rows_enough_no_two_copies_share_one(replicate: str, copies: int) -> None:
    drawn = chooser("weighted", SIX_ROWS, replicate).drawn()
    assert all(len(rows_of(SIX_ROWS, nodes)) == len(nodes) == copies for nodes in drawn)


def test_three_rows_are_promised_and_a_fourth_copy_lies_in_another_rack() -> None:
    places = [f"z{row}.u{rack}" for rack in (1, 2) for row in (1, 2, 3)]
    drawn = chooser("weighted", places, "row:3,rack:4").drawn()
    assert all(len(rows_of(places, nodes)) == 3 and len(spread(places, nodes)) == 4 for nodes in drawn)


def test_racks_that_are_not_there_are_an_error_while_fewer_copies_lie_in_all_rows() -> None:
    places = [f"z{row}.u1" for row in (1, 2, 3) for _ in range(2)]
    _, placement = placed("weighted", places)
    with pytest.raises(LogDeviceError, match="6 racks are needed, they are in 3"):
        placement.select_nodeset(LogId(1), attributes("row:2,rack:6"))
    assert all(len(rows_of(places, nodes)) == 3 for nodes in chooser("weighted", places, "row:3").drawn())


@pytest.mark.parametrize(
    ("rows", "racks"), [((1, 2), "112233"), ((1, 2, 3), "1122")], ids=["three racks of two rows", "two of three"]
)
def test_copies_are_uniform_over_rows_and_share_no_rack(rows: tuple[int, ...], racks: str) -> None:
    places = [f"z{row}.u{rack}" for row in rows for rack in racks]
    drawn = chooser("weighted", places, f"row:{len(rows)},rack:6").drawn()
    assert all(set(rows_of(places, nodes).values()) == {6 // len(rows)} for nodes in drawn)
    assert all(len(spread(places, nodes)) == 6 for nodes in drawn)


@pytest.mark.parametrize(
    ("replicate", "left_out", "found"),
    [("row:3,rack:6", [], only(7)), ("row:3,rack:6", [7], {None}), ("row:3,node:6", [7, 1, 3, 9, 11], only(5))],
    ids=["its rack", "its rack is left out", "its row"],
)
def test_a_copy_is_replaced_in_its_rack_or_its_row_when_nothing_else_will_do(
    replicate: str, left_out: list[int], found: set[frozenset[int] | None]
) -> None:
    kept = [0, 4, 8, 2, 10]
    choose = chooser("weighted", TWO_EACH, replicate)
    available = [node for node in range(12) if node not in (6, *left_out)]
    assert set(choose.replaced(kept, up(*available))) == found


def test_a_copy_is_replaced_in_a_rack_that_is_used_where_no_other_has_a_spare() -> None:
    places = ["z1.u1", "z2.u1", "z3.u1", *["z3.u2"] * 6]
    choose = chooser("weighted", places, "row:3,node:6")
    assert set(choose.replaced([0, 1, 2, 4, 5], up(0, 1, 2, 4, 5, 6, 7, 8))) == each_of(6, 7, 8)


@pytest.mark.parametrize(
    ("replicate", "acknowledged", "does"),
    [
        ("row:2", [0, 3], False),
        ("row:2,node:3", [0, 1], False),
        ("row:2", [0, 1], True),
        ("row:4", [0, 1, 2], False),
        ("row:3", [0, 1, 2], True),
        ("row:3", [0, 1, 3], False),
    ],
)
def test_what_acknowledges_an_entry_lies_in_the_rows_that_are_promised(
    replicate: str, acknowledged: list[int], does: bool
) -> None:
    places = [f"z{row}.u{rack}" for rack in (1, 2, 3) for row in (1, 2, 3)]
    assert chooser("weighted", places, replicate).can_replicate(acknowledged) is does


@pytest.mark.parametrize(
    ("nodes", "does"),
    [
        ([], False),
        ([0, 1, 2], False),
        ([0, 1, 3], True),
        ([0, 3, 6], True),
        ([0, 3], False),
        ([1, 2, 3], False),
        ([0, 3, 6, 7, 8], True),
    ],
)
def test_copies_satisfy_a_property_of_rows_and_racks(nodes: list[int], does: bool) -> None:
    places = [f"z{row}.u{rack}" for row in (1, 2, 3) for rack in (1, 2, 2)]
    assert chooser("weighted", places, "row:2,rack:3").can_replicate(nodes) is does


def test_single_copies_and_their_replacements_go_by_capacity() -> None:
    choose = chooser("weighted", ["z1.u1", "z1.u2", "z2.u1", "z2.u2"], "node:1", nodes=capacities(1, 1, 1, 10))
    shares = choose.shares()
    assert shares[3] / shares[2] == pytest.approx(10)
    found = choose.replaced([], up(2, 3), draws=3000)
    assert found[frozenset({3})] / found[frozenset({2})] == pytest.approx(10, rel=0.25)


def test_a_wish_that_cannot_be_met_gives_way_and_what_is_left_out_stays_so() -> None:
    places = ["z1.u1"] * 3 + [""] + ["z1.u1"]
    choose = chooser("rack-aware", places, "node:4", min_racks=4)
    assert set(choose.drawn(up(0, 1, 2, 3))) == only(0, 1, 2, 3)
    assert choose.pick(up(0, 1, 2)) is None
    assert set(choose.replaced([0, 1, 2], up(0, 1, 2, 3))) == only(3)
    assert set(choose.replaced([0, 1, 2], up(0, 1, 2))) == {None}
