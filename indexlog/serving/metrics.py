"""What the service of an index log counts, and what it sees of the index log."""

from __future__ import annotations

from dataclasses import dataclass, field

from indexlog.index_log import IndexLog
from logdevice_py.core.declare import counter, gauge, histogram
from logdevice_py.core.histogram import Histogram
from logdevice_py.runtime.http.metrics import HttpMetrics


@dataclass(slots=True)
class IndexServiceMetrics(HttpMetrics):
    """Of one process."""

    pages: int = counter("Pages answered.", unit="pages")
    pages_expired: int = counter("Requests for pages whose token was too old.", unit="requests")
    page_rows: int = counter("Rows of pages.", unit="rows")
    page_bytes: int = counter("Bytes of pages, as they were answered.", unit="bytes")
    page_time: Histogram = histogram("How long a page took, without waiting for something to be written.")
    readers_waiting: int = gauge("Readers that wait for something to be written.", unit="readers")
    tail_bytes: int = gauge("Newest records of raw logs in memory.", unit="bytes")
    jobs: int = counter("Deals, merges and collections that this process did.", unit="jobs")
    jobs_failed: int = counter("Of these, which failed.", unit="jobs")
    dealt_records: int = counter("Modifications that this process dealt.", unit="records")
    dealt_bytes: int = counter("Of their payloads.", unit="bytes")
    merged_records: int = counter("Modifications in files that this process sorted or optimized.", unit="records")
    merged_bytes: int = counter("What these take in memory, about.", unit="bytes")
    collected_bytes: int = counter("Of files that this process deleted.", unit="bytes")


@dataclass(slots=True)
class IndexLogMetrics:
    """Of one index log, as a process knows it."""

    indexes: int = gauge("Indexes that have files or slices.", unit="indexes")
    parts: int = gauge("Live files and slices.", unit="parts")
    records: int = gauge("Modifications in these.", unit="records")
    parts_bytes: int = gauge("What these take in memory, about.", unit="bytes")
    retired_parts: int = gauge("Files and slices that were replaced and are kept for readers.", unit="parts")
    undealt_records: int = gauge("Records of raw logs that are not dealt, as far as they were read.", unit="records")
    undealt_bytes: int = gauge("Of their payloads.", unit="bytes")
    undealt_age: int = gauge("Since when the oldest of them waits; 0: there are none.", unit="us")
    jobs_running: int = gauge("Jobs that have begun and not ended.", unit="jobs")
    job_age: int = gauge("Since when the oldest of them has begun; 0: there are none.", unit="us")
    unreadable: int = gauge("Records of raw logs that are no modifications, as far as dealt.", unit="records")


@dataclass(slots=True)
class SeenParts:
    """The parts of an index log, counted once for each state."""

    serial: int = -1
    metrics: IndexLogMetrics = field(default_factory=IndexLogMetrics)

    def look(self, log: IndexLog) -> IndexLogMetrics:
        """What there is at this moment."""
        state, found, now = log.state, self.metrics, log.now()
        if state.serial != self.serial:
            self.serial = state.serial
            parts = [part for of_index in state.indexes.values() for part in of_index]
            found.indexes, found.parts = len(state.indexes), len(parts)
            found.records = sum(part.records for part in parts)
            found.parts_bytes = sum(part.bytes for part in parts)
        found.retired_parts, found.unreadable = len(state.retired), state.unreadable
        backlogs = log.backlogs()
        found.undealt_records = sum(each.records for each in backlogs)
        found.undealt_bytes = sum(each.bytes for each in backlogs)
        oldest = [each.since for each in backlogs if each.since is not None]
        found.undealt_age = max(0, now - min(oldest)) if oldest else 0
        found.jobs_running = len(state.jobs)
        found.job_age = max(0, now - min(state.jobs.values())) if state.jobs else 0
        return found
