"""Which intervals of a log's history nobody needs any more, because everything of them is trimmed at every shard that may hold it.

A history is as long as the nodesets that a log ever had, and records of it may have so many only. An interval may be left out of the next record when each of
its shards has said that it trimmed the log to the end of the interval, or is not in the cluster file any more: then there is no copy of it anywhere that somebody
could be told of. Those that come to an epoch before the first interval take it for trimmed. Three rules:

1. Intervals are left out from the first one on, and never the last one.
2. Only a sequencer whose epoch is released asks: all epochs of earlier intervals are recovered then, and the epoch store knows it.
3. Intervals are left out in the step that adds one: that record is written to the metadata log as every nodeset is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from logdevice_py.core.ids import LogId, ShardId, node_peer
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import EpochsListed, ListEpochs
from sequencer.context import SequencerContext


def first_needed(
    history: Sequence[EpochInterval], present: frozenset[ShardId], trimmed: Mapping[ShardId, Lsn]
) -> Epoch:
    """The first epoch of the first interval that somebody may need.

    Args:
        history: of the log.
        present: shards that are in the cluster file.
        trimmed: the trim points of shards that told them.
    """
    needed = history[0].since
    for interval, after in pairwise(history):
        end = compose_lsn(after.since, 0) - 1
        if not all(trimmed.get(shard, -1) >= end for shard in interval.shards if shard in present):
            break
        needed = after.since
    return needed


class HistoryTrims:
    """The questions of one node that are under way; one a log at most."""

    __slots__ = ("_asking", "_context")

    def __init__(self, context: SequencerContext) -> None:
        self._context = context
        self._asking: set[LogId] = set()

    def ask(
        self, log: LogId, history: Sequence[EpochInterval], done: Callable[[Epoch, Micros], None], now: Micros
    ) -> None:
        """Ask the shards of all intervals but the last how far the log is trimmed; `done` gets `first_needed`, once. Nothing happens while it is being asked."""
        if log in self._asking:
            return
        self._asking.add(log)
        context = self._context
        present = frozenset(context.config.storage_shards())
        wanted = {shard for interval in history[:-1] for shard in interval.shards} & present
        trimmed: dict[ShardId, Lsn] = {}
        asked: list[int] = []

        def finish(now: Micros) -> None:
            if log in self._asking:
                self._asking.discard(log)
                timer.cancel()
                for request in asked:
                    context.requests.forget(request)
                done(first_needed(history, present, trimmed), now)

        def on_answer(shard: ShardId, answer: EpochsListed, now: Micros) -> None:
            if answer.status is Status.OK:
                trimmed[shard] = answer.trim_point
            if len(trimmed) == len(wanted):
                finish(now)

        timer = context.timers.at(now + context.settings.sequencer_state_timeout_us, finish)
        for shard in sorted(wanted):
            request = context.requests.ask_shard(shard, EpochsListed, partial(on_answer, shard))
            asked.append(request)
            # of epochs nothing is asked: the answer tells the trim point
            question = ListEpochs(request_id=request, shard=shard, log=log, first=EPOCH_MAX, last=EPOCH_MAX, rows=1)
            context.outbox.send(node_peer(shard), question)


class HistoryTrim:
    """When one log's shards are asked, and what came of it."""

    __slots__ = ("_ask_at", "trimmed_before")

    def __init__(self) -> None:
        self.trimmed_before: Epoch = EPOCH_INVALID
        """Intervals that end before this epoch are needed by nobody."""
        self._ask_at = Micros(0)

    def look(
        self,
        context: SequencerContext,
        log: LogId,
        history: Sequence[EpochInterval],
        then: Callable[[Micros], None],
        now: Micros,
    ) -> None:
        """The current epoch is released: ask if the history is long and that was not done a moment ago. `then` is called if less of it is needed than was known."""
        if len(history) < context.settings.history_trim_from or now < self._ask_at:
            return
        self._ask_at = Micros(now + context.settings.history_trim_interval_us)

        def known(epoch: Epoch, now: Micros) -> None:
            if epoch > max(self.trimmed_before, history[0].since):
                hit("history_is_trimmed")
                self.trimmed_before = epoch
                then(now)

        context.history_trims.ask(log, history, known, now)
