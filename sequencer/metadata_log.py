"""Writing a log's epoch metadata to its metadata log, and noting in the epoch store that they are there.

Nothing of the epoch is released before. Any copy of the entry that was ever stored tells the truth, acknowledged or not, because the epoch
store had its content before; so the entry needs no recovery, and repeating the write is harmless.

When every shard of the copyset has answered, each is asked once more whether it has its copy. So there was an instant at which all had it. Without
that one may have answered and then lost its disk before another one stored its copy: a shard that gets back what its earlier generation held, by
asking the others (`storage_node/repair/metadata_resync.py`), would miss the entry.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

from google_crc32c import value as crc32c

from epoch_store.interface import Result, UpdateMetadata
from epoch_store.updaters import ToWritten
from logdevice_py.core import marks
from logdevice_py.core.entry import Constituent, EntryFlags, encode_body
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId, data_log_of, metadata_log_of, node_peer
from logdevice_py.core.lsn import ESN_INVALID, ESN_MIN, LSN_INVALID, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.machine import Timer, backoff
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.protocol.messages import Digest, Digested, DigestRange, Stored, StoreFlags
from sequencer.appender import Appender
from sequencer.context import SequencerContext
from sequencer.copyset_sticky import select

_ANSWER_TIMEOUT_MIN: Final = 500 * MILLISECOND
_ANSWER_TIMEOUT_MAX: Final = 10 * SECOND
_QUESTIONS_MAX: Final = 3
"""How often the shards are asked whether they have the entry, before it is stored again."""


class MetadataLogState(enum.Enum):
    """Where the write is."""

    STORING = enum.auto()  # the entry is being replicated, or waits for a copyset
    CONFIRMING = enum.auto()  # every shard has stored it; is it still there?
    NOTING = enum.auto()  # the entry is stored; the epoch store is told
    DONE = enum.auto()  # the epoch store knows
    STOPPED = enum.auto()  # a later sequencer took over, or the owner stopped it


class MetadataOwner(Protocol):
    """Who wants to know."""

    def on_metadata_written(self, now: Micros) -> None:
        """The metadata are in the metadata log, and the epoch store knows it."""

    def on_sealed(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """Somebody else got a later epoch: up to `epoch`, all are over."""


class MetadataLogWrite:
    """Writes the metadata that an activation got. Tries for ever, with growing delays.

    Metadata that are known to be written may be written again: where copies were damaged or lost there are good ones then.
    """

    __slots__ = (
        "_answer_timeout",
        "_appender",
        "_delays",
        "_epoch",
        "_metadata",
        "_owner",
        "_questions",
        "_timer",
        "_unconfirmed",
        "began",
        "context",
        "generations",
        "log",
        "state",
        "store_flags",
    )

    def __init__(self, log: LogId, metadata: EpochMetaData, context: SequencerContext, owner: MetadataOwner) -> None:
        self.log = metadata_log_of(log)
        self.context = context
        self.store_flags = int(StoreFlags.SYNC)
        self.generations: Mapping[ShardId, Generation] = {}
        self.state = MetadataLogState.STORING
        self.began: Micros | None = None
        self._owner = owner
        self._metadata = metadata
        self._epoch = metadata.given_epoch
        self._appender: Appender | None = None
        self._timer: Timer | None = None
        self._delays = self._fresh_delays()
        self._unconfirmed: dict[ShardId, int] = {}
        """Shards that have stored the entry and have not shown it again, and the request in which they were asked."""
        self._questions = 0
        """How often they were asked."""
        self._answer_timeout = _ANSWER_TIMEOUT_MIN
        """Twice as long after each question: where answers take long, the write ends all the same."""

    @property
    def lng(self) -> Esn:
        """A metadata log has one entry an epoch."""
        return ESN_INVALID

    @property
    def released(self) -> Lsn:
        """Metadata logs have no release pointer."""
        return LSN_INVALID

    @property
    def appender(self) -> Appender | None:
        """Of the entry, while it is being stored; None while there is no copyset for it. To look at."""
        return self._appender

    @property
    def unconfirmed(self) -> tuple[ShardId, ...]:
        """The shards that are asked whether they still have the entry, to look at."""
        return tuple(self._unconfirmed)

    @property
    def _lsn(self) -> Lsn:
        return compose_lsn(self._epoch, ESN_MIN)

    def start(self, now: Micros) -> None:
        """Store the entry (epoch, 1) of the metadata log."""
        self._timer = None
        if self.began is None:
            self.began = now
        if self.state is not MetadataLogState.STORING:
            return
        copyset = self.pick_copyset(0, None, now)
        if copyset is None:
            marks.hit("no_metadata_copyset")
            self._timer = self.context.timers.at(now + next(self._delays), self.start)
            return
        # whether it is the first time or not, copies of one LSN are the same
        encoded = replace(self._metadata, written=False).encode()
        body = encode_body([Constituent(encoded, 1, crc32c(encoded))])
        flags = int(EntryFlags.METADATA | EntryFlags.EPOCH_BEGIN)
        self._appender = Appender(self, self._lsn, Timestamp(self.context.wall()), (), 1, flags, len(body))
        self.context.busy[self] = None
        self._appender.start(copyset, body, crc32c(body), now)

    def stop(self, now: Micros) -> None:
        """Stop, without telling the owner."""
        if self.state in (MetadataLogState.DONE, MetadataLogState.STOPPED):
            return
        self.state = MetadataLogState.STOPPED
        self._end_questions()
        if self._appender is not None:
            self._appender.abort(now)

    def on_stored(self, message: Stored, now: Micros) -> None:
        """A shard answered."""
        if self._appender is not None and message.lsn == self._appender.lsn:
            self._appender.on_stored(message, now)

    def _on_digested(self, message: Digested, now: Micros) -> None:
        """A shard says what it has of the entry."""
        if any(entry.log == self.log and entry.lsn == self._lsn and entry.length for entry in message.entries):
            self.context.requests.forget(self._unconfirmed.pop(message.shard))
            if not self._unconfirmed:
                self._confirmed(now)
        elif all(each.status in (Status.OK, Status.REBUILDING) for each in message.ranges):
            self._store_anew(now)

    def on_peer_down(self, node: NodeId, now: Micros) -> None:
        """The connection to a node broke."""
        if self._appender is not None:
            self._appender.on_peer_down(node, now)

    def _on_lost(self, status: Status, now: Micros) -> None:
        self._store_anew(now)

    def on_shard_slow(self, shard: ShardId, now: Micros) -> None:
        """A shard came onto the graylist."""
        if self._appender is not None:
            self._appender.on_shard_slow(shard)

    def pick_copyset(self, size: int, tried: tuple[ShardId, ...] | None, now: Micros) -> tuple[ShardId, ...] | None:
        """From the nodeset of all metadata logs; its generations are the present ones."""
        config, cluster = self.context.config, self.context.cluster
        kept_by = config.metadata_log
        selector = self.context.selector(FailureDomains.by_file(kept_by.nodeset, kept_by.replication, config.location))
        copyset = select(selector, self.context.availability)
        if copyset is not None:
            self.generations = {shard: cluster.generation(shard) for shard in copyset}
        return copyset

    def on_replicated(self, appender: Appender, now: Micros) -> None:
        """Every shard of a copyset has answered that it has the entry."""
        self._appender = None
        if self.state is not MetadataLogState.STORING:
            self.context.busy.pop(self, None)
            return
        self.state = MetadataLogState.CONFIRMING
        # a late answer is as good: the same question has the same id
        requests = self.context.requests
        self._unconfirmed = {
            shard: requests.ask_shard(shard, Digested, self._on_digested, failed=self._on_lost, once=False)
            for shard in appender.copyset
        }
        self._questions = 0
        self._ask(now)

    def _ask(self, now: Micros) -> None:
        self._timer = None
        if self._questions >= _QUESTIONS_MAX:
            self._store_anew(now)
            return
        self._questions += 1
        context, lsn = self.context, self._lsn
        for shard, request in self._unconfirmed.items():
            ranges = [DigestRange(self.log, lsn, lsn, self.generations.get(shard, Generation(0)))]
            context.outbox.send(node_peer(shard), Digest(request_id=request, shard=shard, bytes_max=1, ranges=ranges))
        self._timer = context.timers.at(now + self._answer_timeout, self._ask)
        self._answer_timeout = min(2 * self._answer_timeout, _ANSWER_TIMEOUT_MAX)

    def _store_anew(self, now: Micros) -> None:
        """A shard has lost the entry, or nobody knows whether it has."""
        marks.hit("metadata_copy_not_confirmed")
        self._end_questions()
        self.state = MetadataLogState.STORING
        self._timer = self.context.timers.at(now + next(self._delays), self.start)

    def _end_questions(self) -> None:
        self.context.busy.pop(self, None)
        for request in self._unconfirmed.values():
            self.context.requests.forget(request)
        self._unconfirmed.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _confirmed(self, now: Micros) -> None:
        """The entry is on a full copyset."""
        self._end_questions()
        self.context.metrics.metadata_entries_written += 1
        if self._metadata.written:
            self.state = MetadataLogState.DONE
            self._owner.on_metadata_written(now)
        else:
            self.state = MetadataLogState.NOTING
            self._delays = self._fresh_delays()
            self._note(now)

    def on_sealed(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A later sequencer wrote to the metadata log."""
        self._owner.on_sealed(epoch, node, now)

    def on_shard_lost(self, shard: ShardId) -> None:
        """The generation that gossip told was too old; the next wave asks for it again."""

    def on_aborted(self, appender: Appender, now: Micros) -> None:
        """The entry was preempted or aborted."""
        self.state = MetadataLogState.STOPPED
        self._appender = None
        self.context.busy.pop(self, None)

    def _note(self, now: Micros) -> None:
        self._timer = None
        if self.state is MetadataLogState.NOTING:
            updater = ToWritten(self._metadata.history)
            operation = UpdateMetadata(data_log_of(self.log), updater, self.context.node)
            self.context.epoch_store.submit(operation, self._on_noted, now)

    def _on_noted(self, result: Result | None, now: Micros) -> None:
        if self.state is not MetadataLogState.NOTING:
            return
        if result is not None and result.status in (Status.OK, Status.STALE):
            stored = result.value
            assert isinstance(stored, EpochMetaData), stored
            self.state = MetadataLogState.DONE
            if stored.given_epoch > self._epoch and stored.writer != self.context.node:
                self._owner.on_sealed(Epoch(stored.given_epoch - 1), stored.writer, now)
            # STALE is as good as OK: another history could only be put there after this one was known to be written.
            self._owner.on_metadata_written(now)
            return
        marks.hit("metadata_note_failed")
        self._timer = self.context.timers.at(now + next(self._delays), self._note)

    def _fresh_delays(self) -> Iterator[int]:
        settings = self.context.settings
        return backoff(
            self.context.rng,
            initial_us=settings.epoch_store_retry_min_us,
            max_us=settings.epoch_store_retry_max_us,
        )
