"""Who gets which stream: balanced, with no move that is not needed, and the same from any order of names."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from streams.subscriptions.assignment import assign

MEMBERS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)
HOLDERS = st.dictionaries(
    st.integers(0, 30).map(lambda number: f"s{number}"), st.one_of(st.none(), st.sampled_from("abcdefg"))
)


def moves_needed(holders: dict[str, str | None], members: list[str]) -> int:
    """Tries each choice of those who get one stream more."""
    share, left = divmod(len(holders), len(members))
    held = {name: sum(holder == name for holder in holders.values()) for name in members}
    return min(
        sum(max(0, count - share - (name in larger)) for name, count in held.items())
        for larger in combinations(members, left)
    )


@given(HOLDERS, MEMBERS)
def test_it_is_balanced_and_moves_what_must_move(holders: dict[str, str | None], members: list[str]) -> None:
    given_to = assign(holders, members)
    if not members:
        assert given_to == {}
        return
    assert set(given_to) == set(holders)
    counts = [sum(member == name for member in given_to.values()) for name in members]
    assert max(counts) - min(counts) <= 1
    moved = sum(holder in members and given_to[stream] != holder for stream, holder in holders.items())
    assert moved == moves_needed(holders, members)


@given(HOLDERS, MEMBERS, st.randoms())
def test_the_order_of_names_does_not_matter(holders: dict[str, str | None], members: list[str], rng: object) -> None:
    backwards = dict(reversed(list(holders.items())))
    assert assign(holders, members) == assign(backwards, members[::-1])


def test_a_member_that_joins_takes_its_share_and_no_more() -> None:
    holders: dict[str, str | None] = {f"s{number}": "ab"[number % 2] for number in range(10)}
    given_to = assign(holders, ["a", "b", "c"])
    assert sorted(given_to.values()) == ["a"] * 4 + ["b"] * 3 + ["c"] * 3
    assert sum(given_to[stream] != holder for stream, holder in holders.items()) == 3
