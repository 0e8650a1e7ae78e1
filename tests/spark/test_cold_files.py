"""Spark reads the files of cold copies as Parquet, without our code."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from client.read.items import Gap
from tests.unit.streams.cold_samples import built, sample


def test_spark_reads_cold_files(spark: SparkSession, tmp_path: Path) -> None:
    items = sample()
    file = built([items[:4], items[4:]])
    path = tmp_path / file.described.name
    path.write_bytes(file.data.to_pybytes())
    frame = spark.read.parquet(str(path))
    rows = frame.where("record_type in ('RECORD', 'CORRUPT')").orderBy("lsn", "batch_offset").collect()
    found = [
        (row.lsn, row.batch_offset, None if row.payload is None else bytes(row.payload), row.transaction_id)
        for row in rows
    ]
    assert found == [
        (entry.lsn, offset, payload, 9 if payload == b"guarded" else None)
        for entry in items
        if not isinstance(entry, Gap)
        for offset, payload in enumerate(entry.records)
    ]
    gaps = frame.where("record_type = 'GAP'").orderBy("gap_lo").collect()
    assert [(row.gap_type, row.gap_lo, row.gap_hi) for row in gaps] == [
        (gap.kind.name, gap.lo, gap.hi) for gap in items if isinstance(gap, Gap)
    ]
    assert frame.agg({"entry_records": "sum"}).collect()[0][0] == file.described.proof.records
