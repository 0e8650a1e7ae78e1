"""How far readers of streams are behind."""

from __future__ import annotations

import pytest

from server.console.kept_states import entries_behind


@pytest.mark.parametrize(
    ("position", "tail", "behind"),
    [
        ("e3n17+2", "e3n17", 0),
        ("e3n17+2", "e3n20", 3),
        ("e3n17+2", "e3n10", 0),
        ("e2n17+2", "e3n1", None),
        (None, "e3n1", None),
        ("e3n17+2", None, None),
    ],
)
def test_what_is_behind_is_counted_within_an_epoch(position: str | None, tail: str | None, behind: int | None) -> None:
    assert entries_behind(position, tail) == behind
