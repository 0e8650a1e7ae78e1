"""RELEASE: what readers may see.

A RELEASE in epoch e says that everything up to it is fully replicated and that all epochs before e are recovered. It is applied at once
when those are clean here. Otherwise this shard missed a recovery and may hold copies that recovery decided against: the release is held back until
they are purged.
"""

from __future__ import annotations

from typing import Protocol

from logdevice_py.core.ids import PeerId, is_metadata_log
from logdevice_py.core.lsn import Epoch, Lsn, epoch_of
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Release
from logdevice_py.protocol.routing import handles
from storage_node.log_state import LogState
from storage_node.shard import Shard


class PurgeStarter(Protocol):
    """The part of the purges that a RELEASE or CLEAN needs."""

    def start(self, state: LogState, until: Epoch, now: Micros) -> None:
        """Make everything up to `until` clean; harmless when a purge of the log is under way."""

    def is_purging(self, state: LogState) -> bool:
        """Whether a purge of the log is at work or queued."""


class ReleaseHandler:
    """Takes the RELEASEs of one shard."""

    __slots__ = ("_purges", "_shard")

    def __init__(self, shard: Shard, purges: PurgeStarter) -> None:
        self._shard = shard
        self._purges = purges

    @handles(Release)
    def on_release(self, peer: PeerId, message: Release, now: Micros) -> None:
        """Apply or hold back each log's release."""
        logs = self._shard.logs
        for log, lsn in message.logs:
            state = logs.get(log)  # type: ignore[call-overload]
            if state is None:
                if is_metadata_log(log):  # type: ignore[arg-type]
                    continue
                state = self._shard.log(log)  # type: ignore[arg-type]
            if lsn > state.last_released:
                self.release(state, Lsn(lsn), now)

    def release(self, state: LogState, lsn: Lsn, now: Micros) -> None:
        """Everything up to lsn may be read."""
        if lsn <= state.last_released or is_metadata_log(state.log):
            return
        epoch = epoch_of(lsn)
        if epoch <= state.clean_epoch + 1:
            state.last_released = lsn
            if state.held_release <= lsn:
                state.held_release = Lsn(0)
            self._shard.metrics.releases_applied += 1
            self._shard.release_moved(state, now)
            if state.streams is not None:
                for stream in state.streams:
                    stream.wake()
            return
        if lsn > state.held_release:
            state.held_release = lsn
            self._shard.metrics.releases_held += 1
        state.fence = max(state.fence, Epoch(epoch - 1))
        if state.clean_in_flight:
            # What is being written may be just what is missing; purging beside it would delete what recovery has declared good.
            hit("release_waits_for_clean")
            return
        self._purges.start(state, Epoch(epoch - 1), now)

    def retry(self, state: LogState, now: Micros) -> None:
        """The last clean epoch moved: see whether the held release can be applied."""
        if state.held_release and not state.clean_in_flight:
            self.release(state, state.held_release, now)
