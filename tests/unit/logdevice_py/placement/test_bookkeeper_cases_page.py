"""docs/bookkeeper-placement.md and the tests of BookKeeper's cases know of each other."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.unit.test_tests_named_in_pages import DOCS, NAMED, missing, names_in

HERE = Path(__file__).parent
TESTS = HERE.parents[2]
TEXT = (DOCS / "bookkeeper-placement.md").read_text()
ROWS = [
    cells
    for cells in (row.split(" | ") for row in re.findall(r"^\| (.*) \|$", TEXT, flags=re.MULTILINE))
    if len(cells) == 4 and cells[0] != "case"
]
RETOLD = frozenset[str]().union(
    *(
        names_in(str(file.relative_to(TESTS)))
        for file in HERE.glob("test_bookkeeper_cases_*.py")
        if file != Path(__file__)
    )
)
"""The names of all tests of cases."""


def verdict(cells: list[str]) -> str:
    return cells[2].partition(":")[0]


def cases(cells: list[str]) -> list[str]:
    return re.findall(r"`(\w+)`", cells[0])


def test_the_page_names_every_test_of_a_case_and_no_other() -> None:
    assert len(RETOLD) > 60
    named = set(re.findall(r"`(test_[a-z]\w+)`", TEXT))
    assert sorted(named - RETOLD) == [], "the page names tests that do not exist"
    assert sorted(RETOLD - named) == [], "tests that the page does not name"
    assert missing(TEXT) == []


def test_each_case_has_a_verdict_and_a_test_unless_it_is_not_so_here() -> None:
    assert {verdict(cells) for cells in ROWS} == {"holds", "otherwise", "no"}
    assert [cells[0] for cells in ROWS if not cases(cells)] == []
    assert [cells[0] for cells in ROWS if verdict(cells) != "holds" and ": " not in cells[2]] == [], "how, or why"
    shown = [bool(re.search(r"`test_\w+`", cells[3]) or NAMED.search(cells[3])) for cells in ROWS]
    assert {verdict(cells) for cells, each in zip(ROWS, shown, strict=True) if not each} == {"no"}


def test_the_page_counts_right() -> None:
    counts: Counter[str] = Counter()
    for cells in ROWS:
        counts[verdict(cells)] += len(cases(cells))
    told = f"Of {counts.total()} cases {counts['holds']} hold, {counts['otherwise']} hold otherwise, {counts['no']} do not."
    assert told in TEXT
