"""What people see of clients, batches and receipts in notebooks: texts, data frames, completion, progress."""

from __future__ import annotations

import ast
import asyncio
import datetime
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import logdevice_py
from client import progress as shown_progress
from client.buffered_writer import BufferedWriter
from client.client import Client
from client.look_up.answers import LogHead, LogTail
from client.progress import shown_bytes
from client.read.arrow_columns import batch_schema
from client.read.batch import RecordBatch
from client.read.items import CorruptRecord, DataLoss, Gap, GapKind, Record, RecordRun
from client.reader import Reader
from client.receipt import Receipt, ReceiptRun, Receipts
from client.spark.options import SourceOptions
from client.spark.schema import arrow_schema, source_schema
from client.sync import SyncBufferedWriter, SyncClient, SyncReader
from logdevice_py.core.ids import LogId, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import LSN, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.messages import Durability
from server.simulation.cluster import SimCluster, simulate

LOG = LogId(7)
SHARDS = (shard_id(NodeId(1)), shard_id(NodeId(2), 1))
NOON = Timestamp(1_700_000_000_123_456)
AT = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456, datetime.UTC)


def lsn(esn: int) -> LSN:
    return LSN(compose_lsn(3, esn))


def a_batch() -> RecordBatch:
    batch = RecordBatch(LOG)
    batch.log_group = "/team/clicks"
    batch.add_gap(Gap(GapKind.TRIM, lsn(1), lsn(4)))
    batch.add_records([b"a", b"b"], RecordRun(lsn(5), NOON, 0, 2, [b"k", None]))
    batch.add_gap(Gap(GapKind.HOLE, lsn(6), lsn(6)))
    batch.add_records([None], RecordRun(lsn(7), NOON, 0, 1))
    batch.add_gap(Gap(GapKind.BRIDGE, lsn(8), lsn(9)))
    return batch


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (
            Record(LOG, lsn(5), 1, NOON, b"x", b"k"),
            "Record(log 7, e3n5+1, 2023-11-14 22:13:20.123456+00:00, key=b'k', payload=b'x')",
        ),
        (CorruptRecord(LOG, lsn(5), 1, NOON), "CorruptRecord(log 7, e3n5+1, 2023-11-14 22:13:20.123456+00:00)"),
        (Gap(GapKind.BRIDGE, lsn(5), lsn(6)), "Gap(BRIDGE, e3n5 to e3n6)"),
        (
            Gap(GapKind.DATALOSS, lsn(5), lsn(6), DataLoss(True, (ShardId(SHARDS[0]),))),
            "Gap(DATALOSS, e3n5 to e3n6: no copy is left (N1:S0))",
        ),
        (
            Receipt(lsn(5), 2, NOON, SHARDS, Durability.SYNC),
            "<Receipt: e3n5+2 on N1:S0, N2:S1, sync, 2023-11-14 22:13:20.123456+00:00>",
        ),
        (Receipt(lsn(5), 2, Timestamp(0), (), Durability.ASYNC), "<Receipt: e3n5+2 on shards not told, async>"),
        (
            Receipts([ReceiptRun(1000, lsn(5), 0, NOON, SHARDS, Durability.SYNC)]),
            "<Receipts: 1,000 records, e3n5+0 to e3n5+999>",
        ),
        (Receipts([]), "<Receipts: none>"),
        (RecordBatch(LOG), "<RecordBatch of log 7: 0 records>"),
        (
            a_batch(),
            "<RecordBatch of log 7: 3 records, e3n5 to e3n7; "
            "Gap(TRIM, e3n1 to e3n4), Gap(HOLE, e3n6 to e3n6), Gap(BRIDGE, e3n8 to e3n9)>",
        ),
    ],
)
def test_what_is_read_and_acknowledged_shows_positions_shards_and_times(item: object, text: str) -> None:
    assert repr(item) == text


def test_a_large_record_is_shown_in_short() -> None:
    text = repr(Record(LOG, lsn(5), 0, NOON, b"x" * 1_000_000))
    assert len(text) < 200
    assert "(1,000,000 bytes)" in text


def test_times_are_datetimes_too() -> None:
    receipt = Receipt(lsn(5), 2, NOON, SHARDS, Durability.SYNC)
    assert Record(LOG, lsn(5), 1, NOON, b"x").datetime == AT
    assert CorruptRecord(LOG, lsn(5), 1, NOON).datetime == AT
    assert receipt.datetime == AT
    assert receipt.shards == ("N1:S0", "N2:S1")
    assert Receipt(lsn(5), 2, Timestamp(0), (), Durability.SYNC).datetime is None
    assert LogHead(lsn(0), lsn(1), NOON).datetime == AT
    assert LogTail(lsn(1), lsn(1), NOON).datetime == AT
    assert LogTail(lsn(1), None, None).datetime is None
    assert repr(LogTail(lsn(1), lsn(1), NOON)) == f"LogTail(lsn=e3n1, record_lsn=e3n1, datetime={AT})"
    assert repr(LogHead(lsn(0), None, None)) == "LogHead(trim_point=e3n0, lsn=None, datetime=None)"


@pytest.mark.parametrize(("include_gaps", "option"), [(False, "false"), (True, "true")])
def test_tables_have_the_columns_of_the_spark_source(include_gaps: bool, option: str) -> None:
    options = SourceOptions.of({"cluster": "c.toml", "logs": "7", "includeGaps": option})
    assert batch_schema(include_gaps=include_gaps) == arrow_schema(source_schema(options))
    table = a_batch().to_arrow(include_gaps=include_gaps)
    assert table.schema == batch_schema(include_gaps=include_gaps)


def test_rows_of_a_table_are_the_records() -> None:
    table = a_batch().to_arrow()
    assert table.column("lsn").to_pylist() == [lsn(5), lsn(5), lsn(7)]
    assert table.column("log_group").to_pylist() == ["/team/clicks"] * 3
    assert table.column("key").to_pylist() == [b"k", None, None]
    assert table.column("payload").to_pylist() == [b"a", b"b", None]
    assert table.column("timestamp").to_pylist() == [AT] * 3


def test_gaps_stand_among_the_records_where_they_are_asked_for() -> None:
    table = a_batch().to_arrow(include_gaps=True)
    assert table.column("record_type").to_pylist() == ["GAP", "RECORD", "RECORD", "GAP", "CORRUPT", "GAP"]
    assert table.column("gap_hi").to_pylist() == [lsn(4), None, None, lsn(6), None, lsn(9)]


def test_a_batch_without_anything_is_an_empty_table() -> None:
    assert RecordBatch(LOG).to_arrow().num_rows == 0
    assert RecordBatch(LOG).to_arrow(include_gaps=True).schema == batch_schema(include_gaps=True)


def test_a_data_frame_has_the_same_rows() -> None:
    frame = a_batch().to_pandas()
    assert list(frame.columns) == batch_schema(include_gaps=False).names
    assert list(frame["payload"]) == [b"a", b"b", None]
    assert frame["timestamp"][0] == AT
    assert pa.Table.from_pandas(frame, schema=batch_schema(include_gaps=False)) == a_batch().to_arrow()


def test_lsns_of_a_data_frame_with_gaps_stay_integers() -> None:
    frame = a_batch().to_pandas(include_gaps=True)
    assert frame["lsn"].dtype == "Int64"
    assert frame["epoch"].dtype == "Int32"
    assert [None if pd.isna(each) else int(each) for each in frame["lsn"]] == [
        None,
        lsn(5),
        lsn(5),
        None,
        lsn(7),
        None,
    ]
    assert int(frame["gap_lo"][0]) == lsn(1)
    large = RecordBatch(LOG)
    large.add_gap(Gap(GapKind.HOLE, LSN((1 << 53) + 1), LSN((1 << 53) + 1)))
    assert int(large.to_pandas(include_gaps=True)["gap_lo"][0]) == (1 << 53) + 1, "no float holds it"


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ("pyarrow", "RecordBatch(1).to_arrow()"),
        ("pandas", "RecordBatch(1).to_pandas()"),
        ("pyarrow", "from logdevice_py import QueryResult; QueryResult([], [], []).to_arrow()"),
        ("pandas", "from logdevice_py import QueryResult; QueryResult([], [], []).to_pandas()"),
        ("tqdm", "from client.progress import _bar_class; _bar_class()"),
    ],
)
def test_a_missing_package_is_told_by_name(package: str, code: str) -> None:
    script = f"import sys; sys.modules[{package!r}] = None; from logdevice_py import RecordBatch; {code}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3]
    )
    assert (
        f"needs {package}, which is not installed: pip install 'logdevice-py[notebook]'" in done.stderr.splitlines()[-1]
    )


# Completion


def offered(instance: object) -> set[str]:
    return {name for name in dir(instance) if not name.startswith("__")}


QUESTIONS = {
    *(
        "data_size",
        "find_key",
        "find_time",
        "find_transaction",
        "head",
        "is_empty",
        "segments",
        "tail",
        "tail_lsn",
        "trim",
    )
}


def test_completion_offers_public_names_only() -> None:
    async def application(cluster: SimCluster) -> None:
        client = cluster.client()
        assert repr(client) == "<Client of cluster simulation: not open>"
        async with client, client.buffered_writer() as writer:
            assert repr(client) == "<Client of cluster simulation: open, not connected to any of 3 nodes yet>"
            assert repr(writer) == "<BufferedWriter: 0 records acknowledged, 0 bytes not acknowledged>"
            await writer.append(1, b"x")
            reader = client.reader(1, until=await client.tail_lsn(1))
            assert re.fullmatch(r"<Client of cluster simulation: connected to [123] of 3 nodes>", repr(client))
            assert repr(reader) == "<Reader of log 1: not open, until e1n1, next is e0n1>"
            assert offered(reader) == {"close", "ended", "log", "next_lsn", "proof", "read", "waiting_for"}
            assert offered(client) == {
                *QUESTIONS,
                "append",
                "append_many",
                "buffered_writer",
                "close",
                "config",
                "connectivity",
                "is_open",
                "known_tail",
                "location",
                "log_id",
                "log_ids",
                "mark_end",
                "merged_reader",
                "name",
                "get_log_group",
                "list_logs",
                "make_directory",
                "make_log_group",
                "raise_fence",
                "reader",
                "remove",
                "rename",
                "set_attributes",
                "sequencer",
                "settings",
                "start",
                "trim_preview",
            }
            assert offered(writer) == {
                "abandon",
                "append",
                "append_many",
                "close",
                "flush",
                "metrics",
                "observe",
                "ready",
                "take_over",
                "unacknowledged_bytes",
                "waiting_for",
            }
            async with reader:
                while batch := await reader.read():
                    assert batch.log_group == "/logs"
                assert repr(reader) == "<Reader of log 1: read to its end, until e1n1, next is e1n2>"
            assert repr(reader) == "<Reader of log 1: closed, read to its end, until e1n1, next is e1n2>"
        assert repr(client) == "<Client of cluster simulation: closed>"
        assert repr(cluster).startswith("<SimCluster: N0 running, N1 running, N2 running; 0 faults")

    simulate(application)


def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    async def application(cluster: SimCluster) -> None:
        with pytest.raises(LogDeviceError, match=r"async with Client.*await client\.start\(\)"):
            await cluster.client().append(1, b"x")

    simulate(application)


def test_a_client_whose_cluster_is_away_does_not_say_that_it_will_be_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            trouble = LogDeviceError(Status.CONNFAILED, "Connection refused")
            monkeypatch.setattr(client._network, "troubles", lambda: {NodeId(1): trouble})
            assert repr(client) == "<Client of cluster simulation: no node answers of 3 nodes>"

    simulate(application)


def test_a_reader_that_met_the_end_of_its_log_says_so() -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            await client.append(1, b"x")
            await client.mark_end(1)
            async with client.reader(1) as reader:
                assert ": reading, " in repr(reader)
                while await reader.read():
                    pass
                assert ": read to the end of the log, " in repr(reader)

    simulate(application)


def test_batches_offer_what_applications_use() -> None:
    batch = a_batch()
    assert offered(batch) == {
        "batch_offsets",
        "gaps",
        "keys",
        "log",
        "log_group",
        "lsns",
        "payloads",
        "records",
        "timestamps",
        "to_arrow",
        "to_pandas",
    }
    assert [name for name in RecordBatch.INTERNAL_NAMES if not hasattr(batch, name)] == []


def test_names_that_are_not_offered_exist_and_work() -> None:
    """A name that is taken out of a class must go from the list too."""
    kinds = (Client, Reader, BufferedWriter, SyncClient, SyncReader, SyncBufferedWriter)
    internal = [(kind, name) for kind in kinds for name in kind.INTERNAL_NAMES]
    assert internal
    for kind, name in internal:
        described = {*dir(kind), *(kind.__annotations__ if hasattr(kind, "__annotations__") else ())}
        source = Path(sys.modules[kind.__module__].__file__ or "").read_text()
        assert name in described or f"self.{name}" in source, (kind, name)


def test_the_package_offers_what_it_exports() -> None:
    assert dir(logdevice_py) == sorted(logdevice_py.__all__)


def test_completion_that_reads_the_package_without_running_it_finds_what_it_exports_only() -> None:
    """As Jedi does, for notebooks and editors; what begins with an underscore is not offered."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(logdevice_py.__file__).read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(each.asname or each.name).partition(".")[0] for each in node.names}
        elif isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {each.id for each in node.targets if isinstance(each, ast.Name)}
    assert {name for name in found if name[:1] != "_"} - {"home", "value", "found", "spec", "missing"} == {
        *logdevice_py.__all__
    }


def test_a_batch_says_what_to_use_in_place_of_a_number() -> None:
    with pytest.raises(TypeError, match=r"list\(batch\.records\(\)\) are its records"):
        a_batch()[0]


# Progress


def test_where_nothing_can_be_drawn_over_progress_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client, client.buffered_writer(progress=True) as writer:
            for _ in range(5):
                await writer.append(1, b"x" * 100)
                await asyncio.sleep(1)
            assert capsys.readouterr().err == ""

    simulate(application)
    assert re.fullmatch(r"written: 5 records in .*500 B, 0 B not acknowledged\n", capsys.readouterr().err)


def test_progress_of_long_reads_and_writes_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_progress, "_can_draw_over", lambda stream: True)

    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            async with client.buffered_writer(progress=True) as writer:
                for _ in range(5):
                    await writer.append_many(1, [b"x" * 100] * 20)
                    await asyncio.sleep(1)
            written = capsys.readouterr().err
            tail = await client.tail_lsn(1)
            async with client.reader(1, until=tail, progress=True) as reader:
                while batch := await reader.read(10):
                    await asyncio.sleep(1)
                    assert len(batch) <= 10
            read = capsys.readouterr().err
        assert "written: 20 records" in written or "written: 40 records" in written, "on the way"
        assert re.search(r"written: 100 records.*10.0 kB, 0 B not acknowledged\s*$", written)
        assert re.search(r"log 1: \d0 records", read), "on the way"
        assert re.search(rf"log 1: 100 records.* at {tail} of {tail}\s*$", read)

    simulate(application)


def test_sizes_are_shown_in_short() -> None:
    assert [shown_bytes(size) for size in (0, 999, 1000, 34_200_000, 5 * 10**15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "34.2 MB",
        "5000.0 TB",
    ]
