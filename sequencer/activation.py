"""Getting the next epoch of a log from the epoch store."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from epoch_store.interface import Result, UpdateMetadata
from epoch_store.updaters import ToNextEpoch
from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core import marks
from logdevice_py.core.ids import COPYSET_SIZE_MAX, USER_LOG_ID_MAX, LogId, is_internal_log
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MIN, Epoch
from logdevice_py.core.machine import Timer, backoff
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.metadata.wanted_placement import WantedPlacement
from logdevice_py.metadata.widening import Widening
from sequencer.context import SequencerContext
from sequencer.history_trim import HistoryTrim

_LOOK_AGAIN_US: Final = 20_000
"""How often it is looked whether all shards were heard of."""
_EVENT_LOG_US: Final = 100_000
"""How often it is looked whether the event log was read, which may take long, of any number of logs."""


def wanted_placement(log: LogId, attributes: LogAttributes, context: SequencerContext) -> WantedPlacement | None:
    """As the configuration asks; None when it asks for more than its shards can give."""
    shards = context.nodeset(log, attributes)
    if shards is None:
        return None
    replication = attributes.replication
    extras = 0
    if log <= USER_LOG_ID_MAX:
        extras = min(attributes.extra_copies, COPYSET_SIZE_MAX - replication.copies)
    return WantedPlacement.of(shards, replication, context.config, context.cluster.generation, extras)


@dataclass(frozen=True, slots=True)
class TakeEpoch:
    """Updater: the next epoch, with the wanted placement completed from what is stored. AGAIN when a log cannot be provisioned yet."""

    placement: WantedPlacement | None
    acceptable_epoch: Epoch | None
    provision: bool
    timestamp: Timestamp
    config: ClusterConfig
    """Says how intervals without labels get theirs, unless a later file decided the current one."""
    guarded: bool = False
    """The log is guarded from this epoch on, unless it is already."""
    strict: bool = False
    """The log is strictly ordered from this epoch on, unless it is already. A node that knows an older cluster file does not take it back."""
    trimmed_before: Epoch = EPOCH_INVALID
    """As in `ToNextEpoch`."""
    widenings: tuple[Widening, ...] = ()
    """As in `ToNextEpoch`."""

    def __call__(self, current: EpochMetaData | None) -> EpochMetaData | Status:
        interval = None
        if self.placement is not None:
            interval = self.placement.interval(current.current if current is not None else None)
        provision = self.provision and interval is not None
        if current is None and self.provision and not provision:
            return Status.AGAIN
        is_latest = current is None or self.config.version >= current.current.config_version
        location = self.config.location if is_latest else None
        to_next = ToNextEpoch(
            interval,
            self.acceptable_epoch,
            provision,
            self.timestamp,
            location,
            self.trimmed_before,
            self.widenings if is_latest else (),
        )
        taken = to_next(current)
        if not isinstance(taken, EpochMetaData):
            return taken
        if self.guarded and not taken.guarded_since:
            marks.hit("log_is_guarded")
            taken = replace(taken, guarded_since=taken.given_epoch)
        if self.strict and not taken.strict_since:
            marks.hit("log_is_strictly_ordered")
            taken = replace(taken, strict_since=taken.given_epoch)
        return taken


class ActivationState(enum.Enum):
    """Where an activation is."""

    WAITING = enum.auto()  # until the limit of activations, or the delay after a failure, has passed
    AWAITING_SHARDS = enum.auto()  # the first epoch of the log should list shards that were not heard of yet
    AWAITING_EVENT_LOG = enum.auto()  # it must not list drained shards, and it is not known which these are
    ASKING = enum.auto()  # the epoch store was asked for an epoch
    READING_METADATA_LOG = enum.auto()  # the epoch store knows nothing of the log: was it wiped?
    DONE = enum.auto()  # it got an epoch, was refused, or was stopped


class ActivationOwner(Protocol):
    """The sequencer that wants an epoch."""

    log: LogId
    attributes: LogAttributes
    wants_guards: bool
    """Somebody wants to guard an append to the log."""
    history_trim: HistoryTrim
    """Says which intervals of the history nobody needs."""
    widenings: tuple[Widening, ...]
    """Nodesets of earlier epochs that are to be wider, because rebuilding finds no place there."""

    def on_epoch_taken(self, metadata: EpochMetaData, token: int, now: Micros) -> None:
        """The epoch `metadata.given_epoch` belongs to this activation alone. `token`: of the request to the epoch store that took it."""

    def on_epoch_refused(self, status: Status, metadata: EpochMetaData | None, now: Micros) -> None:
        """For good: ABORTED, another node was faster, `metadata` tell who; otherwise the log needs an operator."""

    def read_metadata_log(self, done: Callable[[bool | None, Micros], None], now: Micros) -> None:
        """Find out whether the metadata log of the log is empty; `done` is called with that at some time, or with None when it
        cannot be told at present."""


class Activation:
    """Asks the epoch store until it gives an epoch or refuses.

    A log that the epoch store does not know is provisioned only after its metadata log was found empty: otherwise the epoch store lost
    what it had, and epochs would be given a second time.
    """

    __slots__ = (
        "_acceptable",
        "_delays",
        "_owner",
        "_provision",
        "_timer",
        "_token",
        "_was_written",
        "began",
        "context",
        "failure",
        "state",
        "wanted",
    )

    def __init__(self, owner: ActivationOwner, acceptable_epoch: Epoch | None, context: SequencerContext) -> None:
        self.state = ActivationState.WAITING
        self.context = context
        self.began = Micros(0)
        """When somebody wanted the epoch."""
        self.wanted = Micros(0)
        """When the last append that wanted it stopped waiting; 0: none has."""
        self.failure = Status.OK
        """Why the last request was of no use; REBUILDING: shards that lost their data cannot tell whether the metadata log is empty."""
        self._owner = owner
        self._acceptable = acceptable_epoch
        self._provision = False
        self._was_written = False
        """The metadata log holds something: the epoch store knew the log before that was written."""
        self._timer: Timer | None = None
        self._token = 0
        self._delays = backoff(
            context.rng,
            initial_us=context.settings.epoch_store_retry_min_us,
            max_us=context.settings.epoch_store_retry_max_us,
        )

    def start(self, at: int, now: Micros) -> None:
        """Begin at the time `at`."""
        self.began = now
        if at <= now:
            self._ask(now)
        else:
            marks.hit("activation_limited")
            self._timer = self.context.timers.at(at, self._ask)

    def stop(self) -> None:
        """Forget about it; an epoch that is given all the same is never used."""
        self.state = ActivationState.DONE
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self, now: Micros) -> None:
        owner, context = self._owner, self.context
        placement = wanted_placement(owner.log, owner.attributes, context)
        if placement is not None and (awaited := self._awaited(placement, now)) is not None:
            self.state = awaited
            again = _EVENT_LOG_US if awaited is ActivationState.AWAITING_EVENT_LOG else _LOOK_AGAIN_US
            self._timer = context.timers.at(now + again, self._ask)
            return
        self.state = ActivationState.ASKING
        acceptable = EPOCH_MIN if self._provision else self._acceptable
        stamp = Timestamp(context.wall())
        strict = owner.attributes.strict_order
        guarded = owner.wants_guards or owner.attributes.ordered_time
        before = owner.history_trim.trimmed_before
        updater = TakeEpoch(
            placement, acceptable, self._provision, stamp, context.config, guarded, strict, before, owner.widenings
        )
        self._token = context.epoch_store.submit(UpdateMetadata(owner.log, updater, context.node), self._on_answer, now)

    def _awaited(self, placement: WantedPlacement, now: Micros) -> ActivationState | None:
        """What the first epoch of the log waits for."""
        if not self._provision:
            return None
        if not placement.excluded_known and not is_internal_log(self._owner.log):
            # What a drained shard gets, nobody moves away. The event log itself is provisioned without it.
            marks.hit("first_epoch_awaits_event_log")
            return ActivationState.AWAITING_EVENT_LOG
        if placement.unheard() and now < self.context.acquainted_by(now):
            # What an epoch stores stays on its nodeset, and one that begins with a few nodes of a cluster bears the loss of few.
            marks.hit("first_epoch_awaits_shards")
            return ActivationState.AWAITING_SHARDS
        return None

    def _on_answer(self, result: Result | None, now: Micros) -> None:
        if self.state is not ActivationState.ASKING:
            return
        status = result.status if result is not None else Status.TIMEDOUT
        metadata = result.value if result is not None and isinstance(result.value, EpochMetaData) else None
        if status is Status.OK:
            assert metadata is not None
            self.state = ActivationState.DONE
            self.context.metrics.activations += 1
            self._owner.on_epoch_taken(metadata, self._token, now)
            return
        self.context.metrics.activation_failures += 1
        self.failure = status
        if status is Status.EMPTY and (self._acceptable is not None or self._was_written):
            # An epoch of the log is open here, or was somewhere, so the epoch store once had it.
            marks.hit("epoch_store_wiped")
            self.state = ActivationState.DONE
            self._owner.on_epoch_refused(Status.INTERNAL, None, now)
        elif status is Status.EMPTY and not self._provision:
            self.state = ActivationState.READING_METADATA_LOG
            self._owner.read_metadata_log(self._on_metadata_log, now)
        elif status is Status.ABORTED and self._provision and self._acceptable is None:
            # Another node provisioned the log in between; its epoch is as good a predecessor as any.
            self._provision = False
            self._ask(now)
        elif status is Status.ABORTED and metadata is not None and metadata.writer == self.context.node:
            # An earlier request of this node took it, and its answer was lost. Nobody uses that epoch.
            marks.hit("epoch_lost")
            self._acceptable = metadata.epoch
            self._ask(now)
        elif status in (Status.ABORTED, Status.DISABLED, Status.TOOBIG):
            self.state = ActivationState.DONE
            self._owner.on_epoch_refused(status, metadata, now)
        else:
            self._retry(now)

    def _on_metadata_log(self, empty: bool | None, now: Micros) -> None:
        if self.state is not ActivationState.READING_METADATA_LOG:
            return
        if empty is None:
            self.failure = Status.REBUILDING
            self._retry(now)
            return
        if empty:
            self._provision = True
        else:
            # Another node may have provisioned the log since the epoch store was asked: only its answer from here on tells.
            self._was_written = True
        self._ask(now)

    def _retry(self, now: Micros) -> None:
        self.state = ActivationState.WAITING
        self._timer = self.context.timers.at(now + next(self._delays), self._ask)
