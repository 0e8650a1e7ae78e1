"""What a stream remembers of one shard, of the copies that it holds, and how far its shards may send."""

from __future__ import annotations

import pytest

from client.read.metrics import ReadMetrics
from client.read.read_buffer import ReadBuffer
from client.read.read_set import ReadPosition
from client.read.sender_state import Sender
from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import Generation, NodeId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import Micros
from tests.unit.client.read.fakes import make_image

SHARD = shard_id(NodeId(1))


def sender(*unable: tuple[int, int]) -> Sender:
    made = Sender(SHARD, Generation(1))
    for first, last in unable:
        made.note_unable(Lsn(first), Lsn(last))
    return made


class TestUnable:
    """Ranges of which the silence of a shard says nothing."""

    @pytest.mark.parametrize(
        ("noted", "kept"),
        [
            ([(1, 2), (3, 4)], [(1, 4)]),
            ([(1, 2), (4, 5)], [(1, 2), (4, 5)]),
            ([(1, 9), (4, 5)], [(1, 9)]),
            ([(4, 5), (1, 9)], [(1, 9)]),
            ([(1, 2), (4, 5), (3, 3)], [(1, 5)]),
        ],
    )
    def test_what_touches_is_one(self, noted: list[tuple[int, int]], kept: list[tuple[int, int]]) -> None:
        assert list(sender(*noted).unable) == kept

    def test_of_very_many_the_last_are_one_with_what_lies_between(self) -> None:
        made = sender(*((3 * number, 3 * number) for number in range(1, 1002)))
        assert len(made.unable) == 1000
        assert made.unable[-1] == (3000, 3003)

    def test_both_ends_belong_to_a_range_and_lower_ones_are_forgotten(self) -> None:
        made = sender((2, 3), (6, 7))
        assert [made.is_unable(Lsn(lsn)) for lsn in (1, 2, 3, 4, 5, 6, 7, 8)] == [
            *(False, True, True, False, False, True, True, False)
        ]
        assert not made.unable

    def test_the_next_range_begins_after_the_place(self) -> None:
        made = sender((2, 3), (6, 7))
        assert [made.unable_after(Lsn(lsn)) for lsn in (1, 2, 5, 6, 9)] == [2, 6, 6, 0, 0]


class TestReadBuffer:
    def held(self, buffer: ReadBuffer, esn: int, wave: int = 1) -> bool:
        image = make_image(Lsn(esn), [b"x"], wave=wave)
        return buffer.put(Lsn(esn), buffer.hold(parse_header(image), image, self.sender))

    def test_each_copy_counts_until_it_is_let_go(self) -> None:
        metrics = ReadMetrics()
        buffer, self.sender = ReadBuffer(metrics), sender()
        assert [self.held(buffer, esn) for esn in (5, 3, 4)] == [False, False, False]
        size = self.sender.held
        assert size == metrics.bytes_buffered > 0
        assert self.held(buffer, 4, wave=2), "it replaces another one"
        assert self.sender.held == metrics.bytes_buffered == size
        assert buffer.first() == 3
        buffer.drop_below(4)
        assert (buffer.first(), 3 * self.sender.held) == (4, 2 * size)
        copy = buffer.pop(Lsn(4))
        assert copy is not None
        assert copy.header.wave == 2
        assert (buffer.pop(Lsn(4)), buffer.first()) == (None, 5)
        buffer.let_go(copy)
        buffer.clear()
        assert (self.sender.held, metrics.bytes_buffered, buffer.first()) == (0, 0, None)


class TestWindow:
    def position(self, **more: object) -> ReadPosition:
        position = ReadPosition(Lsn(10), Lsn(1000))
        position.limit = Lsn(100)
        for name, value in more.items():
            setattr(position, name, value)
        return position

    def test_so_many_lsns_from_the_next_on(self) -> None:
        assert self.position().window_high(5, None) == 14

    def test_no_further_than_the_interval(self) -> None:
        assert self.position(limit=Lsn(12)).window_high(5, None) == 12

    def test_what_the_application_has_not_taken_holds_it_up(self) -> None:
        assert self.position().window_high(5, Lsn(8)) == 12
        assert self.position().window_high(5, Lsn(2)) == 9, "nothing more is sent"

    def test_when_something_is_missing_the_whole_interval(self) -> None:
        assert self.position(wide=True).window_high(5, None) == 100


def test_how_far_a_shard_is_away_is_told_by_its_quickest_answer() -> None:
    asked = sender()
    for answered_after in (30, 10, 50):
        asked.note_round_trip(Micros(asked.asked_at + answered_after))
    assert asked.round_trip_us == 10
