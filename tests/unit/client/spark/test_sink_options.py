"""What a sink refuses before it appends anything."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from client.spark.source import LogDeviceSource
from client.spark.writer import sink_options
from logdevice_py.config.render import render_cluster
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.dev_cluster import make_config


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    return render_cluster(make_config(tmp_path, nodes=1, logs=3, replicate="node:1", racks=1, epoch_store=None))


def columns(names: str) -> Any:
    schema = StructType()
    for each in names.split(", "):
        name, kind = each.split()
        schema.add(name, kind)
    return schema


@pytest.mark.parametrize(
    ("streaming", "text"), [(False, 'use mode\\("append"\\)'), (True, 'no outputMode\\("complete"\\).*foreachBatch')]
)
def test_a_log_is_not_overwritten_and_the_way_to_do_it_is_told(streaming: bool, text: str) -> None:
    with pytest.raises(LogDeviceError, match=text) as caught:
        sink_options({"cluster": "cluster.toml"}, StructType(), overwrite=True, streaming=streaming)
    assert caught.value.status is Status.INVALID_PARAM


@pytest.mark.parametrize(
    ("names", "log", "text"),
    [
        ("payload string, headers integer", "1", "no place for the columns headers"),
        ("payload string, key integer", "1", "the column key is int"),
        ("value integer", "1", "need a column payload"),
        ("payload integer", "1", "need a column payload"),
        ("payload string, log_id long", "1", "drop one"),
        ("payload string", None, "where do rows go"),
        ("payload string, log_id string", None, "where do rows go"),
        ("payload string", "999", "there is no log 999"),
    ],
)
def test_rows_that_cannot_become_records(cluster: str, names: str, log: str | None, text: str) -> None:
    given = {"cluster": cluster} if log is None else {"cluster": cluster, "log": log}
    with pytest.raises(LogDeviceError, match=text):
        sink_options(given, columns(names), overwrite=False)


def test_rows_go_to_the_log_of_the_option_or_to_those_of_their_column(cluster: str) -> None:
    assert sink_options({"cluster": cluster, "path": "/logs/2"}, columns("payload binary"), overwrite=False).log == 2
    assert sink_options({"cluster": cluster}, columns("payload binary, log_id integer"), overwrite=False).log is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"compression": "gzip"}, "compression is 'gzip'; it must be one of none, lz4, zstd"),
        ({"since": "1000"}, "since is given without a jobId"),
        ({"keysFile": "my.keys", "jobId": "job"}, "keysFile: .* at least once: write them without a jobId"),
    ],
)
def test_options_that_no_task_could_use_are_refused_when_the_write_is_planned(
    cluster: str, given: dict[str, str], text: str
) -> None:
    with pytest.raises(LogDeviceError, match=text):
        sink_options({"cluster": cluster, "log": "1", **given}, columns("payload string"), overwrite=False)


@pytest.mark.parametrize("delivery", [{}, {"delivery": "exactlyOnce"}], ids=["default", "said"])
def test_a_stream_that_encrypts_is_not_appended_exactly_once(cluster: str, delivery: dict[str, str]) -> None:
    options = {"cluster": cluster, "log": "1", "keysFile": "my.keys", **delivery}
    with pytest.raises(LogDeviceError, match=r"keysFile: .* write them with delivery=atLeastOnce") as caught:
        sink_options(options, columns("payload string"), overwrite=False, streaming=True)
    assert caught.value.status is Status.INVALID_PARAM


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_that_are_appended_at_least_once_may_be_encrypted(cluster: str, streaming: bool, tmp_path: Path) -> None:
    keys = tmp_path / "my.keys"
    keys.write_text(f"k1 {(b'1' * 32).hex()}\n")
    keys.chmod(0o600)
    options = {
        "cluster": cluster,
        "log": "1",
        "keysFile": str(keys),
        **({"delivery": "atLeastOnce"} if streaming else {}),
    }
    found = sink_options(options, columns("payload string"), overwrite=False, streaming=streaming)
    assert found.access.keys_file == str(keys)


@pytest.mark.parametrize(
    ("given", "streaming"),
    [({"compression": "zstd", "since": "1000", "jobId": "job"}, False), ({"since": "1000"}, True)],
)
def test_options_that_go_together(cluster: str, given: dict[str, str], streaming: bool) -> None:
    options = {"cluster": cluster, "log": "1", **given}
    found = sink_options(options, columns("payload string"), overwrite=False, streaming=streaming)
    assert (found.since, found.compression) == (1_000_000, given.get("compression"))


@pytest.mark.parametrize("log", ["2", None])
def test_a_batch_write_to_a_cluster_that_does_not_answer_fails_when_it_is_planned(
    cluster: str, log: str | None
) -> None:
    given = {"cluster": cluster, "requestTimeout": "300ms", **({} if log is None else {"log": log})}
    names = "payload binary" if log else "payload binary, log_id integer"
    started = time.monotonic()
    with pytest.raises(LogDeviceError, match=rf"log {log or 1} \(/logs/{log or 1}\)"):
        LogDeviceSource(given).writer(columns(names), overwrite=False)
    assert time.monotonic() - started < 5
