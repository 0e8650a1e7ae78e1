"""What writers were told, compared with what readers got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class WriterJournal:
    """What a writer was told."""

    acknowledged: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Position of each record by its number."""
    unknown: set[int] = field(default_factory=set)
    """Numbers of records that may be there or not."""
    failures: list[str] = field(default_factory=list)
    failed_due: list[float] = field(default_factory=list)
    """When appends were due that were refused or have an unknown outcome, each time that they were."""
    latencies: list[tuple[int, float]] = field(default_factory=list)
    """Of each acknowledged append the microseconds from when it was due, and when that was."""

    def keeps_up(self, late: float) -> bool:
        """Whether the last append took no longer than that many seconds from when it was due: nothing waits behind it."""
        return bool(self.latencies) and self.latencies[-1][0] <= late * 1e6

    @staticmethod
    def of(lines: Sequence[list[Any]]) -> WriterJournal:
        """What a writer printed."""
        written = WriterJournal()
        for kind, number, *rest in lines:
            if kind == "ok":
                assert number not in written.acknowledged, f"{number} was acknowledged twice"
                written.acknowledged[number] = (rest[0], rest[1])
                written.latencies.append((rest[2], rest[3]))
                continue
            written.failed_due.append(rest[1])
            if kind == "unknown":
                written.unknown.add(number)
            else:
                written.failures.append(f"{number}: {rest[0]}")
        return written


def trouble(way: str, written: WriterJournal, read: Sequence[list[Any]]) -> list[str]:
    """What is wrong with what was read of a log with one writer; empty where nothing is.

    What was acknowledged is there, at its position, once; nothing that was not written is there; one who appends each record after the answer to the
    one before finds them in that order; no gap is a loss.
    """
    found = [each for each in read if each[0] == "record"]
    wrong = [f"gap {each[1:]}" for each in read if each[0] == "gap" and each[1] == "DATALOSS"]
    places: dict[int, tuple[int, int]] = {}
    last = 0
    for _, lsn, offset, payload, *_ in found:
        kind, _, text = payload.partition(" ")
        number = int(text)
        if kind != way or number not in written.acknowledged.keys() | written.unknown:
            wrong.append(f"{payload!r} at {lsn}+{offset} was not written")
        if number in places:
            wrong.append(f"{number} is at {places[number]} and at {lsn}+{offset}")
        if number <= last:
            wrong.append(f"{number} at {lsn}+{offset} comes behind {last}")
        places[number] = (lsn, offset)
        last = max(last, number)
    for number, place in written.acknowledged.items():
        if places.get(number) != place:
            wrong.append(f"{number} was acknowledged at {place} and is at {places.get(number)}")
    positions = [(each[1], each[2]) for each in found]
    if positions != sorted(set(positions)):
        wrong.append("positions do not grow")
    return wrong
