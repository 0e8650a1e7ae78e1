"""What applications did and saw in one log, and whether it may be so."""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind
from client.read.proof import merge_gaps
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_MAX, format_lsn
from server.simulation.faults.attacks import FORGED

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

    @property
    def application(self) -> bytes:
        """The name of who appended it: the payload begins with it."""
        return self.payload.partition(b"-")[0]


@dataclass(slots=True)
class Observation:
    """What one reader saw, in order, from `first` on."""

    name: str
    first: int
    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    last: int = 0
    """The last LSN accounted for."""
    stamp: int = 0
    """Timestamp of the last entry, and its epoch."""
    stamp_epoch: int = 0

    def __post_init__(self) -> None:
        self.last = self.first - 1


@dataclass(slots=True)
class TimeAnswer:
    """Where `find_time` put a time."""

    by: str
    when: int
    lsn: int
    before: int
    """The greatest LSN that was acknowledged when it was asked for."""


@dataclass(slots=True)
class KeyAnswer:
    """Where `find_key` put a key."""

    by: str
    key: bytes
    lsn: int
    before: int
    """The greatest LSN that was acknowledged when it was asked for."""


def key_of(payload: bytes) -> bytes | None:
    """The key that an application gives a record: some have none, and keys are in no order."""
    if payload.count(b"-") < 2:
        return None  # of a schedule, whose records are only numbered
    application, number, _ = payload.split(b"-", 2)
    return number if application[:1] in (b"a", b"w") and int(number) % 3 == 0 else None


class FinalContents:
    """What LSNs hold for ever, as readers were told: records, or gaps of one benign kind."""

    def __init__(self) -> None:
        self._records: list[int] = []
        self._starts: list[int] = []
        self._gaps: list[tuple[int, GapKind]] = []
        """(end, kind), beside `_starts`; neither overlapping nor, of one kind, touching."""

    def add_record(self, lsn: int) -> str:
        """A reader got a record; what contradicts that, or nothing."""
        at = bisect_right(self._starts, lsn) - 1
        if at >= 0 and self._gaps[at][0] >= lsn:
            return f"{self._gaps[at][1].value} {format_lsn(self._starts[at])}..{format_lsn(self._gaps[at][0])}"
        if not self._records or lsn > self._records[-1]:
            self._records.append(lsn)
        elif self._records[at := bisect_left(self._records, lsn)] != lsn:
            self._records.insert(at, lsn)
        return ""

    def add_gap(self, gap: Gap) -> str:
        """A reader got a HOLE or a BRIDGE; what contradicts that, or nothing."""
        lo, hi, kind = int(gap.lo), int(gap.hi), gap.kind
        at = bisect_left(self._records, lo)
        if at < len(self._records) and self._records[at] <= hi:
            return f"a record at {format_lsn(self._records[at])}"
        first = last = bisect_left(self._starts, lo)
        if first and self._gaps[first - 1][0] >= lo - 1:
            first -= 1
        while last < len(self._starts) and self._starts[last] <= hi + 1:
            last += 1
        for index in range(first, last):
            start, (end, other) = self._starts[index], self._gaps[index]
            if other is not kind:
                if start <= hi and end >= lo:
                    return f"{other.value} {format_lsn(start)}..{format_lsn(end)}"
                continue
            lo, hi = min(lo, start), max(hi, end)
        kept = [
            (self._starts[index], self._gaps[index]) for index in range(first, last) if self._gaps[index][1] is not kind
        ]
        merged = sorted([*kept, (lo, (hi, kind))])
        self._starts[first:last] = [start for start, _ in merged]
        self._gaps[first:last] = [rest for _, rest in merged]
        return ""


class LogHistory:
    """Everything about one log."""

    def __init__(self, log: LogId, *, loses: bool = False) -> None:
        """
        Args:
            loses: more is destroyed than the replication property tolerates: records may be lost, and then DATALOSS must say so.
        """
        self.log = log
        self.loses = loses
        self.betrayed = False
        """A shard forgot, without knowing it, what it had made durable: no promise that rests on that holds. Readers still get what somebody
        appended, in order and without an LSN left out."""
        self.final = FinalContents()
        self.timestamps: dict[int, int] = {}
        """By LSN, as receipts and readers told."""
        self.records: dict[int, int] = {}
        """By LSN, how many records readers found there."""
        self.trim_asked = 0
        """The greatest LSN up to which somebody asked to trim."""
        self.released: Callable[[], int] = lambda: LSN_MAX
        """The greatest LSN that a sequencer released."""
        self.forgotten: Callable[[int], bool] = lambda lsn: False
        """Whether recovery decided what an LSN holds and nobody who knew is left (`Invariants.is_forgotten`)."""
        self.came_back: set[int] = set()
        """LSNs of which that was so when a reader got a record there."""
        self.times: list[TimeAnswer] = []
        """What `find_time` answered."""
        self.keys: list[KeyAnswer] = []
        """What `find_key` answered."""
        self.losses: list[Gap] = []
        """DATALOSS that a reader got."""
        self.attempts: dict[bytes, Attempt] = {}
        self.overtaken: list[Attempt] = []
        """Of write streams: those that failed because a later frame is stored without them, as their client says."""
        self.unanswered: Counter[bytes] = Counter()
        """By application, how many of its appends have no answer yet."""
        self.at: dict[Position, bytes] = {}
        self.observations: list[Observation] = []
        self.acknowledged_max: Position = (0, 0)
        self.acknowledged = 0

    def fail(self, text: str, *, whatever: bool = False) -> None:
        """Something is wrong. `whatever`: even when disks forget silently."""
        if whatever or not self.betrayed:
            raise Violation(f"log {self.log}: {text}")

    # Appending

    def attempt(self, payload: bytes, floor: Position, stream: str = "", sequence: int = 0) -> Attempt:
        """An application appends."""
        assert payload not in self.attempts
        made = self.attempts[payload] = Attempt(payload, floor, stream, sequence)
        self.unanswered[made.application] += 1
        return made

    def acknowledge(self, attempt: Attempt, lsn: int, offset: int, timestamp: int = 0) -> None:
        """It has a receipt. `timestamp`: 0 when the receipt does not tell."""
        assert attempt.fate is AttemptFate.PENDING, attempt
        if timestamp:
            self._stamp(int(lsn), int(timestamp), "its receipt")
        self._place(attempt, (int(lsn), offset), "its receipt")
        attempt.fate = AttemptFate.ACKNOWLEDGED
        self.unanswered[attempt.application] -= 1
        self.acknowledged += 1
        self.acknowledged_max = max(self.acknowledged_max, (int(lsn), offset))

    def note_failure(self, attempt: Attempt, *, maybe_applied: bool) -> None:
        """It failed."""
        assert attempt.fate is AttemptFate.PENDING, attempt
        attempt.fate = AttemptFate.DOUBTFUL if maybe_applied else AttemptFate.FAILED
        self.unanswered[attempt.application] -= 1
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

    def expire(self, lsn: int) -> None:
        """What lies up to here is older than the log keeps it."""
        self.trim_asked = max(self.trim_asked, lsn)

    # Reading

    def observe(self, seen: Observation, batch: RecordBatch) -> None:
        """A reader got a batch."""
        for item in batch:
            if isinstance(item, Gap):
                self._observe_gap(seen, item)
                continue
            lsn, offset = int(item.lsn), item.batch_offset
            payload = getattr(item, "payload", None)
            if payload is None:
                self.fail(f"{seen.name} got a corrupt record at {_at((lsn, offset))}", whatever=True)
                raise AssertionError
            comes_back = self._comes_back(lsn)
            within = bool(seen.records) and seen.last == lsn
            if within:
                expected = (lsn, seen.records[-1][1] + 1)
            else:
                self._end_entry(seen)
                expected = (seen.last + 1, 0)
                contradiction = "" if comes_back else self.final.add_record(lsn)
                if contradiction:
                    self.fail(f"{seen.name} got a record at {_at((lsn, offset))}; a reader was told {contradiction}")
                if lsn > self.released():
                    self.fail(
                        f"{seen.name} got {_at((lsn, offset))}; released is what ends at {format_lsn(self.released())}"
                    )
                self._stamp(lsn, int(item.timestamp), seen.name)
                if seen.stamp > item.timestamp and seen.stamp_epoch == lsn >> 32:
                    self.fail(
                        f"{seen.name}: the timestamp of {_at((lsn, offset))} is below that of the entry before it"
                    )
                seen.stamp, seen.stamp_epoch = int(item.timestamp), lsn >> 32
            if (lsn, offset) != expected:
                self.fail(f"{seen.name} got {_at((lsn, offset))} where {_at(expected)} was expected", whatever=True)
            attempt = self.attempts.get(payload)
            if attempt is None and payload.startswith(FORGED):
                other = self.at.setdefault((lsn, offset), payload)
                if other != payload:
                    self.fail(f"{_at((lsn, offset))} holds {other[:24]!r}; {seen.name} got {payload[:24]!r} there")
                seen.records.append((lsn, offset, payload))
                seen.last = lsn
                continue
            if attempt is None:
                self.fail(
                    f"{seen.name} got {payload[:24]!r} at {_at((lsn, offset))}; nobody appended it", whatever=True
                )
                raise AssertionError
            if item.key != key_of(payload):  # type: ignore[union-attr]
                self.fail(f"{seen.name} got {payload[:24]!r} with key {item.key!r}", whatever=True)  # type: ignore[union-attr]
            if attempt.position != (lsn, offset) and not comes_back:  # else it was looked at when it was placed
                self._place(attempt, (lsn, offset), seen.name)
            seen.records.append((lsn, offset, payload))
            seen.last = lsn

    def _comes_back(self, lsn: int) -> bool:
        """Whether a record that a reader got may be one that recovery decided against.

        A shard that missed the recovery of an epoch cannot tell such an entry from one that was acknowledged and whose other copies are destroyed. When
        nobody is left who knows it keeps both, as what was acknowledged must not be lost. So a reader may have been told that there is nothing, and who
        appended the record may have been told so, too, and have it elsewhere by now.
        """
        if not self.forgotten(lsn):
            return False
        self.came_back.add(lsn)
        return True

    def _stamp(self, lsn: int, timestamp: int, by: str) -> None:
        if self.timestamps.setdefault(lsn, timestamp) != timestamp:
            self.fail(f"{format_lsn(lsn)} has timestamp {self.timestamps[lsn]}; {by} says {timestamp}")

    def _end_entry(self, seen: Observation) -> None:
        """A reader went on to the next LSN: it has all records of the one before."""
        if seen.records:
            lsn, last, _ = seen.records[-1]
            if self.records.setdefault(lsn, last + 1) != last + 1:
                self.fail(f"{seen.name} got {last + 1} records at {format_lsn(lsn)}, others {self.records[lsn]}")

    def _observe_gap(self, seen: Observation, gap: Gap) -> None:
        self._end_entry(seen)
        if gap.lo != seen.last + 1 or gap.hi < gap.lo:
            self.fail(f"{seen.name} was at {format_lsn(seen.last)} and got {gap}", whatever=True)
        if gap.kind is GapKind.DATALOSS:
            if not self.loses:
                self.fail(f"{seen.name} got {gap}")
            self.losses.append(gap)
        elif gap.kind is GapKind.TRIM:
            if gap.hi > self.trim_asked:
                self.fail(f"{seen.name} got {gap}; trimmed was what ends at {format_lsn(self.trim_asked)}")
        else:
            contradiction = self.final.add_gap(gap)
            if contradiction:
                self.fail(f"{seen.name} got {gap}; a reader was told {contradiction}")
        seen.gaps.append(gap)
        seen.last = int(gap.hi)

    # The end

    def check_end(self, whole: Observation) -> None:
        """Compare everything with what a reader of the whole log saw at the end."""
        positions = {payload: (lsn, offset) for lsn, offset, payload in whole.records}
        for attempt in self.attempts.values():
            if attempt.fate is AttemptFate.ACKNOWLEDGED and positions.get(attempt.payload) != attempt.position:
                assert attempt.position is not None
                if attempt.position[0] <= self.trim_asked:
                    continue
                if self.loses and any(gap.lo <= attempt.position[0] <= gap.hi for gap in whole.gaps if _is_loss(gap)):
                    continue
                self.fail(
                    f"{_name(attempt)} was acknowledged at {_at(attempt.position)}, "
                    f"read at {_at(positions.get(attempt.payload))}"
                )
        self._check_streams()
        self._check_times()
        self._check_keys()
        lsns = [lsn for lsn, _, _ in whole.records]
        for seen in self.observations:
            # what is trimmed some saw and others did not; so it is with what is lost
            first, last = max(seen.first, self.trim_asked + 1), min(seen.last, whole.last)
            if last < first:
                continue
            lost = [gap for gap in [*seen.gaps, *whole.gaps] if _is_loss(gap)]
            records = whole.records[bisect_left(lsns, first) : bisect_right(lsns, last)]
            got = seen.records[bisect_left(seen.records, first, key=_lsn) : bisect_right(seen.records, last, key=_lsn)]
            if got and seen.last == got[-1][0]:
                # the reader may have been stopped within an entry
                records = records[: bisect_right(records, got[-1][:2], key=_position)]
            if lost:
                records, got = _without(records, lost), _without(got, lost)
            if self.came_back:
                # whoever came before what recovery had decided against was back got less
                held = set(got)
                records = [record for record in records if record[0] not in self.came_back or record in held]
            if got != records:
                missing = [_at(record[:2]) for record in records if record not in set(got)]
                extra = [_at(record[:2]) for record in got if record not in set(records)]
                self.fail(
                    f"{seen.name} [{format_lsn(first)}, {format_lsn(last)}]: missing {missing[:5]}, extra {extra[:5]}"
                )
            if lost:
                continue  # whoever came before the loss got more
            mine, all_ = _clip(seen.gaps, first, last), _clip(whole.gaps, first, last)
            if mine != all_:
                self.fail(f"{seen.name} saw gaps {_differing(mine, all_)}, {whole.name} {_differing(all_, mine)}")

    def lost(self, whole: Observation) -> int:
        """How many acknowledged records a reader of the whole log was told are lost."""
        return sum(
            attempt.fate is AttemptFate.ACKNOWLEDGED
            and attempt.position is not None
            and any(gap.lo <= attempt.position[0] <= gap.hi for gap in whole.gaps if _is_loss(gap))
            for attempt in self.attempts.values()
        )

    def check_losses(self, whole: Observation, intact: Callable[[int], bool]) -> None:
        """A reader of the whole log, at the end, was told of no loss of what it could have had.

        Args:
            intact: whether a sound copy of an LSN lies on a shard that answers for it.
        """
        for attempt in self.attempts.values():
            if attempt.fate is not AttemptFate.ACKNOWLEDGED or attempt.position is None:
                continue
            lsn = attempt.position[0]
            if any(gap.lo <= lsn <= gap.hi for gap in whole.gaps if _is_loss(gap)) and intact(lsn):
                self.fail(f"{whole.name} was told that {_name(attempt)} at {_at(attempt.position)} is lost; it is not")

    def _check_times(self) -> None:
        """Where a time was found an entry is that is not older, and the one before it is older. What is trimmed may have been so when it was asked
        for; what is lost may not have been."""
        lsns = sorted(self.timestamps)
        for answer in self.times if not self.loses else ():
            stamp = self.timestamps.get(answer.lsn)
            what = f"{answer.by} looked for {answer.when} and got {format_lsn(answer.lsn)}"
            if self.trim_asked < answer.lsn <= answer.before and (stamp is None or stamp < answer.when):
                self.fail(f"{what}, which has timestamp {stamp}; {format_lsn(answer.before)} was acknowledged before")
            at = bisect_left(lsns, answer.lsn)
            earlier = lsns[at - 1] if at else 0
            if earlier > self.trim_asked and self.timestamps[earlier] >= answer.when:
                self.fail(f"{what}; {format_lsn(earlier)} before it has timestamp {self.timestamps[earlier]}")

    def _check_keys(self) -> None:
        """Where a key was found an entry is with a key that is not below, and the greatest key of the last entry before it that has one is."""
        greatest: dict[int, bytes] = {}
        for (lsn, _), payload in self.at.items():
            key = key_of(payload)
            if key is not None:
                greatest[lsn] = max(key, greatest.get(lsn, b""))
        lsns = sorted(greatest)
        for answer in self.keys if not self.loses else ():
            what = f"{answer.by} looked for key {answer.key!r} and got {format_lsn(answer.lsn)}"
            key = greatest.get(answer.lsn)
            if self.trim_asked < answer.lsn <= answer.before and (key is None or key < answer.key):
                self.fail(f"{what}, which has key {key!r}; {format_lsn(answer.before)} was acknowledged before")
            at = bisect_left(lsns, answer.lsn)
            earlier = lsns[at - 1] if at else 0
            if earlier > self.trim_asked and greatest[earlier] >= answer.key:
                self.fail(f"{what}; {format_lsn(earlier)} before it has key {greatest[earlier]!r}")

    def _check_streams(self) -> None:
        streams: dict[str, list[Attempt]] = {}
        for attempt in self.attempts.values():
            if attempt.stream and attempt.position is not None:
                streams.setdefault(attempt.stream, []).append(attempt)
        for attempts in streams.values():
            attempts.sort(key=lambda attempt: attempt.sequence)
            for one, two in pairwise(attempts):
                assert one.position is not None
                assert two.position is not None
                if one.position >= two.position:
                    self.fail(f"order: {_name(one)} at {_at(one.position)}, {_name(two)} at {_at(two.position)}")
        if self.overtaken and not self.came_back and not self.loses:
            # A client does not send them again: their order would be wrong. So that is right whatever sequencers and recovery do.
            self.fail(f"a later frame of the write stream is stored without {_name(self.overtaken[0])}")


def _lsn(record: tuple[int, int, bytes]) -> int:
    return record[0]


def _position(record: tuple[int, int, bytes]) -> Position:
    return record[:2]


def _is_loss(gap: Gap) -> bool:
    return gap.kind is GapKind.DATALOSS


def _without(records: list[tuple[int, int, bytes]], lost: list[Gap]) -> list[tuple[int, int, bytes]]:
    return [record for record in records if not any(gap.lo <= record[0] <= gap.hi for gap in lost)]


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
