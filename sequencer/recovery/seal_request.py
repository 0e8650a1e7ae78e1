"""Seals one shard for one log."""

from __future__ import annotations

import enum
from collections.abc import Callable

from logdevice_py.core.ids import Generation, LogId, ShardId
from logdevice_py.core.lsn import Epoch, Esn, Lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import EPOCHS_PER_SEALED, SealedLog, SealLog
from sequencer.recovery.coalescing import AnswerSink
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.recovery_shard import SealedEpoch


class SealState(enum.Enum):
    """What the shard answered last."""

    UNSEALED = 1  # nothing yet, or nothing that still counts
    SEALED = 2  # OK: it takes no more entries of sequencers
    REBUILDING = 3  # it lost its data; asked again now and then, for it may find them


class SealRequest:
    """Repeats SEAL until the shard answers OK, and again when its answer no longer counts."""

    def __init__(
        self,
        log: LogId,
        shard: ShardId,
        seal_epoch: Epoch,
        generations: list[tuple[Epoch, Generation]],
        context: RecoveryContext,
        sink: AnswerSink,
        last_clean_epoch: Callable[[], Epoch],
    ) -> None:
        self.state = SealState.UNSEALED
        self.epochs: dict[Epoch, SealedEpoch] = {}
        """What the shard said of each epoch."""
        self._log = log
        self._shard = shard
        self._seal_epoch = seal_epoch
        self._generations = generations
        self._context = context
        self._sink = sink
        self._last_clean_epoch = last_clean_epoch
        self._generation = Generation(0)
        self._full_up_to: Epoch | None = None
        self._delay = 0
        self._timer: Timer | None = None

    def send(self, now: Micros) -> None:
        """Ask, and again until there is a good answer."""
        settings = self._context.settings
        clean = self._last_clean_epoch()
        generations = [
            (since, generation)
            for index, (since, generation) in enumerate(self._generations)
            if index + 1 == len(self._generations) or self._generations[index + 1][0] > clean + 1
        ]
        row = SealLog(self._log, self._seal_epoch, clean, generations)
        self._context.requests.seal(self._sink, self._shard, row)
        self._delay = min(max(2 * self._delay, settings.seal_retry_initial_us), settings.seal_retry_max_us)
        self._set_timer(now + self._delay)

    def send_later(self, now: Micros) -> None:
        """Its answer no longer counts; ask again after a while."""
        self.reset()
        self._set_timer(now + max(self._delay, self._context.settings.seal_retry_initial_us))

    def send_at_once(self, now: Micros) -> None:
        """The shard can be reached again, or must tell more."""
        self.reset()
        self._delay = 0
        self.send(now)

    def reset(self) -> None:
        """What it answered does not count any more."""
        self.state = SealState.UNSEALED
        self.epochs = {}

    def cancel(self) -> None:
        """Stop asking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, deadline: int) -> None:
        self.cancel()
        self._timer = self._context.timers.at(deadline, self._again)

    def _again(self, now: Micros) -> None:
        hit("recovery_seal_repeated")
        self.send(now)

    def on_sealed(self, generation: Generation, row: SealedLog, now: Micros) -> bool:
        """An answer other than PREEMPTED. True: it says something of the epochs."""
        status, states = row.status, row.epochs
        if status is Status.REBUILDING:
            self.state = SealState.REBUILDING
            self.epochs = {}
            self._full_up_to = None
            return True
        if status is not Status.OK:
            hit("recovery_seal_refused")
            return False
        self.state = SealState.SEALED
        self._generation = generation
        self._full_up_to = states[-1].epoch if len(states) >= EPOCHS_PER_SEALED else None
        self.epochs = {
            each.epoch: SealedEpoch(
                each.epoch,
                each.status,
                each.lng,
                each.last_esn,
                each.last_timestamp,
                each.tail_lsn,
                each.tail_timestamp,
                generation,
                each.tail_records,
                each.tail_extensions,
            )
            for each in states
        }
        self._delay = 0
        if all(state.status is Status.OK for state in self.epochs.values()):
            self.cancel()
        else:
            self._set_timer(now + self._context.settings.seal_retry_max_us)
        return True

    def sealed_epoch(self, epoch: Epoch) -> SealedEpoch | None:
        """What the shard said of an epoch; None: nothing."""
        if self.state is SealState.UNSEALED:
            return None
        if self.state is SealState.REBUILDING:
            return _silent(epoch, Status.REBUILDING, Generation(0))
        told = self.epochs.get(epoch)
        if told is None and (self._full_up_to is None or epoch < self._full_up_to):
            return _silent(epoch, Status.OK, self._generation)
        return told


def _silent(epoch: Epoch, status: Status, generation: Generation) -> SealedEpoch:
    """Nothing is stored."""
    return SealedEpoch(epoch, status, Esn(0), Esn(0), Timestamp(0), Lsn(0), Timestamp(0), generation)
