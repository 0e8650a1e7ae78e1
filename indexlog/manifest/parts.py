"""What an index consists of: slices of containers, and files."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

WHOLE_FILE: Final = -1
"""In place of the number of a row."""


class PartKind(enum.IntEnum):
    """How far a part is on its way; later ones hold what is older."""

    UNSORTED = 0
    """A slice: one index's rows of a container."""
    SORTED = 1
    """A file made of slices."""
    OPTIMIZED = 2
    """A file made of files."""


class JobKind(enum.IntEnum):
    """What a job does."""

    OTHER = 0
    DEAL = 1
    MERGE = 2


class Part(NamedTuple):
    """A run of one index's history, sorted by document id, each document once."""

    path: str
    """In the store; begins with the token of the job that wrote it."""
    place: int
    """The first row in a container, or `WHOLE_FILE`."""
    kind: PartKind
    records: int
    bytes: int
    """What its rows take in memory, about: of what is stored it may be a hundred times as much. Files of earlier versions tell what is stored."""
    timestamp: int
    """Milliseconds since 1970, of its oldest (unsorted, sorted) or newest (optimized) modification by clocks of writers: for its name."""
    made: int
    """The serial of the change that made it live."""
    since: int
    """The serial of the first deal of which it has modifications."""
    until: int
    """That of the last one."""

    @property
    def key(self) -> tuple[str, int]:
        """Unique."""
        return self.path, self.place

    @property
    def run(self) -> tuple[int, int]:
        """The files of a large run that is in several have this in common."""
        return self.since, self.until

    @property
    def order(self) -> tuple[int, int, str, int]:
        """Parts of an index, ordered by this, are in the order of modifications. Files of one run, of which none is older, are in the order of their paths."""
        return self.since, self.until, self.path, self.place

    @property
    def name(self) -> str:
        """For people: ``2026-01-31-12-00-00-000__sorted_1200``."""
        return f"{shown_time(self.timestamp)}__{self.kind.name.lower()}_{self.records}"


@dataclass(frozen=True, slots=True)
class RetiredPart:
    """One that was replaced or dropped, and may still be read."""

    index: str
    part: Part
    retired: int
    """The serial of the change that retired it."""
    time: int
    """When, by the sequencer's clock: microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class IndexFloor:
    """Where an index began anew when it was dropped last: what is older is not the index's any more, in raw logs neither."""

    generation: int
    """Nothing of generations before this one is its own."""
    lsns: Mapping[int, int]
    """Of the raw logs that there were, the last LSN that is not its own."""
    drop: int
    """Which drop it was, of all that there were: from 1 on."""

    def leaves_out(self, generation: int, log: int, lsn: int) -> bool:
        """Whether a modification at this place is not the index's any more."""
        return generation < self.generation or lsn <= self.lsns.get(log, 0)


@dataclass(frozen=True, slots=True)
class RoutingGeneration:
    """The raw logs of some time."""

    number: int
    logs: tuple[int, ...]
    ends: tuple[int, ...] | None = None
    """The last LSN of each log, once the generation has ended."""


def shown_time(milliseconds: int) -> str:
    """A time as names of files have it."""
    seconds, rest = divmod(milliseconds, 1000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return str(milliseconds)
    return f"{moment:%Y-%m-%d-%H-%M-%S}-{rest:03d}"
