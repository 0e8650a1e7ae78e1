"""Options of the Spark source: what is written is what is read, and everything else is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client.identity import ClientIdentity
from client.spark.connection import cluster_text
from client.spark.options import Bound, OnGap, PayloadFormat, Place, SourceOptions, check_order, logs_named
from client.spark.planning import Restriction, extents
from logdevice_py.config.logs import Durability, LogTree
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.render import render_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import TREE_LOG_ID_MIN, LogId
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.dev_cluster import make_config

GIVEN = {"cluster": "cluster.toml", "logs": "1"}


def tree() -> LogTree:
    return LogTree.build(
        defaults={"replication": ReplicationProperty.parse("node:1")},
        groups=[("/team/clicks", 10, 12, {}), ("/team/audit", 20, 20, {}), ("/other", 30, 39, {})],
    )


@pytest.mark.parametrize(
    ("text", "logs"),
    [
        ("11", [11]),
        ("/team/clicks", [10, 11, 12]),
        ("/team/clicks/2", [11]),
        ("/team/audit", [20]),
        ("/team", [10, 11, 12, 20]),
        ("12-30", [12, 20, 30]),
        (" /team/audit, 39 ,11,11 ", [11, 20, 39]),
        ("/*/clicks", [10, 11, 12]),
        ("/team/*,39", [10, 11, 12, 20, 39]),
        ("/[no]*", list(range(30, 40))),
    ],
)
def test_logs_are_named_by_id_range_group_directory_and_place(text: str, logs: list[int]) -> None:
    assert logs_named(text, tree()) == logs


@pytest.mark.parametrize("text", ["9", "/teams", "13-19", "/team/clicks/4", "/*/clickz"])
def test_a_log_that_is_not_there_is_an_error(text: str) -> None:
    with pytest.raises(LogDeviceError) as caught:
        logs_named(f"11,{text}", tree())
    assert caught.value.status is Status.NOTFOUND


@pytest.mark.parametrize("text", ["", " , ", "20-10"])
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(LogDeviceError) as caught:
        logs_named(text, tree())
    assert caught.value.status is Status.INVALID_PARAM


def test_a_log_may_have_bounds_of_its_own_and_the_more_special_name_holds() -> None:
    options = SourceOptions.of(
        {**GIVEN, "startingLsn": '{"/team": "e2n1", "11": "tail", "/team/clicks": 7}', "endingTimestamp": "1000"}
    )
    starts = options.start.of_logs(logs_named("/team,39", tree()), tree())
    assert starts == {
        10: Bound(Place.LSN, 7),
        11: Bound(Place.TAIL),
        12: Bound(Place.LSN, 7),
        20: Bound(Place.LSN, compose_lsn(2, 1)),
        39: Bound(Place.OLDEST),
    }
    assert options.end.default == Bound(Place.TIME, 1_000_000)
    with pytest.raises(LogDeviceError, match="a position is given for 11, which is not among the logs"):
        options.start.of_logs(logs_named("12,20", tree()), tree())


def test_some_logs_may_begin_by_lsn_and_others_by_time() -> None:
    options = SourceOptions.of({**GIVEN, "startingLsn": '{"10": "e2n1"}', "startingTimestamp": "1000"})
    assert options.start.of_logs(logs_named("10,11", tree()), tree()) == {
        10: Bound(Place.LSN, compose_lsn(2, 1)),
        11: Bound(Place.TIME, 1_000_000),
    }


def test_times_are_iso_with_a_zone_or_milliseconds() -> None:
    options = SourceOptions.of({**GIVEN, "startingTimestamp": "1970-01-01T00:00:01+00:00"})
    assert options.start.default == Bound(Place.TIME, 1_000_000)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingLsn": "e1n3", "endingLsn": "e1n2"}, "log 10 ends at e1n2, before it begins at e1n3"),
        ({"startingLsn": '{"11": "e2n1"}', "endingLsn": "e1n9"}, "log 11 ends at e1n9, before it begins at e2n1"),
        ({"startingTimestamp": "2000", "endingTimestamp": "1000"}, "log 10: endingTimestamp is before starting"),
    ],
)
async def test_a_range_that_ends_before_it_begins_is_refused(given: dict[str, str], text: str) -> None:
    client: Any = SimpleNamespace(config=SimpleNamespace(logs=tree()))
    options = SourceOptions.of({"cluster": "cluster.toml", "logs": "/team/clicks", **given})
    with pytest.raises(LogDeviceError, match=text):
        await extents(client, options, Restriction())


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (Bound(Place.LSN, 3), Bound(Place.LSN, 3)),
        (Bound(Place.TIME, 3), Bound(Place.TIME, 3)),
        (Bound(Place.TIME, 3), Bound(Place.LSN, 1)),
        (Bound(Place.TAIL), Bound(Place.LSN, 1)),
        (Bound(Place.LSN, 3), Bound(Place.TAIL)),
    ],
)
def test_a_range_that_may_be_empty_is_none_that_ends_before_it_begins(start: Bound, end: Bound) -> None:
    check_order(LogId(7), start, end)


def test_defaults_and_the_argument_of_load() -> None:
    options = SourceOptions.of({"cluster": "cluster.toml", "path": "/team/clicks"})
    assert options.logs == "/team/clicks"
    assert options.on_gap is OnGap.FAIL_ON_LOSS
    assert not options.has_marks
    assert options.end.default == Bound(Place.TAIL)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingLsm": "1"}, "did you mean startingLsn"),
        ({"onGap": "fail"}, "failOnLoss, report, skip"),
        ({"includeGaps": "yes"}, "includeGaps is 'yes'"),
        ({"minPartitions": "0"}, "minPartitions is '0'"),
        ({"maxBytesPerPartition": "64 MB"}, "maxBytesPerPartition"),
        ({"readTimeout": "soon"}, "readTimeout"),
        ({"startingLsn": "first"}, "startingLsn: 'first' is no position"),
        ({"startingLsn": "{1: 2}"}, "startingLsn: is no JSON object"),
        ({"startingTimestamp": "2026-01-31T12:00:00"}, "has no time zone: write 2026-01-31T12:00:00Z"),
        ({"startingTimestamp": "2026-01-31"}, "has no time zone: write 2026-01-31T00:00:00Z"),
        ({"startingLsn": "oldest", "startingTimestamp": "1"}, "both given"),
        ({"startingLsn": '{"7": 1, "8": 2}', "startingTimestamp": '{"8": 5}'}, "both name 8"),
        ({"cluster": ""}, "cluster is missing"),
        ({"logs": " "}, "logs is missing"),
        ({"path": "/team"}, "logs is given twice"),
        ({"startingLsn": "earliest"}, "startingLsn: 'earliest' is no position; did you mean oldest?"),
        ({"endingLsn": '{"10": "Latest"}'}, "endingLsn: 'Latest' is no position; did you mean tail?"),
        (
            {"maxRecordsPerTrigger": "5"},
            "a batch read has no option 'maxrecordspertrigger': maxRecordsPerTrigger is for a stream only",
        ),
        (
            {"maxBytesPerTrigger": "5MiB"},
            "a batch read has no option 'maxbytespertrigger': maxBytesPerTrigger is for a stream only",
        ),
        ({"maxOffsetsPerTrigger": "5"}, "maxRecordsPerTrigger is for a stream only"),
        ({"payloadFormat": "json"}, "payloadFormat is 'json'; it must be one of binary, utf8"),
        ({"timeAccuracy": "rough"}, "timeAccuracy is 'rough'; it must be one of strict, approximate"),
        ({"columns": "lsn,,payload"}, "columns is 'lsn,,payload'"),
        ({"columns": "lsn,lsn"}, "each once"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(LogDeviceError) as caught:
        SourceOptions.of({**GIVEN, **options})
    assert caught.value.status is Status.INVALID_PARAM
    assert text in str(caught.value)


def test_words_are_taken_in_any_case_and_columns_in_their_order() -> None:
    options = SourceOptions.of(
        {**GIVEN, "payloadFormat": "UTF8", "timeAccuracy": "Approximate", "columns": "payload, lsn"}
    )
    assert options.payload_format is PayloadFormat.UTF8
    assert options.time_approximate
    assert options.columns == ("payload", "lsn")


def test_a_table_of_sql_is_refused_when_it_is_made() -> None:
    table = {**GIVEN, **{f"option.{key}": value for key, value in GIVEN.items()}, "provider": "logdevice", "owner": "o"}
    with pytest.raises(LogDeviceError, match="CREATE TEMPORARY VIEW"):
        SourceOptions.lenient(table)


@pytest.mark.parametrize(
    ("key", "streaming", "meant"),
    [
        ("maxOffsetsPerTrigger", True, "maxRecordsPerTrigger"),
        ("startingOffsets", True, "startingLsn"),
        ("endingOffsets", False, "endingLsn"),
        ("subscribe", False, "logs"),
        ("failOnDataLoss", True, "onGap"),
    ],
)
def test_options_of_kafkas_source_are_told_by_ours(key: str, streaming: bool, meant: str) -> None:
    with pytest.raises(LogDeviceError, match=f"did you mean {meant}"):
        SourceOptions.of({**GIVEN, key: "1"}, streaming=streaming)


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("endingLsn", "endingLsn"),
        ("endingOffsets", "endingLsn"),
        ("endingTimestamp", "endingTimestamp"),
        ("pushdown", "pushdown"),
    ],
)
def test_a_stream_says_which_options_only_batch_reads_have(key: str, ours: str) -> None:
    with pytest.raises(LogDeviceError) as caught:
        SourceOptions.of({**GIVEN, key: "tail"}, streaming=True)
    assert caught.value.detail == f"a stream has no option {key.lower()!r}: {ours} is for a batch read only"


def test_limits_of_a_micro_batch() -> None:
    options = SourceOptions.of({**GIVEN, "maxBytesPerTrigger": "5MiB", "minPartitions": "3"}, streaming=True)
    assert (options.trigger_bytes_max, options.trigger_records_max, options.min_partitions) == (5 << 20, None, 3)


def test_a_stream_has_no_end() -> None:
    assert SourceOptions.of({**GIVEN, "maxRecordsPerTrigger": "5"}, streaming=True).trigger_records_max == 5
    with pytest.raises(LogDeviceError, match="a stream has no option 'endinglsn'"):
        SourceOptions.of({**GIVEN, "endingLsn": "tail"}, streaming=True)


def test_an_id_may_be_of_a_log_of_the_log_tree() -> None:
    assert logs_named(f"11,{TREE_LOG_ID_MIN + 3}", tree()) == [11, TREE_LOG_ID_MIN + 3]
    with pytest.raises(LogDeviceError, match="NOTFOUND"):
        logs_named(str(TREE_LOG_ID_MIN - 1), tree())


def test_files_say_who_a_query_is(tmp_path: Path) -> None:
    keys, token = tmp_path / "clicks.keys", tmp_path / "token"
    keys.write_text("k1 " + "ab" * 32)
    keys.chmod(0o600)
    token.write_text("signed\n")
    options = SourceOptions.of(
        {**GIVEN, "identityfile": "me.pem", "CAFile": "ca.pem", "tokenFile": str(token), "keysFile": str(keys)}
    )
    identity = options.access.identity()
    assert identity == ClientIdentity(certificate="me.pem", token_file=str(token), ca="ca.pem")
    assert identity.newest_token() == "signed"
    token.write_text("renewed\n")
    assert identity.newest_token() == "renewed"
    assert options.access.keys() is not None
    shown = repr(options)
    assert "signed" not in shown
    assert "abab" not in shown, "what is in the files stands in no plan"
    assert SourceOptions.of(GIVEN).access.identity() is None


def test_what_is_a_secret_and_no_file_is_refused_and_not_repeated() -> None:
    with pytest.raises(LogDeviceError) as caught:
        SourceOptions.of({**GIVEN, "identityFile": "-----BEGIN PRIVATE KEY-----\nMC4CAQ"})
    assert "identityFile: name a file" in caught.value.detail
    assert "MC4CAQ" not in str(caught.value)
    with pytest.raises(LogDeviceError, match="tokenFile: name a file") as caught:
        SourceOptions.of({**GIVEN, "tokenFile": "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhIn0.c2lnbmVk"})
    assert "c2lnbmVk" not in str(caught.value)
    with pytest.raises(LogDeviceError, match="keysFile: name a file") as caught:
        SourceOptions.of({**GIVEN, "keysFile": "k1 " + "ab" * 32})
    assert "abab" not in str(caught.value)


def test_executors_find_the_authority_where_the_driver_does(tmp_path: Path) -> None:
    config = make_config(
        tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None, durability=Durability.SYNC
    )
    file = tmp_path / "cluster.toml"
    security = {"tls": "require", "ca_file": "identity/ca.pem"}
    file.write_text(render_cluster(replace(config, settings={"security": security})))
    text = cluster_text(str(file))
    assert load_cluster(text).settings["security"]["ca_file"] == str(tmp_path / "identity" / "ca.pem")
