"""Logs that are not in the cluster file any more, or were removed from the log tree: what is stored of them is deleted after a grace period.

A file without a log may be somebody's mistake, so the period is days. It is counted in time for which this shard ran and saw that the log is
not in the file, by the monotonic clock, and kept on disk: no wall clock can shorten it, and a shard that was down counts on where it was.
A log that comes back into the file begins anew. A node that has an old file says nothing about logs: while another node told of a newer one, or most of
them cannot be heard, nothing is counted and nothing deleted.

The log may come back the moment before it is deleted, in a file that this node has not heard of, and be written to. So its epochs are ended first, and what
it holds stays until news of a newer file would have come.

Seals and the metadata log stay: should the log come back after all, its epochs go on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Epoch, epoch_of
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.membership.cluster_view import ClusterView
from storage_node.log_state import LogState
from storage_node.log_store.interface import LogMetadataKind
from storage_node.log_store.keys import is_partitioned
from storage_node.retention.trim import TrimHandler
from storage_node.shard import Shard
from storage_node.stored_metadata import encode_micros

_NEWS_TAKES: Final = 2 * SECOND
"""Until this node has heard of a cluster file that another one has: nodes look for a newer one twice a second, and gossip."""


class RemovedLogs:
    """Deletes the removed logs of one shard."""

    __slots__ = ("_began", "_cluster", "_counted", "_elapsed", "_ended", "_logs", "_shard", "_trim")

    def __init__(self, shard: Shard, trim: TrimHandler, cluster: ClusterView) -> None:
        self._shard = shard
        self._cluster = cluster
        self._trim = trim
        self._began: Micros | None = None
        """When the last pass over all logs began."""
        self._elapsed = 0
        """From the beginning of the pass before to that of the present one."""
        self._logs: Iterator[LogState] = iter(())
        self._counted = dict(shard.removed)
        """Microseconds for which each log has been seen to be removed."""
        self._ended: dict[LogId, tuple[Epoch, Micros]] = {}
        """Logs that are about to be deleted: the last epoch of what is here, and since when it takes nothing any more."""

    def start(self, now: Micros) -> None:
        """Begin to look after the logs; once."""
        self.on_config()  # some may have come back while the shard was down
        self._arm(now)

    def _arm(self, now: Micros) -> None:
        self._shard.timers.at(Micros(now + self._shard.settings.removed_logs_interval_us), self._begin)

    def on_config(self) -> None:
        """A newer cluster file: logs that are back count from nothing, should they go again before the next pass."""
        for log in [log for log in self._counted if self._may_exist(log)]:
            self._forget(log)

    def _may_exist(self, log: LogId) -> bool:
        return not self._shard.config.is_absent(log)

    def _begin(self, now: Micros) -> None:
        if self._shard.status() is not Status.OK:
            return
        self._elapsed = 0 if self._began is None else now - self._began
        self._began = now
        self._logs = iter(list(self._shard.logs.values()))
        self._go_on(now)

    def _may_be_old(self, now: Micros) -> bool:
        """Whether this node's file may be old: then nothing follows from it, and it is looked again later."""
        if self._cluster.config_version <= self._shard.config.version and not self._cluster.isolated():
            return False
        hit("removed_logs_by_an_old_file")
        self._began = None
        self._ended.clear()
        self._arm(now)
        return True

    def _go_on(self, now: Micros) -> None:
        """The next logs; other work comes between."""
        if self._shard.status() is not Status.OK or self._may_be_old(now):
            return
        left = self._shard.settings.retention_logs_per_turn
        for state in self._logs:
            if is_partitioned(state.log) and not self._may_exist(state.log):
                self._count(state, now)
            left -= 1
            if not left:
                self._shard.timers.at(Micros(now + MILLISECOND), self._go_on)
                return
        self._arm(now)

    def _count(self, state: LogState, now: Micros) -> None:
        log, shard = state.log, self._shard
        counted = self._counted.get(log)
        grace = shard.settings.removed_logs_grace_us
        if counted is not None and counted >= grace:
            end = max(state.highest, state.last_released)
            if end > state.trim_point:
                self._end(state, epoch_of(end), now)
            return
        # seen for the first time, it may have been removed this very moment
        self._counted[log] = 0 if counted is None else counted + self._elapsed
        self._write(log, self._counted[log])

    def _end(self, state: LogState, last: Epoch, now: Micros) -> None:
        """Its time is over: end its epochs, and delete it when nothing has come of a file that has it."""
        ended, since = self._ended.get(state.log, (None, now))
        if ended != last:
            self._ended[state.log] = last, now
            self._trim.end_epochs(state, last)
        elif now - since >= _NEWS_TAKES:
            hit("removed_log_deleted")
            self._shard.metrics.removed_logs += 1
            del self._ended[state.log]
            self._trim.delete_log(state, last)

    def _forget(self, log: LogId) -> None:
        hit("removed_log_came_back")
        del self._counted[log]
        self._ended.pop(log, None)
        self._write(log, 0)

    def _write(self, log: LogId, counted: int) -> None:
        batch = self._shard.writes.group(False).batch
        batch.put_log_metadata(log, LogMetadataKind.REMOVED, encode_micros(counted))
