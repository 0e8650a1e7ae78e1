"""Folded pages are folded raw logs, whatever happens at the same time; and for each rule: leave it out, and that is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from indexlog.jobs import DealReport, MergeReport, deal_job, merge_job
from indexlog.manifest.commands import Deal, DropIndex, Forget, OutputFile, Replace
from indexlog.manifest.parts import Part, RoutingGeneration
from indexlog.manifest.state import ManifestState
from indexlog.merging import MergeTask, do_merge
from indexlog.planning import ALL_AT_ONCE, MergePlan, MergePolicy, plan_merge
from indexlog.stores import FileStore
from logdevice_py.core.units import Timestamp
from tests.property.indexlog.pipeline import Pipeline
from tests.slow import quick


@pytest.fixture(autouse=True)
def _jobs_that_are_passed_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexlog.manifest.state.PASSED_MAX", 6)


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_pages_are_what_was_written(first: int) -> None:
    compared = pages = followed = expired = 0
    for seed in range(first, first + 10):
        done = Pipeline(seed).run()
        compared += done.compared
        pages += done.pages
        followed += done.followed
        expired += done.expired
    assert followed > 30
    assert expired > 3
    assert compared > 100
    assert pages > 300


# Deliberate faults


class DealsAgain(ManifestState):
    """A deal need not go on where dealing stands."""

    def _deal(self, wanted: Deal) -> None:
        if wanted.log in self.dealt:
            self.dealt[wanted.log] = wanted.start - 1
        super()._deal(wanted)


class ForgetsLiveness(ManifestState):
    """Inputs need not be live."""

    def _replace(self, wanted: Replace, time: Timestamp) -> None:
        parts = self.indexes.get(wanted.index, [])
        live = [part.key for part in parts if part.key in wanted.inputs]
        if live:
            super()._replace(replace(wanted, inputs=live, drops_deletes=live[0] == parts[0].key), time)
        elif wanted.outputs:
            self.serial += 1
            made = self._made(
                wanted.outputs[0], [Part("", 0, wanted.outputs[0].kind, 1, 1, 0, 0, self.serial, self.serial)]
            )
            self.indexes.setdefault(wanted.index, []).append(made)


class ForgetsNeighbours(ManifestState):
    """Inputs need not be side by side."""

    def _replace(self, wanted: Replace, time: Timestamp) -> None:
        parts = self.indexes.get(wanted.index, [])
        chosen = [part for part in parts if part.key in wanted.inputs]
        if len(chosen) == len(wanted.inputs):
            at = parts.index(chosen[0])
            rest = [part for part in parts[at:] if part not in chosen]
            parts[at:] = [*chosen, *rest]
        super()._replace(wanted, time)


class KeepsOneFile(ManifestState):
    """Of the files of a large run only the first one counts."""

    def _replace(self, wanted: Replace, time: Timestamp) -> None:
        super()._replace(replace(wanted, outputs=wanted.outputs[:1]), time)


class ForgetsEnds(ManifestState):
    """A job that was ended may commit."""

    def _check_token(self, token: int) -> None:
        self.jobs.setdefault(token, 0)


class ForgetsDrops(ManifestState):
    """A deal need not know of drops."""

    def _deal(self, wanted: Deal) -> None:
        super()._deal(replace(wanted, drops=self.drops))


class ForgetsFloors(ManifestState):
    """What was dropped before it was dealt comes back."""

    def _drop(self, wanted: DropIndex, time: Timestamp) -> None:
        super()._drop(wanted, time)
        self.floors.clear()


class DealsNewGenerations(ManifestState):
    """The newest generation is dealt at once."""

    def generation(self) -> RoutingGeneration | None:
        return self.generations[-1] if self.generations[-1].ends is None else super().generation()


class WritesNewGenerations(ManifestState):
    """The newest generation is written to at once."""

    def writable(self) -> RoutingGeneration | None:
        return self.generations[-1]


class ForgetsDropsOfReaders(ManifestState):
    """Who follows an index is not told that it was dropped."""

    def last_drop(self, index: str) -> int:
        return 0


class ReadsNewGenerations(ManifestState):
    """Raw logs are read although those before them have not ended."""

    def readable(self) -> list[RoutingGeneration]:
        return list(self.generations)


class ServesForgotten(ManifestState):
    """Old page tokens are served from what is left."""

    def _forget(self, wanted: Forget) -> None:
        super()._forget(wanted)
        self.forgotten = 0


STATES = [
    DealsAgain,
    ForgetsLiveness,
    KeepsOneFile,
    ForgetsEnds,
    ForgetsFloors,
    DealsNewGenerations,
    WritesNewGenerations,
    ForgetsDropsOfReaders,
    ServesForgotten,
]
RARE = [ForgetsDrops, ReadsNewGenerations]
"""Found after dozens of seeds."""


def _is_caught(make_state: type[ManifestState] = ManifestState, seeds: int = 60) -> bool:
    for seed in range(seeds):
        try:
            Pipeline(seed, make_state).run()
        except AssertionError:  # a divergence, or what no job may ask for
            return True
    return False


@pytest.mark.parametrize("make_state", quick([*STATES, *RARE], len(STATES)))
def test_a_rule_of_the_manifest_that_is_left_out_is_noticed(make_state: type[ManifestState]) -> None:
    assert _is_caught(make_state)


def test_jobs_that_share_the_indexes_do_all_of_them() -> None:
    pipeline = Pipeline(3)
    for _ in range(40):
        pipeline.write()
    replica = pipeline.new_replica()
    pipeline.finish(pipeline.start(deal_job(lambda: replica.state, pipeline.store), replica))
    indexes = set(replica.state.indexes)
    assert len(indexes) == 2
    shares = [merge_job(lambda: replica.state, pipeline.store, ALL_AT_ONCE, share=(number, 2)) for number in range(2)]
    reports: list[MergeReport] = []
    actors = [pipeline.start(steps, replica, reports.append) for steps in shares]
    while actors:
        actors = [actor for actor in actors if pipeline.step(actor)]
    assert all(len(parts) == 1 for parts in replica.state.indexes.values())
    both = MergeReport()
    for report in reports:
        both.add(report)
    assert (both.optimized, both.overtaken) == (len(indexes), 0), "each was merged by one of them"


def test_jobs_that_share_the_raw_logs_deal_all_of_them() -> None:
    pipeline = Pipeline(5)
    for _ in range(40):
        pipeline.write()
    replica = pipeline.new_replica()
    reports: list[DealReport] = []
    shares = [deal_job(lambda: replica.state, pipeline.store, share=(number, 2)) for number in range(2)]
    actors = [pipeline.start(steps, replica, reports.append) for steps in shares]
    while actors:
        actors = [actor for actor in actors if pipeline.step(actor)]
    assert all(report.records > 0 for report in reports)
    whole = DealReport()
    for report in reports:
        whole.add(report)
    assert (whole.records, whole.overtaken) == (len(pipeline.written), 0)
    assert replica.state.dealt == {log: len(payloads) for log, payloads in pipeline.raw.items()}


def _change_plans(monkeypatch: pytest.MonkeyPatch, change: Callable[[MergePlan], MergePlan]) -> None:
    """Tasks do something else than what is committed."""

    def changed(store: FileStore, path: str, task: MergeTask) -> list[OutputFile | None]:
        return do_merge(store, path, replace(task, plans=tuple(map(change, task.plans))))

    monkeypatch.setattr("indexlog.jobs.do_merge", changed)


def test_merging_what_is_not_side_by_side_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(index: str, parts: list[Part], policy: MergePolicy) -> MergePlan | None:
        found = plan_merge(index, parts, policy)
        return found if found is None or len(found.parts) < 3 else replace(found, parts=found.parts[::2])

    monkeypatch.setattr("indexlog.jobs.plan_merge", plan)
    assert _is_caught(ForgetsNeighbours)


def test_a_delete_that_goes_while_there_are_older_parts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _change_plans(monkeypatch, lambda plan: replace(plan, is_oldest=True))

    class TakesNothing(ManifestState):
        """A run that has become empty may go wherever it was."""

        def _replace(self, wanted: Replace, time: Timestamp) -> None:
            if not wanted.outputs:
                keys = [part.key for part in self.indexes.get(wanted.index, [])]
                wanted = replace(wanted, drops_deletes=keys[:1] == list(wanted.inputs[:1]))
                if not wanted.drops_deletes:
                    return
            super()._replace(wanted, time)

    assert _is_caught(TakesNothing)


def test_collecting_what_a_running_job_wrote_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_unknown(listed: list[tuple[str, int]], state: ManifestState) -> list[tuple[str, int]]:
        needed = set(state.paths())
        return [each for each in listed if each[0] not in needed]

    monkeypatch.setattr("indexlog.jobs.garbage", all_unknown)
    assert _is_caught()


@pytest.mark.slow
def test_a_document_between_two_tasks_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def ending(store: FileStore, path: str, task: MergeTask) -> list[OutputFile | None]:
        return do_merge(store, path, replace(task, until=task.until and task.until[:-1]))

    monkeypatch.setattr("indexlog.jobs.do_merge", ending)
    assert _is_caught()


def test_merging_in_the_wrong_order_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _change_plans(monkeypatch, lambda plan: replace(plan, parts=plan.parts[::-1]))
    assert _is_caught()


def test_committing_a_run_of_one_index_as_that_of_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed_up(store: FileStore, path: str, task: MergeTask) -> list[OutputFile | None]:
        return do_merge(store, path, task)[::-1]

    monkeypatch.setattr("indexlog.jobs.do_merge", mixed_up)
    assert _is_caught()
