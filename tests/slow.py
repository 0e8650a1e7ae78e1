"""Which values of a parametrized test ``make test`` takes, and which only ``make soak``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(values: Iterable[Any], count: int) -> list[Any]:
    """All of them, the first `count` as they are and the others marked slow. What stands in `pytest.param` keeps its name."""
    chosen = list(values)
    return [*chosen[:count], *map(_slow, chosen[count:])]


def _slow(value: Any) -> Any:
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, id=value.id, marks=[*value.marks, pytest.mark.slow])
    return pytest.param(value, marks=pytest.mark.slow)
