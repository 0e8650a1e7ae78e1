"""A task accounts for every LSN of its range, or fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client.read.batch import RecordBatch
from client.read.items import DataLoss, Gap, GapKind, RecordRun
from client.spark import task
from client.spark.options import OnGap, SourceOptions
from client.spark.ranges import Cut
from client.spark.schema import arrow_schema, source_schema
from client.spark.task import TaskOptions, read_range
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from tests.unit.client.spark.fakes import ListedReader

ITEMS: list[tuple[int, int] | Gap] = [
    Gap(GapKind.BRIDGE, LSN(1), LSN(2)),
    (3, 10),
    Gap(GapKind.TRIM, LSN(4), LSN(6)),
    (7, 10),
    Gap(GapKind.DATALOSS, LSN(8), LSN(9), DataLoss(True, ())),
    (10, 10),
    Gap(GapKind.HOLE, LSN(11), LSN(11)),
]


class Loop:
    """Runs what a client would run on its own loop."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Callable[[Any], Any]) -> Any:
        return self._runner.run(work(self))

    async def known_log(self, log: int, timeout: float) -> int:
        return log

    def close(self) -> None:
        self._runner.close()


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ListedReader]]:
    opened: list[ListedReader] = []
    loop = Loop()

    def make(client: Any, log: int, first: int, until: int, *, encryption: Any) -> ListedReader:
        opened.append(ListedReader(log, first, until, ITEMS))
        return opened[-1]

    monkeypatch.setattr(task, "client_for", lambda text, access: loop)
    monkeypatch.setattr(task, "Reader", make)
    yield opened
    loop.close()


def rows(lo: int, hi: int, **options: str) -> list[dict[str, Any]]:
    chosen = SourceOptions.of({"cluster": "cluster.toml", "logs": "7", **options})
    given = TaskOptions(
        cluster="",
        on_gap=chosen.on_gap,
        include_gaps=chosen.include_gaps,
        include_proof=chosen.include_proof,
        read_timeout_us=Micros(1_000_000),
    )
    batches = read_range(Cut(LogId(7), "/team/clicks", lo, hi), arrow_schema(source_schema(chosen)), given)
    return [row for batch in batches for row in batch.to_pylist()]


def test_gaps_that_nobody_misses_are_rows_only_when_asked_for(readers: list[ListedReader]) -> None:
    assert [row["lsn"] for row in rows(1, 3)] == [3] * 10
    told = [row for row in rows(1, 3, includeGaps="true") if row["record_type"] == "GAP"]
    assert [(row["gap_type"], row["gap_lo"], row["gap_hi"]) for row in told] == [("BRIDGE", 1, 2)]


@pytest.mark.parametrize(
    ("lo", "status", "texts"),
    [
        (7, Status.DATALOSS, ["e0n8 to e0n9 is lost: no copy is left"]),
        (
            1,
            Status.NOTFOUND,
            [
                "e0n4 to e0n6 was trimmed (by the log's retention, or on request) before it was read",
                "Set onGap to skip",
                "a stream that is started again from its checkpoint ends here again until then",
            ],
        ),
    ],
)
def test_loss_and_trimming_are_errors_that_differ_and_name_log_and_range(
    readers: list[ListedReader], lo: int, status: Status, texts: list[str]
) -> None:
    with pytest.raises(LogDeviceError) as caught:
        rows(lo, 11)
    assert caught.value.status is status
    assert [text for text in texts if text not in str(caught.value)] == []
    assert "log 7 (/team/clicks)" in str(caught.value)
    assert readers[-1].closed


def test_what_is_missing_is_reported_as_rows(readers: list[ListedReader]) -> None:
    told = rows(1, 11, onGap=OnGap.REPORT.value)
    assert [(row["gap_type"], row["gap_lo"], row["gap_hi"]) for row in told if row["record_type"] == "GAP"] == [
        ("TRIM", 4, 6),
        ("DATALOSS", 8, 9),
    ]
    assert sum(row["record_type"] == "RECORD" for row in told) == 30


def test_what_is_missing_is_skipped_and_counted(readers: list[ListedReader], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "logdevice.spark"):
        assert len(rows(1, 11, onGap=OnGap.SKIP.value)) == 30
    assert "skipped 3 LSNs trim, 2 LSNs dataloss" in caplog.text


def test_what_a_range_held_is_in_the_log_of_the_executor(
    readers: list[ListedReader], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "logdevice.spark"):
        rows(1, 3)
    assert "log 7 (/team/clicks), e0n1 to e0n3: 10 records in 1 entries; gaps: 1 BRIDGE" in caplog.text


def test_batches_of_large_payloads_have_fewer_records() -> None:
    def next_records(payloads: list[bytes | None], before: int = 4096) -> int:
        batch = RecordBatch(LogId(7))
        if payloads:
            batch.add_records(payloads, RecordRun(1, Timestamp(0), 0, len(payloads)))
        return task.next_records(batch, before)

    assert next_records([b"x" * 100] * 50) == 65_536
    assert next_records([b"x" * (1 << 20)] * 3) == 16
    assert next_records([bytes(40 << 20)]) == 1
    assert next_records([b"", None]) == 65_536
    assert next_records([], before=12) == 12


def test_the_proof_covers_the_range(readers: list[ListedReader]) -> None:
    (told,) = (row["proof"] for row in rows(2, 10, onGap="skip", includeProof="true") if row["proof"])
    assert (told["first"], told["last"], told["entries"], told["records"]) == (2, 10, 3, 30)
    assert sum(gap["gap_hi"] - gap["gap_lo"] + 1 for gap in told["gaps"]) == 6


def test_a_range_that_ends_early_is_an_error(readers: list[ListedReader]) -> None:
    with pytest.raises(LogDeviceError, match="7 of 8 LSNs are accounted for"):
        rows(5, 12, onGap="skip")
