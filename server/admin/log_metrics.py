"""What is told of single logs to Prometheus: of the busiest ones only, as every log would be series of its own."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import gauge
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import epoch_of, esn_of
from logdevice_py.runtime.metric_source import MetricSource
from logdevice_py.tables.sequencing import AppendThroughputRow
from logdevice_py.tables.storage import ReadersRow


@dataclass(slots=True)
class LogMetrics:
    """One log at one node. Looked at every ten seconds; only the busiest logs, `metrics_logs_max` at most, are exported."""

    append_entries_rate: int = gauge("Entries appended per second here, over the last minute.", unit="entries/s")
    append_bytes_rate: int = gauge("Bytes of payloads appended per second here, over the last minute.", unit="bytes/s")
    read_streams: int = gauge("Read streams that shards of this node serve.", unit="streams")
    reader_lag: int = gauge(
        "Entries that the read stream furthest behind was not told of yet; where it is in an earlier epoch, those of the newest one: at least.",
        unit="entries",
    )


class BusiestLogs:
    """The logs with most appends and most lag. Rows come in one by one, so that the caller can make pauses."""

    def __init__(self) -> None:
        self._logs: dict[LogId, LogMetrics] = {}

    def add_throughput(self, row: AppendThroughputRow) -> None:
        """What was appended to one log."""
        if row.entries_1min:
            metrics = self._of(row.log_id)
            metrics.append_entries_rate = max(1, round(row.entries_1min))
            metrics.append_bytes_rate = round(row.bytes_1min)

    def add_reader(self, row: ReadersRow) -> None:
        """One read stream of one shard."""
        metrics = self._of(row.log_id)
        metrics.read_streams += 1
        metrics.reader_lag = max(metrics.reader_lag, lag_of(row.read_pointer, min(row.until_lsn, row.last_released)))

    def _of(self, log: int) -> LogMetrics:
        return self._logs.setdefault(LogId(log), LogMetrics())

    def sources(self, most: int) -> list[MetricSource]:
        """The busiest, in order of their ids."""

        def rank(item: tuple[LogId, LogMetrics]) -> tuple[int, int, int, int]:
            log, metrics = item
            return -metrics.append_bytes_rate, -metrics.reader_lag, -metrics.read_streams, log

        busiest = sorted(self._logs.items(), key=rank)[:most]
        return [MetricSource("log", metrics, log=log) for log, metrics in sorted(busiest, key=lambda item: item[0])]


def lag_of(read_pointer: int, end: int) -> int:
    """Entries from `read_pointer` to `end`, both included; of those in earlier epochs nothing is known here."""
    if end < read_pointer:
        return 0
    if epoch_of(end) == epoch_of(read_pointer):
        return esn_of(end) - max(1, esn_of(read_pointer)) + 1
    return esn_of(end)
