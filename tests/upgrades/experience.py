"""How those who append and read fare while nodes are replaced, beside a control of the same load before: the goals of an upgrade."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.percentiles import percentile
from benchmarks.rolling_restart import P99_MAX, STALL_MAX
from tests.upgrades.verdict import WriterJournal


@dataclass(frozen=True, slots=True)
class MeasuredSpan:
    """A stretch of the monotonic clock, in seconds."""

    begin: float
    end: float

    def __contains__(self, time: float) -> bool:
        return self.begin <= time < self.end


def latencies(writers: Iterable[WriterJournal], span: MeasuredSpan) -> list[float]:
    """Milliseconds that the appends took that were due within a span, from when each was due."""
    return [late / 1e3 for written in writers for late, due in written.latencies if due in span]


def failures(writers: Iterable[WriterJournal], span: MeasuredSpan) -> int:
    """How many appends that were due within a span were refused, or have an unknown outcome."""
    return sum(due in span for written in writers for due in written.failed_due)


def longest_wait(times: Sequence[float], span: MeasuredSpan) -> float:
    """Seconds for which a reader got nothing within a span; it may be the end of it, or all.

    Args:
        times: when it got each record, ascending.
    """
    within = [span.begin, *(time for time in times if time in span), span.end]
    return max(later - earlier for earlier, later in itertools.pairwise(within))


def missed(control: Sequence[float], upgrade: Sequence[float], failed: int) -> list[str]:
    """The goals of appends that were missed, each in words.

    Args:
        control: milliseconds of appends before nodes are replaced.
        upgrade: milliseconds of appends meanwhile.
        failed: appends that failed meanwhile.
    """
    if not control or not upgrade:
        return ["nothing was appended"]
    found = [f"{failed} appends failed (goal: 0)"] if failed else []
    ratio = percentile(upgrade, 0.99) / percentile(control, 0.99)
    if ratio > P99_MAX:
        found.append(f"p99 of appends is {ratio:.1f} times the control (goal: {P99_MAX:g})")
    return found


def stalled(waits: Iterable[float]) -> list[str]:
    """The goal of readers, in words, where it was missed.

    Args:
        waits: seconds for which each got nothing, at most.
    """
    longest = max(waits)
    return [f"a reader got nothing for {longest:.2f} s (goal: {STALL_MAX:g})"] if longest > STALL_MAX else []
