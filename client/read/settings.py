"""Settings of reading."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How a client reads; section ``[settings.client]`` holds them with the other settings of clients, prefixed ``read_``."""

    buffer_bytes: int = setting(
        16 << 20,
        unit="bytes",
        lo=64 << 10,
        doc="Bytes of entries that one read stream may hold or have under way, split over the shards that it reads from.",
    )
    far_buffer_bytes: int = setting(
        64 << 20,
        unit="bytes",
        lo=1,
        doc="The same where that is more and shards are far away: each gets as much as 100 MB a second take for a round trip, within its share of these.",
    )
    shard_buffer_bytes_min: int = setting(
        64 << 10, unit="bytes", lo=1, doc="Least share of the buffer that each shard gets, however many there are."
    )
    window_lsns: int = setting(
        65_536,
        unit="LSNs",
        lo=2,
        doc="How far beyond the last LSN consumed the shards may send; bounds the number of small entries.",
    )
    single_copy_failover_us: int = setting(
        1_000_000,
        unit="us",
        lo=1_000,
        doc="Without progress for this long the shards that hold a stream up are counted as down and the others send in their place.",
    )
    single_copy_retry_us: int = setting(
        10_000_000,
        unit="us",
        lo=1_000,
        doc="How long a stream waits before it trusts shards again that were counted as down.",
    )
    single_copy_retry_us_max: int = setting(
        120_000_000, unit="us", lo=1_000, doc="Longest such wait, when shards fail again and again."
    )
    slow_shard_factor: int = setting(
        5,
        unit="times",
        lo=0,
        doc="A shard that makes a stream wait so many times longer than the others do is left out of single-copy delivery; 0: none is.",
    )
    slow_shard_window_us: int = setting(
        5_000_000, unit="us", lo=1_000, doc="How often the paces of shards are compared; twice as old times count half."
    )
    slow_shard_penalty_us: int = setting(
        60_000_000, unit="us", lo=1_000, doc="How long a slow shard is left out the first time."
    )
    slow_shard_penalty_us_max: int = setting(
        1_800_000_000, unit="us", lo=1_000, doc="Longest such time, when a shard is slow again and again."
    )
    hedge_delay_us_min: int = setting(
        5_000,
        unit="us",
        lo=100,
        doc="How long a shard may take at least before a hedged reader asks others for what it owes. Otherwise 1.5 times its usual delay (p95), and the way there and back.",
    )
    hedge_delay_us_max: int = setting(500_000, unit="us", lo=100, doc="How long it may take at most.")
    hedge_delay_us_initial: int = setting(
        50_000, unit="us", lo=100, doc="How long it may take while its usual delay is not known."
    )
    hedge_budget_percent: int = setting(
        5,
        unit="percent",
        lo=0,
        hi=100,
        doc="What hedges may bring, of the entries and bytes that readers read; 0: there are none.",
    )
    hedge_penalty_us: int = setting(
        60_000_000,
        unit="us",
        lo=1_000,
        doc="How long a shard sends only what no other one can after hedges overtook three of its last hundred answers or more, and three times as many as of others.",
    )
    gap_grace_period_us: int = setting(
        1_000_000,
        unit="us",
        lo=0,
        doc="How long the remaining shards are waited for before a gap that an f-majority confirms is reported as data loss.",
    )
    rewind_interval_us: int = setting(
        100_000, unit="us", lo=0, doc="Rewinds of a stream are at least this far apart; causes in between share one."
    )
    reconnect_us_min: int = setting(
        10_000, unit="us", lo=100, doc="First pause before a shard that failed is asked again."
    )
    reconnect_us_max: int = setting(
        5_000_000, unit="us", lo=100, doc="Longest pause before a shard that failed is asked again."
    )
    started_timeout_us: int = setting(
        10_000_000, unit="us", lo=1_000, doc="A START unanswered for this long is sent again."
    )
    history_retry_us_min: int = setting(
        20_000, unit="us", lo=100, doc="First pause before nodesets of a log that has none yet are looked up again."
    )
    history_retry_us_max: int = setting(
        250_000,
        unit="us",
        lo=100,
        doc="Longest pause before nodesets of a log that has none yet are looked up again.",
    )
    release_lookup_us: int = setting(
        2_000_000,
        unit="us",
        lo=1_000,
        doc="A stream that stalls for this long asks for the log's sequencer, which releases what was acknowledged.",
    )
    release_lookup_us_max: int = setting(
        60_000_000, unit="us", lo=1_000, doc="Longest pause between such questions of a stream that still stalls."
    )
    nodeset_lookup_us: int = setting(
        5_000_000,
        unit="us",
        lo=1_000,
        doc="While no shard of a nodeset answers, the log is looked up this often: it may have moved on to others.",
    )
