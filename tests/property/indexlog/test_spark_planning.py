"""What Spark's tasks read is what was written, however the plan cuts it; and what options and plans refuse."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from client.spark.schema import arrow_schema
from indexlog.columns import SCHEMA, IndexRows, rows_of, table_of
from indexlog.jobs import drop_index
from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind
from indexlog.records import Modification
from indexlog.spark.options import IndexOptions
from indexlog.spark.planning import PlannedRead, cut_index, documents_of, packed, plan_read, read_piece
from indexlog.spark.schema import DOCUMENTS, chosen
from indexlog.stored import last_docids, write_container, write_run
from indexlog.stores import MemoryStore
from logdevice_py.core.status import LogDeviceError
from tests.property.indexlog.pipeline import INDEXES, Pipeline, is_expected


def options(**given: Any) -> IndexOptions:
    return IndexOptions.of({"cluster": "c.toml", **given})


def planned(pipeline: Pipeline, chosen: IndexOptions) -> list[PlannedRead]:
    plans: list[list[PlannedRead]] = []
    replica = pipeline.new_replica()
    steps = plan_read(lambda: replica.state, pipeline.store, chosen)
    actor = pipeline.start(steps, replica, plans.append)
    pipeline.finish(actor)
    (plan,) = plans
    pipeline.tails = actor.tails
    pipeline.serial = replica.state.serial
    return plan


@pytest.mark.parametrize("partition_bytes", ["1", "60", "1000000"])
def test_what_tasks_read_is_what_was_written(partition_bytes: str) -> None:
    read, tasks = 0, set()
    for seed in range(25):
        pipeline = Pipeline(1000 + seed)
        for _ in range(20 + 10 * seed):
            try:
                pipeline.act()
            except Exception as error:
                if not is_expected(error):
                    raise
        plan = planned(pipeline, options(maxBytesPerPartition=partition_bytes))
        found: dict[str, dict[str, Modification]] = {index: {} for index in INDEXES}
        for task in plan:
            for piece in task.pieces:
                for table in read_piece(pipeline.store, task.serial, piece):
                    for docid, change in rows_of(table):
                        assert docid not in found[piece.index], "each document is of one piece"
                        found[piece.index][docid] = change
        for index in INDEXES:
            assert found[index] == pipeline.expected(index, pipeline.serial, pipeline.tails)
            read += len(found[index])
        tasks.add(len(plan))
    assert read > 60
    assert max(tasks) >= (1 if partition_bytes == "1000000" else 2)


def test_a_table_is_of_one_moment_although_an_index_is_dropped() -> None:
    pipeline = Pipeline(3)
    for _ in range(60):
        pipeline.write()
    plans: list[list[PlannedRead]] = []
    replica = pipeline.new_replica()
    actor = pipeline.start(plan_read(lambda: replica.state, pipeline.store, options()), replica, plans.append)
    assert pipeline.step(actor), "the view is confirmed"
    pipeline.finish(pipeline.start(drop_index(lambda: pipeline.master.state, "books"), pipeline.master))
    for _ in range(60):
        pipeline.write()
    pipeline.finish(actor)
    ((task,),) = plans
    found = {
        piece.index: {
            docid: change for table in read_piece(pipeline.store, 0, piece) for docid, change in rows_of(table)
        }
        for piece in task.pieces
    }
    assert found.keys() == set(INDEXES)
    for index in INDEXES:
        assert found[index] == pipeline.expected(index, replica.state.serial, actor.tails)


def rows(*docids: str, size: int = 0) -> pa.Table:
    return table_of((docid, Modification(True, {"body": "x" * size})) for docid in docids)


def test_a_large_index_is_cut_where_pages_end() -> None:
    store = MemoryStore()
    docids = [f"doc-{number:03}" for number in range(40)]
    output = write_run(store, "1/a", PartKind.OPTIMIZED, 1, [rows(*docids, size=500_000)])
    assert output is not None
    large = Part("1/a", WHOLE_FILE, PartKind.OPTIMIZED, 40, output.bytes, 1, 1, 1, 1)
    write_container(store, "1/b", IndexRows(rows("doc-001", "doc-039", "z"), ["books"], [3]))
    small = Part("1/b", 0, PartKind.UNSORTED, 3, 100, 1, 2, 2, 2)
    ends = last_docids(store, large)
    assert (len(ends), ends[0], ends[-1]) == (5, "doc-008", "doc-039")
    tail = rows("a", "doc-008", "doc-009", "z")
    pieces = cut_index("books", (large, small), tail, 100, ends[:-1])
    found = [[docid for table in read_piece(store, 1, piece) for docid, _ in rows_of(table)] for piece in pieces]
    assert found[0] == ["a", *docids[:9]]
    assert found[1] == docids[9:18]
    assert found[-1] == [*docids[36:], "z"]
    assert [docid for each in found for docid in each] == sorted({"a", *docids, "z"})
    assert last_docids(store, small) == ["z"]
    store.files.clear()
    with pytest.raises(LogDeviceError, match="files of state 7 are not kept any more"):
        list(read_piece(store, 7, pieces[0]))


def test_small_indexes_share_a_task() -> None:
    pieces = [
        piece
        for index, size in (("a", 40), ("b", 50), ("c", 20), ("d", 500), ("e", 1))
        for piece in cut_index(index, (), rows(), size, [])
    ]
    assert [[piece.index for piece in group] for group in packed(pieces, 100)] == [["a", "b"], ["c"], ["d"], ["e"]]


def test_too_much_that_is_not_dealt_is_refused_and_can_be_left_out() -> None:
    pipeline = Pipeline(3)
    for _ in range(60):
        pipeline.write()
    with pytest.raises(LogDeviceError, match="more than 10 bytes of raw logs are not dealt: deal first"):
        planned(pipeline, options(tailBytesMax="10"))
    assert planned(pipeline, options(tailBytesMax="10", liveTail="false")) == []
    (task,) = planned(pipeline, options(indexes="boo*, films"))
    assert [piece.index for piece in task.pieces] == ["books"]


def test_documents_have_the_columns_that_are_wanted() -> None:
    change = Modification(False, {"b": "2", "a": "1"}, {7: 1.5}, {"k": "v"}, 1_700_000_000_123)
    table = table_of([("x", change), ("y", Modification(False, None, {1: 2.0}, {}, 5))])
    wanted = arrow_schema(DOCUMENTS)
    batch = documents_of(table, "books", wanted)
    first, second = batch.to_pylist(maps_as_pydicts="strict")
    assert first["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    del first["timestamp"], second["timestamp"]
    rest = {"fields": {"a": "1", "b": "2"}, "variables": {7: 1.5}, "categories": {"k": "v"}}
    assert first == {"index": "books", "docid": "x", **rest}
    assert second == {"index": "books", "docid": "y", "fields": None, "variables": {1: 2.0}, "categories": {}}
    few = documents_of(table, "books", pa.schema([wanted.field("docid"), wanted.field("index")]))
    assert few.to_pylist() == [{"docid": "x", "index": "books"}, {"docid": "y", "index": "books"}]
    assert documents_of(SCHEMA.empty_table(), "books", wanted).num_rows == 0


def test_a_schema_names_columns_that_there_are() -> None:
    few = StructType([StructField("docid", StringType(), True), DOCUMENTS["index"]])
    assert chosen(few) == few
    batch = documents_of(rows("a"), "books", arrow_schema(few))
    assert batch.schema == arrow_schema(few), "to the letter"
    with pytest.raises(LogDeviceError, match="there is no column body; there are index, docid, timestamp"):
        chosen(StructType([StructField("body", StringType())]))
    with pytest.raises(LogDeviceError, match="column docid is string, not bigint"):
        chosen(StructType([StructField("docid", LongType())]))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"index": "books"}, "there is no option index; did you mean indexes"),
        ({"liveTail": "yes"}, "liveTail is 'yes'; it must be true or false"),
        ({"tailBytesMax": "many"}, "tailBytesMax: "),
        ({"maxBytesPerPartition": "0"}, "maxBytesPerPartition is '0'"),
        ({"cluster": ""}, "option cluster: name the cluster file"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(LogDeviceError, match=text):
        options(**given)
