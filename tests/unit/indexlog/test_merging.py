"""Which runs are merged by one task, and what a task writes."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from indexlog.columns import IndexRows, RowBuffer, rows_of, table_of
from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind
from indexlog.merging import RUNS_MAX, MergeTask, cuts_of, do_merge, merge_work
from indexlog.planning import STANDARD_POLICY, MergePlan
from indexlog.records import Modification, pack_contents
from indexlog.stored import read_run, write_container
from indexlog.stores import MemoryStore


def plan(
    index: str, *places: int, size: int = 1, own: bool = False, path: str = "1/a", oldest: bool = True
) -> MergePlan:
    parts = [Part(path, place, PartKind.UNSORTED, 1, size, 7, at, at, at) for at, place in enumerate(places)]
    return MergePlan(index, tuple(parts), PartKind.SORTED, oldest, own)


def test_small_indexes_share_a_task_and_large_ones_are_alone() -> None:
    plans = [plan("a", 0, size=4), plan("b", 0, size=4), plan("c", 0, own=True), plan("d", 0, size=3), plan("e", 0)]
    found = list(merge_work(plans, replace(STANDARD_POLICY, task_bytes=10)))
    assert [("".join(plan.index for plan in work.plans), [task.name for task in work.tasks]) for work in found] == [
        ("c", ["00000.parquet"]),
        ("ab", ["00000.arrow"]),
        ("de", ["00000.arrow"]),
    ]
    assert [task.bytes for work in found for task in work.tasks] == [1, 8, 4]


def test_what_shares_a_file_is_committed_by_one_command() -> None:
    plans = [plan(f"index-{number:05}", 0) for number in range(RUNS_MAX + 1)]
    assert [len(work.plans) for work in merge_work(plans, STANDARD_POLICY)] == [RUNS_MAX, 1]


def zipf(indexes: int, whole: int) -> list[int]:
    """Bytes of indexes of which the first has a third of all."""
    weights = [1 / rank for rank in range(2, indexes + 1)]
    return [whole // 3, *(round(2 / 3 * whole * weight / sum(weights)) for weight in weights)]


def test_no_task_merges_more_than_three_times_the_median_whatever_index_is_hot() -> None:
    policy = STANDARD_POLICY
    plans = [
        plan(f"index-{rank:05}", 0, size=size, own=size > policy.own_file_bytes)
        for rank, size in enumerate(zipf(10_000, 2_000_000_000))
    ]
    cuts = {
        each.index: [str(n) for n in range(1, -(-each.bytes // policy.task_bytes))]
        for each in plans
        if each.has_own_file
    }
    sizes = [task.bytes for work in merge_work(plans, policy, cuts) for task in work.tasks]
    assert len(sizes) > 100
    assert max(sizes) <= 3 * median(sizes)
    assert max(sizes) <= policy.task_bytes


@pytest.mark.parametrize("kinds", [(PartKind.SORTED, PartKind.OPTIMIZED), (PartKind.SORTED,)], ids=["files", "slice"])
def test_the_tasks_of_a_large_index_have_each_document_once(kinds: tuple[PartKind, ...]) -> None:
    store = MemoryStore()
    docids = [f"doc-{number:04}" for number in range(1000)]
    table = table_of((docid, Modification(True, {"n": docid})) for docid in docids)
    write_container(store, "1/a", IndexRows(table, ["books"], [1000]))
    whole = Part("1/a", 0, PartKind.UNSORTED, 1000, 4000, 7, 1, 1, 1)
    policy = replace(STANDARD_POLICY, task_bytes=1000)
    parts: tuple[Part, ...] = (whole,)
    for kind in kinds:
        chosen = MergePlan("books", parts, kind, True)
        cuts = cuts_of(store, chosen, policy)
        assert len(cuts) == 3
        (work,) = merge_work([chosen], policy, {"books": cuts})
        outputs = [do_merge(store, f"{int(kind) + 1}/1-{task.name}", task)[0] for task in work.tasks]
        assert all(output is not None and 200 < output.records < 300 for output in outputs)
        parts = tuple(Part(each.path, WHOLE_FILE, kind, each.records, 1000, 7, 2, 1, 1) for each in outputs if each)
        found = [row.as_py() for part in parts for rows in read_run(store, part) for row in rows.column("docid")]
        assert found == docids


@pytest.mark.parametrize("shares_file", [True, False])
def test_what_is_sorted_has_each_document_once_and_counts_it_once(shares_file: bool) -> None:
    store = MemoryStore()
    for number, docids in enumerate(("ab", "bc", "ac")):
        buffer = RowBuffer()
        for docid in docids:
            buffer.add("books", docid, True, 5 + number, pack_contents(Modification(True, {"n": f"{number}"})))
            buffer.add("songs", docid, True, 4, None)
        slices = write_container(store, f"1/{number}", buffer.rows())
        assert [(each.index, each.records, each.timestamp) for each in slices] == [
            ("books", 2, 5 + number),
            ("songs", 2, 4),
        ]
    parts = tuple(Part(f"1/{at}", 0, PartKind.UNSORTED, 2, 9, 5 + at, at, at, at) for at in range(3))
    chosen = MergePlan("books", parts, PartKind.SORTED, True, not shares_file)
    (output,) = do_merge(store, "2/1", MergeTask((chosen,), shares_file))
    assert output is not None
    assert (output.records, output.timestamp) == (3, 5), "the time of the first slice"
    made = Part(output.path, output.place, output.kind, output.records, output.bytes, output.timestamp, 9, 1, 2)
    found = [(docid, change.fields) for table in read_run(store, made) for docid, change in rows_of(table)]
    assert found == [("a", {"n": "2"}), ("b", {"n": "1"}), ("c", {"n": "2"})]


def stored() -> MemoryStore:
    """Rows of books at places 0 to 2, of songs at 3 and 4."""
    store, buffer = MemoryStore(), RowBuffer()
    for index, docid in (("songs", "y"), ("books", "c"), ("songs", "x"), ("books", "a"), ("books", "b")):
        buffer.add(index, docid, True, 5, pack_contents(Modification(True, {"n": docid})))
    slices = write_container(store, "1/a", buffer.rows())
    assert [(each.index, each.records) for each in slices] == [("books", 3), ("songs", 2)]
    return store


def test_what_shares_a_file_is_read_index_by_index() -> None:
    store = stored()
    task = MergeTask((plan("books", 1, 2), plan("songs", 4, oldest=False)), shares_file=True)
    made = do_merge(store, "2/1.arrow", task)
    found = []
    for index, output in zip(("books", "songs"), made, strict=True):
        assert output is not None
        part = Part(output.path, output.place, output.kind, output.records, output.bytes, 7, 9, 1, 2)
        (table,) = read_run(store, part)
        found.append((index, [(docid, change.deleted) for docid, change in rows_of(table)]))
    assert found == [("books", [("b", False), ("c", False)]), ("songs", [("y", True)])]


def test_an_index_of_which_nothing_is_left_has_no_place_in_the_file() -> None:
    store, buffer = MemoryStore(), RowBuffer()
    buffer.add("books", "a", True, 5, None)
    buffer.add("songs", "a", True, 5, None)
    write_container(store, "1/a", buffer.rows())
    one, other = do_merge(store, "2/1", MergeTask((plan("books", 0), plan("songs", 1, oldest=False)), shares_file=True))
    assert one is None
    assert other is not None
    assert (other.records, other.place) == (1, 0)
    assert do_merge(store, "2/2", MergeTask((plan("books", 0),), shares_file=True)) == [None]
    assert do_merge(store, "2/3", MergeTask((plan("books", 0, own=True),), shares_file=False)) == [None]
    assert set(store.files) == {"1/a", "2/1"}


@pytest.mark.parametrize("shares_file", [True, False])
def test_a_part_that_was_collected_is_told(shares_file: bool) -> None:
    with pytest.raises(FileNotFoundError, match="1/gone"):
        do_merge(stored(), "2/1", MergeTask((plan("books", 0, path="1/gone"),), shares_file))


def test_files_of_one_index_become_a_part_of_a_shared_one() -> None:
    store = stored()
    (output,) = do_merge(store, "2/1", MergeTask((plan("books", 0, 1, own=True),), shares_file=False))
    assert output is not None
    assert output.place == WHOLE_FILE
    parts = (Part("2/1", WHOLE_FILE, PartKind.SORTED, 2, 9, 7, 1, 1, 1), *plan("books", 2).parts)
    (again,) = do_merge(store, "3/1", MergeTask((MergePlan("books", parts, PartKind.OPTIMIZED, True, False),), True))
    assert again is not None
    assert (again.records, again.place) == (3, 0)
