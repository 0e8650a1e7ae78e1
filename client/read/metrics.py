"""Counters of reading."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge


@dataclass(slots=True)
class ReadMetrics:
    """What all read streams of a client did."""

    entries_received: int = counter("Entries received, duplicates included.", unit="entries")
    bytes_received: int = counter("Bytes of entries received, duplicates included.", unit="bytes")
    duplicate_copies: int = counter("Copies of entries that were there already, or had been delivered.", unit="entries")
    corrupt_copies: int = counter("Copies that did not match their checksum.", unit="entries")
    records_delivered: int = counter("Records handed to applications.", unit="records")
    bytes_buffered: int = gauge("Bytes of entries held and not handed over.", unit="bytes")
    rewinds: int = counter("Times that a stream was started anew with another filter.", unit="rewinds")
    failovers: int = counter("Shards counted as down for single-copy delivery.", unit="shards")
    slow_shards: int = counter("Shards left out because they were much slower than the others.", unit="shards")
    hedges_sent: int = counter("Times that others were asked for what a shard had not sent in time.", unit="hedges")
    hedges_won: int = counter("Hedges that brought an entry before the shard that should have sent it.", unit="hedges")
    hedges_refused: int = counter("Hedges that were not sent because earlier ones had cost too much.", unit="hedges")
    hedge_entries: int = counter("Entries that hedges brought.", unit="entries")
    hedge_bytes: int = counter("Bytes of entries that hedges brought.", unit="bytes")
    shards_left_to_the_end: int = counter(
        "Times that a shard was left to the end of the order because hedges overtook it again and again.", unit="shards"
    )
    gaps_dataloss: int = counter("Ranges of LSNs reported as lost.", unit="gaps")
    protocol_violations: int = counter("Shards that sent what a stream had not asked for.", unit="shards")
    stale_messages: int = counter(
        "Messages of an earlier filter version, or of a shard that is no longer read.", unit="messages"
    )
    history_reads: int = counter("Times that a stream asked for the nodesets of its log.", unit="requests")
