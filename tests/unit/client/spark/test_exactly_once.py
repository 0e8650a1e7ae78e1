"""Names of what is written once, and which rows of a task are in its log already."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from client.receipt import ReceiptRun, Receipts
from client.spark import appending, exactly_once
from client.spark import earlier_tries as looking
from client.spark.access import NO_ACCESS
from client.spark.appending import TaskAppends, append_batches
from client.spark.earlier_tries import EarlierTries
from client.spark.exactly_once import ExactAppends
from client.spark.naming import WriteName
from client.spark.options import once_options
from client.spark.rows import Rows, digest
from client.spark.writer import AppendedRows, check_partitions
from client.write.finder import StoredFrame, StoredFrames
from logdevice_py.core.ids import LogId, NodeId, WriterId
from logdevice_py.core.lsn import ESN_MAX, LSN, Epoch, Lsn, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import Durability, SeqState

LOG = LogId(7)
NAME = WriteName.of_query("query", 5, 2)


def test_each_task_has_a_writer_of_its_own_and_knows_those_of_its_query() -> None:
    names = [
        WriteName.of_query(query, batch, partition)
        for query in ("query", "other")
        for batch in (4, 5, 6)
        for partition in (0, 2)
    ] + [WriteName.of_job("query", 2)]
    writers = [name.writer for name in names]
    assert len(set(writers)) == len(writers)
    assert {len(writer) for writer in writers} == {16}
    assert [NAME.is_sibling(writer) for writer in writers] == [True] * 6 + [False] * 7
    assert [NAME.is_of_earlier_batch(writer) for writer in writers[:6]] == [True, True, False, False, False, False]


def test_from_the_ids_that_stand_in_records_nobody_can_tell_another() -> None:
    """Neither that of the next micro-batch, nor that of another partition, nor one with a partition that nobody has."""
    seen = {WriteName.of_query("query", batch, partition).writer for batch in range(5) for partition in range(50)}
    assert len({writer[:8] for writer in seen}) == len(seen)
    for writer in seen:
        for numbers in (NAME.writer[8:], bytes(4) + b"\xff" * 4):
            guess = WriterId(writer[:8] + numbers)
            assert not NAME.is_sibling(guess)
            assert not NAME.is_own(guess)
            assert NAME.partition_of(guess) is None
            assert not NAME.is_of_earlier_batch(guess)


def test_what_an_earlier_version_appended_is_found() -> None:
    """It named streams by 8 bytes of the query or job, its micro-batch and its partition."""

    def former(what: str, batch: int, partition: int) -> WriterId:
        begin = hashlib.blake2b(what.encode(), digest_size=8).digest()
        return WriterId(begin + batch.to_bytes(4, "big") + partition.to_bytes(4, "big"))

    assert NAME.is_own(former("query query", 5, 2))
    assert NAME.partition_of(former("query query", 5, 7)) == 7
    assert NAME.is_of_earlier_batch(former("query query", 4, 7))
    assert not NAME.is_sibling(former("query other", 5, 2))
    assert WriteName.of_job("a job", 1).is_own(former("job a job", 0, 1))
    # whoever has seen one can make more: one that would take 512 MiB to remember is nobody's
    assert NAME.partition_of(former("query query", 5, 0xFFFFFFFF)) is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"delivery": "sometimes"}, "it must be one of exactlyOnce, atLeastOnce"),
        ({"jobid": " "}, "jobId is empty"),
        ({"since": "yesterday"}, "since: 'yesterday' is no time"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(LogDeviceError, match=text):
        once_options(given)


def digests(*payloads: bytes) -> list[bytes]:
    return Rows(list(payloads)).digests()


class FakeOutcome(asyncio.Future[Any]):
    """Of one append."""


class Writer:
    """Takes rows, and loses its stream to another's try so many times."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.views: list[int] = []
        self.rows = Rows([])

    def take_over(self, log: LogId, writer: WriterId, view: Epoch) -> None:
        assert writer == NAME.writer
        self.views.append(view)

    async def ready(self) -> None:
        pass

    def append_many(self, log: LogId, payloads: list[bytes], keys: list[bytes | None] | None) -> FakeOutcome:
        outcome = FakeOutcome()
        if self.refusals:
            self.refusals -= 1
            outcome.set_exception(LogDeviceError(Status.WRITE_STREAM_BROKEN))
        else:
            self.rows.add(Rows(payloads, keys))
            outcome.set_result(None)
        return outcome


def appends(
    monkeypatch: pytest.MonkeyPatch, writer: Writer, looks: list[tuple[int, list[bytes]]]
) -> tuple[ExactAppends, list[int]]:
    """What is found at each look: the epoch and the digests of the records below it."""
    asked: list[int] = []

    async def look(client: Any, log: LogId, name: WriteName, *, min_epoch: int, **_: Any) -> EarlierTries:
        asked.append(min_epoch)
        view, digests = looks.pop(0)
        return EarlierTries(Epoch(view), Counter(digests))

    monkeypatch.setattr(exactly_once, "earlier_tries", look)
    made = ExactAppends(None, writer, LOG, NAME, since=None, timeout_us=Micros(1))  # type: ignore[arg-type]
    return made, asked


async def test_rows_that_are_there_are_left_out_as_often_as_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer()
    task, _ = appends(monkeypatch, writer, [(3, digests(b"a", b"b", b"a"))])
    await task.append(Rows([b"c", b"a", b"a"]))
    assert writer.rows == Rows([])
    await task.append(Rows([b"a", b"b", b"d"]))
    assert writer.rows == Rows([b"c", b"a", b"d"])
    await task.append(Rows([b"b"]))
    task.finish()
    assert writer.rows == Rows([b"c", b"a", b"d", b"b"])
    assert writer.views == [3]


async def test_a_row_is_there_only_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer()
    stored = [digest(b"a", b"1"), digest(b"a"), digest(b"b", b"")]
    task, _ = appends(monkeypatch, writer, [(3, stored)])
    await task.append(Rows([b"a", b"a", b"a"], [b"2", b"1", None]))
    assert writer.rows == Rows([])
    await task.append(Rows([b"b", b"1a"]))
    await task.append(Rows([b"c", b"b"], [None, b""]))
    task.finish()
    assert writer.rows == Rows([b"a", b"b", b"1a", b"c"], [b"2", None, None, None])


async def test_a_try_that_is_behind_looks_again_in_a_later_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(refusals=2)
    looks = [(3, digests(b"a")), (4, digests(b"a", b"c")), (6, digests(b"a", b"c", b"b"))]
    task, asked = appends(monkeypatch, writer, looks)
    await task.append(Rows([b"a", b"b", b"c", b"d"]))
    task.finish()
    assert asked == [0, 4, 5]
    assert writer.rows == Rows([b"d"])


async def test_records_that_are_none_of_the_rows_are_told_and_nothing_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Writer()
    task, _ = appends(monkeypatch, writer, [(3, digests(b"a", b"z"))])
    await task.append(Rows([b"a", b"b"]))
    with pytest.raises(LogDeviceError, match=r"1 records that are none of its rows.* other tasks may have appended"):
        task.finish()
    assert writer.rows == Rows([])


class SparkClient:
    """A blocking client with one writer, whose `close` fails as that of a writer some of whose records failed."""

    def __init__(self, runner: asyncio.Runner, writer: Writer) -> None:
        self.run = lambda work: runner.run(work(self))
        self._writer = writer
        self.failed = False
        """An append failed, overtaken or not."""

    def buffered_writer(self, **options: Any) -> SparkClient:
        return self

    def log_id(self, log: int) -> LogId:
        return LogId(log)

    def take_over(self, log: LogId, writer: WriterId, view: Epoch) -> None:
        self._writer.take_over(log, writer, view)

    async def ready(self) -> None:
        await self._writer.ready()

    def append_many(self, log: LogId, payloads: list[bytes], keys: list[bytes | None] | None) -> FakeOutcome:
        outcome = self._writer.append_many(log, payloads, keys)
        if outcome.exception() is not None:
            self.failed = True
            return outcome
        run = ReceiptRun(len(payloads), LSN(compose_lsn(4, 1)), 0, Timestamp(1), (), Durability.SYNC)
        appended = FakeOutcome()
        appended.set_result(Receipts([run]))
        return appended

    async def close(self) -> None:
        if self.failed:
            raise LogDeviceError(Status.WRITE_STREAM_BROKEN, "1 records were not acknowledged")

    def abandon(self) -> None:
        """Nothing is open."""


def one_task(monkeypatch: pytest.MonkeyPatch, writer: Writer, name: WriteName | None) -> TaskAppends:
    """A task of two rows, during which another's try may be ahead."""
    appends(monkeypatch, writer, [(3, []), (4, [])])
    options: Any = SimpleNamespace(
        cluster="", access=NO_ACCESS, compression=None, log=LOG, since=None, read_timeout_us=Micros(1)
    )
    with asyncio.Runner() as runner:
        client = SparkClient(runner, writer)
        monkeypatch.setattr(appending, "client_for", lambda text, access: client)
        return append_batches(iter([pa.RecordBatch.from_pydict({"payload": [b"a", b"b"]})]), options, name)


def test_a_task_that_was_overtaken_and_appended_everything_after_all_does_not_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = Writer(refusals=1)
    assert one_task(monkeypatch, writer, NAME).by_log == {LOG: (2, compose_lsn(4, 1), compose_lsn(4, 1))}
    assert writer.rows == Rows([b"a", b"b"])


def test_a_task_whose_append_failed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LogDeviceError) as caught:
        one_task(monkeypatch, Writer(refusals=1), None)
    assert caught.value.status is Status.WRITE_STREAM_BROKEN


class Looked:
    """A log of ten seconds an LSN, and what was read of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, frames: list[tuple[int, WriteName]], epoch: int = 2) -> None:
        self.frames = frames
        self.epoch = epoch
        self.moves: list[int] = []
        self.ranges: list[tuple[int, int]] = []
        monkeypatch.setattr(looking, "recovered", self.recovered)
        monkeypatch.setattr(looking, "stored_frames", self.stored_frames)

    async def recovered(self, client: Any, log: LogId, *, min_epoch: int, timeout_us: int) -> SeqState:
        self.moves.append(min_epoch)
        self.epoch = max(self.epoch, min_epoch)
        released = max([0, *(lsn for lsn, _ in self.frames)])
        return SeqState(
            request_id=1,
            log=log,
            status=Status.OK,
            redirect=NodeId(-1),
            epoch=Epoch(self.epoch),
            last_released=Lsn(released),
            next_lsn=Lsn(released + 1),
            tail_lsn=Lsn(released),
            tail_timestamp=Timestamp((released & ESN_MAX) * 10_000_000),
        )

    async def find_time(self, log: LogId, when: int) -> LSN:
        return LSN(compose_lsn(Epoch(1), max(1, when // 10_000_000)))

    async def stored_frames(self, client: Any, log: LogId, first: int, until: int, wanted: Any) -> StoredFrames:
        self.ranges.append((first, until))
        found = [
            StoredFrame(lsn, name.writer, 1, b"%d" % lsn, False)  # type: ignore[arg-type]
            for lsn, name in self.frames
            if first <= lsn <= until and wanted(name.writer)
        ]
        return StoredFrames(found, lost=False)

    async def look(self, since: int | None = None) -> EarlierTries:
        timeout = Micros(5_000_000)
        return await looking.earlier_tries(self, LOG, NAME, since=since, min_epoch=0, timeout_us=timeout)  # type: ignore[arg-type]


def at(esn: int, epoch: int = 1) -> int:
    return epoch << 32 | esn


async def test_one_looks_back_to_a_micro_batch_before_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    before, other = WriteName.of_query("query", 4, 0), WriteName.of_query("other", 4, 0)
    log = Looked(
        monkeypatch, [(at(100), before), (at(970), before), (at(985), NAME), (at(999), other), (at(1000), NAME)]
    )
    found = await log.look()
    assert found.stored == Counter([digest(b"%d" % at(985)), digest(b"%d" % at(1000))])
    assert found.view == 2
    assert min(first for first, _ in log.ranges) == at(970)
    assert [until + 1 for _, until in log.ranges[1:]] == [first for first, _ in log.ranges[:-1]]


async def test_the_partitions_of_earlier_tries_of_the_same_micro_batch_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = [WriteName.of_query("query", 5, 4), WriteName.of_query("query", 6, 8), WriteName.of_query("other", 5, 9)]
    log = Looked(monkeypatch, [(at(970), WriteName.of_query("query", 4, 7)), *((at(980), each) for each in others)])
    assert (await log.look()).partitions == 1 << 4


@pytest.mark.parametrize(
    ("tasks", "refused"),
    [
        ([{7: 0b11}, {7: 0}], False),  # repeated, or side by side
        ([{7: 0b10, 8: 1}, {7: 0b11}], False),
        ([{7: 0b01}, {}], False),
        ([{7: 0b11}], True),  # with fewer partitions
        ([{}, {}, {7: 0b10}], True),  # rows of partition 1 come in partition 2
        ([{8: 0}, {8: 0}, {7: 0b001}], True),
    ],
)
def test_a_write_that_was_begun_with_other_partitions_does_not_end_well(
    tasks: list[dict[int, int]], refused: bool
) -> None:
    messages = [AppendedRows(TaskAppends({}, seen, number)) for number, seen in enumerate(tasks)]
    if not refused:
        check_partitions(messages)
        return
    with pytest.raises(LogDeviceError, match=r"begun before with others.* in the logs 7:"):
        check_partitions(messages)


async def test_one_looks_back_to_the_beginning_of_the_query_or_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Looked(monkeypatch, [(at(5000), WriteName.of_query("other", 1, 1))])
    assert (await log.look()).stored == Counter()
    assert min(first for first, _ in log.ranges) == 1
    log.ranges.clear()
    await log.look(since=40_000_000_000)
    assert min(first for first, _ in log.ranges) == at(4000 - 6)


async def test_an_epoch_in_which_somebody_has_the_stream_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Looked(monkeypatch, [(at(3, epoch=2), NAME)])
    found = await log.look()
    assert log.moves == [0, 3]
    assert (found.view, found.stored.total()) == (3, 1)


async def test_in_a_log_that_was_never_written_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Looked(monkeypatch, [], epoch=1)
    assert (await log.look()).view == 1
    assert log.ranges == []
