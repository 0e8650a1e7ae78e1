from __future__ import annotations

from client.read.batch import RecordBatch
from client.read.items import CorruptRecord, DataLoss, Gap, GapKind, Record, RecordRun
from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import LSN, compose_lsn
from logdevice_py.core.units import Timestamp
from tests.unit.client.read.fakes import LOG


def run_of(esn: int, offset: int, count: int) -> RecordRun:
    return RecordRun(compose_lsn(1, esn), Timestamp(esn * 100), offset, count)


def gap(kind: GapKind, lo: int, hi: int) -> Gap:
    return Gap(kind, LSN(compose_lsn(1, lo)), LSN(compose_lsn(1, hi)))


def test_columns_are_built_from_runs() -> None:
    batch = RecordBatch(LOG)
    batch.add_records([b"a", b"b"], run_of(1, 3, 2))
    batch.add_records([b"c"], run_of(2, 0, 1))
    assert batch.lsns == [compose_lsn(1, 1)] * 2 + [compose_lsn(1, 2)]
    assert batch.batch_offsets == [3, 4, 0]
    assert batch.timestamps == [100, 100, 200]
    assert len(batch) == 3


def test_items_come_in_log_order_with_gaps_in_their_places() -> None:
    batch = RecordBatch(LOG)
    batch.add_gap(gap(GapKind.TRIM, 1, 2))
    batch.add_records([b"a", None], run_of(3, 0, 2))
    batch.add_gap(gap(GapKind.HOLE, 4, 4))
    batch.add_gap(gap(GapKind.BRIDGE, 5, 9))
    items = list(batch)
    assert [type(item) for item in items] == [Gap, Record, CorruptRecord, Gap, Gap]
    assert items[2] == CorruptRecord(LOG, LSN(compose_lsn(1, 3)), 1, Timestamp(300))
    assert str(items[1].lsn) == "e1n3"  # type: ignore[union-attr]
    assert [record.payload for record in batch.records()] == [b"a"]


def test_touching_gaps_of_one_kind_are_one() -> None:
    batch = RecordBatch(LOG)
    batch.add_gap(gap(GapKind.HOLE, 1, 2))
    batch.add_gap(gap(GapKind.HOLE, 3, 3))
    batch.add_records([b"a"], run_of(4, 0, 1))
    batch.add_gap(gap(GapKind.HOLE, 5, 5))
    assert batch.gaps == [gap(GapKind.HOLE, 1, 3), gap(GapKind.HOLE, 5, 5)]


def test_a_batch_of_gaps_alone_is_not_empty() -> None:
    batch = RecordBatch(LOG)
    assert not batch
    batch.add_gap(gap(GapKind.HOLE, 1, 2))
    assert batch
    assert len(batch) == 0


def test_a_joined_loss_has_what_speaks_for_both_parts() -> None:
    first, second = DataLoss(True, (ShardId(2),)), DataLoss(False, (ShardId(1), ShardId(2)))
    both = DataLoss(False, (ShardId(1), ShardId(2)))
    for losses, expected in (
        ((first, second), both),
        ((first, None), first),
        ((None, second), second),
        ((None, None), None),
    ):
        lo, hi = (Gap(GapKind.DATALOSS, LSN(at), LSN(at), loss) for at, loss in enumerate(losses, 1))
        joined = lo.joined(hi)
        assert joined == Gap(GapKind.DATALOSS, LSN(1), LSN(2))
        assert joined is not None
        assert joined.loss == expected


def test_gaps_apart_or_of_two_kinds_are_not_joined() -> None:
    assert gap(GapKind.HOLE, 1, 2).joined(gap(GapKind.HOLE, 4, 4)) is None
    assert gap(GapKind.HOLE, 1, 2).joined(gap(GapKind.BRIDGE, 3, 3)) is None
