"""The figures that workloads report: what they mean, their unit, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind of figure."""

    name: str
    unit: str
    higher_is_better: bool
    meaning: str


_ALL: Final = (
    Figure("records_per_s", "records/s", True, "records moved in a second"),
    Figure("mb_per_s", "MB/s", True, "payload bytes moved in a second, in millions"),
    Figure("read_records_per_s", "records/s", True, "records read back in a second"),
    Figure("read_mb_per_s", "MB/s", True, "payload bytes read back in a second, in millions"),
    Figure("p50_ms", "ms", False, "median latency"),
    Figure("p99_ms", "ms", False, "latency that 99 of 100 records keep below"),
    Figure("p99.9_ms", "ms", False, "latency that 999 of 1,000 records keep below"),
    Figure("append_p50_ms", "ms", False, "median latency of acknowledgements, where deliveries are the main figure"),
    Figure("append_p99_ms", "ms", False, "p99 of the same"),
    Figure(
        "written_per_byte",
        "x",
        False,
        "bytes that servers wrote for each payload byte that was appended, all copies together",
    ),
    Figure("server_peak_mb", "MB", False, "greatest resident memory of one server, in millions of bytes"),
    Figure("p99_over_p50", "x", False, "p99 latency divided by the median"),
    Figure("control_p99_ms", "ms", False, "p99 of the same load on a server that only acknowledges"),
    Figure("offered_per_s", "records/s", True, "arrivals in a second"),
    Figure("standstill_ms", "ms", False, "longest time without an acknowledgement after the fault"),
    Figure("standstill_max_ms", "ms", False, "the worst of the repetitions"),
    Figure("p99_over_control", "x", False, "p99 latency after the fault divided by that of the same load without it"),
    Figure(
        "bytes_per_log",
        "B",
        False,
        "resident memory added by a log to its sequencer's node and to one that keeps a copy, together",
    ),
    Figure("sequencer_bytes_per_log", "B", False, "the same of the sequencer's node alone"),
    Figure("storage_bytes_per_log", "B", False, "the same of one node that keeps copies"),
    Figure("cluster_bytes_per_log", "B", False, "the same of all nodes together"),
    Figure("activation_s", "s", False, "time in which all logs were activated"),
    Figure(
        "recovered_activation_s",
        "s",
        False,
        "time in which all were activated again, after another process, each with a recovery",
    ),
    Figure("recovery_ms", "ms", False, "time until the log can be appended to and read again"),
    Figure("unreleased", "records", True, "records that were stored and not released when the fault came"),
    Figure("failed_appends", "records", False, "records that were not acknowledged"),
)
FIGURES: Final = {figure.name: figure for figure in _ALL}
