"""The tests that a page of the docs names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_each_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "indextank.md").read_text()))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), flags=re.MULTILINE)
    }
    assert len(named) > 30
    assert named - there == set()
