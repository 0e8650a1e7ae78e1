"""When parts are sorted and optimized, how the files are named, and how often a modification is written."""

from __future__ import annotations

import pytest

from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind
from indexlog.planning import STANDARD_POLICY, MergePlan, MergePolicy, plan_merge

UNSORTED, SORTED, OPTIMIZED = PartKind.UNSORTED, PartKind.SORTED, PartKind.OPTIMIZED


def parts(*sizes: tuple[PartKind, int]) -> list[Part]:
    """Parts of such sizes in bytes; the first has the time 1000, the next one 1001."""
    return [
        Part(f"1/{number}", WHOLE_FILE, kind, 1, size, 1000 + number, number, number, number)
        for number, (kind, size) in enumerate(sizes)
    ]


def plan(*sizes: tuple[PartKind, int], policy: MergePolicy = STANDARD_POLICY) -> MergePlan | None:
    return plan_merge("books", parts(*sizes), policy)


def test_more_than_30_slices_or_30_mb_are_sorted() -> None:
    assert plan(*[(UNSORTED, 1_000_000)] * 30) is None
    found = plan(*[(UNSORTED, 1)] * 31)
    assert found is not None
    assert (found.kind, len(found.parts), found.is_oldest) == (SORTED, 31, True)
    assert plan((UNSORTED, 30_000_000)) is None
    large = plan((UNSORTED, 30_000_000), (UNSORTED, 1))
    assert large is not None
    assert (large.kind, len(large.parts)) == (SORTED, 2)
    behind = plan((OPTIMIZED, 9), *[(UNSORTED, 1)] * 31)
    assert behind is not None
    assert (len(behind.parts), behind.is_oldest) == (31, False), "slices alone are sorted; deletes stay"


def test_a_sorted_file_has_the_time_of_its_first_slice_and_an_optimized_one_that_of_its_last_file() -> None:
    found = plan((OPTIMIZED, 1), *[(UNSORTED, 1)] * 31)
    assert found is not None
    assert found.timestamp == 1001
    found = plan((OPTIMIZED, 1), *[(SORTED, 5)] * 8)
    assert found is not None
    assert (found.kind, found.timestamp) == (OPTIMIZED, 1008)


def test_several_sorted_files_are_optimized_with_older_ones_that_are_not_much_larger() -> None:
    assert plan(*[(SORTED, 10)] * 7) is None
    for older, taken in ((639, 9), (640, 8), (100_000, 8)):
        found = plan((OPTIMIZED, older), *[(SORTED, 40)] * 8)
        assert found is not None
        assert (len(found.parts), found.is_oldest) == (taken, taken == 9)
    found = plan((OPTIMIZED, 9000), (OPTIMIZED, 2199), (OPTIMIZED, 700), *[(SORTED, 50)] * 8)
    assert found is not None
    assert (len(found.parts), found.is_oldest) == (10, False), (
        "the next older one too, which is too small for both together"
    )


def test_files_of_a_large_run_count_as_one() -> None:
    def cut(kind: PartKind, size: int, number: int) -> list[Part]:
        return [Part(f"1/{number}-{piece}", WHOLE_FILE, kind, 1, size, 0, 9, number, number) for piece in range(4)]

    sorted_runs = [part for number in range(2, 9) for part in cut(SORTED, 10, number)]
    assert plan_merge("books", sorted_runs, STANDARD_POLICY) is None
    sorted_runs += cut(SORTED, 10, 9)
    for size, taken in ((160, 32), (159, 36)):
        found = plan_merge("books", [*cut(OPTIMIZED, size, 1), *sorted_runs], STANDARD_POLICY)
        assert found is not None
        assert (len(found.parts), found.is_oldest) == (taken, taken == 36)


@pytest.mark.parametrize("kind", PartKind)
def test_names_are_those_of_the_text(kind: PartKind) -> None:
    part = Part("1/2", WHOLE_FILE, kind, 1200, 5, 1_769_860_800_007, 1, 1, 1)
    word = {UNSORTED: "unsorted", SORTED: "sorted", OPTIMIZED: "optimized"}[kind]
    assert part.name == f"2026-01-31-12-00-00-007__{word}_1200"


def test_a_day_of_modifications_is_written_seven_times_at_most() -> None:
    """An index that every deal of a day has, each 5 s, with equal slices and nothing merged away: raw logs, containers and files together."""
    index: list[Part] = []
    written, deals, files = 0, 86_400 // 5, 0
    for number in range(deals):
        index.append(Part(f"1/{number}", 0, UNSORTED, 1, 1, 0, 0, number, number))
        written += 2
        while (found := plan_merge("books", index, STANDARD_POLICY)) is not None:
            first = index.index(found.parts[0])
            size = sum(part.bytes for part in found.parts)
            written += size
            merged = Part(f"2/{written}", WHOLE_FILE, found.kind, 1, size, 0, 0, found.parts[0].since, number)
            index[first : first + len(found.parts)] = [merged]
            files = max(files, sum(part.kind is not UNSORTED for part in index))
    assert 6 < written / deals < 7
    assert files <= 16
