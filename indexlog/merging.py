"""What a task of merging does: it puts runs of parts into files. Small indexes share a file, so that ten thousand of them are not ten thousand files to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from indexlog.columns import IndexRows, merged, merged_rows, merged_runs
from indexlog.manifest.commands import OutputFile
from indexlog.planning import MergePlan
from indexlog.stored import read_rows, read_run, write_pack, write_run
from indexlog.stores import FileStore

TASK_BYTES_MAX: Final = 16_000_000
"""Of the parts that are merged into one file of several indexes: they are in memory, unpacked."""
RUNS_MAX: Final = 2000
"""Of one file: all are committed by one command."""
INPUTS_MAX: Final = 20_000
"""Parts of the runs of one file."""


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What one task merges into one file."""

    plans: tuple[MergePlan, ...]
    """Of several indexes, in their order; or a large one alone."""
    shares_file: bool
    """The file is a container."""

    @property
    def bytes(self) -> int:
        """Of all parts."""
        return sum(plan.bytes for plan in self.plans)

    @property
    def suffix(self) -> str:
        """Of the name of the file."""
        return "arrow" if self.shares_file else "parquet"


def merge_tasks(plans: Iterable[MergePlan], *, task_bytes: int = TASK_BYTES_MAX) -> Iterator[MergeTask]:
    """Small indexes side by side, as far as they fit into one task; a large one is alone.

    Args:
        plans: in the order of indexes, one of each.
        task_bytes: as `TASK_BYTES_MAX`.
    """
    group: list[MergePlan] = []
    size = inputs = 0
    for plan in plans:
        if plan.has_own_file:
            yield MergeTask((plan,), shares_file=False)
            continue
        if group and (
            size + plan.bytes > task_bytes or len(group) >= RUNS_MAX or inputs + len(plan.parts) > INPUTS_MAX
        ):
            yield MergeTask(tuple(group), shares_file=True)
            group, size, inputs = [], 0, 0
        group.append(plan)
        size += plan.bytes
        inputs += len(plan.parts)
    if group:
        yield MergeTask(tuple(group), shares_file=True)


def do_merge(store: FileStore, path: str, task: MergeTask) -> list[OutputFile | None]:
    """Write the file that a task asks for; what each of its runs came to.

    Raises:
        FileNotFoundError: a part was collected.
    """
    if not task.shares_file:
        (plan,) = task.plans
        return [merge_parts(store, path, plan)]
    rows = _packed_rows(store, task.plans)
    if not rows.indexes:
        return [None] * len(task.plans)
    made = write_pack(store, path, rows, {plan.index: (plan.kind, plan.timestamp) for plan in task.plans})
    return [made.get(plan.index) for plan in task.plans]


def merge_parts(store: FileStore, path: str, plan: MergePlan) -> OutputFile | None:
    """Write the file of one index, whatever its size: at once if it fits into memory, which is several times as fast."""
    runs: list[Iterator[pa.Table]] = [read_run(store, part) for part in plan.parts]
    if plan.bytes <= TASK_BYTES_MAX:
        tables = iter([merged([table for run in runs for table in run], oldest=plan.is_oldest)])
    else:
        tables = merged_runs(runs, oldest=plan.is_oldest)
    return write_run(store, path, plan.kind, plan.timestamp, tables)


def _packed_rows(store: FileStore, plans: Sequence[MergePlan]) -> IndexRows:
    """All rows of several runs, merged at once: file by file, as it is read once for all indexes."""
    wanted: dict[str, list[tuple[int, int, int, int]]] = {}
    for code, plan in enumerate(plans):
        for rank, part in enumerate(plan.parts):
            wanted.setdefault(part.path, []).append((part.place, part.records, code, rank))
    tables: list[pa.Table] = []
    codes: list[int] = []
    ranks: list[int] = []
    for path, places in wanted.items():
        places.sort()
        tables += read_rows(store, path, [(place, records) for place, records, _, _ in places])
        for _, records, code, rank in places:
            codes += [code] * records
            ranks += [rank] * records
    return merged_rows(
        [plan.index for plan in plans],
        pa.concat_tables(tables),
        pa.array(codes, pa.int32()),
        pa.array(ranks, pa.int32()),
        [plan.is_oldest for plan in plans],
    )
