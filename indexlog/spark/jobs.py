"""The driver's side: jobs as those of `indexlog.jobs`, with the work done by Spark's tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from indexlog.effects import ConfirmView, DoWork, FindTails, ManifestOutcome, ProposeCommand, Steps, View
from indexlog.index_log import IndexLog
from indexlog.jobs import (
    DealReport,
    MergeReport,
    commit_merge,
    find_cuts,
    floors_of,
    in_halves,
    is_still_asked_for,
    job,
    lost_file,
    merge_plans,
    range_to_deal,
    refused,
)
from indexlog.manifest.commands import Deal
from indexlog.manifest.parts import JobKind
from indexlog.merging import MergeTask, MergeWork, merge_work
from indexlog.planning import STANDARD_POLICY, MergePolicy
from indexlog.spark.tasks import MADE_SCHEMA, MadeContainer, MakeContainers, MergedTask, MergeOnExecutor
from indexlog.stores import FileStore
from logdevice_py.core.status import LogDeviceError, Status

PARTITION_BYTES_MAX: Final = 32_000_000
"""Stored bytes of raw logs that one task deals, about; it holds what they hold, unpacked."""


@dataclass(frozen=True, slots=True)
class OnSpark:
    """Where jobs are done."""

    session: SparkSession
    cluster: str
    """The path of the cluster file, on the driver."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further ones of the source that raw logs are read with, as identityFile."""

    async def deal(self, log: IndexLog, *, bytes_max: int = PARTITION_BYTES_MAX) -> DealReport:
        """Deal what the raw logs hold at this moment: as `IndexLog.deal`."""
        return await log.run(self._deal_job(lambda: log.state, bytes_max))

    async def optimize(self, log: IndexLog, policy: MergePolicy = STANDARD_POLICY) -> MergeReport:
        """Sort and optimize as far as the policy asks for it: as `IndexLog.optimize`.

        Raises (at the end, other indexes are merged):
            LogDeviceError: DATALOSS: a file is missing, or damaged.
        """
        return await log.run(self.merge_job(lambda: log.state, log.store, policy))

    # Dealing

    def _deal_job(self, view: View, bytes_max: int) -> Steps[DealReport]:
        def work(token: int) -> Steps[DealReport]:
            report = DealReport()
            yield ConfirmView()
            while (generation := view().generation()) is not None:
                tails: Mapping[int, int] = yield FindTails(generation.logs)
                while ranges := {
                    log: (start, end)
                    for log, tail in tails.items()
                    for start, end in [range_to_deal(view, log, tail)]
                    if start <= end
                }:
                    yield from self._deal_ranges(view, token, ranges, bytes_max, report)
                now = view().generation()
                if now is None or now.number == generation.number:
                    break
            return report

        return job(work, JobKind.DEAL)

    def _deal_ranges(
        self, view: View, token: int, ranges: Mapping[int, tuple[int, int]], bytes_max: int, report: DealReport
    ) -> Steps[None]:
        drops = view().drops
        task = MakeContainers(view().store, token, {log: floors_of(view, log) for log in ranges})
        found: list[MadeContainer] = yield DoWork(lambda: self._make_containers(ranges, task, bytes_max))
        for log, (begin, end) in ranges.items():
            start = begin
            made = sorted((each for each in found if each.log == log), key=lambda each: each.first)
            lasts = [*(each.first - 1 for each in made[1:]), end]
            for each, until in zip(made or [MadeContainer(log, start, 0, 0, 0, "", "[]")], lasts, strict=True):
                command = Deal(token, log, start, until, drops, each.unreadable, each.path, each.entries())
                outcome: ManifestOutcome = yield ProposeCommand(command)
                if outcome.refused is Status.AGAIN:
                    return  # an index was dropped meanwhile, or the log ended before `until`: again from where dealing stands
                if outcome.refused is Status.STALE:
                    report.overtaken += 1
                    break
                if outcome.refused is not None:
                    raise refused(outcome)
                report.records += each.records
                report.bytes += each.bytes
                report.containers += bool(each.path)
                report.unreadable += each.unreadable
                start = until + 1

    def _make_containers(
        self, ranges: Mapping[int, tuple[int, int]], task: MakeContainers, bytes_max: int
    ) -> list[MadeContainer]:
        frame = (
            self.session.read.format("logdevice")
            .option("cluster", self.cluster)
            .option("logs", ",".join(map(str, ranges)))
            .option("startingLsn", json.dumps({str(log): start for log, (start, _) in ranges.items()}))
            .option("endingLsn", json.dumps({str(log): end for log, (_, end) in ranges.items()}))
            .option("columns", "log_id,lsn,payload")
            .option("maxBytesPerPartition", str(bytes_max))
            .options(**self.options)
            .load()
        )
        rows = frame.mapInArrow(task, MADE_SCHEMA).collect()
        return [MadeContainer(*row) for row in rows]

    # Merging

    def merge_job(self, view: View, store: FileStore, policy: MergePolicy) -> Steps[MergeReport]:
        """The steps of `optimize`, as `indexlog.jobs.merge_job`: each yields what is to be done, and gets what came of it."""

        def work(token: int) -> Steps[MergeReport]:
            report = MergeReport()
            lost: dict[str, LogDeviceError] = {}
            run = MergeOnExecutor(view().store, token)
            yield ConfirmView()
            while plans := [plan for plan in merge_plans(view, policy) if plan.index not in lost]:
                cuts = yield from find_cuts(store, plans, policy)
                chosen = list(merge_work(plans, policy, cuts))
                while chosen:
                    tasks = [task for each in chosen for task in each.tasks]
                    results: list[MergedTask] = yield DoWork(partial(self._merge, tasks, run))
                    made = {result.key: result for result in results}
                    halves = []
                    for each in chosen:
                        of_work = [made[each.plans[0].index, task.piece] for task in each.tasks]
                        halves += yield from _commit_made(view, token, each, of_work, report, lost)
                    chosen = halves
            for error in lost.values():
                raise error
            return report

        return job(work, JobKind.MERGE)

    def _merge(self, tasks: list[MergeTask], run: MergeOnExecutor) -> list[MergedTask]:
        context = self.session.sparkContext
        largest_first = sorted(tasks, key=lambda task: task.bytes, reverse=True)
        return context.parallelize(largest_first, len(tasks)).map(run).collect()


def _commit_made(
    view: View,
    token: int,
    work: MergeWork,
    made: Sequence[MergedTask],
    report: MergeReport,
    lost: dict[str, LogDeviceError],
) -> Steps[list[MergeWork]]:
    """Commit what tasks made. Where a file is lost, what is to be done instead; of one index alone it goes to `lost`."""
    error: LogDeviceError | None = None
    for each in made:
        if each.missing:
            yield ConfirmView()
            if not is_still_asked_for(view, work):
                report.overtaken += 1  # parts were replaced and collected meanwhile
                return []
            error = lost_file(", ".join(plan.index for plan in work.plans[:10]), FileNotFoundError(each.missing))
        elif each.damaged:
            error = LogDeviceError(Status.DATALOSS, each.damaged, retriable=False, maybe_applied=False)
    if error is None:
        yield from commit_merge(token, work, [each.outputs for each in made], report)
        return []
    if len(work.plans) > 1:
        return in_halves(work)
    lost[work.plans[0].index] = error
    return []
