"""What the recovered epochs of a log hold: shards tell it of the recoveries in which they took part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import lt

from google_crc32c import value as crc32c

from client.look_up.survey import LogParts, ShardSurvey, SurveyContext, SurveyRequest, enough
from logdevice_py.core.epoch_summary import EpochSummary, decode_rows
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import LSN_INVALID, Epoch, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import EPOCHS_PER_ANSWER, EpochsListed, ListEpochs


@dataclass(frozen=True, slots=True)
class KnownEpochs:
    """What shards said."""

    covered: Epoch
    """The last epoch that they were all asked for and told of."""
    summaries: Mapping[Epoch, EpochSummary]
    """Of each epoch that somebody knows, ascending."""
    trim_point: Lsn
    """The greatest that a shard told."""


class EpochsRequest(SurveyRequest):
    """One question to the shards of a log. What the last recovery of an epoch decided counts: an f-majority of answers includes a shard that knows of it."""

    __slots__ = ("_done", "_first", "_last", "_log", "_parts", "_rows")

    def __init__(
        self,
        context: SurveyContext,
        log: LogId,
        parts: LogParts,
        first: Epoch,
        last: Epoch,
        until: int,
        done: Callable[[KnownEpochs | list[ShardId], Micros], None],
        rows: int = EPOCHS_PER_ANSWER,
    ) -> None:
        """
        Args:
            context: the client's.
            log: a data log.
            parts: of the log up to the end of `last`.
            first: epoch.
            last: epoch, inclusive; all of it is released.
            until: the deadline.
            done: gets what is known, or which shards did not answer, so that it is not.
            rows: epochs of which a shard tells at most.
        """
        self._log = log
        self._parts = parts
        self._first = first
        self._last = last
        self._rows = rows
        self._done = done
        self._survey = ShardSurvey(
            context, parts.present, EpochsListed, self._ask, self._suffices, until, self._on_answers, sound=_is_sound
        )

    def _ask(self, shard: ShardId, request_id: int) -> ListEpochs:
        return ListEpochs(
            request_id=request_id, shard=shard, log=self._log, first=self._first, last=self._last, rows=self._rows
        )

    def _suffices(self, answers: Mapping[ShardId, EpochsListed]) -> bool:
        return enough(
            self._parts, answers, max((answer.trim_point for answer in answers.values()), default=LSN_INVALID)
        )

    def _on_answers(self, answers: Mapping[ShardId, EpochsListed], suffice: bool, now: Micros) -> None:
        if not suffice:
            self._done(self._survey.silent, now)
            return
        covered = min([self._last, *(answer.covered for answer in answers.values())])
        trim_point = max([LSN_INVALID, *(answer.trim_point for answer in answers.values())])
        self._done(KnownEpochs(covered, self._merged(answers, covered), trim_point), now)

    def _merged(self, answers: Mapping[ShardId, EpochsListed], covered: Epoch) -> Mapping[Epoch, EpochSummary]:
        found: dict[Epoch, EpochSummary] = {}
        # Shards that took part in the same recoveries say the same to the byte.
        for rows in dict.fromkeys(bytes(answer.rows) for answer in answers.values()):
            try:
                told = dict(decode_rows(rows))
            except CorruptEntryError:
                hit("epoch_rows_unreadable")
                continue
            if not found:
                found = told
                continue
            for epoch, summary in told.items():
                other = found.get(epoch)
                if other is None or summary.seal_epoch > other.seal_epoch:
                    found[epoch] = summary
        if not found or max(found) > covered or not all(map(lt, found, islice(found, 1, None))):
            found = {epoch: found[epoch] for epoch in sorted(found) if epoch <= covered}
        return found


def _is_sound(answer: EpochsListed) -> bool:
    """Whether the rows are those that the shard sent: the checksum of a frame does not cover them."""
    return not answer.crc or crc32c(answer.rows) == answer.crc
