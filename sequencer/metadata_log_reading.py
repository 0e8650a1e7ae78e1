"""Finding out whether a metadata log is empty, before a log that the epoch store does not know is provisioned.

Either the log is new, or the epoch store lost it: was wiped or set back to an older state. A shard that lost its data cannot tell what it held
before. But it need not: the epoch store knows the generation that the shard took afterwards, and it knows every log that was there by
then. So a log that it does not know was provisioned later, if ever, and the shard holds what it stored since. An epoch store that was set
back to a time before knows an earlier generation, for which the shard does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from epoch_store.interface import ReadShardIdentity, Result, ShardIdentity
from logdevice_py.core import marks
from logdevice_py.core.ids import Generation, LogId, ShardId, data_log_of, node_of, shard_index_of
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.history import MetadataHistoryReader
from sequencer.context import SequencerContext

EmptyAnswer = Callable[[bool | None, Micros], None]
"""Told whether a metadata log is empty; None: that cannot be told at present."""


class _Registrations:
    """Which generations of the shards that keep metadata logs the epoch store knows."""

    __slots__ = ("done", "found", "log", "missing")

    def __init__(self, log: LogId, missing: set[ShardId], done: EmptyAnswer) -> None:
        self.log = log
        self.missing = missing
        self.done = done
        self.found: dict[ShardId, Generation] = {}


class MetadataLogReading:
    """The readings in progress, one a log."""

    __slots__ = ("_context", "_readers", "_registrations")

    def __init__(self, context: SequencerContext) -> None:
        self._context = context
        self._readers: dict[LogId, MetadataHistoryReader] = {}
        self._registrations: dict[LogId, _Registrations] = {}

    def start(self, log: LogId, done: EmptyAnswer, now: Micros) -> None:
        """Read the metadata log of a data log; `done` is told whether it is empty. A second reading of the same log replaces the first."""
        self._registrations.pop(log, None)
        before = self._readers.pop(log, None)
        if before is not None:
            before.cancel()
        self._read(log, {}, done, now)

    def _read(self, log: LogId, generations: Mapping[ShardId, Generation], done: EmptyAnswer, now: Micros) -> None:
        context = self._context
        reader = self._readers[log] = MetadataHistoryReader(
            log,
            context.config,
            context.outbox,
            context.timers,
            context.rng,
            context.requests,
            partial(self._on_read, done, bool(generations)),
            generations=generations,
        )
        reader.start(now)

    def unanswered(self, log: LogId) -> list[ShardId]:
        """The shards that the reading of a log waits for, to look at."""
        reader = self._readers.get(log)
        return [] if reader is None else reader.unanswered()

    def on_config(self, now: Micros) -> None:
        """There is another cluster file."""
        for reader in list(self._readers.values()):
            reader.on_config(self._context.config, now)

    def _on_read(self, done: EmptyAnswer, since_registered: bool, reader: MetadataHistoryReader, now: Micros) -> None:
        log = data_log_of(reader.log)
        del self._readers[log]
        if reader.history or reader.authoritative:
            done(not reader.history, now)
        elif since_registered:
            marks.hit("metadata_log_not_authoritative")
            done(None, now)
        else:
            # Shards that lost their data cannot prove that there was nothing; but perhaps that there was nothing since.
            marks.hit("metadata_log_read_since_registration")
            self._ask_registrations(log, done, now)

    def _ask_registrations(self, log: LogId, done: EmptyAnswer, now: Micros) -> None:
        shards = self._context.config.metadata_log.nodeset
        asked = self._registrations[log] = _Registrations(log, set(shards), done)
        for shard in shards:
            operation = ReadShardIdentity(node_of(shard), shard_index_of(shard))
            self._context.epoch_store.submit(operation, partial(self._on_registration, asked, shard), now)

    def _on_registration(self, asked: _Registrations, shard: ShardId, result: Result | None, now: Micros) -> None:
        if self._registrations.get(asked.log) is not asked:
            return
        if result is not None and result.status is Status.OK:
            assert isinstance(result.value, ShardIdentity)
            asked.found[shard] = result.value.generation
        asked.missing.discard(shard)
        if asked.missing:
            return
        del self._registrations[asked.log]
        if asked.found:
            self._read(asked.log, asked.found, asked.done, now)
        else:
            marks.hit("metadata_log_not_authoritative")
            asked.done(None, now)
