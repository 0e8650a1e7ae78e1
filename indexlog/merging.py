"""What a task of merging does: it puts runs of parts into files. Small indexes share a file, so that ten thousand of them are not ten thousand
files to write; large ones are cut by document id, so that no task takes much longer than others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from indexlog.columns import IndexRows, in_place, merged, merged_rows, merged_runs, size_of
from indexlog.manifest.commands import OutputFile
from indexlog.planning import STANDARD_POLICY, MergePlan, MergePolicy
from indexlog.stored import document_cuts, read_rows, read_run, write_pack, write_run
from indexlog.stores import FileStore

_AT_ONCE_BYTES: Final = 2 * STANDARD_POLICY.task_bytes
"""A task of more than this is merged piece by piece."""
RUNS_MAX: Final = 2000
"""Of one file: all are committed by one command."""
INPUTS_MAX: Final = 20_000
"""Parts of the runs of one file."""
NAMED_BYTES_MAX: Final = 400_000
"""What the command tells of the runs of one file, about: a command has an end."""
PIECES_MAX: Final = 500
"""Files that a large run is cut into: one command names them, and later those of several such runs as what they are merged from."""
_RUN_BYTES: Final = 64
"""Of a command for each run, besides the code of its index, at most."""
_INPUT_BYTES: Final = 12
"""Of a command for each part, besides its path, at most."""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What one task merges into one file."""

    plans: tuple[MergePlan, ...]
    """Of several indexes, in their order; or a large one alone."""
    shares_file: bool
    """The file is a container."""
    piece: int = 0
    """Which of the files that a large one is cut into."""
    after: str | None = None
    """Documents behind this id; None: from the first one on."""
    until: str | None = None
    """Up to this document id; None: up to the last one."""
    bytes: int = 0
    """Of the parts, about."""

    @property
    def name(self) -> str:
        """Of the file, behind what tells tasks apart: the files of one index are in the order of document ids."""
        return f"{self.piece:05}.{'arrow' if self.shares_file else 'parquet'}"


@dataclass(frozen=True, slots=True)
class MergeWork:
    """Tasks whose files are committed together: one, or those of a large index."""

    tasks: tuple[MergeTask, ...]

    @property
    def plans(self) -> tuple[MergePlan, ...]:
        """What all of them do."""
        return self.tasks[0].plans


def merge_work(
    plans: Iterable[MergePlan], policy: MergePolicy, cuts: Mapping[str, Sequence[str]] | None = None
) -> Iterator[MergeWork]:
    """Small indexes side by side, as far as they fit into one task; a large one is alone, or is cut.

    Args:
        plans: in the order of indexes, one of each.
        policy: how large tasks are.
        cuts: by index, between which document ids it is cut.
    """
    group: list[MergePlan] = []
    size = inputs = named = 0
    paths: set[str] = set()

    def shared() -> MergeWork:
        return MergeWork((MergeTask(tuple(group), shares_file=True, bytes=size),))

    for plan in plans:
        if plan.has_own_file:
            yield _cut_work(plan, (cuts or {}).get(plan.index, ()))
            continue
        if group and (
            size + plan.bytes > policy.task_bytes
            or len(group) >= RUNS_MAX
            or inputs + len(plan.parts) > INPUTS_MAX
            or named + _named_bytes(plan, paths) > NAMED_BYTES_MAX
        ):
            yield shared()
            group, size, inputs, named, paths = [], 0, 0, 0, set()
        group.append(plan)
        size += plan.bytes
        inputs += len(plan.parts)
        named += _named_bytes(plan, paths)
        paths.update(part.path for part in plan.parts)
    if group:
        yield shared()


def _named_bytes(plan: MergePlan, paths: Set[str]) -> int:
    """What a command tells of a plan, about, in which some paths are named already."""
    more = {part.path for part in plan.parts} - paths
    return _RUN_BYTES + len(plan.index) + _INPUT_BYTES * len(plan.parts) + sum(len(path) + 3 for path in more)


def _cut_work(plan: MergePlan, cuts: Sequence[str]) -> MergeWork:
    bounds = pairwise([None, *cuts, None])
    size = plan.bytes // (len(cuts) + 1)
    return MergeWork(
        tuple(
            MergeTask((plan,), shares_file=False, piece=piece, after=after, until=until, bytes=size)
            for piece, (after, until) in enumerate(bounds)
        )
    )


def cuts_of(store: FileStore, plan: MergePlan, policy: MergePolicy) -> list[str]:
    """Document ids that cut a large index into tasks of about the same size, as far as its largest run of files, or its largest slice, tells.

    Raises:
        FileNotFoundError: a part was collected.
    """
    return document_cuts(store, plan.parts, min(PIECES_MAX, -(-plan.bytes // policy.task_bytes)))


def do_merge(store: FileStore, path: str, task: MergeTask) -> list[OutputFile | None]:
    """Write the file that a task asks for; what each of its runs came to.

    Raises:
        FileNotFoundError: a part was collected.
    """
    if not task.shares_file:
        return [_merge_piece(store, path, task)]
    rows = _packed_rows(store, task.plans)
    if not rows.indexes:
        return [None] * len(task.plans)
    made = write_pack(store, path, rows, {plan.index: (plan.kind, plan.timestamp) for plan in task.plans})
    return [made.get(plan.index) for plan in task.plans]


def _merge_piece(store: FileStore, path: str, task: MergeTask) -> OutputFile | None:
    """Write the file of one index, whatever its size: at once if it fits into memory, which is several times as fast."""
    (plan,) = task.plans
    tables = None if task.bytes > _AT_ONCE_BYTES else _whole(_runs(store, task))
    if tables is None:
        merging = merged_runs(_runs(store, task), oldest=plan.is_oldest)
    else:
        merging = iter([merged(tables, oldest=plan.is_oldest)] if tables else [])
    return write_run(store, path, plan.kind, plan.timestamp, merging)


def _runs(store: FileStore, task: MergeTask) -> list[Iterator[pa.Table]]:
    (plan,) = task.plans
    return [read_run(store, part, task.after, task.until) for part in plan.parts]


def _whole(runs: Iterable[Iterator[pa.Table]]) -> list[pa.Table] | None:
    """All that runs hold; None: it is too much, as files of earlier versions do not tell what they take in memory."""
    found, size = [], 0
    for table in chain.from_iterable(runs):
        size += size_of(table)
        if size > 2 * _AT_ONCE_BYTES:
            return None
        found.append(table)
    return found


def _packed_rows(store: FileStore, plans: Sequence[MergePlan]) -> IndexRows:
    """All rows of several runs, merged at once: file by file, as it is read once for all indexes."""
    wanted: dict[str, list[tuple[int, int, int, int]]] = {}
    for code, plan in enumerate(plans):
        for rank, part in enumerate(plan.parts):
            wanted.setdefault(part.path, []).append((part.place, part.records, code, rank))
    tables: list[pa.Table] = []
    chosen: list[tuple[int, int, int, int]] = []
    for path, places in wanted.items():
        places.sort()
        tables += read_rows(store, path, [(place, records) for place, records, _, _ in places])
        chosen += places
    _, records, codes, ranks = np.array(chosen, np.int64).T
    return merged_rows(
        [plan.index for plan in plans],
        in_place(tables),
        pa.array(np.repeat(codes, records)),
        pa.array(np.repeat(ranks, records)),
        [plan.is_oldest for plan in plans],
    )
