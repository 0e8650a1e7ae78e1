"""What the sequencer side of a node counts."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge, histogram
from logdevice_py.core.histogram import Histogram


@dataclass(slots=True)
class SequencerMetrics:
    """Counters and gauges of one node's sequencers."""

    frames_received: int = counter("APPEND frames received.", unit="frames")
    frames_acknowledged: int = counter("APPEND frames answered OK.", unit="frames")
    frames_refused: int = counter("APPEND frames answered with another status than OK.", unit="frames")
    stream_numbers_taken: int = counter(
        "Frames of write streams refused because other content was taken with their number, or with one before it: two send under one writer id.",
        unit="frames",
    )
    guards_refused: int = counter(
        "Frames refused because the end of the log was not as they asked, or cannot be known.", unit="frames"
    )
    appends_throttled: int = counter(
        "Frames refused because their log, or their sender's principal, was over its quota.", unit="frames"
    )
    records_acknowledged: int = counter("Records in frames that were answered OK.", unit="records")
    entries_started: int = counter("Entries that got an LSN.", unit="entries")
    entries_replicated: int = counter("Entries that reached all copies of a wave.", unit="entries")
    entries_aborted: int = counter("Entries that were preempted or aborted.", unit="entries")
    waves_repeated: int = counter("Waves of STOREs after the first of an entry.", unit="waves")
    stores_timed_out: int = counter("Waves of STOREs that timed out.", unit="waves")
    shards_graylisted: int = counter("Times that a shard was put on the graylist.", unit="times")
    placement_refusals: int = counter(
        "Choices of the placement policy, and calls of it, that would not do: the policy weighted chose instead.",
        unit="choices",
    )
    activations: int = counter("Activations that got an epoch.", unit="activations")
    activation_failures: int = counter("Requests for an epoch that failed.", unit="requests")
    preemptions: int = counter("Times that another sequencer took a log over.", unit="times")
    epochs_rolled: int = counter("Epochs ended because of their age or size.", unit="epochs")
    rolls_under_way: int = gauge(
        "Logs whose epoch is being ended by age or size, until what was before is recovered.", unit="logs"
    )
    rolls_queued: int = gauge("Logs that wait until fewer roll.", unit="logs")
    recoveries_completed: int = counter("Recoveries of logs that came to their end.", unit="recoveries")
    metadata_entries_written: int = counter("Entries of metadata logs written.", unit="entries")
    entries_in_flight: int = gauge(
        "Entries in windows: they are being stored, or wait for the entries before them. So much the LNGs lag behind.",
        unit="entries",
    )
    fullest_window: int = gauge("Use of the window of which most is used, by entries or bytes.", unit="percent")
    logs_unreleased: int = gauge(
        "Logs whose epoch is not released, because of recovery or the metadata log. Looked at every ten seconds.",
        unit="logs",
    )
    bytes_in_flight: int = gauge("Bytes of entries that are being replicated.", unit="bytes")
    bytes_buffered: int = gauge("Bytes of frames that wait for an activation or a recovery.", unit="bytes")
    append_latency: Histogram = histogram(
        "From the LSN of an entry to all its copies, of one entry of eight: those with ESN 1, 9, 17 and so on."
    )
    store_latency: Histogram = histogram("From a STORE to its answer, or to its timeout.")
    sequencers: int = gauge("Logs that have a sequencer object.", unit="logs")
    departures_handled: int = gauge(
        "1: since the last change of nodes every log located here was looked at, and the open epochs of none list a shard that departed.",
        unit="flag",
    )
    logs_leaving_departed_shards: int = gauge(
        "Logs located here that are on their way to an epoch, or whose recovery is, because shards of their open epochs departed.",
        unit="logs",
    )
