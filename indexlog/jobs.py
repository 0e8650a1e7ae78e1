"""Jobs: dealing, merging, collecting garbage. Whoever runs them may die between any two steps, and two may run at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, TypeVar

import numpy as np
import pyarrow as pa
from google_crc32c import value as crc32c

from indexlog.columns import rows_in_order
from indexlog.effects import (
    ConfirmView,
    DoWork,
    FindTails,
    ManifestOutcome,
    ProposeCommand,
    RawRange,
    ReadRange,
    Steps,
    TrimmedRange,
    View,
)
from indexlog.manifest.commands import (
    BeginJob,
    Deal,
    DropIndex,
    EndJob,
    Forget,
    OutputFile,
    Replace,
    ReplacedRun,
    ReplaceRuns,
    SliceEntry,
)
from indexlog.manifest.parts import JobKind, PartKind
from indexlog.merging import MergeTask, MergeWork, cuts_of, do_merge, merge_work
from indexlog.planning import MergePlan, MergePolicy, forgettable, garbage, plan_merge
from indexlog.raw_rows import Integers, raw_rows
from indexlog.stored import write_container
from indexlog.stores import FileStore
from logdevice_py.core.status import LogDeviceError, Status

DEAL_BYTES_MAX: Final = 32_000_000
"""Payloads that are made into one container."""
PAYLOAD_BYTES_MAX: Final = 1 << 30
"""Payloads that are made into one container at most, without those that the last entry added: what is in a column has a place of 31 bits."""
NAMED_BYTES_MAX: Final = 300_000
"""What a command tells of the indexes of one container, about, without those that the last entry added: a command has an end."""
_SLICE_BYTES: Final = 32
"""Of a command for each index of a container, besides its code, at most."""
T = TypeVar("T")


class AddedReport:
    """What several jobs did, as one job tells it."""

    __slots__: tuple[str, ...] = ()

    def add(self, other: Self) -> None:
        """What another job did too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class DealReport(AddedReport):
    """What a job dealt."""

    records: int = 0
    bytes: int = 0
    containers: int = 0
    unreadable: int = 0
    overtaken: int = 0
    """Ranges that somebody else dealt first."""


@dataclass(slots=True)
class MergeReport(AddedReport):
    """What a job sorted and optimized."""

    sorted: int = 0
    optimized: int = 0
    records: int = 0
    """That were written."""
    bytes: int = 0
    """What these take in memory, about."""
    overtaken: int = 0
    """Merges that were refused: others had replaced an input."""


@dataclass(slots=True)
class CollectReport:
    """What a job deleted."""

    files: int = 0
    bytes: int = 0
    forgotten: int = 0
    """Page tokens below this serial are not served any more."""


def refused(outcome: ManifestOutcome) -> LogDeviceError:
    """The error of a command that was refused. What is refused with AGAIN may be taken a moment later."""
    assert outcome.refused is not None
    again = outcome.refused is Status.AGAIN
    return LogDeviceError(outcome.refused, outcome.reason, retriable=again, maybe_applied=False)


def lost_file(index: str, error: FileNotFoundError) -> LogDeviceError:
    """A file is missing in the store although the manifest counts on it."""
    text = f"index {index}: a file that is live is not in the store: {error}"
    return LogDeviceError(Status.DATALOSS, text, retriable=False, maybe_applied=False)


def job(work: Callable[[int], Steps[T]], kind: JobKind) -> Steps[T]:
    """Begin a job, do its work with its token, and end it, also when the work fails."""
    begun: ManifestOutcome = yield ProposeCommand(BeginJob(kind))
    if begun.refused is not None:
        raise refused(begun)
    token = begun.number
    try:
        result = yield from work(token)
    except Exception:
        yield ProposeCommand(EndJob(token))
        raise
    yield ProposeCommand(EndJob(token))
    return result


# Dealing


@dataclass(frozen=True, slots=True)
class DealtRange:
    """What a container was made of."""

    records: int
    size: int
    """Of their payloads, in bytes."""
    unreadable: int


def floors_of(view: View, log: int) -> dict[str, int]:
    """By index, up to which LSN of a raw log it was dropped, where that is not dealt."""
    state = view()
    dealt = state.dealt.get(log, 0)
    return {index: lsn for index, floor in state.floors.items() if (lsn := floor.lsns.get(log, 0)) > dealt}


def range_to_deal(view: View, log: int, tail: int) -> tuple[int, int]:
    """The first and the last LSN of a raw log that are dealt next; nothing is when the first is greater.

    Args:
        view: the manifest. The log may have ended, or be dealt whole, since its tail was found.
        log: the raw log.
        tail: what its tail was.
    """
    state = view()
    end = state.end_of(log)
    # what others dealt to its end is not in the manifest any more
    return state.dealt.get(log, tail) + 1, tail if end is None else min(tail, end)


def deal_range(
    store: FileStore, path: str, raw: RawRange, floors: Mapping[str, int]
) -> tuple[DealtRange, list[SliceEntry], RawRange]:
    """Make a container of as much of a range as one command can tell of, whole entries, if there is anything for it; and what is left."""
    records = raw.records
    payloads = [payload or b"" for _, payload in records]
    sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
    count = _whole_entries(records, sizes, PAYLOAD_BYTES_MAX)
    found = raw_rows(payloads[:count], sizes[:count])
    kept = found
    if floors:
        lsns = np.array([lsn for lsn, _ in records[:count]], np.int64)
        behind = np.array([floors.get(index, 0) for index in found.indexes], np.int64)
        kept = found.chosen(lsns[found.places] > behind[found.codes])
    named = np.zeros(count, np.int64)
    for code, row in zip(*np.unique(kept.codes, return_index=True), strict=True):
        named[kept.places[row]] = len(kept.indexes[code]) + _SLICE_BYTES
    if (fitting := _whole_entries(records, named, NAMED_BYTES_MAX)) < count:
        count = fitting
        kept = kept.chosen(kept.places < count)
    readable = found.places[found.places < count]
    ends = sum(records[place][1] == b"" for place in np.flatnonzero(sizes[:count] == 0).tolist())  # of raw logs
    dealt = DealtRange(len(readable), int(sizes[readable].sum()), count - len(readable) - ends)
    slices = []
    if len(kept.places):
        slices = write_container(store, path, rows_in_order(kept.indexes, kept.table, pa.array(kept.codes)))
    return dealt, slices, RawRange(raw.until, records[count:])


def _whole_entries(records: Sequence[tuple[int, bytes | None]], sizes: Integers, most: int) -> int:
    """How many records are dealt together: up to the end of the entry in which they take more than `most`; all, if they never do.

    Args:
        records: with their LSNs.
        sizes: what each of them takes, or of the first ones.
        most: in the same unit.
    """
    count = int(np.searchsorted(np.cumsum(sizes), most, "right")) + 1
    while count < len(sizes) and records[count][0] == records[count - 1][0]:
        count += 1
    return min(count, len(sizes))


def deal_job(
    view: View, store: FileStore, *, bytes_max: int = DEAL_BYTES_MAX, share: tuple[int, int] = (0, 1)
) -> Steps[DealReport]:
    """Deal what the raw logs hold at this moment.

    Args:
        view: the manifest.
        store: for files.
        bytes_max: payloads that are made into one container.
        share: which share of the raw logs, from 0 on, of how many that other jobs do at the same time. Such a job deals one generation.
    """
    number, shares = share

    def work(token: int) -> Steps[DealReport]:
        report = DealReport()
        yield ConfirmView()
        while (generation := view().generation()) is not None:
            tails: Mapping[int, int] = yield FindTails(generation.logs)
            for log in generation.logs[number::shares]:
                yield from _deal_log(view, store, token, log, tails[log], bytes_max, report)
            now = view().generation()
            if now is None or now.number == generation.number or shares > 1:
                break
        return report

    return job(work, JobKind.DEAL)


def _deal_log(
    view: View, store: FileStore, token: int, log: int, tail: int, bytes_max: int, report: DealReport
) -> Steps[None]:
    while True:
        start, end = range_to_deal(view, log, tail)
        if start > end:
            return
        try:
            raw: RawRange = yield ReadRange(log, start, end, bytes_max)
        except TrimmedRange as error:
            yield ConfirmView()
            if error.last <= view().dealt.get(log, error.last):
                report.overtaken += 1  # somebody else dealt it, and it was trimmed then
                continue
            raise
        yield from commit_range(view, store, token, log, start, raw, report)


def commit_range(
    view: View, store: FileStore, token: int, log: int, start: int, raw: RawRange, report: DealReport
) -> Steps[None]:
    """Make containers of a range that was read, mostly one, and commit them; no more once somebody else was first."""
    while start <= raw.until:
        drops, floors = view().drops, floors_of(view, log)
        end = view().end_of(log)
        if end is not None and end < raw.until:
            return  # as when it is refused below
        # for what it may be refused below is in the name: then the same range is dealt again
        path = f"{token}/{log}-{start}-{drops}{'' if end is None else '-ended'}.arrow"
        dealt: DealtRange
        slices: list[SliceEntry]
        left: RawRange
        dealt, slices, left = yield DoWork(partial(deal_range, store, path, raw, floors))
        until = left.records[0][0] - 1 if left.records else raw.until
        command = Deal(token, log, start, until, drops, dealt.unreadable, path if slices else "", slices)
        outcome: ManifestOutcome = yield ProposeCommand(command)
        if outcome.refused is Status.STALE:
            report.overtaken += 1
            return
        if outcome.refused is Status.AGAIN:
            return  # an index was dropped meanwhile, or the log ended before `until`, and the view knows it
        if outcome.refused is not None:
            raise refused(outcome)
        report.records += dealt.records
        report.bytes += dealt.size
        report.containers += bool(slices)
        report.unreadable += dealt.unreadable
        start, raw = until + 1, left


# Merging


def merge_job(
    view: View, store: FileStore, policy: MergePolicy, *, index: str | None = None, share: tuple[int, int] = (0, 1)
) -> Steps[MergeReport]:
    """Sort and optimize all indexes, or one, until the policy asks for nothing more.

    Args:
        view: the manifest.
        store: for files.
        policy: what is merged.
        index: only this one.
        share: which share of all indexes, from 0 on, of how many that other jobs do at the same time.

    Raises (at the end, other indexes are merged):
        LogDeviceError: DATALOSS: a file is missing, or damaged.
    """

    def work(token: int) -> Steps[MergeReport]:
        report = MergeReport()
        lost: dict[str, LogDeviceError] = {}
        yield ConfirmView()
        number = 0
        while plans := [plan for plan in merge_plans(view, policy, index=index, share=share) if plan.index not in lost]:
            cuts = yield from find_cuts(store, plans, policy)
            for each in merge_work(plans, policy, cuts):
                number += 1
                yield from _merge(view, store, f"{token}/{number}", token, each, report, lost)
        for error in lost.values():
            raise error
        return report

    return job(work, JobKind.MERGE)


def find_cuts(store: FileStore, plans: Iterable[MergePlan], policy: MergePolicy) -> Steps[dict[str, list[str]]]:
    """Between which document ids large indexes are cut."""
    found: dict[str, list[str]] = {}
    for plan in plans:
        if plan.has_own_file and plan.bytes > policy.task_bytes:
            try:
                found[plan.index] = yield DoWork(partial(cuts_of, store, plan, policy))
            except FileNotFoundError:  # whoever merges it is told as well
                continue
            except LogDeviceError as error:
                if error.status is not Status.DATALOSS:
                    raise
    return found


def merge_plans(
    view: View, policy: MergePolicy, *, index: str | None = None, share: tuple[int, int] = (0, 1)
) -> list[MergePlan]:
    """What is merged next, of each index, in the order of indexes."""
    state, (number, shares) = view(), share
    names = [index] if index is not None else sorted(state.indexes)
    return [
        plan
        for name in names
        if (shares == 1 or crc32c(name.encode()) % shares == number)
        and (plan := plan_merge(name, state.parts(name), policy)) is not None
    ]


def _merge(
    view: View,
    store: FileStore,
    path: str,
    token: int,
    work: MergeWork,
    report: MergeReport,
    lost: dict[str, LogDeviceError],
) -> Steps[None]:
    """Merge and commit; of several indexes those that have all of their files. To `lost` go others, each with what it lacks."""
    try:
        outputs = yield from _outputs(view, store, path, work)
    except LogDeviceError as error:
        if error.status is not Status.DATALOSS:
            raise
        plans = work.plans
        if len(plans) == 1:
            lost[plans[0].index] = error
            return
        for number, half in enumerate(in_halves(work)):
            yield from _merge(view, store, f"{path}.{number}", token, half, report, lost)
        return
    if outputs is None:
        report.overtaken += 1
        return
    yield from commit_merge(token, work, outputs, report)


def _outputs(view: View, store: FileStore, path: str, work: MergeWork) -> Steps[list[list[OutputFile | None]] | None]:
    """Write files; what the runs of each task came to. None: parts were replaced and collected meanwhile."""
    outputs: list[list[OutputFile | None]] = []
    for task in work.tasks:
        try:
            outputs.append((yield DoWork(partial(do_merge, store, f"{path}-{task.name}", task))))
        except FileNotFoundError as error:
            yield ConfirmView()
            if is_still_asked_for(view, work):
                raise lost_file(", ".join(plan.index for plan in work.plans[:10]), error) from None
            return None
    return outputs


def is_still_asked_for(view: View, work: MergeWork) -> bool:
    """Nobody has replaced a part of it."""
    return all(set(plan.parts) <= set(view().parts(plan.index)) for plan in work.plans)


def in_halves(work: MergeWork) -> list[MergeWork]:
    """The same work as two, of which one may have all of its files. It is of several indexes."""
    half = len(work.plans) // 2
    return [
        MergeWork((MergeTask(some, shares_file=True, bytes=sum(plan.bytes for plan in some)),))
        for some in (work.plans[:half], work.plans[half:])
    ]


def commit_merge(
    token: int, work: MergeWork, made: Sequence[Sequence[OutputFile | None]], report: MergeReport
) -> Steps[None]:
    """Put files in the place of what they were made of.

    Args:
        token: of the job.
        work: what was to be done.
        made: what the runs of each task came to.
        report: is added to.
    """
    keys = [[part.key for part in plan.parts] for plan in work.plans]
    if work.tasks[0].shares_file:
        runs = [
            ReplacedRun(plan.index, inputs, plan.is_oldest, output)
            for plan, inputs, output in zip(work.plans, keys, made[0], strict=True)
        ]
        outcome: ManifestOutcome = yield ProposeCommand(ReplaceRuns(token, runs))
        overtaken = outcome.number
    else:
        (plan,), (inputs,) = work.plans, keys
        files = [output for (output,) in made if output is not None]
        outcome = yield ProposeCommand(Replace(token, plan.index, inputs, plan.is_oldest, files))
        overtaken = int(outcome.refused is Status.STALE)
    if outcome.refused not in (None, Status.STALE):
        raise refused(outcome)
    report.overtaken += overtaken
    if overtaken == len(work.plans):
        return
    for plan in work.plans:
        report.sorted += plan.kind is PartKind.SORTED
        report.optimized += plan.kind is PartKind.OPTIMIZED
    for output in (output for of_task in made for output in of_task if output is not None):
        report.records += output.records
        report.bytes += output.bytes


# Collecting, dropping


def collect_job(view: View, store: FileStore, before: int) -> Steps[CollectReport]:
    """Forget parts that were retired before a time, in microseconds since 1970, and delete what nobody needs."""
    listed: list[tuple[str, int]] = yield DoWork(store.list)
    yield ConfirmView()
    serial = forgettable(view().retired, before, view().forgotten)
    outcome: ManifestOutcome = yield ProposeCommand(Forget(serial))
    if outcome.refused is not None:
        raise refused(outcome)
    found = garbage(listed, view())
    for path, _ in found:
        yield DoWork(_deletion(store, path))
    return CollectReport(len(found), sum(size for _, size in found), view().forgotten)


def _deletion(store: FileStore, path: str) -> Callable[[], Any]:
    return lambda: store.delete(path)


def drop_index(view: View, index: str) -> Steps[None]:
    """Drop an index: all that was acknowledged before this call goes."""
    while True:
        yield ConfirmView()
        logs = view().undealt_logs()
        tails: Mapping[int, int] = yield FindTails([log for log, _ in logs])
        floors = [(log, tails[log] if end is None else min(tails[log], end)) for log, end in logs]
        outcome: ManifestOutcome = yield ProposeCommand(DropIndex(index, floors))
        if outcome.refused is None:
            return
        if outcome.refused is not Status.STALE:
            raise refused(outcome)
