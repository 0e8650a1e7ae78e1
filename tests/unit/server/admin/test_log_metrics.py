"""Metrics of single logs: the busiest ones, and how far their readers are behind."""

from __future__ import annotations

import dataclasses

import pytest

from logdevice_py.core.lsn import LSN_MAX, compose_lsn
from logdevice_py.tables.sequencing import AppendThroughputRow
from logdevice_py.tables.storage import ReadersRow
from server.admin.log_metrics import BusiestLogs, LogMetrics, lag_of


def throughput(log: int, entries: float, size: float) -> AppendThroughputRow:
    return AppendThroughputRow(log, "/logs", 60, entries, size, 600, entries, size)


def reader(log: int, position: int, released: int, until: int = LSN_MAX) -> ReadersRow:
    row = ReadersRow(**{field.name: 0 for field in dataclasses.fields(ReadersRow)})  # type: ignore[arg-type]
    return dataclasses.replace(row, log_id=log, read_pointer=position, last_released=released, until_lsn=until)


@pytest.mark.parametrize(
    ("position", "end", "lag"),
    [
        (compose_lsn(3, 5), compose_lsn(3, 4), 0),
        (compose_lsn(3, 5), compose_lsn(3, 5), 1),
        (compose_lsn(3, 0), compose_lsn(3, 7), 7),
        (compose_lsn(2, 5), compose_lsn(3, 7), 7),
        (1, compose_lsn(3, 7), 7),
    ],
)
def test_lag_is_what_is_left_in_the_newest_epoch(position: int, end: int, lag: int) -> None:
    assert lag_of(position, end) == lag


def test_the_reader_furthest_behind_counts_and_one_that_ends_earlier_lags_up_to_there() -> None:
    logs = BusiestLogs()
    end = compose_lsn(1, 100)
    logs.add_reader(reader(1, compose_lsn(1, 90), end))
    logs.add_reader(reader(1, compose_lsn(1, 71), end))
    logs.add_reader(reader(1, compose_lsn(1, 1), end, until=compose_lsn(1, 10)))
    (source,) = logs.sources(10)
    assert source.labels() == {"log_id": "1"}
    assert source.metrics == LogMetrics(read_streams=3, reader_lag=30)


def test_no_more_logs_are_told_of_than_allowed_and_those_are_the_busiest() -> None:
    logs = BusiestLogs()
    for log in range(1, 1001):
        logs.add_throughput(throughput(log, 1, log * 10.0))
    logs.add_throughput(throughput(2000, 0, 0))
    assert [source.log for source in logs.sources(3)] == [998, 999, 1000]
    assert logs.sources(0) == []
    assert logs.sources(1)[0].metrics == LogMetrics(append_entries_rate=1, append_bytes_rate=10_000)
