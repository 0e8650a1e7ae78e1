from __future__ import annotations

import itertools
from collections import Counter

from logdevice_py.core.units import SECOND, Micros
from logdevice_py.runtime.loop_shares import NODES_FACTOR, LoopShare, LoopShares

TURN, CLIENTS, CREDIT = 500, 1_000, 5_000


class Loop:
    """An event loop whose time passes as frames are handled."""

    def __init__(self) -> None:
        self.now = Micros(10 * SECOND)
        self.shares = LoopShares(
            turn_us=TURN, clients_turn_us=CLIENTS, credit_us=CREDIT, share_percent=5, greedy_percent=10
        )
        self.handled: list[tuple[str, int]] = []

    def connect(self, name: str, *, is_client: bool = True) -> LoopShare:
        return self.shares.arrive(name, self.now, is_client=is_client)

    def pass_time(self, us: int) -> None:
        self.now = Micros(self.now + us)

    def come(self, share: LoopShare, us: int) -> bool:
        """Frames come that take so long together. True: the connection waits."""
        used = min(us, max(1, self.shares.may_use(share, self.now)))
        self.pass_time(used)
        self.handled.append((share.connection, used))
        return self.shares.use(share, used, self.now, more=used < us)

    def turn(self, us: int = 1 << 30) -> list[str]:
        """A turn in which all that stand in line have so much to be handled; who went on."""
        self.shares.begin_turn()
        gone = []
        while (share := self.shares.next(self.now)) is not None:
            gone.append(share.connection)
            self.come(share, us)
        return gone


def full_credit(loop: Loop, share: LoopShare) -> None:
    loop.pass_time(200_000)
    loop.shares.may_use(share, loop.now)
    assert share.credit == CREDIT


def test_a_client_is_served_for_a_bounded_time_and_then_in_the_next_turn() -> None:
    loop = Loop()
    share = loop.connect("a")
    assert loop.come(share, 10_000)
    assert loop.handled == [("a", TURN)]
    assert loop.shares.wait_us(loop.now) == 0
    assert loop.turn() == ["a", "a"]
    assert sum(used for _, used in loop.handled) == TURN + CLIENTS


def test_all_clients_together_get_a_bounded_time_of_a_turn_each_the_same() -> None:
    loop = Loop()
    shares = [loop.connect(name) for name in "abcdef"]
    loop.pass_time(200_000)
    for share in shares:
        loop.come(share, 1 << 30)
    assert [used for _, used in loop.handled] == [TURN, TURN, 1, 1, 1, 1]
    turns = [loop.turn() for _ in range(6)]
    assert all(len(turn) == 2 for turn in turns)
    assert Counter(itertools.chain.from_iterable(turns)) == dict.fromkeys("abcdef", 2)


def test_who_has_credit_is_served_at_once_beside_a_client_that_has_none() -> None:
    loop = Loop()
    greedy, honest = loop.connect("greedy"), loop.connect("honest")
    full_credit(loop, honest)
    loop.come(greedy, 1 << 30)
    for _ in range(20):
        loop.turn()
    assert greedy.is_waiting
    assert not loop.come(honest, 100)
    assert loop.handled[-1] == ("honest", 100)


def test_who_has_credit_goes_first_when_it_must_wait() -> None:
    loop = Loop()
    greedy, honest = loop.connect("greedy"), loop.connect("honest")
    full_credit(loop, honest)
    loop.come(greedy, 1 << 30)
    for _ in range(20):
        loop.turn()
    assert loop.come(honest, 1_200)
    assert loop.turn(700)[:2] == ["honest", "honest"]


def test_greedy_clients_get_a_small_part_of_the_time_while_others_are_served() -> None:
    loop = Loop()
    greedy, honest = [loop.connect(f"greedy {number}") for number in range(3)], loop.connect("honest")
    for share in greedy:
        loop.come(share, 1 << 30)
    for _ in range(30):
        loop.turn()
    loop.shares.begin_turn()
    began, used = loop.now, 0
    for _ in range(1_000):
        assert not loop.come(honest, 20)
        loop.pass_time(1_000)
        loop.handled.clear()
        loop.turn()
        used += sum(spent for name, spent in loop.handled if name != "honest")
    assert 0.08 < used / (loop.now - began) <= 0.1
    assert len({share.credit for share in greedy}) == 1, "they have the same"


def test_greedy_clients_get_everything_while_nobody_else_is_served() -> None:
    loop = Loop()
    share = loop.connect("greedy")
    loop.come(share, 1 << 30)
    loop.pass_time(SECOND)
    began = loop.now
    loop.handled.clear()
    for _ in range(1_000):
        assert loop.shares.wait_us(loop.now) == 0
        loop.turn()
    assert sum(used for _, used in loop.handled) == loop.now - began == 1_000 * CLIENTS


def test_a_client_without_credit_does_not_wait_while_nobody_else_is_served() -> None:
    loop = Loop()
    lone = loop.connect("lone")
    for _ in range(1_000):
        assert not loop.come(lone, 100)
        loop.shares.begin_turn()
    assert lone.credit == -CREDIT
    loop.come(loop.connect("other"), 1)
    assert loop.come(lone, 100)


def test_credit_grows_while_nothing_waits_and_not_in_line() -> None:
    loop = Loop()
    share = loop.connect("a")
    loop.come(share, 1 << 30)
    for _ in range(20):
        loop.turn()
    loop.come(loop.connect("other"), 1)
    assert share.credit == -CREDIT
    loop.pass_time(SECOND)
    assert loop.turn(10) == ["a"], "in line it does not grow"
    assert share.credit == -CREDIT
    while share.is_waiting:
        loop.turn(10)
    loop.pass_time(2 * CREDIT * 20)
    assert not loop.come(share, 100)
    assert share.credit == CREDIT - 100


def test_one_frame_at_a_time_is_no_way_around() -> None:
    loop = Loop()
    greedy, honest = loop.connect("greedy"), loop.connect("honest")
    began = loop.now
    for _ in range(10_000):
        loop.come(honest, 1)
        if not greedy.is_waiting:
            loop.come(greedy, 1)
        loop.pass_time(8)
        loop.turn(1)
    used = sum(spent for name, spent in loop.handled if name == "greedy")
    assert used < 0.11 * (loop.now - began) + 2 * TURN


def test_nodes_go_first_and_need_no_credit() -> None:
    loop = Loop()
    client, node = loop.connect("client"), loop.connect("node", is_client=False)
    loop.come(client, 1 << 30)
    loop.come(node, 1 << 30)
    assert loop.handled == [("client", TURN), ("node", NODES_FACTOR * TURN)]
    for _ in range(50):
        loop.handled.clear()
        assert loop.turn() == ["node", "node", "client", "client"]
        assert sum(used for name, used in loop.handled if name == "node") == NODES_FACTOR * CLIENTS


def test_a_connection_that_comes_to_count_as_a_node_s_goes_on_in_that_line_once() -> None:
    loop = Loop()
    client, later = loop.connect("client"), loop.connect("later")
    loop.come(client, 1 << 30)
    loop.come(later, 1 << 30)
    loop.shares.promote(later)
    loop.handled.clear()
    assert loop.turn(1) == ["later", "client"]
    assert loop.handled == [("later", 1), ("client", 1)]
    assert loop.come(later, 1 << 30), "it waits anew"
    loop.handled.clear()
    assert loop.turn() == ["later", "later"]
    assert sum(used for _, used in loop.handled) == NODES_FACTOR * CLIENTS


def test_a_connection_that_is_gone_is_skipped() -> None:
    loop = Loop()
    first, second = loop.connect("first"), loop.connect("second")
    loop.come(first, 1 << 30)
    loop.come(second, 1 << 30)
    loop.shares.leave(first)
    assert loop.turn() == ["second", "second"]
    loop.shares.leave(second)
    assert loop.turn() == []
    assert loop.shares.wait_us(loop.now) is None
