"""Counters of a client."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge


@dataclass(slots=True)
class ClientMetrics:
    """What a client did since it was made."""

    records_appended: int = counter("Records acknowledged, of direct appends.", unit="records")
    frames_sent: int = counter("APPEND frames of direct appends sent, retries included.", unit="frames")
    frames_retried: int = counter(
        "APPEND frames of direct appends sent again after an answer that says not applied.", unit="frames"
    )
    frames_throttled: int = counter(
        "APPEND frames of direct appends that were refused because of a quota.", unit="frames"
    )
    redirects_followed: int = counter("Answers that named another node.", unit="answers")
    redirect_cycles: int = counter("Redirects that led back to a node asked before.", unit="answers")
    probes_sent: int = counter("Questions to another node because an append went unanswered.", unit="requests")
    appends_failed: int = counter("Records whose direct append failed and certainly was not applied.", unit="records")
    appends_of_unknown_outcome: int = counter(
        "Records whose direct append failed and may have been applied.", unit="records"
    )
    cluster_states_received: int = counter("CLUSTER_STATE pushes received.", unit="messages")


@dataclass(slots=True)
class WriterMetrics:
    """What the write streams of a BufferedWriter did."""

    records_acknowledged: int = counter("Records acknowledged.", unit="records")
    records_failed: int = counter("Records whose append failed.", unit="records")
    frames_sent: int = counter("Frames sent, retries included.", unit="frames")
    frames_acknowledged: int = counter("Frames acknowledged by the sequencer.", unit="frames")
    frames_found: int = counter("Frames of unknown outcome that were found in the log.", unit="frames")
    epochs_entered: int = counter("Times that a stream went on in another epoch.", unit="epochs")
    unknown_outcomes: int = counter(
        "Times that a stream had frames of unknown outcome and moved its log.", unit="times"
    )
    streams_broken: int = counter(
        "Write streams that ended because somebody else sent under their writer id.", unit="streams"
    )
    refusals: int = counter("Answers that say not applied.", unit="answers")
    throttled: int = counter("Times that a stream waited for a quota.", unit="times")
    bytes_before_compression: int = counter("Bytes of records put into frames.", unit="bytes")
    bytes_of_frames: int = counter("Bytes of frames built.", unit="bytes")
    bytes_buffered: int = gauge("Bytes of records not acknowledged.", unit="bytes")
