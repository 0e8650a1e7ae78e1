"""What Spark's tasks do: each writes files of its own and tells the driver of them. A task that is repeated, or runs twice, writes others; those that the driver
does not commit are garbage once the job has ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass

import pyarrow as pa
from pyspark import TaskContext

from indexlog.effects import RawRange
from indexlog.jobs import DealtRange, deal_range
from indexlog.local_store import open_store
from indexlog.manifest.commands import OutputFile, SliceEntry
from indexlog.merging import MergeTask, do_merge
from logdevice_py.core.status import LogDeviceError, Status

MADE_SCHEMA = "log BIGINT, first BIGINT, records BIGINT, bytes BIGINT, unreadable BIGINT, path STRING, slices STRING"


@dataclass(frozen=True, slots=True)
class MadeContainer:
    """What a task made of a part of a raw log."""

    log: int
    first: int
    """The LSN of its first record. It ends before the first one of the next part."""
    records: int
    bytes: int
    unreadable: int
    path: str
    slices: str
    """`SliceEntry`, as JSON."""

    def entries(self) -> list[SliceEntry]:
        """What the container holds."""
        return [SliceEntry(*each) for each in json.loads(self.slices)]


@dataclass(frozen=True, slots=True)
class MakeContainers:
    """Makes containers of a partition of the source: for ``mapInArrow``."""

    store: str
    token: int
    floors: Mapping[int, Mapping[str, int]]
    """By raw log and index, up to which LSN the index was dropped."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches with the columns ``log_id``, ``lsn`` and ``payload``, each log's in its order."""
        found: dict[int, list[tuple[int, bytes | None]]] = {}
        for batch in batches:
            logs, lsns, payloads = (batch.column(name).to_pylist() for name in ("log_id", "lsn", "payload"))
            for log, lsn, payload in zip(logs, lsns, payloads, strict=True):
                found.setdefault(log, []).append((lsn, payload))
        for log, records in found.items():
            left = RawRange(records[-1][0], records)
            while left.records:
                first = left.records[0][0]
                path = f"{self.token}/{log}-{first}-{_attempt()}.arrow"
                dealt, slices, left = deal_range(open_store(self.store), path, left, self.floors.get(log, {}))
                yield _made(log, first, dealt, path, slices)


def _made(log: int, first: int, dealt: DealtRange, path: str, slices: list[SliceEntry]) -> pa.RecordBatch:
    told = json.dumps([astuple(each) for each in slices])
    made = MadeContainer(log, first, dealt.records, dealt.size, dealt.unreadable, path if slices else "", told)
    return pa.RecordBatch.from_pylist(
        [dict(zip(MadeContainer.__slots__, astuple(made), strict=True))],
        schema=pa.schema(
            [(name, pa.string() if name in ("path", "slices") else pa.int64()) for name in MadeContainer.__slots__]
        ),
    )


@dataclass(frozen=True, slots=True)
class MergedTask:
    """What a task of merging came to."""

    task: MergeTask
    outputs: list[OutputFile | None]
    """What its runs came to; without a meaning when an input is lost."""
    missing: str = ""
    """A file that was not in the store; empty: all were."""
    damaged: str = ""
    """What is wrong with a file; empty: nothing."""

    @property
    def key(self) -> tuple[str, int]:
        """Tells it from other tasks of one run of Spark."""
        return self.task.plans[0].index, self.task.piece


@dataclass(frozen=True, slots=True)
class MergeOnExecutor:
    """Writes the file of a task: for ``RDD.map``. A file that is lost is told to the driver: Spark would try again, and let all other tasks fail then."""

    store: str
    token: int

    def __call__(self, task: MergeTask) -> MergedTask:
        """What it came to."""
        path = f"{self.token}/{task.plans[0].index}-{task.name[:5]}-{_attempt()}{task.name[5:]}"
        try:
            return MergedTask(task, do_merge(open_store(self.store), path, task))
        except FileNotFoundError as error:
            return MergedTask(task, [], missing=str(error))
        except LogDeviceError as error:
            if error.status is not Status.DATALOSS:
                raise
            return MergedTask(task, [], damaged=error.detail)


def _attempt() -> int:
    """Unique among the attempts of all tasks of a Spark application."""
    context = TaskContext.get()
    assert context is not None, "not in a task of Spark"
    return context.taskAttemptId()
