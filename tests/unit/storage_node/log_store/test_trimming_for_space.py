"""Which partitions are trimmed when a disk is short of space."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from storage_node.log_store.directory_answers import last_to_trim


class Parts(list[Any]):
    """Partitions 1 to 4, the last of which is not closed; each has ten times as many bytes as its number."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(number=number) for number in range(1, 5))
        self.latest = self[-1]


@pytest.mark.parametrize(("wanted", "last"), [(0, 0), (1, 1), (10, 1), (11, 2), (30, 2), (31, 3), (60, 3), (1000, 3)])
def test_as_many_go_as_are_needed_and_no_more(wanted: int, last: int) -> None:
    assert last_to_trim(cast(Any, Parts()), lambda number: 10 * number, wanted) == last
