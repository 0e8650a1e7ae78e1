"""Asking all shards that may hold a part of a log, until enough have answered for it to be certain that nothing is missed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from client.links import Links
from client.request_history import RequestHistory, describe_timeout, name_awaited
from client.settings import ClientSettings
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import ShardId, format_shard, node_peer
from logdevice_py.core.lsn import LSN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.machine import Rng, Timer, TimerQueue, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.status import TRAITS, Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import Authority, FailureDomains, FMajority
from logdevice_py.protocol.requests import Requests

_T = TypeVar("_T")
_PAUSE_US: Final = 20_000
"""Before a shard is asked again that did not know enough: it hears how far the log is released with the next RELEASE."""


@dataclass(slots=True)
class SurveyContext:
    """What the surveys of one client share."""

    links: Links
    timers: TimerQueue
    rng: Rng
    requests: Requests
    settings: ClientSettings


class LogParts:
    """The parts of a log that lie on the same nodeset, up to some LSN."""

    __slots__ = ("_parts", "lost", "present")

    def __init__(self, intervals: Sequence[EpochInterval], last: Lsn, config: ClusterConfig) -> None:
        """
        Args:
            intervals: the log's history, ascending.
            last: what lies above does not matter.
            config: the cluster file.
        """
        self._parts: list[tuple[EpochInterval, Lsn, FailureDomains]] = []
        self.present: list[ShardId] = []
        """The shards to ask: those that the cluster still has."""
        self.lost: frozenset[ShardId] = frozenset()
        """Where so many have lost what they held that a copyset fits on them: these. What was found is right only by nodesets that were read since they are known to have lost it: others
        may have got it (`logdevice_py/metadata/widening.py`)."""
        known = set(config.storage_shards())
        wanted: set[ShardId] = set()
        for index, interval in enumerate(intervals):
            if compose_lsn(interval.since, 0) > last:
                break
            end = LSN_MAX if index + 1 == len(intervals) else Lsn(compose_lsn(intervals[index + 1].since, 0) - 1)
            domains = interval.domains(config.location)
            self._parts.append((interval, min(end, last), domains))
            wanted.update(interval.shards)
        self.present = sorted(wanted & known)

    def __iter__(self) -> Iterator[tuple[EpochInterval, Lsn, FailureDomains]]:
        """(interval, its last LSN, who is needed) of each part, ascending."""
        return iter(self._parts)

    @property
    def copies(self) -> int:
        """The fewest copies of an entry in any part, when all goes well."""
        return min(interval.copies for interval, _, _ in self._parts)

    def answered(self, answers: Mapping[ShardId, Any]) -> bool:
        """Whether an f-majority of each part has answered, whatever it lost."""
        for _, _, domains in self._parts:
            for shard in domains.shards:
                lost = shard not in self.present
                domains.set_authority(shard, Authority.UNDERREPLICATION if lost else Authority.FULLY_AUTHORITATIVE)
            verdict = domains.f_majority([shard for shard in domains.shards if shard in answers])
            if verdict is FMajority.NONE:
                return False
        return True


def enough(parts: LogParts, answers: Mapping[ShardId, Any], above: int) -> bool:
    """Whether KEY_FOUNDs prove that nothing above an LSN is missed that any shard still has.

    A shard counts for a part of the log when it knows all of the part and lost nothing of it. When those that lost something are too many,
    everybody who may have anything must have answered, and know all of the part: of what it still has, it shows what it knows to be released.
    A shard in a new generation has nothing.
    """
    for interval, end, domains in parts:
        if end <= above:
            continue
        complete, heard, gone = [], set(), set()
        for shard in domains.shards:
            answer = answers.get(shard)
            lost = shard not in parts.present
            if answer is not None:
                is_new_generation = answer.generation != interval.generation(shard)
                lost = is_new_generation or _is_lossy(interval, end, answer)
                if answer.through >= end or is_new_generation:
                    heard.add(shard)
                    if not lost:
                        complete.append(shard)
            if lost:
                gone.add(shard)
            domains.set_authority(shard, Authority.UNDERREPLICATION if lost else Authority.FULLY_AUTHORITATIVE)
        verdict = domains.f_majority(complete)
        if verdict is FMajority.NONE:
            return False
        if verdict is FMajority.NON_AUTHORITATIVE:
            hit("look_up_non_authoritative")
            parts.lost |= gone
            if not all(shard in heard for shard in domains.shards if shard in parts.present):
                return False
    return True


def _is_lossy(interval: EpochInterval, end: Lsn, answer: Any) -> bool:
    return bool(answer.lossy_last) and answer.lossy_first <= Epoch(end >> 32) and answer.lossy_last >= interval.since


async def surveyed(
    ask: Callable[[LogParts], Awaitable[_T]], parts: LogParts, parts_anew: Callable[[], Awaitable[LogParts]]
) -> _T:
    """What shards answer. Where it rests on shards that lost what they held, the nodesets are read anew, and those that joined them are asked as well.

    Args:
        ask: asks all shards of a log.
        parts: as far as the nodesets are known.
        parts_anew: the same by nodesets that are read from now on.
    """
    known: frozenset[ShardId] = frozenset()
    while True:
        found = await ask(parts)
        if parts.lost <= known:
            return found
        hit("look_up_again_by_later_nodesets")
        known |= parts.lost
        parts = await parts_anew()


class ShardSurvey:
    """One question to many shards. Asking changes nothing, so shards that do not answer, or do not know enough yet, are asked again."""

    __slots__ = (
        "_answers",
        "_ask",
        "_asked",
        "_began",
        "_context",
        "_done",
        "_enough",
        "_failed",
        "_grace",
        "_grace_us",
        "_history",
        "_kind",
        "_pauses",
        "_requests",
        "_sound",
        "_timer",
        "_until",
    )

    def __init__(
        self,
        context: SurveyContext,
        shards: Sequence[ShardId],
        kind: type[Any],
        ask: Callable[[ShardId, int], Any],
        enough: Callable[[Mapping[ShardId, Any]], bool],
        until: int,
        done: Callable[[Mapping[ShardId, Any], bool, Micros], None],
        *,
        grace_us: int = 0,
        sound: Callable[[Any], bool] = lambda answer: True,
    ) -> None:
        """
        Args:
            context: the client's.
            shards: whom to ask.
            kind: the class of the answers.
            ask: the message for a shard, with a request id.
            enough: whether the answers that came suffice.
            until: the deadline.
            done: gets the OK answers, and whether they suffice.
            grace_us: how long the others are waited for once there are enough answers.
            sound: whether an OK answer arrived as it was sent; who sent another one is asked again.
        """
        self._sound = sound
        self._grace_us = grace_us
        self._grace: Timer | None = None
        self._context = context
        self._kind = kind
        self._ask = ask
        self._enough = enough
        self._until = until
        self._done = done
        self._answers: dict[ShardId, Any] = {}
        self._failed: set[ShardId] = set()
        self._requests: dict[ShardId, int] = dict.fromkeys(shards, 0)
        self._asked: dict[ShardId, int] = {}
        """When those were asked of whom no answer to that came."""
        self._timer: Timer | None = None
        self._history = RequestHistory()
        self._began = Micros(0)
        self._pauses = backoff(context.rng, initial_us=_PAUSE_US, max_us=context.settings.attempt_us)

    def start(self, now: Micros) -> None:
        """Ask every shard that may say more than it has; once."""
        self._began = now
        if self._enough(self._answers):
            self._finish(now)
            return
        self._ask_all(now)

    def _ask_all(self, now: Micros) -> None:
        if now >= self._until:
            self._finish(now)
            return
        silence_us = self._context.settings.unanswered_us
        requests = self._context.requests
        for shard, request_id in list(self._requests.items()):
            if shard not in self._failed and now >= self._asked.get(shard, -silence_us) + silence_us:
                self._asked[shard] = now
                if request_id not in requests:
                    request_id = requests.ask_shard(shard, self._kind, self._on_answer, once=False)
                    self._requests[shard] = request_id
                self._context.links.send(node_peer(shard), self._ask(shard, request_id))
        self._timer = self._context.timers.at(min(now + next(self._pauses), self._until), self._ask_all)

    def _on_answer(self, answer: Any, now: Micros) -> None:
        self._asked.pop(answer.shard, None)
        status = Status(answer.status)
        if status is Status.OK and not self._sound(answer):
            hit("look_up_answer_damaged")
            self._history.refused(format_shard(answer.shard), Status.BADPAYLOAD)
            return
        if status is Status.OK:
            self._answers[answer.shard] = answer
            if self._enough(self._answers):
                self._on_enough(now)
            return
        self._history.refused(format_shard(answer.shard), status)
        if not TRAITS[status].retriable:
            self._failed.add(answer.shard)
            if len(self._failed) == len(self._requests):
                self._finish(now)

    def _on_enough(self, now: Micros) -> None:
        if not self._grace_us or not self.silent:
            self._finish(now)
        elif self._grace is None:
            self._grace = self._context.timers.at(min(now + self._grace_us, self._until), self._finish)

    @property
    def silent(self) -> list[ShardId]:
        """Shards of which there is no answer."""
        return [shard for shard in self._requests if shard not in self._answers]

    @property
    def is_refused(self) -> bool:
        """A shard said that the client may not ask."""
        return self._history.tells_of(Status.ACCESS)

    def explain(self, now: Micros) -> str:
        """Why there are not enough answers."""
        awaited = name_awaited(self.silent, self._context.links)
        story = self._history.explain(awaited or "shards that answered to know enough")
        return describe_timeout(now - self._began, story)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._done = _ignore
        self._stop()

    def _stop(self) -> None:
        for request_id in self._requests.values():
            self._context.requests.forget(request_id)
        for timer in (self._timer, self._grace):
            if timer is not None:
                timer.cancel()

    def _finish(self, now: Micros) -> None:
        done, self._done = self._done, _ignore
        self._stop()
        done(self._answers, self._enough(self._answers), now)


def _ignore(answers: Mapping[ShardId, Any], suffice: bool, now: Micros) -> None:
    """It was told already."""


class SurveyRequest:
    """A look-up that is one survey."""

    __slots__ = ("_survey",)

    _survey: ShardSurvey

    def start(self, now: Micros) -> None:
        """Ask."""
        self._survey.start(now)

    @property
    def is_refused(self) -> bool:
        """The client may not ask."""
        return self._survey.is_refused

    def explain(self, now: Micros) -> str:
        """Why it is not known."""
        return self._survey.explain(now)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._survey.cancel()
