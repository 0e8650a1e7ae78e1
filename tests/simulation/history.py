"""What applications did and saw in one log, and whether it may be so."""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

from client.read.items import Gap, GapKind, RecordBatch
from client.read.proof import merge_gaps
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, format_lsn

Position = tuple[int, int]


class Violation(AssertionError):
    """Something that must never happen."""


class AttemptFate(enum.Enum):
    """What an application knows of one of its appends."""

    PENDING = enum.auto()  # no answer yet
    ACKNOWLEDGED = enum.auto()  # it has a receipt
    FAILED = enum.auto()  # certainly not applied
    DOUBTFUL = enum.auto()  # may have been applied


@dataclass(slots=True)
class Attempt:
    """One record that was appended. Its payload is unique."""

    payload: bytes
    floor: Position
    """The greatest position that its client had acknowledged when it was sent."""
    stream: str = ""
    """The write stream that it is part of, and its place there."""
    sequence: int = 0
    fate: AttemptFate = AttemptFate.PENDING
    position: Position | None = None
    """Where it is: by its receipt, or by what a reader saw."""


@dataclass(slots=True)
class Observation:
    """What one reader saw, in order, from `first` on."""

    name: str
    first: int
    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    last: int = 0
    """The last LSN accounted for."""

    def __post_init__(self) -> None:
        self.last = self.first - 1


class LogHistory:
    """Everything about one log."""

    def __init__(self, log: LogId) -> None:
        self.log = log
        self.attempts: dict[bytes, Attempt] = {}
        self.at: dict[Position, bytes] = {}
        self.observations: list[Observation] = []
        self.acknowledged_max: Position = (0, 0)
        self.acknowledged = 0

    def fail(self, text: str) -> None:
        """Something is wrong."""
        raise Violation(f"log {self.log}: {text}")

    # Appending

    def attempt(self, payload: bytes, floor: Position, stream: str = "", sequence: int = 0) -> Attempt:
        """An application appends."""
        assert payload not in self.attempts
        made = self.attempts[payload] = Attempt(payload, floor, stream, sequence)
        return made

    def acknowledge(self, attempt: Attempt, lsn: int, offset: int) -> None:
        """It has a receipt."""
        assert attempt.fate is AttemptFate.PENDING, attempt
        self._place(attempt, (int(lsn), offset), "its receipt")
        attempt.fate = AttemptFate.ACKNOWLEDGED
        self.acknowledged += 1
        self.acknowledged_max = max(self.acknowledged_max, (int(lsn), offset))

    def give_up(self, attempt: Attempt, *, maybe_applied: bool) -> None:
        """It failed."""
        assert attempt.fate is AttemptFate.PENDING, attempt
        attempt.fate = AttemptFate.DOUBTFUL if maybe_applied else AttemptFate.FAILED
        if attempt.fate is AttemptFate.FAILED and attempt.position is not None:
            self.fail(f"{_name(attempt)} failed as not applied, and is at {_at(attempt.position)}")

    def _place(self, attempt: Attempt, position: Position, by: str) -> None:
        if attempt.fate is AttemptFate.FAILED:
            self.fail(f"{_name(attempt)} failed as not applied; {by} puts it at {_at(position)}")
        if attempt.position is not None and attempt.position != position:
            self.fail(f"{_name(attempt)} is at {_at(attempt.position)}; {by} puts it at {_at(position)}")
        other = self.at.setdefault(position, attempt.payload)
        if other != attempt.payload:
            self.fail(f"{_at(position)} holds {other[:24]!r}; {by} puts {_name(attempt)} there")
        if position <= attempt.floor:
            self.fail(
                f"{_name(attempt)} was sent when {_at(attempt.floor)} was acknowledged; {by} puts it at {_at(position)}"
            )
        attempt.position = position

    def check_tail(self, tail: int, acknowledged_before: Position) -> None:
        """A tail was answered; something had been acknowledged before it was asked for."""
        if tail < acknowledged_before[0]:
            self.fail(f"the tail is {format_lsn(tail)}; {_at(acknowledged_before)} was acknowledged before")

    # Reading

    def observe(self, seen: Observation, batch: RecordBatch) -> None:
        """A reader got a batch."""
        for item in batch:
            if isinstance(item, Gap):
                if item.lo != seen.last + 1 or item.hi < item.lo:
                    self.fail(f"{seen.name} was at {format_lsn(seen.last)} and got {item}")
                if item.kind is GapKind.DATALOSS:
                    self.fail(f"{seen.name} got {item}")
                if item.kind is GapKind.TRIM:
                    self.fail(f"{seen.name} got {item}; nothing was trimmed")
                seen.gaps.append(item)
                seen.last = int(item.hi)
                continue
            lsn, offset = int(item.lsn), item.batch_offset
            payload = getattr(item, "payload", None)
            if payload is None:
                self.fail(f"{seen.name} got a corrupt record at {_at((lsn, offset))}")
                raise AssertionError
            expected = (seen.last, seen.records[-1][1] + 1) if seen.records and seen.last == lsn else (seen.last + 1, 0)
            if (lsn, offset) != expected:
                self.fail(f"{seen.name} got {_at((lsn, offset))} where {_at(expected)} was expected")
            attempt = self.attempts.get(payload)
            if attempt is None:
                self.fail(f"{seen.name} got {payload[:24]!r} at {_at((lsn, offset))}; nobody appended it")
                raise AssertionError
            self._place(attempt, (lsn, offset), seen.name)
            seen.records.append((lsn, offset, payload))
            seen.last = lsn

    # The end

    def check_end(self, whole: Observation) -> None:
        """Compare everything with what a reader of the whole log saw at the end."""
        positions = {payload: (lsn, offset) for lsn, offset, payload in whole.records}
        for attempt in self.attempts.values():
            if attempt.fate is AttemptFate.ACKNOWLEDGED and positions.get(attempt.payload) != attempt.position:
                self.fail(
                    f"{_name(attempt)} was acknowledged at {_at(attempt.position)}, "
                    f"read at {_at(positions.get(attempt.payload))}"
                )
        self._check_streams(positions)
        lsns = [lsn for lsn, _, _ in whole.records]
        for seen in self.observations:
            if seen.last < seen.first:
                continue
            last = min(seen.last, whole.last)
            records = whole.records[bisect_left(lsns, seen.first) : bisect_right(lsns, last)]
            got = [record for record in seen.records if record[0] <= last]
            if got and len(got) < len(records) and seen.last == got[-1][0]:
                # the reader may have been stopped within an entry
                records = [record for record in records if record[:2] <= got[-1][:2]]
            if got != records:
                missing = [_at(record[:2]) for record in records if record not in set(got)]
                extra = [_at(record[:2]) for record in got if record not in set(records)]
                self.fail(
                    f"{seen.name} [{format_lsn(seen.first)}, {format_lsn(last)}]: missing {missing[:5]}, extra {extra[:5]}"
                )
            mine, all_ = _clip(seen.gaps, seen.first, last), _clip(whole.gaps, seen.first, last)
            if mine != all_:
                self.fail(f"{seen.name} saw gaps {_differing(mine, all_)}, {whole.name} {_differing(all_, mine)}")

    def _check_streams(self, positions: dict[bytes, Position]) -> None:
        streams: dict[str, list[Attempt]] = {}
        for attempt in self.attempts.values():
            if attempt.stream and attempt.payload in positions:
                streams.setdefault(attempt.stream, []).append(attempt)
        for attempts in streams.values():
            attempts.sort(key=lambda attempt: attempt.sequence)
            for one, two in pairwise(attempts):
                if positions[one.payload] >= positions[two.payload]:
                    self.fail(
                        f"order: {_name(one)} at {_at(positions[one.payload])}, {_name(two)} at {_at(positions[two.payload])}"
                    )


def _clip(gaps: list[Gap], first: int, last: int) -> list[Gap]:
    return list(
        merge_gaps(
            Gap(gap.kind, LSN(max(gap.lo, first)), LSN(min(gap.hi, last)))
            for gap in gaps
            if gap.hi >= first and gap.lo <= last
        )
    )


def _differing(gaps: list[Gap], others: list[Gap]) -> list[str]:
    return [f"{gap.kind.value} {format_lsn(gap.lo)}..{format_lsn(gap.hi)}" for gap in gaps if gap not in others][:5]


def _name(attempt: Attempt) -> str:
    return repr(attempt.payload[:24])


def _at(position: tuple[int, ...] | None) -> str:
    return "nowhere" if position is None else f"{format_lsn(position[0])}.{position[1]}"
