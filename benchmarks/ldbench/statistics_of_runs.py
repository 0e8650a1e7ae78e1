"""Medians, spreads and ratios of what was measured several times."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one figure over the rounds."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """At least one value is needed."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    def overlaps(self, other: Spread) -> bool:
        """Whether both ranges have a value in common: the difference may be noise."""
        return self.low <= other.high and other.low <= self.high


def ratios_by_round(ours: Mapping[int, float], theirs: Mapping[int, float], *, higher_is_better: bool) -> list[float]:
    """How many times better ours is, above 1 is better, in each round that has both; rounds lie close to each other in time.

    When no round has both, the one ratio of the medians.
    """
    rounds = sorted(ours.keys() & theirs.keys())
    pairs = [(ours[number], theirs[number]) for number in rounds]
    if not pairs and ours and theirs:
        pairs = [(statistics.median(ours.values()), statistics.median(theirs.values()))]
    if not higher_is_better:
        pairs = [(b, a) for a, b in pairs]
    return [a / b for a, b in pairs if b > 0]


def best_of(candidates: Mapping[str, Sequence[float]], *, higher_is_better: bool) -> str | None:
    """The name with the best median; None when there is none."""
    medians = {name: statistics.median(values) for name, values in candidates.items() if values}
    if not medians:
        return None
    return (max if higher_is_better else min)(medians, key=lambda name: medians[name])
