"""Options of the Spark source: what is written is what is read, and everything else is refused by name."""

from __future__ import annotations

import pytest

from client.spark.options import Bound, OnGap, Place, SourceOptions, logs_named
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import LogDeviceError, Status

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
    ],
)
def test_logs_are_named_by_id_range_group_directory_and_place(text: str, logs: list[int]) -> None:
    assert logs_named(text, tree()) == logs


@pytest.mark.parametrize("text", ["9", "/teams", "13-19", "/team/clicks/4"])
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
    starts = options.start.by_log(tree())
    assert starts[11] == Bound(Place.TAIL)  # type: ignore[index]
    assert starts[20] == Bound(Place.LSN, compose_lsn(2, 1))  # type: ignore[index]
    assert starts[10] == Bound(Place.LSN, 7)  # type: ignore[index]
    assert options.start.default == Bound(Place.OLDEST)
    assert options.end.default == Bound(Place.TIME, 1_000_000)


def test_times_are_iso_with_a_zone_or_milliseconds() -> None:
    options = SourceOptions.of({**GIVEN, "startingTimestamp": "1970-01-01T00:00:01+00:00"})
    assert options.start.default == Bound(Place.TIME, 1_000_000)


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
        ({"startingTimestamp": "2026-01-31T12:00:00"}, "has no time zone"),
        ({"startingLsn": "oldest", "startingTimestamp": "1"}, "both given"),
        ({"cluster": ""}, "cluster is missing"),
        ({"logs": " "}, "logs is missing"),
        ({"path": "/team"}, "logs is given twice"),
        ({"maxRecordsPerTrigger": "5"}, "a batch read has no option"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(LogDeviceError) as caught:
        SourceOptions.of({**GIVEN, **options})
    assert caught.value.status is Status.INVALID_PARAM
    assert text in str(caught.value)


def test_a_stream_has_no_end() -> None:
    assert SourceOptions.of({**GIVEN, "maxRecordsPerTrigger": "5"}, streaming=True).trigger_records_max == 5
    with pytest.raises(LogDeviceError, match="a stream has no option 'endinglsn'"):
        SourceOptions.of({**GIVEN, "endingLsn": "tail"}, streaming=True)
