"""What a janitor finds to do: follows from the state, the segments of the log, and the time."""

from __future__ import annotations

from typing import Any

import pytest

from client.guards import START, Position
from client.look_up.segments import LogSegment, SegmentState
from client.replica.commands import StateVersion
from logdevice_py.core.ids import TREE_LOG_ID_MIN, LogId
from logdevice_py.core.lsn import ESN_MAX, LSN, Lsn, compose_lsn
from logdevice_py.core.units import Timestamp
from streams.attributes import StreamAttributes
from streams.cold.copies import ColdCopy
from streams.state import StreamEntry, StreamPhase
from streams.upkeep.commands import TrimCause
from streams.upkeep.planning import copies_to_remove, finished_segments, next_to_copy, next_trim
from streams.upkeep.segment_copy import SegmentCopy
from streams.upkeep.segments import StreamSegmentState, listed_stream_segments, parts_to_count
from streams.upkeep.state import StreamUpkeep

LOG = LogId(TREE_LOG_ID_MIN)
CLUSTER = "36b1105d-e131-4a7a-b688-7cdb5ecf28d2"


def lsn(epoch: int, esn: int) -> LSN:
    return LSN(compose_lsn(epoch, esn))


def segment(
    epoch: int, *, last: int | None = 9, completed: int | None = None, state: SegmentState | None = None
) -> LogSegment:
    state = state or (SegmentState.COMPLETED if completed is not None else SegmentState.IN_PROGRESS)
    known = state is not SegmentState.UNKNOWN
    return LogSegment(
        epoch,
        state,
        lsn(epoch, 1),
        lsn(epoch, last) if last is not None else None,
        *((9, 9, 90) if known else (None, None, None)),
        Timestamp(epoch * 10),
        Timestamp(epoch * 10 + 5),
        None if completed is None else Timestamp(completed),
        None,
        None,
        0,
        known,
        LSN(0),
    )


def stream(
    *, min_active: Position = START, upkeep: StreamUpkeep | None = None, **options: Any
) -> tuple[StreamEntry, StreamAttributes]:
    attributes = StreamAttributes(**options)
    made = StreamEntry(1, "a", attributes.mapping(), {}, StateVersion(Lsn(1), 0), StreamPhase.LIVE, LOG, min_active)
    made.truncations = () if min_active == START else ((min_active, Timestamp(100)),)
    made.upkeep = upkeep or StreamUpkeep()
    return made, attributes


def copied(*spans: tuple[LSN, LSN]) -> tuple[SegmentCopy, ...]:
    return tuple(
        SegmentCopy(
            ColdCopy(CLUSTER, LOG, "a1", first, last, "0" * 64, 1, 10, 1, 4, 40, 7), Timestamp(last.epoch * 10 + 9)
        )
        for first, last in spans
    )


SEGMENTS = [segment(1, completed=19), segment(3, completed=39), segment(4, last=4)]


@pytest.mark.parametrize(
    ("options", "now", "expected"),
    [
        ({"ttl_us": 10}, 28, None),
        ({"ttl_us": 10}, 29, (lsn(1, 9), TrimCause.EXPIRED)),
        ({"ttl_us": 10}, 1000, (lsn(3, 9), TrimCause.EXPIRED)),  # never the one in progress
        ({"ttl_us": 10, "cold": "file:///c"}, 1000, None),
        (
            {"ttl_us": 10, "cold": "file:///c", "upkeep": StreamUpkeep(copied_to=lsn(1, 9))},
            1000,
            (lsn(1, 9), TrimCause.EXPIRED),
        ),
        ({"ttl_us": 10, "upkeep": StreamUpkeep(trimming_to=lsn(3, 9))}, 1000, None),
        ({"truncated_retention_us": 7, "min_active": Position(lsn(3, 5), 2)}, 106, None),
        ({"truncated_retention_us": 7, "min_active": Position(lsn(3, 5), 2)}, 107, (lsn(3, 4), TrimCause.TRUNCATED)),
        ({"truncated_retention_us": 7, "min_active": Position(lsn(2, 1), 0)}, 107, (lsn(1, 9), TrimCause.TRUNCATED)),
        ({"truncated_retention_us": 7, "min_active": Position(lsn(1, 77), 0)}, 107, (lsn(1, 9), TrimCause.TRUNCATED)),
        ({"truncated_retention_us": 7, "min_active": Position(lsn(4, 3), 0)}, 107, (lsn(4, 2), TrimCause.TRUNCATED)),
        ({"min_active": Position(lsn(3, 5), 0)}, 1 << 60, None),
        (
            {"min_active": Position(lsn(3, 5), 0), "ttl_us": 10, "cold": "file:///c"},
            1000,
            (lsn(3, 4), TrimCause.EXPIRED),
        ),
        ({}, 1 << 60, None),
    ],
)
def test_up_to_where_is_trimmed(options: dict[str, Any], now: int, expected: Any) -> None:
    entry, attributes = stream(**options)
    assert next_trim(entry, attributes, SEGMENTS, Timestamp(now)) == expected


def test_what_is_over_and_when() -> None:
    unknown = segment(2, last=None, state=SegmentState.UNKNOWN)
    found = finished_segments([segment(1, completed=19), unknown, segment(3, completed=39), segment(4)], None)
    assert [(each.last, each.completed) for each in found] == [
        (lsn(1, 9), 19),
        (lsn(2, ESN_MAX), 39),  # no later than the next one
        (lsn(3, 9), 39),
    ]
    (last,) = finished_segments([segment(4, last=4)], lsn(4, 4))
    assert (last.last, last.completed) == (lsn(4, 4), 45)
    # what the segment holds was told before the end was made
    assert finished_segments([segment(4, last=4)], lsn(4, 6)) == []
    assert finished_segments([segment(4, last=4)], lsn(5, 1)) == []


def test_what_is_copied_next_and_what_is_deleted() -> None:
    finished = finished_segments(SEGMENTS, None)
    entry, _ = stream(cold="file:///c")
    assert next_to_copy(entry, finished) == finished[0]
    for gone in (StreamUpkeep(copied_to=lsn(1, 9)), StreamUpkeep(trimming_to=lsn(3, 4), copied_to=lsn(1, 9))):
        entry.upkeep = gone
        assert next_to_copy(entry, finished) == finished[1]
    entry.upkeep = StreamUpkeep(copied_to=lsn(3, 9))
    assert next_to_copy(entry, finished) is None
    kept = StreamUpkeep(copies=copied((lsn(0, 1), lsn(1, 9)), (lsn(1, 10), lsn(3, 9))))
    entry, attributes = stream(cold="file:///c", cold_ttl_us=10, upkeep=kept)
    assert [copies_to_remove(entry, attributes, Timestamp(now)) for now in (28, 29, 49)] == [None, lsn(1, 9), lsn(3, 9)]


def test_segments_in_copies_and_in_the_log() -> None:
    upkeep = StreamUpkeep(lsn(1, 9), lsn(3, 9), copied((LSN(1), lsn(1, 9)), (lsn(1, 10), lsn(3, 9))))
    entry, _ = stream(cold="file:///c", upkeep=upkeep)
    found = listed_stream_segments(entry, SEGMENTS[1:])
    assert [(each.number, each.state.name, each.is_copied) for each in found] == [
        (1, "COLD", True),
        (3, "COMPLETED", True),
        (4, "IN_PROGRESS", False),
    ]
    until = Position(lsn(4, 5), 0)
    parts = parts_to_count(found, Position(LSN(1), 0), until)
    assert [part.records for part in parts] == [4, 9, None]
    parts = parts_to_count(found, Position(lsn(3, 2), 0), until)
    assert [(part.first, part.records) for part in parts] == [(Position(lsn(3, 2), 0), None)]
    entry.min_active = Position(lsn(3, 2), 0)
    states = [each.state for each in listed_stream_segments(entry, SEGMENTS[1:])]
    assert states[:2] == [StreamSegmentState.TRUNCATED, StreamSegmentState.TRUNCATED_IN_PART]
