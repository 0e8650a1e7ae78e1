"""Which values of a parametrized test ``make test`` takes, and which only ``make soak``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(values: Iterable[Any], count: int) -> list[Any]:
    """All of them, the first `count` as they are and the others marked slow."""
    chosen = list(values)
    return [*chosen[:count], *(pytest.param(value, marks=pytest.mark.slow) for value in chosen[count:])]
