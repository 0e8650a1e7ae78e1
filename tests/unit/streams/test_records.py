"""Batches of streams: what is cut from those of the log, transaction ids and numbers."""

from __future__ import annotations

import pytest

from client.guards import Position
from client.read.batch import RecordBatch
from client.read.items import DataLoss, Gap, GapKind, RecordRun
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, compose_lsn
from logdevice_py.core.units import Timestamp
from streams.attributes import TransactionIds
from streams.records import StreamBatch, within

LOG = LogId(7)


def at(esn: int, offset: int = 0) -> Position:
    return Position(LSN(compose_lsn(1, esn)), offset)


def a_batch() -> RecordBatch:
    batch = RecordBatch(LOG)
    batch.add_records([b"a", b"b", b"c"], RecordRun(at(1).lsn, Timestamp(10), 0, 3, [b"\0" * 7 + b"\1", None, b"k"]))
    batch.add_gap(Gap(GapKind.HOLE, at(2).lsn, at(2).lsn))
    batch.add_records([None, b"e"], RecordRun(at(3).lsn, Timestamp(20), 0, 2))
    batch.add_gap(Gap(GapKind.DATALOSS, at(4).lsn, at(4).lsn, DataLoss(True, ())))
    batch.add_records([b"f"], RecordRun(at(5).lsn, Timestamp(30), 0, 1))
    return batch


@pytest.mark.parametrize(
    ("first", "until", "payloads"),
    [
        (at(1), at(9), [b"a", b"b", b"c", None, b"e", b"f"]),
        (at(1, 1), at(9), [b"b", b"c", None, b"e", b"f"]),
        (at(1, 3), at(9), [None, b"e", b"f"]),
        (at(2), at(3, 1), [None]),
        (at(1, 1), at(1, 2), [b"b"]),
        (at(1, 2), at(1, 1), []),
        (at(5, 1), at(9), []),
        (at(1), at(1), []),
    ],
)
def test_a_part_of_a_batch(first: Position, until: Position, payloads: list[bytes | None]) -> None:
    cut = within(a_batch(), first, until)
    assert cut.payloads == payloads
    assert [gap.kind for gap in cut.gaps] == [GapKind.HOLE, GapKind.DATALOSS]
    assert all(
        first <= Position(LSN(lsn), offset) < until for lsn, offset in zip(cut.lsns, cut.batch_offsets, strict=True)
    )


def test_records_of_a_batch() -> None:
    batch = StreamBatch(a_batch(), TransactionIds.WRITER, 100)
    assert [(record.payload, record.txid, record.sequence_id) for record in batch] == [
        (b"a", 1, 100),
        (b"b", None, 101),
        (b"c", None, 102),
        (None, None, 103),
        (b"e", None, 104),
        (b"f", None, None),  # how many are lost before it is not known
    ]
    assert (len(batch), bool(batch), batch.last) == (6, True, at(5))
    assert [loss.lo for loss in batch.losses] == [at(4).lsn]
    items = list(batch.items())
    assert isinstance(items[5], Gap)
    assert [record.txid for record in StreamBatch(a_batch(), TransactionIds.TIME, None)] == [10, 10, 10, 20, 20, 30]


def test_positions_are_ordered_and_written_as_they_are_read() -> None:
    assert sorted([at(2), at(1, 3), at(1)]) == [at(1), at(1, 3), at(2)]
    assert Position.parse("e1n2+3") == at(2, 3)
    assert Position.parse(" e1n2 ") == at(2)
    assert (at(2, 3).epoch, at(2, 3).esn, at(2, 3).following) == (1, 2, at(2, 4))
    for text in ("e1n2+", "e1n2+-1", "e1n2+x", "n2+1", "", "e1n2+4294967295"):
        with pytest.raises(ValueError, match=r"is no|range"):
            Position.parse(text)
