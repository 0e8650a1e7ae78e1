"""Purging: a shard that missed the recovery of epochs deletes what recovery may have decided against.

It asks the other shards of each epoch's nodeset how the epoch ended, deletes *every* entry of its own above the LNG that recovery agreed on,
and takes over the recovery metadata; then its last clean epoch moves on. It does not look at single entries: up to the LNG recovery changed
nothing, and above it recovery left full copysets on the mutation set, which does not include this shard.

The copies deleted may be good ones. A shard that stored all that recovery sent it, but whose CLEAN never came, is not part of the mutation set
that ended the recovery: every member of that set answered CLEANED, and the entries above the LNG were brought to full copysets within it.
So nothing is lost by the deletion, only copies beyond what the replication property asks for.

Several recoveries of an epoch may have ended on some shards: one that dies before the epoch store knows of it is done again by the next. That one may rely on
a higher LNG, of which it was told where the first had not been heard, and so on copies above the first one's. The purge goes by the last recovery that the
answers tell of, when so many shards have answered that one of them took part in the one that ended everywhere: that has the end of its epoch on an
f-majority that can hold a copyset, so an f-majority of answers meets it. Later ones, unfinished, agree with it and lie no lower. Shards that began anew since do not count:
they know nothing any more. What lies below the greatest LNG that anybody tells is left alone.

Where only shards are silent that are taken for lost, it goes by fewer answers: their rebuilding waits until all donors are clean, and this shard may be one. An f-majority
leaves no copyset out, so answers of shards that can hold one meet it, too. In the cluster's own logs that is always enough: nobody says that a shard is lost before the event log can be read.

Where the metadata log has no record of the epoch's nodeset, although nothing is missing of what could be read, the record is about to be written, or all its copies
went unnoticed, as with disks that were put back from a backup. Every shard of the cluster is asked then, and all have to answer: those of the nodeset are among them.
Until they have, the history is read again and again.

An epoch in which this shard has nothing stored needs no purging, which makes the common case (a shard that is new to a log) free of messages.

An epoch that is trimmed, as one of them says, is not waited for longer than the others take to answer: how it ended is forgotten with it, and who is
silent may be gone for good. It is left as it is until this shard hears of the trim, too. So is an epoch of which nobody knows how it ended: that every shard of its nodeset answered without knowing, or is dead and nobody waits for its data any more, means that no CLEAN of
it survives, as after a recovery without any mutation set or when all of that set lost their disks. What recovery decided against looks like what was
acknowledged and has no other copy left then. The latter must not be lost, so the former is read as well, though readers may have been told of a hole or a
bridge there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from logdevice_py.core.epoch_summary import SUMMARY_SIZE
from logdevice_py.core.ids import Generation, LogId, PeerId, ShardId, is_internal_log, node_of, node_peer
from logdevice_py.core.lsn import (
    EPOCH_INVALID,
    ESN_INVALID,
    ESN_MAX,
    LSN_INVALID,
    Epoch,
    Esn,
    Lsn,
    compose_lsn,
    epoch_of,
)
from logdevice_py.core.machine import Timer, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.states import MachineState, transitions
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval, interval_at
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import FIELDS_BUDGET, EpochEnd, EpochRecoveryMetadata, GetEpochRecoveryMetadata
from storage_node.log_state import LogState
from storage_node.log_store.interface import EpochMetadataKind, LogMetadataKind
from storage_node.shard import Shard
from storage_node.stored_metadata import RecoveredEpoch, encode_epoch

EPOCHS_PER_MESSAGE_MAX = 1024
_HIDDEN_READINGS_MAX: Final = 3
"""How often a history without the record of an epoch is read before all shards of the cluster are asked. A record that is being written is there by then."""
_END_SIZE: Final = 56
"""Bytes that the end of an epoch takes in a message at most, without its summary."""


class HistoryReader(Protocol):
    """A reader of a log's metadata history, under way."""

    def cancel(self) -> None:
        """The result is not wanted any more."""


class LostShards(Protocol):
    """What is known of shards that may have lost what they held in a generation."""

    def is_unrecoverable(self, shard: ShardId, generation: Generation) -> bool:
        """Whether the shard is dead, and nobody waits for what it held in that generation."""

    def is_taken_for_lost(self, shard: ShardId, generation: Generation) -> bool:
        """Whether the shard began anew after that generation, or others restore what it held. It may come back with its data."""

    def is_present(self, shard: ShardId, generation: Generation) -> bool:
        """Whether that is the generation of the shard, as far as this node has heard of it."""


class NoLostShards:
    """Without rebuilding the data of a shard may always come back."""

    def is_unrecoverable(self, shard: ShardId, generation: Generation) -> bool:
        """No."""
        return False

    def is_taken_for_lost(self, shard: ShardId, generation: Generation) -> bool:
        """No."""
        return False

    def is_present(self, shard: ShardId, generation: Generation) -> bool:
        """Nobody asks as long as nobody waits for a rebuilding: not known."""
        return False


HistoryResult = Callable[[tuple[EpochInterval, ...], bool, Micros], None]
"""(history, whether it is certainly complete, now)."""
StartHistoryReader = Callable[[LogId, HistoryResult, Micros], HistoryReader]
"""(data log, called once with the history in a later turn, now). The history may be empty: no metadata entry was found."""


class PurgeState(MachineState):
    """How far the purge of a log is."""

    WAITING = "waiting"  # queued behind other purges of the shard
    READING_HISTORY = "reading history"  # which shards stored the epochs?
    ASKING = "asking"  # how did the epochs end?
    WRITING = "writing"  # deletion, recovery metadata and last clean epoch are with the disk
    DONE = "done"  # clean up to `until`, or the disk failed


_S = PurgeState
PURGE_TRANSITIONS: Final = transitions(
    {
        _S.WAITING: (_S.READING_HISTORY, _S.WRITING),
        _S.READING_HISTORY: (_S.READING_HISTORY, _S.ASKING, _S.DONE),
        _S.ASKING: (_S.READING_HISTORY, _S.WRITING, _S.DONE),
        _S.WRITING: (_S.WRITING, _S.DONE),
        _S.DONE: (_S.DONE,),
    }
)


class LogPurge:
    """The purge of one log, up to one epoch."""

    def __init__(
        self,
        shard: Shard,
        state: LogState,
        until: Epoch,
        start_reader: StartHistoryReader,
        lost: LostShards,
        finished: Callable[[LogPurge, Micros], None],
    ) -> None:
        self.state = PurgeState.WAITING
        self.log = state
        self.began: Micros | None = None
        self.until = until
        self.reader: HistoryReader | None = None
        self._shard = shard
        self._start_reader = start_reader
        self._asked_ids: dict[ShardId, int] = {}
        """One request a shard: a late answer to an earlier question is as good."""
        self._lost = lost
        self._finished = finished
        self._timer: Timer | None = None
        self._delays = backoff(
            shard.rng,
            initial_us=shard.settings.purge_retry_initial_us,
            max_us=shard.settings.purge_retry_max_us,
        )
        self._asked: dict[Epoch, set[ShardId]] = {}
        """Whom to ask about each epoch that is still unknown; those that answered without knowing are taken out."""
        self._intervals: dict[Epoch, EpochInterval] = {}
        """Of those epochs, where they are known."""
        self._found: dict[Epoch, RecoveredEpoch] = {}
        """How epochs ended, by the last recovery that somebody told of."""
        self._lng: dict[Epoch, Esn] = {}
        """The greatest LNG of each that somebody told: all up to there has its copies, whatever recovery said so."""
        self._hidden_readings = 0
        """How often the history was read and lacked the record of an epoch."""
        self._hidden: set[Epoch] = set()
        """Epochs without a record by the last reading: all shards have to answer."""
        self._trimmed: set[Epoch] = set()
        """Epochs that somebody says are trimmed to their end."""

    def _become(self, state: PurgeState) -> None:
        assert state in self.state.followed_by, (self.state, state)
        self.state = state

    def start(self, now: Micros) -> None:
        """Begin."""
        assert self.state is PurgeState.WAITING, self.state
        self.began = now
        if self._stored_epochs():
            self._read_history(now)
        else:
            hit("purge_of_nothing_stored")
            self._write(now)

    def on_recovery_metadata(self, message: EpochRecoveryMetadata, now: Micros) -> None:
        """What a peer knows."""
        if self.state is not PurgeState.ASKING or message.log != self.log.log:
            return
        for each in message.epochs:
            peers = self._asked.get(each.epoch)
            if peers is None:
                continue
            peers.discard(message.shard)
            if each.status is Status.OK:
                self._note(
                    each.epoch,
                    RecoveredEpoch(
                        each.seal_epoch,
                        each.lng,
                        each.last_esn,
                        each.tail_lsn,
                        each.tail_timestamp,
                        bool(each.authoritative),
                        each.summary if len(each.summary) == SUMMARY_SIZE else b"",
                    ),
                )
            elif each.status is Status.EMPTY:
                self._trimmed.add(each.epoch)
        self._go_on(now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A peer that may know is back: do not wait for the retry."""
        if self.state is PurgeState.ASKING and any(node_peer(s) == peer for p in self._asked.values() for s in p):
            self._ask(now, only=peer)

    def _note(self, epoch: Epoch, ended: RecoveredEpoch) -> None:
        self._lng[epoch] = max(ended.lng, self._lng.get(epoch, ESN_INVALID))
        found = self._found.get(epoch)
        if found is not None and found.seal_epoch != ended.seal_epoch:
            hit("purge_of_epoch_recovered_twice")
        if found is None or found.seal_epoch < ended.seal_epoch:
            self._found[epoch] = ended

    def unanswered(self) -> dict[Epoch, frozenset[ShardId]]:
        """The epochs of which too few have said how they ended, and who may still know, to look at."""
        return {
            epoch: frozenset(shard for shard in shards if not self._cannot_know(shard, self._intervals.get(epoch)))
            for epoch, shards in self._asked.items()
        }

    def stop(self) -> None:
        """The disk failed: the purge ends without having moved the last clean epoch."""
        self._become(PurgeState.DONE)
        self._cancel()

    def _stored_epochs(self) -> list[Epoch]:
        clean = self.log.clean_epoch
        return sorted(epoch for epoch in self.log.epochs or () if clean < epoch <= self.until)

    def _read_history(self, now: Micros) -> None:
        self._become(PurgeState.READING_HISTORY)
        self.reader = self._start_reader(self.log.log, self._on_history, now)

    def _on_history(self, history: tuple[EpochInterval, ...], complete: bool, now: Micros) -> None:
        if self.state is not PurgeState.READING_HISTORY:
            return
        self.reader = None
        self._asked.clear()
        self._hidden.clear()
        everybody = {shard for shard in self._shard.config.storage_shards() if shard != self._shard.shard}
        for epoch in self._stored_epochs():
            interval = interval_at(history, epoch)
            if interval is not None:
                interval = interval.original  # who joined when the epoch was clean knows nothing of how it ended
            if not complete:
                # Too many shards of the metadata nodeset have lost their data to trust the history, and waiting may not bring it back. Who
                # knows how an epoch ended tells the truth, whether it was in the nodeset or not.
                hit("purge_with_incomplete_metadata")
                self._asked[epoch] = set(everybody)
            elif interval is None and history and epoch < history[0].since:
                # its nodeset was left out of the history because everything of it is trimmed, wherever it may be
                hit("purge_of_epoch_before_history")
            elif interval is None:
                # The metadata entry is written before anything of the epoch is released: as long as it is not lost, it is only hidden for the moment.
                hit("purge_without_metadata")
                if self._hidden_readings < _HIDDEN_READINGS_MAX:
                    self._hidden_readings += 1
                    self._timer = self._shard.timers.at(now + next(self._delays), self._read_history)
                    return
                hit("purge_asks_everybody")
                self._hidden.add(epoch)
                self._asked[epoch] = set(everybody)
            elif interval.generation(self._shard.shard) == self._shard.generation:
                self._asked[epoch] = {shard for shard in interval.shards if shard != self._shard.shard}
                self._intervals[epoch] = interval
        self._become(PurgeState.ASKING)
        self._ask(now)
        self._go_on(now)

    def _ask(self, now: Micros, only: PeerId | None = None) -> None:
        """Ask everybody who has not answered. Shards that are not in the cluster file any more, or are unrecoverable, cannot know."""
        by_shard: dict[ShardId, list[Epoch]] = {}
        for epoch, shards in self._asked.items():
            interval = self._intervals.get(epoch)
            for shard in shards:
                if node_of(shard) in self._shard.config.nodes and not self._cannot_know(shard, interval):
                    by_shard.setdefault(shard, []).append(epoch)
        for shard in sorted(by_shard):
            if only is not None and node_peer(shard) != only:
                continue
            first = min(by_shard[shard])
            self._shard.out.send(
                node_peer(shard),
                GetEpochRecoveryMetadata(
                    request_id=self._request(shard),
                    shard=shard,
                    log=self.log.log,
                    first=first,
                    last=Epoch(min(max(by_shard[shard]), first + EPOCHS_PER_MESSAGE_MAX - 1)),
                ),
            )
        if only is None:
            self._timer = self._shard.timers.at(now + next(self._delays), self._on_retry)

    def _request(self, shard: ShardId) -> int:
        if self._asked_ids.get(shard, 0) not in self._shard.requests:
            self._asked_ids[shard] = self._shard.requests.ask_shard(
                shard, EpochRecoveryMetadata, self.on_recovery_metadata, once=False
            )
        return self._asked_ids[shard]

    def _cannot_know(self, shard: ShardId, interval: EpochInterval | None) -> bool:
        """Whether the shard has left the cluster or is unrecoverable."""
        config = self._shard.config
        if node_of(shard) not in config.nodes:
            return interval is None or config.version >= interval.config_version
        generation = None if interval is None else interval.generation(shard)
        if self._lost.is_unrecoverable(shard, generation or Generation(1)):
            hit("purge_without_lost_shard")
            return True
        return False

    def _is_everybody_heard(self, epoch: Epoch) -> bool:
        """Whether all have answered but for those that cannot know at the moment: who comes back is asked again."""
        interval = self._intervals.get(epoch)
        return all(self._cannot_know(shard, interval) for shard in self._asked[epoch])

    def _is_certain(self, epoch: Epoch) -> bool:
        """Whether the last recovery of which the answers tell is that which ended everywhere, or a later one; or nobody else can tell."""
        if epoch not in self._found or epoch in self._hidden:
            return False
        interval = self._intervals.get(epoch)
        if interval is None:
            return True
        domains = interval.domains(self._shard.config.location)
        silent = self._asked[epoch]
        answered = [self._shard.shard]  # this shard has an answer, too: it took part in none that ended
        present = answered[:]
        is_waited_for = False
        for shard, generation in interval.nodeset:
            if shard == self._shard.shard:
                continue
            if self._cannot_know(shard, interval) or self._lost.is_taken_for_lost(shard, generation):
                domains.set_authority(shard, Authority.UNDERREPLICATION)
            elif shard in silent:
                is_waited_for = True
            else:
                answered.append(shard)
                if self._lost.is_present(shard, generation):
                    present.append(shard)
        if domains.f_majority(answered).is_authoritative:
            return True
        # A dead node is told to be lost by the event log, so that one cannot wait for this.
        if (is_waited_for and not is_internal_log(self.log.log)) or not domains.can_replicate(present):
            return False
        hit("purge_beside_rebuilding")
        return True

    def _on_retry(self, now: Micros) -> None:
        if self.state is PurgeState.ASKING:
            for epoch in self._trimmed.intersection(self._asked):
                hit("purge_of_trimmed_epoch")
                del self._asked[epoch]
            if self._hidden.intersection(self._asked):
                self._read_history(now)
            else:
                self._ask(now)
                self._go_on(now)

    def _go_on(self, now: Micros) -> None:
        """Write when the end of every epoch is known."""
        for epoch in [epoch for epoch in self._asked if self._is_everybody_heard(epoch) or self._is_certain(epoch)]:
            if epoch not in self._found:
                hit("purge_skips_unknown_epoch")
                self._shard.metrics.purge_epochs_skipped += 1
            del self._asked[epoch]
        if not self._asked:
            self._write(now)

    def _write(self, now: Micros) -> None:
        self._become(PurgeState.WRITING)
        self._cancel()
        log, writes = self.log, self._shard.writes
        # Within a batch puts win over deletes: STOREs that came before must lie in an earlier one to be deleted.
        writes.close()
        group = writes.group(True)
        for epoch, recovered in sorted(self._found.items()):
            if epoch <= log.clean_epoch:
                continue
            if (lng := self._lng[epoch]) < ESN_MAX:
                group.batch.delete_entries(log.log, compose_lsn(epoch, lng + 1), compose_lsn(epoch, ESN_MAX))
            group.batch.put_epoch_metadata(log.log, epoch, EpochMetadataKind.RECOVERY, recovered.encode())
        until = max(self.until, log.clean_epoch)
        group.batch.put_log_metadata(log.log, LogMetadataKind.LAST_CLEAN, encode_epoch(until))
        group.done.append(self._on_written)

    def _on_written(self, status: Status, now: Micros) -> None:
        if self.state is not PurgeState.WRITING:
            return
        if status is Status.FAILED:
            self.stop()
            return
        if status is not Status.OK:
            hit("purge_write_refused")
            self._timer = self._shard.timers.at(now + next(self._delays), self._write)
            return
        log = self.log
        for epoch, recovered in self._found.items():
            if epoch <= log.clean_epoch:
                continue
            if log.recent is not None:
                self._shard.recent.remove(
                    log.recent, Lsn(compose_lsn(epoch, self._lng[epoch]) + 1), compose_lsn(epoch, ESN_MAX)
                )
            log.note_recovered(epoch, recovered.encode())
            self._shard.metrics.purge_epochs += 1
        log.raise_clean_epoch(self.until)
        self._shard.forget_lng(log)
        self._become(PurgeState.DONE)
        self._finished(self, now)

    def _cancel(self) -> None:
        for request in self._asked_ids.values():
            self._shard.requests.forget(request)
        self._asked_ids.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.reader is not None:
            self.reader.cancel()
            self.reader = None


class PurgeQueue:
    """The purges of one shard: a bounded number at a time, beside those of the cluster's own logs. Purges may wait until the event log says that a shard is lost."""

    def __init__(
        self,
        shard: Shard,
        start_reader: StartHistoryReader,
        clean_moved: Callable[[LogState, Micros], None],
    ) -> None:
        self.lost: LostShards = NoLostShards()
        self._shard = shard
        self._start_reader = start_reader
        self._clean_moved = clean_moved
        self._running: dict[LogId, LogPurge] = {}
        self._waiting: OrderedDict[LogId, LogPurge] = OrderedDict()
        """Never one of the cluster's own logs."""

    def start(self, state: LogState, until: Epoch, now: Micros) -> None:
        """Make everything up to `until` clean. While a purge of the log runs this does nothing: whoever waits asks again when it is done."""
        if until <= state.clean_epoch or self._shard.failed or state.log in self._running:
            return
        waiting = self._waiting.get(state.log)
        if waiting is not None:
            waiting.until = max(waiting.until, until)
            return
        self._shard.metrics.purges_started += 1
        self._shard.metrics.purges_running += 1
        purge = LogPurge(
            self._shard,
            state,
            until,
            self._start_reader,
            self.lost,
            self._on_finished,
        )
        if is_internal_log(state.log):
            self._run(purge, now)
        else:
            self._waiting[state.log] = purge
            self._begin(now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """Ask a peer that is back."""
        for purge in list(self._running.values()):
            purge.on_peer_up(peer, now)

    def on_turn_end(self, now: Micros) -> None:
        """Begin what waits, should more be allowed to run than before."""
        if self._waiting:
            self._begin(now)

    def stop_all(self) -> None:
        """The disk failed."""
        for purge in self._running.values():
            purge.stop()
        self._shard.metrics.purges_running -= len(self._running) + len(self._waiting)
        self._running.clear()
        self._waiting.clear()

    def is_purging(self, state: LogState) -> bool:
        """Whether a purge of the log is at work or queued."""
        return state.log in self._running or state.log in self._waiting

    def purges(self) -> list[LogPurge]:
        """Those at work, then those that wait, in order; to look at."""
        return [*self._running.values(), *self._waiting.values()]

    def find(self, log: LogId) -> LogPurge | None:
        """The purge of a log that is at work."""
        return self._running.get(log)

    def _begin(self, now: Micros) -> None:
        room = self._shard.settings.purges_max - sum(not is_internal_log(log) for log in self._running)
        while self._waiting and room > 0:
            _, purge = self._waiting.popitem(last=False)
            self._run(purge, now)
            room -= 1

    def _run(self, purge: LogPurge, now: Micros) -> None:
        self._running[purge.log.log] = purge
        purge.start(now)

    def _on_finished(self, purge: LogPurge, now: Micros) -> None:
        del self._running[purge.log.log]
        self._shard.metrics.purges_running -= 1
        self._begin(now)
        self._clean_moved(purge.log, now)


def answer_epoch_recovery_metadata(shard: Shard, peer: PeerId, message: GetEpochRecoveryMetadata) -> None:
    """Tell a peer how epochs ended, as far as it is known here. A shard that has failed keeps silent: it must not count as not knowing."""
    if shard.failed:
        return
    state = shard.find(message.log)
    last = min(message.last, message.first + EPOCHS_PER_MESSAGE_MAX - 1)
    trimmed_before = 0 if state is None else min(epoch_of(state.trim_point), state.clean_epoch)
    known = {} if state is None or state.recovered is None else dict(state.recovered.between(message.first, last))
    epochs: list[EpochEnd] = []
    size = 0
    for number in range(message.first, last + 1):
        end = known.get(Epoch(number))
        if end is None:
            status = Status.EMPTY if number < trimmed_before else Status.NOTREADY
            epochs.append(
                EpochEnd(Epoch(number), status, EPOCH_INVALID, ESN_INVALID, ESN_INVALID, LSN_INVALID, Timestamp(0), 0)
            )
        else:
            epochs.append(
                EpochEnd(
                    Epoch(number),
                    Status.OK,
                    end.seal_epoch,
                    end.lng,
                    end.last_digest_esn,
                    end.tail_lsn,
                    end.tail_timestamp,
                    int(end.authoritative),
                    end.summary,
                )
            )
        size += _END_SIZE + len(epochs[-1].summary)
        if size > FIELDS_BUDGET:
            hit("recovery_metadata_cut_short")
            epochs.pop()
            break  # it is asked for the others again
    shard.out.send(
        peer,
        EpochRecoveryMetadata(request_id=message.request_id, shard=message.shard, log=message.log, epochs=epochs),
    )
