"""Where the bytes of a log are thought to be."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from client.read.items import Gap, GapKind
from client.read.settings import ReadSettings
from client.spark import survey as surveys
from client.spark.ranges import LogRange, Segment, cut
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, compose_lsn
from tests.unit.client.spark.fakes import ListedReader

LOG = LogId(1)
CLIENT: Any = SimpleNamespace(read_settings=ReadSettings())
Items = list[tuple[int, int] | Gap]


@pytest.fixture
def items(monkeypatch: pytest.MonkeyPatch) -> Items:
    contents: Items = []
    monkeypatch.setattr(
        surveys, "Reader", lambda client, log, first, until, settings: ListedReader(log, first, until, contents)
    )
    return contents


def fill(items: Items, epochs: list[tuple[int, int]]) -> int:
    """(entries, records of each) of epochs from 1 on, with bridges between them; the last LSN."""
    last = 0
    for epoch, (count, records) in enumerate(epochs, start=1):
        items.append(Gap(GapKind.BRIDGE, LSN(last + 1), LSN(compose_lsn(epoch, 0))))
        items.extend((compose_lsn(epoch, esn), records) for esn in range(1, count + 1))
        last = compose_lsn(epoch, count)
    return last


@pytest.mark.parametrize("epochs", [[(1, 5)], [(500, 2), (3, 2), (0, 0), (900, 2)], [(40, 1)] * 5])
async def test_segments_lie_on_the_entries_of_each_epoch(items: Items, epochs: list[tuple[int, int]]) -> None:
    hi = fill(items, epochs)
    by_epoch: dict[int, list[Segment]] = {}
    stretches = await surveys.survey(CLIENT, LOG, 1, hi)
    for stretch in stretches:
        by_epoch.setdefault(stretch.segment.lo >> 32, []).append(stretch.segment)
    assert [stretch.since for stretch in stretches] == [stretch.segment.lo for stretch in stretches], (
        "as ListedReader has it"
    )
    assert list(by_epoch) == [epoch for epoch, (count, _) in enumerate(epochs, start=1) if count]
    for epoch, segments in by_epoch.items():
        count, records = epochs[epoch - 1]
        assert segments[0].lo == compose_lsn(epoch, 1)
        assert all(one.hi + 1 == other.lo for one, other in pairwise(segments))
        length = segments[-1].hi - segments[0].lo + 1
        assert count - max(4, count // 8) <= length <= count
        assert sum(each.bytes for each in segments) == pytest.approx(length * records)


async def test_entries_that_grow_within_an_epoch_show_in_its_stretches(items: Items) -> None:
    items.extend((esn, 1 if esn <= 10_000 else 9) for esn in range(1, 20_001))
    stretches = await surveys.survey(CLIENT, LOG, 1, 20_000)
    assert [round(each.segment.bytes / (each.segment.hi - each.segment.lo + 1)) for each in stretches] == [1] * 4 + [
        9
    ] * 4


async def test_epochs_that_are_too_many_to_look_into_stand_for_each_other(items: Items) -> None:
    hi = fill(items, [(10, 100)] * 100)
    segments = tuple(each.segment for each in await surveys.survey(CLIENT, LOG, 1, hi))
    assert len(segments) <= 32
    assert segments[-1].hi == hi
    assert sum(each.bytes for each in segments) == pytest.approx(100 * 10 * 100, rel=0.6)
    pieces = cut([LogRange(LOG, "/group", 1, hi, segments)], bytes_max=1 << 40, partitions_min=10)
    sizes = [
        sum(1 for item in items if not isinstance(item, Gap) and piece.lo <= item[0] <= piece.hi) for piece in pieces
    ]
    assert len(sizes) == 10
    assert sum(sizes) == 1000
    assert max(sizes) <= 250


async def test_a_range_without_entries_has_no_segments(items: Items) -> None:
    items.append(Gap(GapKind.HOLE, LSN(1), LSN(9)))
    assert await surveys.survey(CLIENT, LOG, 1, 9) == ()


async def test_oldest_is_behind_what_was_trimmed_and_nothing_else(items: Items) -> None:
    items += [Gap(GapKind.BRIDGE, LSN(1), LSN(4)), Gap(GapKind.TRIM, LSN(5), LSN(7)), Gap(GapKind.HOLE, LSN(8), LSN(8))]
    items += [(9, 1), Gap(GapKind.TRIM, LSN(10), LSN(11))]
    assert await surveys.oldest(CLIENT, LOG, 11) == 8
    items[1] = Gap(GapKind.DATALOSS, LSN(5), LSN(7))
    assert await surveys.oldest(CLIENT, LOG, 11) == 1
