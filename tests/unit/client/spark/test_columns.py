"""From a reader's batches to Arrow."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest

from client.read.arrow_columns import ArrowColumns
from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind, RecordRun
from client.read.proof import Proof
from client.spark.options import SourceOptions
from client.spark.proofs import proof_of
from client.spark.schema import arrow_schema, source_schema
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, compose_lsn
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Timestamp

LOG = LogId(7)


def columns(**options: str) -> ArrowColumns:
    chosen = SourceOptions.of({"cluster": "cluster.toml", "logs": "7", **options})
    return ArrowColumns(arrow_schema(source_schema(chosen)), LOG, "/team/clicks")


def run_of(epoch: int, esn: int, offset: int, count: int) -> RecordRun:
    return RecordRun(compose_lsn(epoch, esn), Timestamp(1_700_000_000_000_000 + esn), offset, count)


def test_each_record_is_a_row_at_its_position() -> None:
    batch = RecordBatch(LOG)
    batch.add_records([b"c", b"d"], run_of(3, 1, 2, 2))
    batch.add_records([b"", None, b"z"], run_of(2**31 - 2, 2**32 - 1, 0, 3))
    rows = columns(includeGaps="true").records(batch).to_pylist()
    assert [(row["lsn"], row["batch_offset"]) for row in rows] == list(
        zip(batch.lsns, batch.batch_offsets, strict=True)
    )
    assert [(row["epoch"], row["esn"]) for row in rows] == [(3, 1)] * 2 + [(2**31 - 2, 2**32 - 1)] * 3
    assert [row["payload"] for row in rows] == [b"c", b"d", b"", None, b"z"]
    assert [row["record_type"] for row in rows] == ["RECORD", "RECORD", "RECORD", "CORRUPT", "RECORD"]
    assert {(row["log_id"], row["log_group"], row["key"], row["gap_type"]) for row in rows} == {
        (7, "/team/clicks", None, None)
    }
    assert rows[0]["timestamp"].timestamp() * 1e6 == 1_700_000_000_000_001


def test_keys_are_those_of_the_records_and_null_for_records_without_one() -> None:
    batch = RecordBatch(LOG)
    batch.add_records([b"a", b"b"], run_of(1, 1, 0, 2))
    keyed = run_of(1, 2, 4, 4)
    keyed.keys = [b"k", None, b"", b"of a damaged record"]
    batch.add_records([b"c", b"d", b"e", None], keyed)
    made = columns(includeGaps="true").records(batch)
    assert made.column("key").to_pylist() == [None, None, b"k", None, b"", None]
    assert made.column("payload").to_pylist() == [b"a", b"b", b"c", b"d", b"e", None]


def test_payloads_are_text_when_that_is_asked_for() -> None:
    batch = RecordBatch(LOG)
    batch.add_records(["füß".encode(), b"", None], run_of(1, 1, 0, 3))
    made = columns(payloadFormat="utf8", columns="payload,lsn").records(batch)
    assert made.schema.names == ["payload", "lsn"]
    assert made.column("payload").to_pylist() == ["füß", "", None]


def test_a_payload_that_is_no_text_is_named() -> None:
    batch = RecordBatch(LOG)
    batch.add_records([b"a"], run_of(1, 1, 0, 1))
    batch.add_records([b"b", b"ab\xff"], run_of(2, 9, 4, 2))
    with pytest.raises(LogDeviceError, match=r"log 7: record 5 of e2n9 is not UTF-8: invalid start byte at byte 2"):
        columns(payloadFormat="utf8").records(batch)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"columns": "lsn,offset"}, "columns: there is no column 'offset'; there are log_id, "),
        ({"columns": "lsn", "includeGaps": "true"}, "choose record_type among the columns"),
        ({"columns": "lsn,record_type", "includeProof": "true"}, "choose the column proof"),
    ],
)
def test_columns_that_cannot_be_chosen(options: dict[str, str], text: str) -> None:
    with pytest.raises(LogDeviceError, match=text):
        columns(**options)


def test_all_batches_have_the_schema_to_the_letter() -> None:
    made = columns(includeGaps="true", includeProof="true")
    expected = arrow_schema(
        source_schema(SourceOptions.of({"cluster": "c", "logs": "7", "includeGaps": "true", "includeProof": "true"}))
    )
    records, with_keys = RecordBatch(LOG), RecordBatch(LOG)
    records.add_records([b"a"], run_of(1, 1, 0, 1))
    keyed = run_of(1, 2, 0, 2)
    keyed.keys = [b"k", None]
    with_keys.add_records([b"b", None], keyed)
    gap = Gap(GapKind.TRIM, LSN(1), LSN(5))
    for batch in (
        made.records(records),
        made.records(with_keys),
        made.gaps([gap]),
        made.proof(Proof(LOG, LSN(1), LSN(0))),
    ):
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema.equals(expected, check_metadata=True)
        batch.validate(full=True)


def test_a_proof_comes_back_from_its_row() -> None:
    gaps = (Gap(GapKind.BRIDGE, LSN(1), LSN(2)), Gap(GapKind.DATALOSS, LSN(9), LSN(9)))
    proof = Proof(LOG, LSN(1), LSN(9), 6, 60, 600, gaps, 2**64 - 3)
    (row,) = columns(includeProof="true").proof(proof).to_pylist()
    assert proof_of(row) == proof
    assert row["record_type"] == "PROOF"


@pytest.mark.parametrize("keys", [None, [b"k", None] * 500])
def test_no_python_frame_runs_for_a_single_record(keys: list[bytes | None] | None) -> None:
    batch = RecordBatch(LOG)
    for esn in range(1, 11):
        run = run_of(1, esn, 0, 1000)
        run.keys = keys
        batch.add_records([b"x" * 100] * 1000, run)
    made = columns(includeGaps="true")
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        table = made.records(batch)
    finally:
        sys.setprofile(None)
    assert table.num_rows == 10_000
    assert calls < 500
