"""Logs as DataFrames: what Spark reads is what was written, whole, once, and fixed when it was planned."""

from __future__ import annotations

import re
import time
from collections import Counter
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from client.client import Client
from client.read.items import Gap, GapKind
from client.read.proof import Proof, merge_gaps
from logdevice_py.core.lsn import LSN
from logdevice_py.spark import proofs
from tests.spark.conftest import RunningCluster


def load(spark: SparkSession, cluster: RunningCluster, logs: str, **options: Any) -> DataFrame:
    return spark.read.format("logdevice").options(cluster=cluster.file, logs=logs, **options).load()


def write(
    cluster: RunningCluster,
    log: int,
    payloads: list[bytes],
    *,
    at_once: int = 5000,
    size_trigger: int = 4096,
    keys: list[bytes | None] | None = None,
) -> list[tuple[int, int]]:
    """Positions in order. No entry holds more than `at_once` records."""

    async def work(client: Client) -> list[tuple[int, int]]:
        positions: list[tuple[int, int]] = []
        async with client.buffered_writer(size_trigger=size_trigger) as writer:
            for start in range(0, len(payloads), at_once):
                own = None if keys is None else keys[start : start + at_once]
                receipts = await writer.append_many(log, payloads[start : start + at_once], keys=own)
                positions += zip(receipts.lsns(), receipts.batch_offsets(), strict=True)
        return positions

    return cluster.do(work)


def proof(cluster: RunningCluster, log: int, until: int, start: int = LSN.OLDEST) -> Proof:
    async def work(client: Client) -> Proof:
        async with client.reader(log, start, until) as reader:
            while await reader.read():
                pass
            return reader.proof()

    return cluster.do(work)


def restart_sequencer(cluster: RunningCluster, log: int) -> None:
    """The log goes on in another epoch."""

    async def node_of(client: Client) -> int:
        return int((await client.sequencer(log)).node)

    node = cluster.do(node_of)

    async def work(nodes: Any) -> None:
        await nodes.kill(node)
        await nodes.start(node)
        await nodes.acquainted()

    cluster.also(work)


def test_every_record_is_a_row_at_its_position_and_later_records_are_not_in_the_frame(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    payloads = [b"record %d" % number for number in range(5000)]
    positions = write(cluster, 1, payloads)
    frame = load(spark, cluster, "1,2", maxBytesPerPartition="16KiB")
    assert frame.rdd.getNumPartitions() > 1
    rows = frame.collect()
    write(cluster, 1, [b"late"])
    assert frame.count() == len(payloads)
    got = {(row.lsn, row.batch_offset): bytes(row.payload) for row in rows}
    assert len(rows) == len(got) == len(payloads)
    assert got == dict(zip(positions, payloads, strict=True))
    assert {(row.log_id, row.log_group, row.epoch << 32 | row.esn, row.key) for row in rows} == {
        (1, rows[0].log_group, lsn, None) for lsn, _ in positions
    }
    assert all(row.timestamp.year >= 2024 for row in rows[:3])
    assert load(spark, cluster, "1").count() == len(payloads) + 1


@pytest.mark.slow
def test_the_proofs_of_the_tasks_add_up_to_the_readers_over_epochs_and_with_a_node_down(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    for epoch in range(3):
        write(cluster, 3, [b"%d of epoch %d" % (number, epoch) for number in range(700)], at_once=20)
        restart_sequencer(cluster, 3)
    write(cluster, 4, [b"x"] * 10)
    frame = load(spark, cluster, "3,4", includeProof=True, includeGaps=True, minPartitions=8)
    assert frame.rdd.getNumPartitions() >= 6
    got = proofs(frame)
    assert got == {log: proof(cluster, log, got[log].last) for log in (3, 4)}
    assert got[3].records == 2100
    gaps = frame.filter("record_type = 'GAP' AND log_id = 3").orderBy("gap_lo").collect()
    told = merge_gaps(Gap(GapKind[row.gap_type], LSN(row.gap_lo), LSN(row.gap_hi)) for row in gaps)
    assert told == got[3].gaps
    assert {row.lsn for row in gaps} == {None}

    cluster.also(lambda nodes: nodes.kill(0))
    try:
        # N0 may have been its sequencer: another one answers when it has recovered the log
        fewer = load(
            spark, cluster, "3", includeProof=True, minPartitions=3, endingLsn=str(got[3].last), requestTimeout="60s"
        )
        assert proofs(fewer) == {3: got[3]}
    finally:
        cluster.also(lambda nodes: nodes.start(0))
        cluster.also(lambda nodes: nodes.acquainted())  # a trim needs every shard


def test_what_was_trimmed_before_is_not_part_of_oldest_and_trimming_a_planned_range_is_told(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    positions = write(cluster, 5, [b"%03d" % number * 100 for number in range(500)], at_once=50)
    first, middle = positions[100][0], positions[300][0]
    cluster.do(lambda client: client.trim(5, first))
    frame = load(spark, cluster, "5", includeProof=True)
    left = sum(lsn > first for lsn, _ in positions)
    assert frame.filter("record_type = 'RECORD'").count() == left
    got = proofs(frame)
    assert got == {5: proof(cluster, 5, got[5].last, first + 1)}
    planned = {on_gap: load(spark, cluster, "5", onGap=on_gap) for on_gap in ("failOnLoss", "report", "skip")}
    for each in planned.values():
        each.rdd.getNumPartitions()

    cluster.do(lambda client: client.trim(5, middle))
    with pytest.raises(Exception, match="was trimmed") as caught:
        planned["failOnLoss"].collect()
    assert "log 5" in str(caught.value)
    assert f"{LSN(first + 1)} to {LSN(middle)}" in str(caught.value)
    rows = planned["report"].collect()
    assert [(row.gap_type, row.gap_lo, row.gap_hi) for row in rows if row.record_type == "GAP"] == [
        ("TRIM", first + 1, middle)
    ]
    remaining = sum(lsn > middle for lsn, _ in positions)
    assert len(rows) - 1 == planned["skip"].count() == load(spark, cluster, "5").count() == remaining


def test_bounds_by_lsn_by_time_and_by_log(spark: SparkSession, cluster: RunningCluster) -> None:
    positions = write(cluster, 6, [b"%03d" % number * 100 for number in range(150)])
    positions += write(cluster, 6, [b"%03d" % number * 100 for number in range(150)])
    write(cluster, 7, [b"seven"] * 30)
    rows = load(spark, cluster, "6").orderBy("lsn", "batch_offset").collect()
    lo, hi = positions[100][0], positions[200][0]

    def counted(**options: Any) -> dict[int, int]:
        frame = load(spark, cluster, "6,7", **options)
        return dict(Counter(row.log_id for row in frame.select("log_id").collect()))

    between = sum(lo <= row.lsn <= hi for row in rows)
    assert counted(startingLsn=str(LSN(lo)), endingLsn=str(hi)).get(6) == between
    bounds = {"startingLsn": f'{{"6": "{LSN(lo)}"}}', "endingLsn": f'{{"/logs/6": "{hi}"}}'}
    assert counted(**bounds) == {6: between, 7: 30}
    when = rows[150].timestamp.replace(tzinfo=UTC)
    assert rows[0].timestamp < rows[150].timestamp
    first_at = rows.index(next(row for row in rows if row.timestamp == rows[150].timestamp))
    since = {"startingTimestamp": f'{{"6": "{when.isoformat()}"}}', "startingLsn": "tail"}
    assert counted(**since) == {6: len(rows) - first_at}
    assert counted(endingTimestamp=f'{{"6": "{when.isoformat()}"}}') == {6: first_at, 7: 30}


def test_chosen_columns_are_the_only_ones_and_other_types_are_refused(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    write(cluster, 8, [b"a", b"b"])
    reader = spark.read.format("logdevice").options(cluster=cluster.file, logs="8")
    frame = reader.schema("payload binary, lsn long").load()
    assert frame.columns == ["payload", "lsn"]
    assert sorted(bytes(row.payload) for row in frame.collect()) == [b"a", b"b"]
    with pytest.raises(Exception, match="payload is binary, not string"):
        reader.schema("payload string").load().collect()
    with pytest.raises(Exception, match="choose record_type"):
        reader.schema("payload binary").option("includeGaps", "true").load().collect()


def test_pushed_filters_leave_the_rows_that_spark_would_leave(spark: SparkSession, cluster: RunningCluster) -> None:
    positions = write(cluster, 9, [b"%03d" % number * 100 for number in range(300)], at_once=50)
    write(cluster, 10, [b"ten"] * 5)
    lo, hi = positions[50][0], positions[250][0]
    when = load(spark, cluster, "9").agg({"timestamp": "max"}).collect()[0][0]
    filters = [
        "log_id IN (10, 77)",
        f"log_id = 9 AND lsn > {lo} AND lsn <= {hi} AND payload IS NOT NULL",
        f"lsn IN ({lo}, {hi})",
        f"timestamp >= TIMESTAMP'{when}'",
        f"timestamp < TIMESTAMP'{when}' AND batch_offset = 0",
        "log_id = 77",
    ]
    kept = [F.expr(each).alias(f"kept{number}") for number, each in enumerate(filters)]
    plain = load(spark, cluster, "9,10").select("log_id", "lsn", "batch_offset", *kept).collect()
    expected = [sorted(row[:3] for row in plain if row[f"kept{number}"]) for number in range(len(filters))]
    with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        load(spark, cluster, "9", pushdown=True).count()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for each, rows in zip(filters, expected, strict=True):
            pushed = load(spark, cluster, "9,10", pushdown=True).filter(each)
            assert sorted(map(tuple, pushed.select("log_id", "lsn", "batch_offset").collect())) == rows, each
        marked = load(spark, cluster, "9,10", pushdown=True, includeGaps=True).filter(f"lsn > {lo}")
        assert {row.record_type for row in marked.collect()} == {"RECORD"}
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"logs": "999"}, "there is no log 999"),
        ({"logs": "1", "startingLsm": "e1n1"}, "did you mean startingLsn"),
        ({"logs": "1", "cluster": "/no/such/file.toml"}, "cannot read /no/such/file.toml"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(
    spark: SparkSession, cluster: RunningCluster, options: dict[str, str], text: str
) -> None:
    long_timeout = {"cluster": cluster.file, "requestTimeout": "5min"}
    started = time.monotonic()
    with pytest.raises(Exception, match=re.escape(text)):
        spark.read.format("logdevice").options(**{**long_timeout, **options}).load().count()
    assert time.monotonic() - started < 120  # Spark starts Pythons for it


@pytest.mark.slow
def test_a_cluster_out_of_reach_is_an_error_within_the_request_timeout(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    text = re.sub(r"127\.\d+\.\d+\.(\d+)", r"127.1.1.\1", Path(cluster.file).read_text())
    started = time.monotonic()
    with pytest.raises(Exception, match="log 1"):
        spark.read.format("logdevice").options(cluster=text, logs="1", requestTimeout="2s").load().count()
    assert time.monotonic() - started < 120  # Spark starts Pythons for it
