"""A table of Delta Lake has what pages have, whatever is done meanwhile: read back without our code."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from indexlog.delta import DOCUMENTS, DeltaReport, delta_target, export_steps
from indexlog.records import Modification
from indexlog.spark.options import IndexOptions
from logdevice_py.core.status import LogDeviceError, Status
from tests.property.indexlog.pipeline import INDEXES, Pipeline, is_expected

Documents = dict[str, dict[str, Modification]]


def options(*indexes: str, partition_bytes: int = 100) -> IndexOptions:
    return IndexOptions("", "/indexlog", indexes, True, 1 << 20, partition_bytes)


def export(pipeline: Pipeline, url: str, *indexes: str) -> tuple[DeltaReport, Documents]:
    """What was done, and what the indexes were at that moment."""
    reports: list[DeltaReport] = []
    replica = pipeline.new_replica()
    actor = pipeline.start(
        export_steps(lambda: replica.state, pipeline.store, options(*indexes), url), replica, reports.append
    )
    pipeline.finish(actor)
    (report,) = reports
    assert report.state == replica.state.serial
    return report, {index: pipeline.expected(index, report.state, actor.tails) for index in indexes or INDEXES}


def read_back(url: str) -> Documents:
    found: Documents = {index: {} for index in INDEXES}
    for row in deltalake.DeltaTable(url).to_pyarrow_table().to_pylist(maps_as_pydicts="strict"):
        written = round(row["timestamp"].timestamp() * 1000)
        change = Modification(False, row["fields"], row["variables"], row["categories"], written)
        assert row["docid"] not in found[row["index"]], "each document is one row"
        found[row["index"]][row["docid"]] = change
    return found


def busy(pipeline: Pipeline, actions: int) -> None:
    for _ in range(actions):
        try:
            pipeline.act()
        except Exception as error:
            if not is_expected(error):
                raise


def test_a_table_is_what_the_pages_are_and_another_export_replaces_it(tmp_path: Path) -> None:
    documents = 0
    for seed in range(6):
        url = f"file://{tmp_path}/{seed}"
        pipeline = Pipeline(2000 + seed)
        for version in range(3):
            busy(pipeline, 40 + 20 * seed)
            report, expected = export(pipeline, url)
            assert report.version == version
            assert read_back(url) == expected
            assert report.documents == sum(map(len, expected.values()))
            assert report.indexes == sum(map(bool, expected.values()))
            documents += report.documents
        [told] = deltalake.DeltaTable(url).history(1)
        assert (told["index_log"], told["state"]) == ("/indexlog", str(report.state))
    assert documents > 40


def test_one_index_is_replaced_alone(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/table"
    pipeline = Pipeline(7)
    busy(pipeline, 120)
    _, before = export(pipeline, url)
    assert before["songs"]
    busy(pipeline, 120)
    report, now = export(pipeline, url, "books")
    assert now["books"] != before["books"]
    assert read_back(url) == {"books": now["books"], "songs": before["songs"]}
    assert report.indexes == 1


@pytest.mark.parametrize("partition_bytes", [100, 1 << 20])
def test_an_export_whose_files_are_collected_leaves_the_table_as_it_was(tmp_path: Path, partition_bytes: int) -> None:
    """While it is planned, as large indexes are cut, and while it is written."""
    url = f"file://{tmp_path}/table"
    pipeline = Pipeline(7)
    busy(pipeline, 120)
    _, before = export(pipeline, url)
    replica = pipeline.new_replica()
    steps = export_steps(lambda: replica.state, pipeline.store, options(partition_bytes=partition_bytes), url)
    actor = pipeline.start(steps, replica)
    pipeline.step(actor)  # it knows which files there are
    pipeline.store.files.clear()
    with pytest.raises(LogDeviceError, match="are not kept any more") as failed:
        pipeline.finish(actor)
    assert failed.value.status is Status.STALE
    assert read_back(url) == before


def test_a_table_of_others_is_not_replaced(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/table"
    deltalake.write_deltalake(url, pa.table({"order": [1, 2]}))
    with pytest.raises(LogDeviceError, match="it has the columns order"):
        export(Pipeline(1), url)
    assert deltalake.DeltaTable(url).to_pyarrow_table().column("order").to_pylist() == [1, 2]


def test_a_table_may_be_empty(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/table"
    report, _ = export(Pipeline(1), url)
    assert (report.documents, report.indexes, report.version) == (0, 0, 0)
    assert deltalake.DeltaTable(url).to_pyarrow_table().schema.names == DOCUMENTS.names


def test_options_of_a_url_are_those_of_stores() -> None:
    assert delta_target("file:///a/b") == ("file:///a/b", {})
    url = "s3://bucket/a?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    assert delta_target(url) == (
        "s3://bucket/a",
        {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true"},
    )
    with pytest.raises(LogDeviceError, match="regio is not known"):
        delta_target("s3://bucket/a?regio=x")
