"""How much is appended to each log of a node, without a count in the append path: what logs have given so far is looked at now and then."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.histogram import BUCKETS
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.units import Micros
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.sequencing import AppendThroughputRow
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.node import SequencerNode
from sequencer.sequencer import Sequencer, SequencerPhase

LOOKS_KEPT: Final = 60
_MINUTE: Final = 6
"""Looks of a minute."""
_LOGS_AT_A_TIME: Final = 256
_Amount = tuple[int, int]
"""Entries and bytes."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """How far an epoch was."""

    epoch: Epoch
    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class _Look:
    """What came since the look before."""

    seconds: float
    appended: dict[LogId, _Amount]
    latencies: list[int]


class AppendThroughput:
    """The last ten minutes of all logs of a node that get anything. What an epoch gave between the last look and its end counts too if the
    next epoch of the log is its successor at this node and the old one is still draining."""

    def __init__(self) -> None:
        self._marks: dict[LogId, _Mark] = {}
        self._looks: deque[_Look] = deque(maxlen=LOOKS_KEPT)
        self._looked_at: Micros | None = None
        self._latencies = [0] * BUCKETS

    def look(self, node: SequencerNode, now: Micros) -> Iterator[None]:
        """Look at all logs, some at each step; to be called every ten seconds."""
        appended: dict[LogId, _Amount] = {}
        unreleased = 0
        for number, log in enumerate(list(node.sequencers)):
            sequencer = node.sequencers.get(log)
            if sequencer is not None:
                self._look_at(sequencer, appended)
                unreleased += sequencer.state is SequencerPhase.ACTIVE and not sequencer.is_released
            if number % _LOGS_AT_A_TIME == 0:
                yield
        node.metrics.logs_unreleased = unreleased
        latencies = list(node.metrics.append_latency.counts)
        if self._looked_at is not None:
            new = [a - b for a, b in zip(latencies, self._latencies, strict=True)]
            self._looks.append(_Look((now - self._looked_at) / 1e6, appended, new))
        self._looked_at = now
        self._latencies = latencies

    def _look_at(self, sequencer: Sequencer, appended: dict[LogId, _Amount]) -> None:
        current = sequencer.current
        if current is None:
            return
        before = self._marks.get(sequencer.log)
        entries = current.next_esn - 1
        if before is None and not entries:
            return
        if before is not None and before.epoch == current.epoch:
            if before.entries == entries:
                return
            amount = entries - before.entries, current.bytes_taken - before.size
        else:
            ended = (0, 0) if before is None else _rest(sequencer.draining, before)
            amount = entries + ended[0], current.bytes_taken + ended[1]
        self._marks[sequencer.log] = _Mark(current.epoch, entries, current.bytes_taken)
        if amount[0]:
            appended[sequencer.log] = amount

    def rows(self, node: SequencerNode, constraints: Constraints) -> Iterator[AppendThroughputRow]:
        """Table `append_throughput`."""
        looks = list(self._looks)
        logs = sorted({log for look in looks for log in look.appended})
        minute, everything = looks[-_MINUTE:], looks
        for log in logs:
            if constraints.log_id not in (None, log):
                continue
            attributes = node.context.config.log(log)
            yield AppendThroughputRow(
                log,
                None if attributes is None else attributes.path,
                *_average(minute, log),
                *_average(everything, log),
            )

    def recent_latencies(self) -> list[int]:
        """Latencies of appends of the last minute."""
        return [sum(counts) for counts in zip(*(look.latencies for look in list(self._looks)[-_MINUTE:]), strict=True)]


def _rest(epoch: EpochSequencer | None, before: _Mark) -> _Amount:
    if epoch is None or epoch.epoch != before.epoch:
        return 0, 0
    return epoch.next_esn - 1 - before.entries, epoch.bytes_taken - before.size


def _average(looks: list[_Look], log: LogId) -> tuple[float, float, float]:
    seconds = sum(look.seconds for look in looks)
    amounts = [look.appended[log] for look in looks if log in look.appended]
    per = seconds or 1.0
    return (
        round(seconds, 3),
        round(sum(entries for entries, _ in amounts) / per, 3),
        round(sum(size for _, size in amounts) / per, 3),
    )
