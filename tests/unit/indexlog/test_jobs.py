"""Jobs in memory, step by step: what they commit fits into commands, and what one index lacks is not in the way of others."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgpack
import pytest

from client.replica.commands import COMMAND_BYTES_MAX, CommandRefused, StateVersion, refusal
from indexlog import merging
from indexlog.columns import rows_of, table_of
from indexlog.effects import (
    ConfirmView,
    DoWork,
    FindTails,
    IndexEffect,
    ManifestOutcome,
    ProposeCommand,
    RawRange,
    ReadRange,
    Steps,
)
from indexlog.jobs import MergeReport, collect_job, commit_merge, deal_job, merge_job, refused
from indexlog.manifest import commands as m
from indexlog.manifest.commands import OutputFile
from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind
from indexlog.manifest.state import ManifestState
from indexlog.merging import merge_work
from indexlog.planning import ALL_AT_ONCE, STANDARD_POLICY, MergePlan, MergePolicy, plan_merge
from indexlog.records import LogRecord, Modification, encode_record
from indexlog.spark.jobs import OnSpark
from indexlog.stored import read_run, write_run
from indexlog.stores import MemoryStore
from logdevice_py.core.status import LogDeviceError, Status

T = TypeVar("T")
LOG = 4_000_001


class Bench:
    """A manifest, a raw log whose entries are lists of records, and a store."""

    def __init__(self) -> None:
        self.state = ManifestState()
        self.store = MemoryStore()
        self.entries: list[Sequence[bytes]] = []
        self.largest = self.reads = 0
        self.on_effect: dict[type[IndexEffect], list[m.ManifestCommand]] = {}
        """What others do to the manifest behind the first effect of a type."""
        self.propose(m.Initialize("memory", [LOG]))

    def propose(self, command: m.ManifestCommand) -> ManifestOutcome:
        body = m.encode_manifest_command(command)
        self.largest = max(self.largest, len(body))
        if len(body) > COMMAND_BYTES_MAX:
            raise LogDeviceError(Status.TOOBIG, f"a command of {len(body)} bytes")
        try:
            return ManifestOutcome(msgpack.unpackb(self.state.apply(body, StateVersion(1, 0), 7)))
        except CommandRefused as error:
            return ManifestOutcome(0, *refusal(str(error)))

    def run(self, steps: Steps[T], sent: Any = None) -> T:
        error: Exception | None = None
        while True:
            try:
                effect = steps.send(sent) if error is None else steps.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            sent, error = None, None
            try:
                sent = self.do(effect)
            except (LogDeviceError, OSError) as problem:
                error = problem
            for command in self.on_effect.pop(type(effect), []):
                assert self.propose(command).refused is None

    def do(self, effect: IndexEffect) -> Any:
        match effect:
            case ProposeCommand(command):
                return self.propose(command)
            case ConfirmView():
                return None
            case FindTails(logs):
                return {log: len(self.entries) if log == LOG else 0 for log in logs}
            case ReadRange(_, start, until):
                self.reads += 1
                entries = enumerate(self.entries[start - 1 : until], start)
                return RawRange(until, [(lsn, payload) for lsn, entry in entries for payload in entry])
            case DoWork(work):
                return work()

    def documents(self, index: str) -> list[str]:
        """Of all parts, in their order."""
        tables = [table for part in self.state.parts(index) for table in read_run(self.store, part)]
        return [docid for table in tables for docid, _ in rows_of(table)]


def put(index: str, docid: str = "a") -> bytes:
    return encode_record(LogRecord(index, docid, Modification(True, {})))


def test_a_range_of_very_many_indexes_becomes_containers_whose_commands_fit() -> None:
    bench = Bench()
    indexes = [f"{number:064}" for number in range(20_000)]
    bench.entries = [[put(index) for index in indexes[begin : begin + 7]] for begin in range(0, len(indexes), 7)]
    report = bench.run(deal_job(lambda: bench.state, bench.store))
    assert (report.records, report.containers, bench.reads) == (20_000, 7, 1)
    assert list(bench.state.indexes) == indexes
    assert bench.state.dealt[LOG] == len(bench.entries)
    assert bench.largest < 0.7 * COMMAND_BYTES_MAX
    assert [bench.documents(index) for index in indexes[::3000]] == [["a"]] * 7


def test_an_entry_is_dealt_whole() -> None:
    bench = Bench()
    bench.entries = [[put(f"{number:064}") for number in range(begin, begin + 4000)] for begin in (0, 4000, 8000)]
    report = bench.run(deal_job(lambda: bench.state, bench.store))
    assert report.containers == 3
    assert [part.records for parts in bench.state.indexes.values() for part in parts] == [1] * 12_000


@pytest.mark.parametrize("ends_behind", [ReadRange, DoWork])
def test_a_log_that_ends_while_it_is_dealt_is_dealt_to_its_end(ends_behind: type[IndexEffect]) -> None:
    """Its tail was found behind the end: tails go up without records when a sequencer changes."""
    bench = Bench()
    bench.entries = [[put("books", "a")], [put("books", "b")], [b""], []]
    bench.propose(m.AddGeneration([LOG + 1]))
    bench.on_effect[ends_behind] = [m.EndGeneration(0, [3])]
    report = bench.run(deal_job(lambda: bench.state, bench.store))
    assert (report.records, report.containers, report.overtaken) == (2, 1, 0)
    assert bench.documents("books") == ["a", "b"]
    assert [each.number for each in bench.state.generations] == [1]


def test_an_index_of_very_many_slices_is_merged_by_commands_that_fit() -> None:
    slices = [
        Part(f"{number}/{LOG}-{(3 << 32) + number}-0.arrow", 70_000, PartKind.UNSORTED, 1, 9, 7, number, number, number)
        for number in range(100_000, 115_000)
    ]
    sizes = []
    while (plan := plan_merge("books", slices, STANDARD_POLICY)) is not None:
        assert plan.parts == tuple(slices[: len(plan.parts)])
        del slices[: len(plan.parts)]
        (work,) = merge_work([plan], STANDARD_POLICY)
        output = OutputFile("200000/1-00000.arrow", PartKind.SORTED, 10_000, 1, 7, 0)
        command = next(commit_merge(200_000, work, [[output]], MergeReport()))
        assert isinstance(command, ProposeCommand)
        sizes.append(len(m.encode_manifest_command(command.command)))
    assert len(sizes) == 4
    assert max(sizes) < 0.7 * COMMAND_BYTES_MAX


class TasksHere:
    """A Spark session whose tasks run in this process."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.runs = 0
        self._found: Sequence[Any] = ()

    def parallelize(self, tasks: Sequence[Any], partitions: int) -> TasksHere:
        assert len(tasks) == partitions
        self.runs += 1
        self._found = tasks
        return self

    def map(self, function: Callable[[Any], Any]) -> TasksHere:
        self._found = [pickle.loads(pickle.dumps(function(task))) for task in self._found]
        return self

    def collect(self) -> Sequence[Any]:
        return self._found


def merge_on_spark(bench: Bench, policy: MergePolicy, monkeypatch: pytest.MonkeyPatch) -> Steps[MergeReport]:
    """The job of Spark's driver, with tasks of this process."""
    attempts = iter(range(1000))
    monkeypatch.setattr("indexlog.spark.tasks.open_store", lambda url: bench.store)
    monkeypatch.setattr("indexlog.spark.tasks._attempt", lambda: next(attempts))
    return OnSpark(TasksHere(), "").merge_job(lambda: bench.state, bench.store, policy)  # type: ignore[arg-type]


@pytest.mark.parametrize("own_file", [False, True], ids=["shared", "own"])
@pytest.mark.parametrize("lost", ["damaged", "missing"])
@pytest.mark.parametrize("on", ["this process", "spark"])
def test_a_file_that_is_lost_is_not_in_the_way_of_other_indexes(
    on: str, lost: str, own_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one job, which tells of it at the end."""
    bench = Bench()
    policy = replace(ALL_AT_ONCE, own_file_bytes=0 if own_file else 1 << 30)
    indexes = [f"index-{number}" for number in range(9)]
    for index in (indexes[1], indexes[6]):  # each is in a container of its own
        bench.entries.append([put(index)])
        bench.run(deal_job(lambda: bench.state, bench.store))
        path = bench.state.parts(index)[0].path
        if lost == "damaged":
            bench.store.files[path] = bench.store.files[path][:-1]
        else:
            bench.store.delete(path)
    for docid in ("a", "b"):
        bench.entries.append([put(index, docid) for index in indexes])
        bench.run(deal_job(lambda: bench.state, bench.store))
    steps = (
        merge_on_spark(bench, policy, monkeypatch)
        if on == "spark"
        else merge_job(lambda: bench.state, bench.store, policy)
    )
    with pytest.raises(LogDeviceError, match=r"DATALOSS: .*1/4000001-1-0\.arrow"):
        bench.run(steps)
    assert [len(bench.state.parts(index)) for index in indexes] == [1, 3, 1, 1, 1, 1, 3, 1, 1]
    assert bench.documents(indexes[8]) == ["a", "b"]
    assert bench.state.jobs == {}


def test_what_others_replaced_and_collected_while_spark_merged_it_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    for docid in ("a", "b"):
        bench.entries.append([put(index, docid) for index in ("books", "songs")])
        bench.run(deal_job(lambda: bench.state, bench.store))
    steps = merge_on_spark(bench, ALL_AT_ONCE, monkeypatch)
    effect = next(steps)
    while not isinstance(effect, DoWork):
        effect = steps.send(bench.do(effect))
    bench.run(merge_job(lambda: bench.state, bench.store, ALL_AT_ONCE))
    assert bench.run(collect_job(lambda: bench.state, bench.store, 8)).files >= 2
    assert bench.run(steps, bench.do(effect)).overtaken == 1
    assert [bench.documents(index) for index in ("books", "songs")] == [["a", "b"]] * 2
    assert bench.state.jobs == {}


def test_parts_are_judged_by_what_they_take_in_memory() -> None:
    """A store may hold texts in a hundredth of that, and what is merged is in memory."""
    bench = Bench()
    text = "x" * 200_000
    for number in range(31):
        change = Modification(True, {"text": text})
        bench.entries.append([encode_record(LogRecord("books", f"{number}-{n}", change)) for n in range(4)])
        bench.run(deal_job(lambda: bench.state, bench.store))
    for policy in (STANDARD_POLICY, ALL_AT_ONCE):
        bench.run(merge_job(lambda: bench.state, bench.store, policy))
        parts = bench.state.parts("books")
        assert [part.place for part in parts] == [WHOLE_FILE] * len(parts), "it is no small index"
        assert len(parts) == 2, "and is cut into tasks"
        assert sum(part.bytes for part in parts) > 31 * 4 * len(text)
        assert sum(len(bench.store.files[part.path]) for part in parts) < 31 * len(text) / 10


def test_what_takes_more_memory_than_it_tells_is_merged_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of earlier versions tell what is stored."""
    monkeypatch.setattr(merging, "_AT_ONCE_BYTES", 1000)
    store = MemoryStore()
    runs = [[f"{number:03}" for number in range(begin, 100, 2)] for begin in (0, 1)]
    for number, docids in enumerate(runs):
        table = table_of((docid, Modification(True, {"n": docid})) for docid in docids)
        assert write_run(store, f"1/{number}", PartKind.SORTED, 1, [table]) is not None
    parts = tuple(
        Part(f"1/{number}", WHOLE_FILE, PartKind.SORTED, 50, 10, 1, number, number, number) for number in (0, 1)
    )
    task = merging.MergeTask((MergePlan("books", parts, PartKind.OPTIMIZED, True),), shares_file=False, bytes=20)
    monkeypatch.setattr(merging, "merged", lambda *_, **__: pytest.fail("it is merged at once"))
    (output,) = merging.do_merge(store, "2/1", task)
    assert output is not None
    found = [docid for table in read_run(store, parts[0]._replace(path="2/1")) for docid, _ in rows_of(table)]
    assert found == sorted(runs[0] + runs[1])


def test_very_many_indexes_with_long_codes_are_merged_by_commands_that_fit() -> None:
    bench = Bench()
    indexes = [f"{number:064}" for number in range(5000)]
    for round_ in range(3):
        bench.entries += [[put(index, f"{round_}")] for index in indexes]
        bench.run(deal_job(lambda: bench.state, bench.store))
    bench.run(merge_job(lambda: bench.state, bench.store, ALL_AT_ONCE))
    assert [len(parts) for parts in bench.state.indexes.values()] == [1] * len(indexes)
    assert bench.documents(indexes[0]) == ["0", "1", "2"]
    assert bench.largest < 0.9 * COMMAND_BYTES_MAX


@pytest.mark.parametrize(
    ("status", "again"), [(Status.AGAIN, True), (Status.STALE, False), (Status.INVALID_PARAM, False)]
)
def test_only_what_may_be_taken_a_moment_later_can_be_tried_again(status: Status, again: bool) -> None:
    error = refused(ManifestOutcome(0, status, "why"))
    assert (error.status, error.retriable, error.maybe_applied) == (status, again, False)
