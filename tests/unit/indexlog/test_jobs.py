"""Jobs in memory, step by step: what they commit fits into commands, and what one index lacks is not in the way of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgpack

from client.replica.commands import COMMAND_BYTES_MAX, CommandRefused, StateVersion, refusal
from indexlog.columns import rows_of
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
from indexlog.jobs import MergeReport, commit_merge, deal_job, merge_job
from indexlog.manifest import commands as m
from indexlog.manifest.commands import OutputFile
from indexlog.manifest.parts import Part, PartKind
from indexlog.manifest.state import ManifestState
from indexlog.merging import merge_work
from indexlog.planning import ALL_AT_ONCE, STANDARD_POLICY, plan_merge
from indexlog.records import LogRecord, Modification, encode_record
from indexlog.stored import read_run
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

    def run(self, steps: Steps[T]) -> T:
        sent: Any = None
        error: Exception | None = None
        while True:
            try:
                effect = steps.send(sent) if error is None else steps.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            sent, error = None, None
            try:
                sent = self._do(effect)
            except (LogDeviceError, OSError) as problem:
                error = problem

    def _do(self, effect: IndexEffect) -> Any:
        match effect:
            case ProposeCommand(command):
                return self.propose(command)
            case ConfirmView():
                return None
            case FindTails():
                return {LOG: len(self.entries)}
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
