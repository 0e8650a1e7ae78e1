from __future__ import annotations

import pytest

from client.cli import cat, tail
from client.cli.tail import last_of_all, last_of_two
from client.read.batch import RecordBatch
from client.read.items import RecordRun
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import Timestamp


def batch_of(lsn: int, *payloads: bytes | None) -> RecordBatch:
    batch = RecordBatch(LogId(7))
    batch.add_records(list(payloads), RecordRun(lsn, Timestamp(0), 0, len(payloads)))
    return batch


def test_the_last_records_of_two_batches_keep_their_positions() -> None:
    last = last_of_two(batch_of(1, b"a", b"b", b"c"), batch_of(2, b"d", b"e"), 3)
    assert last.payloads == [b"c", b"d", b"e"]
    assert last.lsns == [1, 2, 2]
    assert last.batch_offsets == [2, 0, 1]


def test_fewer_records_than_asked_for_are_kept_whole() -> None:
    assert last_of_two(batch_of(1, b"a"), batch_of(2, b"b"), 10).payloads == [b"a", b"b"]


def test_the_last_records_of_several_logs_are_chosen_by_time() -> None:
    batches = []
    for log, times in ((7, [10, 30]), (8, [20, 40])):
        batch = RecordBatch(LogId(log))
        for time in times:
            batch.add_records([b"%d a" % time, b"%d b" % time], RecordRun(time, Timestamp(time), 0, 2))
        batches.append(batch)
    last = last_of_all(batches, 5)
    assert [(batch.log, batch.payloads) for batch in last] == [
        (8, [b"20 b"]),
        (7, [b"30 a", b"30 b"]),
        (8, [b"40 a", b"40 b"]),
    ]
    assert last_of_all(batches, 0) == []


@pytest.mark.parametrize("program", [cat, tail])
def test_wrong_usage_exits_with_2(program: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        program.main(["-c", "nowhere.toml", "7", "--from", "2026-01-01"])  # type: ignore[attr-defined]
    assert exit_.value.code == 2
    assert "time zone" in capsys.readouterr().err


@pytest.mark.parametrize("program", [cat, tail])
def test_a_missing_cluster_file_is_one_line(program: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["-c", "/nowhere.toml", "7"]) == 2  # type: ignore[attr-defined]
    assert len(capsys.readouterr().err.splitlines()) == 1
