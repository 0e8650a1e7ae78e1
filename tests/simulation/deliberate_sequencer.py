"""Deliberate faults of sequencers: appending, epochs, releases and placement."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import sequencer.appender
from epoch_store.updaters import ToNextEpoch
from logdevice_py.config.location import Scope
from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import Esn, Lsn, compose_lsn
from logdevice_py.core.token_bucket import Meter
from logdevice_py.core.units import Micros
from logdevice_py.placement.copyset import CopysetSelector
from sequencer.appender import Appender
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.frames import Frame
from sequencer.idle_log_passes import IdleLogPasses
from sequencer.metadata_log import MetadataLogState, MetadataLogWrite
from sequencer.recovery.result import RecoveryOutcome, RecoveryResult
from sequencer.seq_state import SeqStateService, WaitingSeqState
from sequencer.sequencer import Sequencer, SequencerPhase
from sequencer.write_streams import FrameVerdict, KnownWriters
from server.event_log.node_event_log import NodeRebuilding
from tests.simulation.deliberate_fault import deliberate
from tests.simulation.run_mode import RunMode

Change = Callable[..., Any]


@deliberate("an entry is acknowledged when all shards of its copyset but one have it", (Appender, "_send"))
def acknowledged_one_store_early(original: Change) -> Change:
    def send(self: Appender, *arguments: Any) -> None:
        original(self, *arguments)
        if len(self.copyset) > 1:
            self._missing &= self._missing - 1

    return send


@deliberate(
    "an entry that a shard refused because of a seal is acknowledged if another has it", (EpochSequencer, "_refuse")
)
def preempted_entry_acknowledged(original: Change) -> Change:
    def refuse(self: EpochSequencer, appender: Appender) -> None:
        if appender.stored and appender.copyset:
            self._acknowledge(appender)
        else:
            original(self, appender)

    return refuse


@deliberate("refused entries are said to be stored nowhere", (Appender, "not_replicated"))
def doubt_denied(original: Change) -> Any:
    return property(lambda self: True)


@deliberate("an entry says that everything before it is fully replicated", (sequencer.appender, "EntryHeader"))
def lng_too_high(original: Change) -> Change:
    def header(log: Any, lsn: Lsn, timestamp: Any, wave: int, copyset: Any, lng: Esn, *rest: Any) -> Any:
        return original(log, lsn, timestamp, wave, copyset, Esn((lsn & 0xFFFFFFFF) - 1), *rest)

    return header


@deliberate("the release pointer runs ahead to the end of the window", (Sequencer, "on_lng_moved"))
def release_beyond_lng(original: Change) -> Change:
    def on_lng_moved(self: Sequencer, epoch: EpochSequencer, copyset: Any, now: Any) -> None:
        original(self, epoch, copyset, now)
        if epoch is self.current and self.last_released >> 32 == epoch.epoch:
            self.last_released = compose_lsn(epoch.epoch, epoch.next_esn - 1)
            self.context.releases.moved(self, copyset, now)

    return on_lng_moved


@deliberate("an epoch is released before the epochs before it are recovered", (Sequencer, "_start_recovery"))
def release_before_recovery(original: Change) -> Change:
    def start_recovery(self: Sequencer, now: Any) -> None:
        original(self, now)
        if self._drained and self.current is not None and self.recovered is None:
            self.on_recovery_done(RecoveryResult(self.log, self.epoch, RecoveryOutcome.OK), now)

    return start_recovery


@deliberate("data are released without their nodeset in the metadata log", (MetadataLogWrite, "start"))
def metadata_log_not_written(original: Change) -> Change:
    def start(self: MetadataLogWrite, now: Any) -> None:
        self.state = MetadataLogState.NOTING
        self._note(now)

    return start


@deliberate("an activation gets the epoch that was given last", (ToNextEpoch, "__call__"))
def epoch_given_twice(original: Change) -> Change:
    def take(self: ToNextEpoch, current: Any) -> Any:
        if current is not None and self.acceptable_epoch is None:
            return current
        return original(self, current)

    return take


@deliberate("copysets have enough copies, wherever they are", (CopysetSelector, "pick"))
def racks_ignored(original: Change) -> Change:
    def select(self: CopysetSelector, available: Callable[[ShardId], bool]) -> Any:
        usable = [shard for shard in self.nodeset if available(shard)]
        sets = list(combinations(usable, self.replication.copies))
        return sets[self._rng.randrange(len(sets))] if sets else None

    return select


@deliberate("copysets are one shard short", (CopysetSelector, "pick"))
def copyset_one_short(original: Change) -> Change:
    def select(self: CopysetSelector, available: Callable[[ShardId], bool]) -> Any:
        chosen = original(self, available)
        return chosen[1:] if chosen is not None and len(chosen) > 1 else chosen

    return select


@deliberate(
    "all copies of an entry are in one region where it has enough shards", (CopysetSelector, "pick"), likely="regions"
)
def copyset_in_one_region(original: Change) -> Change:
    def pick(self: CopysetSelector, available: Callable[[ShardId], bool]) -> Any:
        chosen = original(self, available)
        if chosen is None or Scope.REGION not in dict(self.replication.factors):
            return chosen
        region = self._labels[chosen[0]][0]
        near = [shard for shard in self.nodeset if available(shard) and self._labels[shard][0] == region]
        return tuple(near[: len(chosen)]) if len(near) >= len(chosen) else chosen

    return pick


@deliberate(
    "a frame of a write stream is taken though one before it is missing",
    (KnownWriters, "judge"),
    (KnownWriters, "give_back"),
)
def stream_frame_out_of_order(original: Change) -> Change:
    """Where the frame behind the gap is refused as well, the stream is not forgotten: the one behind that is taken."""

    def judge(self: KnownWriters, frame: Frame, resume: bool, exclusive: bool = False) -> FrameVerdict:
        stream = self._streams.get(frame.writer)
        if stream is not None and frame.sequence > stream.last + 1:
            stream.last = frame.sequence - 1
            stream.recent.clear()
        verdict: FrameVerdict = original(self, frame, resume, exclusive)
        return verdict

    def give_back(self: KnownWriters, frame: Frame) -> None:
        stream = self._streams.get(frame.writer)
        original(self, frame)
        if stream is not None:
            self._streams.setdefault(frame.writer, stream)

    return judge if original.__name__ == "judge" else give_back


@deliberate("a frame of a write stream is taken for a repetition whatever its content is", (Frame, "repeats_as_stored"))
def repeats_uncompared(original: Change) -> Change:
    return lambda self, other: True


@deliberate(
    "frames of write streams are acknowledged as they are replicated, not in order", (EpochSequencer, "on_replicated")
)
def stream_acknowledged_out_of_order(original: Change) -> Change:
    def on_replicated(self: EpochSequencer, appender: Appender, now: Any) -> None:
        self._acknowledge(appender)
        original(self, appender, now)

    return on_replicated


@deliberate(
    "a tail is answered without asking who has the log",
    (SeqStateService, "_answer_if_ready"),
    likely="handovers",
)
def tail_not_verified(original: Change) -> Change:
    def answer_if_ready(self: SeqStateService, sequencer: Sequencer, request: WaitingSeqState, now: Any) -> bool:
        request.verified = sequencer.epoch
        return original(self, sequencer, request, now)

    return answer_if_ready


@deliberate("timestamps follow the wall clock, also back", (Sequencer, "timestamp"))
def timestamps_go_back(original: Change) -> Change:
    return lambda self: self.context.wall()


@deliberate("a sequencer whose epoch could be released takes another one instead", (Sequencer, "_try_release"))
def epochs_without_end(original: Change) -> Change:
    """Each recovery stores what none before it did: the bridge of one more epoch."""

    def try_release(self: Sequencer, now: Micros) -> None:
        if self.recovered is not None:
            self.activate(now)

    return try_release


@deliberate("a sequencer that was preempted takes the log back at once", (Sequencer, "on_sealed"))
def log_taken_back(original: Change) -> Change:
    def on_sealed(self: Sequencer, epoch: Any, node: Any, now: Micros) -> None:
        original(self, epoch, node, now)
        if self.state is SequencerPhase.PREEMPTED:
            self.activate(now)

    return on_sealed


@deliberate(
    "logs that nobody uses stay in epochs whose shards depart",
    (IdleLogPasses, "on_change"),
    mode=RunMode.REBUILDING,
    likely="removals",
)
def idle_logs_left_alone(original: Change) -> Change:
    return lambda self, now: None


@deliberate(
    "a drain ends while logs of which nothing was stored still rely on the shard",
    (NodeRebuilding, "_awaits_idle_logs"),
    mode=RunMode.REBUILDING,
    likely="removals",
)
def drain_leaves_idle_logs(original: Change) -> Change:
    return lambda self: False


@deliberate("what a quota admits is not charged", (Meter, "spend"))
def quota_not_charged(original: Change) -> Change:
    return lambda self, size, records: None


@deliberate("a log's bucket keeps what it saved up while another node had the log", (Meter, "empty"))
def quota_saved_up_elsewhere(original: Change) -> Change:
    return lambda self, now: None
