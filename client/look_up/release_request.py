"""How far shards know that a log can be read: what a sequencer told them before, without asking or starting one."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from client.look_up.survey import LogParts, ShardSurvey, SurveyContext, SurveyRequest
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import EPOCH_MAX, LSN_INVALID, Lsn
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import Authority, FailureDomains, FMajority
from logdevice_py.protocol.messages import EpochsListed, ListEpochs


class ReleaseSource(enum.Enum):
    """Whom a client asks how far a log can be read."""

    QUORUM = "quorum"  # an f-majority of the shards, of which the greatest answer counts
    ANY = "any"  # the first shard that knows of anything


class ReleaseRequest(SurveyRequest):
    """One question to the shards of a log. An f-majority has a shard of every copyset, and so knows each release that all shards of a copyset know."""

    __slots__ = ("_done", "_log", "_parts", "_source")

    def __init__(
        self,
        context: SurveyContext,
        log: LogId,
        parts: LogParts,
        source: ReleaseSource,
        until: int,
        done: Callable[[Lsn | list[ShardId], Micros], None],
    ) -> None:
        """
        Args:
            context: the client's.
            log: a data log.
            parts: all of the log.
            source: whose answers suffice.
            until: the deadline.
            done: gets up to where the log can be read, or which shards did not answer, so that it is not known.
        """
        self._log = log
        self._parts = parts
        self._source = source
        self._done = done
        self._survey = ShardSurvey(
            context, parts.present, EpochsListed, self._ask, self._suffices, until, self._on_answers
        )

    def _ask(self, shard: ShardId, request_id: int) -> ListEpochs:
        # no epoch is wanted: what shards say of themselves is
        return ListEpochs(request_id=request_id, shard=shard, log=self._log, first=EPOCH_MAX, last=EPOCH_MAX, rows=1)

    def _suffices(self, answers: Mapping[ShardId, EpochsListed]) -> bool:
        known = _greatest(answers)
        if self._source is ReleaseSource.ANY and known:
            return True
        return all(self._is_heard(answers, part) for part in self._parts if part[1] >= known)

    def _is_heard(
        self, answers: Mapping[ShardId, EpochsListed], part: tuple[EpochInterval, Lsn, FailureDomains]
    ) -> bool:
        """Whether an f-majority of a part's nodeset has answered. One that began anew has forgotten what it was told."""
        interval, _, domains = part
        heard = []
        for shard in domains.shards:
            answer = answers.get(shard)
            lost = shard not in self._parts.present or (
                answer is not None and answer.generation != interval.generation(shard)
            )
            domains.set_authority(shard, Authority.UNDERREPLICATION if lost else Authority.FULLY_AUTHORITATIVE)
            if answer is not None and not lost:
                heard.append(shard)
        verdict = domains.f_majority(heard)
        if verdict is FMajority.NON_AUTHORITATIVE:
            self._parts.lost |= {shard for shard in domains.shards if shard not in heard}
            return all(shard in answers for shard in domains.shards if shard in self._parts.present)
        return verdict is not FMajority.NONE

    def _on_answers(self, answers: Mapping[ShardId, EpochsListed], suffice: bool, now: Micros) -> None:
        self._done(_greatest(answers) if suffice else self._survey.silent, now)


def _greatest(answers: Mapping[ShardId, EpochsListed]) -> Lsn:
    return max((answer.through for answer in answers.values()), default=LSN_INVALID)
