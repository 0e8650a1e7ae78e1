"""Finding out whether a metadata log is empty, before a log that the epoch store does not know is provisioned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, NodeId, PeerId, data_log_of
from logdevice_py.core.units import Micros
from logdevice_py.metadata.history import MetadataHistoryReader
from logdevice_py.protocol.messages import Digested
from sequencer.context import SequencerContext

EmptyAnswer = Callable[[bool | None, Micros], None]
"""Told whether a metadata log is empty; None: too many shards lost their data to tell."""


class MetadataLogReading:
    """The readings in progress, one a log."""

    __slots__ = ("_context", "_readers")

    def __init__(self, context: SequencerContext) -> None:
        self._context = context
        self._readers: dict[LogId, MetadataHistoryReader] = {}

    def start(self, log: LogId, done: EmptyAnswer, now: Micros) -> None:
        """Read the metadata log of a data log; `done` is told whether it is empty. A second reading of the same log replaces the first."""
        before = self._readers.pop(log, None)
        if before is not None:
            before.cancel()
        context = self._context
        reader = self._readers[log] = MetadataHistoryReader(
            log,
            context.config,
            context.outbox,
            context.timers,
            context.rng,
            context.request_ids,
            partial(self._on_read, done),
        )
        reader.start(now)

    def on_digested(self, message: Digested, now: Micros) -> None:
        """A shard answered with a part of a metadata log."""
        for log, _, _ in message.ranges:
            reader = self._readers.get(data_log_of(LogId(log)))
            if reader is not None:
                reader.on_digested(message, now)

    def on_peer_down(self, node: NodeId, now: Micros) -> None:
        """The connection to a node broke."""
        for reader in list(self._readers.values()):
            reader.on_peer_down(PeerId(node), now)

    def _on_read(self, done: EmptyAnswer, reader: MetadataHistoryReader, now: Micros) -> None:
        log = data_log_of(reader.log)
        del self._readers[log]
        if reader.history or reader.authoritative:
            done(not reader.history, now)
        else:
            # Shards that lost their data cannot prove that there was nothing.
            marks.hit("metadata_log_not_authoritative")
            done(None, now)
