"""How large a log is: every shard estimates what it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from client.look_up.survey import LogParts, ShardSurvey, SurveyContext, SurveyRequest
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import DataSize, DataSized


class SizeRequest(SurveyRequest):
    """One question. For shards that do not answer, the mean of those that do is taken."""

    __slots__ = ("_done", "_first", "_last", "_log", "_parts")

    def __init__(
        self,
        context: SurveyContext,
        log: LogId,
        parts: LogParts,
        first: Timestamp,
        last: Timestamp,
        until: int,
        done: Callable[[int | list[ShardId], Micros], None],
    ) -> None:
        """`done` gets the bytes, each entry counted once, or which shards did not answer."""
        self._log = log
        self._parts = parts
        self._first = first
        self._last = last
        self._done = done
        self._survey = ShardSurvey(
            context,
            parts.present,
            DataSized,
            self._ask,
            parts.answered,
            until,
            self._on_answers,
            grace_us=context.settings.unanswered_us,
        )

    def _ask(self, shard: ShardId, request_id: int) -> DataSize:
        return DataSize(request_id=request_id, shard=shard, log=self._log, first=self._first, last=self._last)

    def _on_answers(self, answers: Mapping[ShardId, DataSized], suffice: bool, now: Micros) -> None:
        if not suffice:
            self._done(self._survey.silent, now)
            return
        total = sum(answer.size for answer in answers.values())
        shards = len(self._parts.present)
        self._done(total * shards // max(len(answers), 1) // self._parts.copies, now)
