"""Pages that name the tests which show something name tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
NAMED = re.compile(r"`((?:[a-z_]+/)+test_\w+\.py)(?:::(\w+))?`")
PAGES = {
    "bookkeeper-placement.md": 10,
    "defects.md": 50,
    "distributedlog.md": 50,
    "indextank.md": 40,
    "placement.md": 25,
}
"""How many tests each names, at least."""


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of all tests in a file; empty: there is no such file."""
    file = TESTS / path
    if not file.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(file.read_text()))
    functions = (node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in functions if name.startswith("test_"))


def missing(text: str) -> list[str]:
    """What is named and does not exist."""
    return [
        f"{path}::{test}" if test else path
        for path, test in NAMED.findall(text)
        if not names_in(path) or (test and test not in names_in(path))
    ]


@pytest.mark.parametrize("page", PAGES)
def test_tests_that_a_page_names_exist(page: str) -> None:
    text = (DOCS / page).read_text()
    assert len(NAMED.findall(text)) > PAGES[page], "names are found"
    assert missing(text) == []


@pytest.mark.parametrize(
    ("page", "begin", "end", "least"),
    [
        ("distributedlog.md", "", "\n## Same job", 60),
        ("indextank.md", "## Purpose", "\n## Plans", 30),
        ("placement.md", "statement by statement", "\n## ", 30),
    ],
)
def test_each_statement_has_a_test_or_says_that_it_has_none(page: str, begin: str, end: str, least: int) -> None:
    text = (DOCS / page).read_text()
    text = text[text.index(begin) :].partition(end)[0]
    rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", text, flags=re.MULTILINE)]
    statements = [row for row in rows if row[0] not in ("DistributedLog says", "the text")]
    assert len(statements) > least
    assert {len(row) for row in statements} == {3}
    assert [row[0] for row in statements if not NAMED.search(row[2]) and "not shown" not in row[2]] == []


def test_faults_of_rules_are_in_the_tests_that_catch_them() -> None:
    text = (DOCS / "deliberate-faults.md").read_text()
    _, _, table = text.partition("| rule | faults | test |\n")
    rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", table.partition("\n\n")[0], flags=re.MULTILINE)]
    assert len(rows) > 10
    for _, faults, file in rows:
        named = re.findall("`([^`]+)`", faults)
        assert named
        source = (TESTS.parent / file.strip("`")).read_text()
        assert [fault for fault in named if fault not in source] == []


def test_what_does_not_exist_is_noticed() -> None:
    named = "`unit/test_tests_named_in_pages.py::test_what_does_not_exist_is_noticed` `unit/test_none.py` "
    named += "`unit/test_tests_named_in_pages.py::test_none`"
    assert missing(named) == ["unit/test_none.py", "unit/test_tests_named_in_pages.py::test_none"]
