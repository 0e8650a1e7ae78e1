"""Where a log reaches a timestamp or a key: shards search what they have, and what they answer is put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from client.look_up.survey import LogParts, ShardSurvey, SurveyContext, enough
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import LSN_INVALID, LSN_OLDEST, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import FindFlags, FindKey, KeyFound

NO_TIMESTAMP = Timestamp(-1)
OLDEST = Timestamp(-(1 << 63))
"""Every record reaches it."""


@dataclass(frozen=True, slots=True)
class FindTarget:
    """What to look for: the first record that reaches it is found."""

    timestamp: Timestamp = OLDEST
    key: bytes | None = None
    """In place of a timestamp."""
    approximate: bool = False
    """An earlier LSN will do."""

    @property
    def flags(self) -> int:
        """Of FIND_KEY."""
        if self.key is not None:
            return int(FindFlags.BY_KEY)
        return int(FindFlags.APPROXIMATE if self.approximate else FindFlags.NONE)


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """What was found."""

    lsn: Lsn
    """The first LSN whose record reaches the target; one behind the range if there is none."""
    timestamp: Timestamp
    """Of that record; `NO_TIMESTAMP` without one, or when it was looked for approximately."""
    trim_point: Lsn
    """The greatest that a shard told."""


class FindRequest:
    """One look-up in [first, last] of a log.

    Each shard tells up to where none of its records reaches the target, and the first one that does. If the greatest of the former lies below
    the smallest of the latter, that one is the answer: no shard has a record between them, and enough shards have spoken. Else the
    sequencers' clocks or the keys went back, or some shards have trimmed more than others; it is looked on behind what was passed.
    """

    __slots__ = (
        "_context",
        "_done",
        "_first",
        "_last",
        "_log",
        "_parts",
        "_survey",
        "_target",
        "_trim_point",
        "_until",
    )

    def __init__(
        self,
        context: SurveyContext,
        log: LogId,
        parts: LogParts,
        target: FindTarget,
        last: Lsn,
        until: int,
        done: Callable[[FoundPlace | list[ShardId], Micros], None],
        first: Lsn = LSN_OLDEST,
    ) -> None:
        """
        Args:
            context: the client's.
            log: a data log.
            parts: of the log up to `last`.
            target: what to look for.
            last: the end of the range, which is released.
            until: the deadline.
            done: gets what was found, or which shards did not answer, so that it is not known.
            first: nothing before it is looked at.
        """
        self._context = context
        self._log = log
        self._parts = parts
        self._target = target
        self._first = first
        self._last = last
        self._until = until
        self._done = done
        self._trim_point = LSN_INVALID
        self._survey: ShardSurvey | None = None

    def start(self, now: Micros) -> None:
        """Ask."""
        self._survey = ShardSurvey(
            self._context, self._parts.present, KeyFound, self._ask, self._suffices, self._until, self._on_answers
        )
        self._survey.start(now)

    def _ask(self, shard: ShardId, request_id: int) -> FindKey:
        return FindKey(
            request_id=request_id,
            shard=shard,
            log=self._log,
            first=self._first,
            last=self._last,
            flags=self._target.flags,
            timestamp=self._target.timestamp,
            key=self._target.key or b"",
        )

    def _suffices(self, answers: Mapping[ShardId, KeyFound]) -> bool:
        trimmed = max((answer.trim_point for answer in answers.values()), default=LSN_INVALID)
        return enough(self._parts, answers, max(trimmed, self._first - 1))

    @property
    def is_refused(self) -> bool:
        """The client may not ask."""
        return self._survey is not None and self._survey.is_refused

    def explain(self, now: Micros) -> str:
        """Why it is not known."""
        return "" if self._survey is None else self._survey.explain(now)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        if self._survey is not None:
            self._survey.cancel()

    def _on_answers(self, answers: Mapping[ShardId, KeyFound], suffice: bool, now: Micros) -> None:
        assert self._survey is not None
        if not suffice:
            self._done(self._survey.silent, now)
            return
        last = self._last
        self._trim_point = max([self._trim_point, *(answer.trim_point for answer in answers.values())])
        before = max([Lsn(self._first - 1), self._trim_point, *(answer.before for answer in answers.values())])
        reached = min([Lsn(last + 1), *(answer.reached for answer in answers.values())])
        if self._target.approximate:
            self._done(FoundPlace(Lsn(min(before, last) + 1), NO_TIMESTAMP, self._trim_point), now)
        elif before < reached or before >= last:
            reached = reached if before < reached else Lsn(last + 1)
            stamps = [answer.timestamp for answer in answers.values() if answer.reached == reached <= last]
            self._done(FoundPlace(reached, max(stamps, default=NO_TIMESTAMP), self._trim_point), now)
        else:
            hit("look_up_goes_on_behind_what_was_passed")
            self._first = Lsn(before + 1)
            self.start(now)
