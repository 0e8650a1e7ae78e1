"""Deliberate faults of index logs: a rule each of merging, of the manifest, of jobs, of writers and of readers, that the code forgets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from indexlog import columns, jobs, writer
from indexlog.index_log import IndexLog
from indexlog.manifest.commands import BeginJob, Deal, DropIndex, Forget, Replace
from indexlog.manifest.parts import Part
from indexlog.manifest.state import ManifestState
from indexlog.planning import MergePlan, garbage
from indexlog.spark import tasks
from logdevice_py.core.units import Timestamp
from tests.simulation.deliberate_fault import Place, deliberate
from tests.simulation.run_mode import RunMode

Change = Callable[..., Any]
APPLICATION = "index_logs"


def of_index_logs(breaks: str, *places: Place) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Looked for in runs of this application alone."""
    return deliberate(breaks, *places, mode=RunMode.FEATURES, likely=APPLICATION)


# Order


@of_index_logs("writers choose raw logs in turn, whatever the document", (writer, "raw_log_of"))
def raw_logs_chosen_in_turn(original: Change) -> Change:
    numbers = itertools.count()
    return lambda index, docid, logs: logs[next(numbers) % len(logs)]


@of_index_logs("new raw logs are written to before the ones before have ended", (ManifestState, "writable"))
def new_raw_logs_written_early(original: Change) -> Change:
    return lambda self: self.generations[-1] if self.generations else None


@of_index_logs("new raw logs are dealt before the ones before are dealt whole", (ManifestState, "generation"))
def new_raw_logs_dealt_early(original: Change) -> Change:
    return lambda self: self.generations[-1] if self.generations[-1].ends is None else original(self)


@of_index_logs("a modification that deletes keeps what was there before when files are merged", (columns, "_folded"))
def deletes_keep_what_was_there(original: Change) -> Change:
    def folded(table: pa.Table, order: pa.Array, is_last: pa.Array) -> Any:
        none = pa.array([False] * len(table), pa.bool_())
        return original(table.set_column(1, columns.SCHEMA.field("deleted"), none), order, is_last)

    return folded


@of_index_logs("files are merged as if the newest were the oldest", (jobs, "do_merge"), (tasks, "do_merge"))
def merged_in_reverse(original: Change) -> Change:
    return _with_plans(original, lambda plan: replace(plan, parts=plan.parts[::-1]))


def _with_plans(original: Change, change: Callable[[MergePlan], MergePlan]) -> Change:
    """As `do_merge`, which does something else than what is committed."""
    return lambda store, path, task: original(store, path, replace(task, plans=tuple(map(change, task.plans))))


@of_index_logs("of the files of a large run only the first one counts", (ManifestState, "_replace"))
def one_file_of_a_run_kept(original: Change) -> Change:
    return lambda self, wanted, time: original(self, replace(wanted, outputs=wanted.outputs[:1]), time)


@of_index_logs("the last document of a range is in none", (jobs, "do_merge"), (tasks, "do_merge"))
def ranges_of_documents_leave_gaps(original: Change) -> Change:
    return lambda store, path, task: original(store, path, replace(task, until=task.until and task.until[:-1]))


@of_index_logs("what indexes that share a file come to is mixed up", (jobs, "do_merge"), (tasks, "do_merge"))
def runs_mixed_up(original: Change) -> Change:
    return lambda store, path, task: original(store, path, task)[::-1]


# The manifest


@of_index_logs("a deal need not go on where dealing stands", (ManifestState, "_deal"))
def deals_overlap(original: Change) -> Change:
    def deal(self: ManifestState, wanted: Deal) -> None:
        if wanted.log in self.dealt:
            self.dealt[wanted.log] = wanted.start - 1
        original(self, wanted)

    return deal


@of_index_logs("a job that was ended may commit", (ManifestState, "_check_token"))
def ended_jobs_commit(original: Change) -> Change:
    def check(self: ManifestState, token: int) -> None:
        self.jobs.setdefault(token, 0)

    return check


@of_index_logs("tokens of jobs are given again", (ManifestState, "_begin"))
def tokens_given_again(original: Change) -> Change:
    def begin(self: ManifestState, wanted: BeginJob, time: Timestamp) -> bytes:
        self.next_token = next(number for number in itertools.count(1) if number not in self.jobs)
        result: bytes = original(self, wanted, time)
        return result

    return begin


@of_index_logs("what a file replaces need not be live", (ManifestState, "_replace"))
def replaced_need_not_be_live(original: Change) -> Change:
    def replace_(self: ManifestState, wanted: Replace, time: Timestamp) -> None:
        parts = self.indexes.get(wanted.index, [])
        live = [part.key for part in parts if part.key in wanted.inputs]
        if live:
            original(self, replace(wanted, inputs=live, drops_deletes=live[0] == parts[0].key), time)
        elif wanted.outputs:
            self.serial += 1
            made = self._made(
                wanted.outputs[0], [Part("", 0, wanted.outputs[0].kind, 1, 1, 0, 0, self.serial, self.serial)]
            )
            self.indexes.setdefault(wanted.index, []).append(made)

    return replace_


def _every_other(original: Change) -> Change:
    """As `plan_merge`."""

    def plan(*arguments: Any) -> MergePlan | None:
        found: MergePlan | None = original(*arguments)
        return found if found is None or len(found.parts) < 3 else replace(found, parts=found.parts[::2])

    return plan


def _not_side_by_side(original: Change) -> Change:
    """As `ManifestState._replace`."""

    def replace_(self: ManifestState, wanted: Replace, time: Timestamp) -> None:
        parts = self.indexes.get(wanted.index, [])
        chosen = [part for part in parts if part.key in wanted.inputs]
        if len(chosen) == len(wanted.inputs):
            at = parts.index(chosen[0])
            parts[at:] = [*chosen, *(part for part in parts[at:] if part not in chosen)]
        original(self, wanted, time)

    return replace_


@of_index_logs("what a file replaces need not be side by side", (jobs, "plan_merge"), (ManifestState, "_replace"))
def replaced_need_not_be_neighbours(original: Change) -> Change:
    return _not_side_by_side(original) if original.__name__ == "_replace" else _every_other(original)


@of_index_logs(
    "deletes go although older files may have the document",
    *((jobs, "do_merge"), (tasks, "do_merge"), (ManifestState, "_replace")),
)
def deletes_go_early(original: Change) -> Change:
    if original.__name__ == "do_merge":
        return _with_plans(original, lambda plan: replace(plan, is_oldest=True))

    def replace_(self: ManifestState, wanted: Replace, time: Timestamp) -> None:
        if not wanted.outputs and not wanted.drops_deletes:
            return  # nothing is left of the run: it stays
        original(self, wanted, time)

    return replace_


@of_index_logs("a deal need not know of drops", (ManifestState, "_deal"))
def deals_know_no_drops(original: Change) -> Change:
    return lambda self, wanted: original(self, replace(wanted, drops=self.drops))


@of_index_logs("what was not dealt when its index was dropped comes back", (ManifestState, "_drop"))
def floors_forgotten(original: Change) -> Change:
    def drop(self: ManifestState, wanted: DropIndex, time: Timestamp) -> None:
        original(self, wanted, time)
        self.floors.clear()

    return drop


@of_index_logs("of two drops the floor of the later one holds, even if it is lower", (ManifestState, "_drop"))
def later_floor_holds(original: Change) -> Change:
    def drop(self: ManifestState, wanted: DropIndex, time: Timestamp) -> None:
        self.floors.pop(wanted.index, None)
        original(self, wanted, time)

    return drop


# Files and pages


@of_index_logs("files of jobs that are under way are collected", (jobs, "garbage"))
def running_jobs_collected(original: Change) -> Change:
    def collected(listed: list[tuple[str, int]], state: ManifestState) -> list[tuple[str, int]]:
        needed = set(state.paths())
        return [each for each in listed if each[0] not in needed]

    return collected


@of_index_logs("replaced files are collected at once", (jobs, "garbage"))
def retired_files_collected(original: Change) -> Change:
    def collected(listed: list[tuple[str, int]], state: ManifestState) -> list[tuple[str, int]]:
        live = {part.path for parts in state.indexes.values() for part in parts}
        retired = {each.part.path for each in state.retired} - live
        return [*garbage(listed, state), *(each for each in listed if each[0] in retired)]

    return collected


@of_index_logs("files that nobody needs stay when their job has ended", (jobs, "garbage"))
def orphans_stay(original: Change) -> Change:
    def collected(listed: list[tuple[str, int]], state: ManifestState) -> list[tuple[str, int]]:
        return [each for each in garbage(listed, state) if each[0].startswith(".unfinished-", each[0].find("/") + 1)]

    return collected


@of_index_logs("page tokens whose files are forgotten are served from what is left", (ManifestState, "_forget"))
def forgotten_tokens_served(original: Change) -> Change:
    def forget(self: ManifestState, wanted: Forget) -> None:
        original(self, wanted)
        self.forgotten = 0

    return forget


@of_index_logs("pages are of the newest state, whatever their token says", (ManifestState, "parts"))
def pages_of_the_newest_state(original: Change) -> Change:
    return lambda self, index, serial=None: original(self, index)


@of_index_logs("records of an entry that a cut range does not hold are passed over", (IndexLog, "_read"))
def ranges_cut_in_an_entry(original: Change) -> Change:
    async def read(self: IndexLog, log: int, start: int, until: int, bytes_max: int) -> Any:
        raw = await original(self, log, start, until, bytes_max)
        if raw.until < until and len(raw.records) > 1:
            raw.records.pop()
        return raw

    return read
