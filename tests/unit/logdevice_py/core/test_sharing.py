"""Places that peers share, and queues in which they take turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.core.ids import PeerId
from logdevice_py.core.sharing import Places


def fill(places: Places, peer: PeerId, total: int, each: int = 1 << 30) -> int:
    """Let a peer take all it can get."""
    taken = 0
    while not places.refuses(peer, total, each):
        places.take(peer)
        taken += 1
    return taken


def test_one_peer_takes_a_ninth() -> None:
    assert fill(Places(), PeerId(-1), 900) == 101


def test_whoever_comes_after_greedy_peers_finds_its_part() -> None:
    places, total = Places(), 9000
    taken = [fill(places, PeerId(-1 - peer), total) for peer in range(11)]
    assert taken[10] >= total // 9 * 3 // 10
    assert total - places.taken >= total // 4


@given(st.integers(1, 300), st.integers(1, 300))
def test_never_more_are_taken_than_there_are_and_the_last_ones_can_be_had(total: int, peers: int) -> None:
    places = Places()
    for peer in range(peers):
        fill(places, PeerId(-1 - peer), total)
    assert places.taken <= total
    assert places.refuses(PeerId(-1000), total, total) == (places.taken == total)


def test_a_peer_has_a_limit_of_its_own_and_may_want_several_at_once() -> None:
    places = Places()
    assert fill(places, PeerId(-1), 100, each=7) == 7
    places.give_back(PeerId(-1), 7)
    assert places.taken == places.held(PeerId(-1)) == 0
    assert places.refuses(PeerId(-1), 100, 100, wanted=101)
    assert not places.refuses(PeerId(-1), 100, 100, wanted=100)
