"""Shards that are much slower than the others are left out, and only those."""

from __future__ import annotations

from collections.abc import Callable

from client.read.settings import ReadSettings
from logdevice_py.core.lsn import compose_lsn
from tests.unit.client.read.fakes import BRIDGE, Harness, lsn, make_image, make_interval, shard

SECOND = 1_000_000
MILLISECOND = 1_000
STEP = 50 * MILLISECOND


class Readers:
    """A stream whose shards go through a log at paces of their own.

    In a step a shard sends `paces[node]` entries, or looks at `look` LSNs that are not its own (as many as it could send if None). Entry e1nX
    belongs to `owner(X)` if that one is not known down, else to the next.
    """

    def __init__(
        self,
        paces: list[float],
        owner: Callable[[int], int] | None = None,
        *,
        look: float | None = None,
        size: int = 1000,
        consume: bool = True,
        copies: int = 2,
        **settings: int,
    ) -> None:
        self.nodes = len(paces)
        self.paces = paces
        self.owner = owner or (lambda esn: esn % self.nodes)
        self.look = look
        self.size = size
        self.consume = consume
        self.saved = [0.0] * self.nodes
        self.seen: dict[int, int] = {}
        self.h = Harness(
            self.nodes,
            copies,
            first=lsn(1, 1),
            until=lsn(3, 0),
            settings=ReadSettings(window_lsns=200, gap_grace_period_us=0, **settings),
        ).begin()
        self.released = 0
        self.rewinds: list[tuple[int, list[int]]] = []
        self._note()

    def _note(self) -> None:
        for node in range(self.nodes):
            start = self.h.starts[shard(node)]
            if self.seen.get(node) != start.filter_version:
                self.seen[node] = start.filter_version
                self.h.started(shard(node), last_released=lsn(1, 1_000_000_000))
                if not node:
                    self.rewinds.append((self.h.now, self.h.known_down(0)))

    def _belongs(self, esn: int, node: int) -> bool:
        down = self.h.known_down(node)
        order = [(self.owner(esn) + step) % self.nodes for step in range(self.nodes)]
        return order.index(node) <= next(place for place, other in enumerate(order) if other not in down)

    def step(self) -> None:
        """A moment: every shard does its share, the application takes what there is."""
        h = self.h
        for node in range(self.nodes):
            self._note()  # what another shard sent may have led to a rewind
            sender, version = h.stream._read_set.senders[shard(node)], h.version(node)
            ship = 1 / self.paces[node]
            time = min(self.saved[node] + 1, max(1.0, ship))
            esn = sender.next_lsn & 0xFFFFFFFF
            entries = []
            while esn <= sender.window_high & 0xFFFFFFFF:
                mine = self._belongs(esn, node)
                cost = ship if mine or self.look is None else 1 / self.look
                if cost > time + 1e-9:
                    break
                time -= cost
                if mine:
                    entries.append((lsn(1, esn), make_image(lsn(1, esn), [b"x" * self.size])))
                esn += 1
            self.saved[node] = time
            if entries:
                h.records(node, *entries)
            if h.version(node) == version and sender.next_lsn < lsn(1, esn):
                h.gap(node, sender.next_lsn, lsn(1, esn - 1))
        if self.consume:
            h.take(100_000)
        h.advance(STEP)
        self._note()

    def run(self, seconds: float) -> list[int]:
        """Let time pass; who is left out at its end."""
        end = self.h.now + seconds * SECOND
        while self.h.now < end:
            self.step()
        return self.left_out

    @property
    def left_out(self) -> list[int]:
        return self.h.known_down(0)

    @property
    def position(self) -> int:
        return self.h.stream.next_lsn & 0xFFFFFFFF


def test_a_shard_much_slower_than_the_others_is_left_out_and_the_stream_goes_on_at_their_pace() -> None:
    readers = Readers([10, 10, 0.5])
    assert readers.run(11) == [2]
    assert readers.h.is_single_copy(0)
    assert readers.h.metrics.slow_shards == 1
    assert readers.h.metrics.failovers == 0
    before = readers.position
    readers.run(5)
    assert readers.position - before > 800


def test_a_shard_a_little_slower_is_not() -> None:
    readers = Readers([10, 10, 4])
    assert readers.run(60) == []
    assert len(readers.rewinds) == 1


def test_nobody_is_slow_when_all_are() -> None:
    readers = Readers([0.3, 0.3, 0.3])
    assert readers.run(60) == []


def test_a_shard_to_which_a_long_run_of_entries_belongs_is_not_taken_for_slow() -> None:
    """The others only look at the entries, which takes them no time: nobody knows how fast they would send them."""
    readers = Readers([1, 1, 1], lambda esn: 0, look=100, size=10_000)
    assert readers.run(30) == []


def test_nor_is_it_when_the_others_send_their_runs_no_faster() -> None:
    readers = Readers([1, 1, 1], lambda esn: esn // 100 % 3, look=100, size=10_000)
    assert readers.run(60) == []
    assert len(readers.rewinds) == 1


def test_a_shard_that_sends_its_runs_much_slower_than_the_others_theirs_is_left_out() -> None:
    readers = Readers([0.5, 10, 10], lambda esn: (esn // 800 + 1) % 3, look=100)
    assert readers.run(25) == [0]
    assert readers.h.metrics.slow_shards == 1


def test_a_shard_a_little_slower_that_has_more_to_send_is_not() -> None:
    """It owes nine times as long as each of the others, which send three times as fast a third as much."""
    readers = Readers([1, 3, 3], lambda esn: 0 if esn % 50 < 30 else 1 + (esn % 50 - 30) // 10, look=100, size=10_000)
    assert readers.run(60) == []
    assert readers.h.metrics.slow_shards == 0


def test_an_application_that_takes_nothing_makes_nobody_slow() -> None:
    readers = Readers([10, 10, 0.5], consume=False, buffer_bytes=200_000, shard_buffer_bytes_min=1)
    readers.run(60)
    assert readers.h.metrics.slow_shards == 0


def test_waiting_for_the_next_record_of_an_idle_log_makes_nobody_slow() -> None:
    h = Harness(first=lsn(1, 1)).begin()
    for esn in range(1, 60):
        h.records(0, (lsn(1, esn), make_image(lsn(1, esn))))
        h.gap(1, lsn(1, esn), lsn(1, esn))
        h.advance(900 * MILLISECOND)  # node 2 hears of each release when the next entry comes
        h.gap(2, lsn(1, esn), lsn(1, esn))
        h.take()
    assert h.metrics.slow_shards == 0


def test_a_slow_shard_without_which_no_copyset_is_left_stays() -> None:
    readers = Readers([10, 0.5])
    assert readers.run(30) == []
    assert readers.h.is_single_copy(0)


def test_of_two_slow_shards_one_is_left_out_when_the_rest_would_be_too_few_without_both() -> None:
    readers = Readers([10, 10, 10, 0.3, 0.5], copies=4)
    assert readers.run(11) == [3]
    assert readers.h.is_single_copy(0)


def test_it_is_taken_back_when_another_one_fails_and_the_rest_would_be_too_few() -> None:
    readers = Readers([10, 10, 0.5])
    assert readers.run(11) == [2]
    readers.h.down(0)
    readers.h.advance(200 * MILLISECOND)
    assert readers.h.is_single_copy(1)
    assert readers.h.known_down(1) == [0]


def test_a_shard_that_keeps_pace_again_is_taken_back() -> None:
    readers = Readers([10, 10, 0.5], slow_shard_penalty_us=20 * SECOND)
    assert readers.run(6) == [2]
    readers.paces[2] = 10
    assert readers.run(18) == [2]
    assert readers.run(7) == []
    assert readers.run(30) == []
    assert readers.h.metrics.slow_shards == 1


def test_a_shard_that_stays_slow_stays_out() -> None:
    readers = Readers([10, 10, 0.5], slow_shard_penalty_us=10 * SECOND)
    assert readers.run(11) == [2]
    assert readers.run(100) == [2]
    assert readers.h.metrics.slow_shards == 1
    assert len(readers.rewinds) == 2


def test_a_shard_that_is_slow_now_and_then_is_left_out_for_longer_each_time() -> None:
    readers = Readers([10, 10, 0.5], slow_shard_penalty_us=10 * SECOND)
    times = []
    for _ in range(3):
        readers.paces[2] = 0.5
        begin = readers.h.now
        while not readers.left_out:
            readers.step()
            assert readers.h.now - begin < 30 * SECOND
        readers.paces[2] = 10
        begin = readers.h.now
        while readers.left_out:
            readers.step()
            assert readers.h.now - begin < 100 * SECOND
        times.append((readers.h.now - begin) // SECOND)
    first, second, third = times
    assert 10 <= first <= 16
    assert 20 <= second <= 26
    assert 40 <= third <= 46


def test_it_can_be_turned_off() -> None:
    readers = Readers([10, 10, 0.5], slow_shard_factor=0)
    assert readers.run(30) == []


def test_a_slow_shard_is_left_out_in_the_next_interval_too() -> None:
    readers = Readers([10, 10, 0.5])
    readers.run(11)
    h = readers.h
    at = h.stream.next_lsn
    h.started(shard(0), last_released=lsn(2, 9))
    h.history((make_interval(1, [0, 1, 2], 2), make_interval(2, [0, 1, 2], 2, {1: 2})))
    behind = next(member for member, sender in h.stream._read_set.senders.items() if sender.next_lsn <= at)
    h.records(behind >> 8, (at, make_image(at, flags=BRIDGE, wave=9)))
    assert h.starts[shard(0)].first == compose_lsn(2, 1)
    assert h.known_down(0) == [2]
