"""Settings of epoch recovery."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import setting
from logdevice_py.core.units import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverySettings:
    """How recovery waits, retries and bounds its memory."""

    concurrent_log_recoveries: int = setting(
        400, unit="logs", lo=1, hi=100_000, doc="How many logs a node recovers at the same time; the rest are queued."
    )
    turn_us: int = setting(
        10 * SECOND,
        unit="us",
        lo=MILLISECOND,
        doc="While others are queued, a recovery that has heard from none of the shards that it waits for in so long lets them go first.",
    )
    seal_retry_initial_us: int = setting(
        500 * MILLISECOND, unit="us", lo=MILLISECOND, doc="First wait before a SEAL without a good answer is repeated."
    )
    seal_retry_max_us: int = setting(
        5 * SECOND, unit="us", lo=MILLISECOND, doc="Longest wait before a SEAL without a good answer is repeated."
    )
    digest_retry_initial_us: int = setting(
        2 * SECOND, unit="us", lo=MILLISECOND, doc="First wait before an unanswered DIGEST is repeated."
    )
    digest_retry_max_us: int = setting(
        10 * SECOND, unit="us", lo=MILLISECOND, doc="Longest wait before an unanswered DIGEST is repeated."
    )
    digest_bytes_max: int = setting(
        1 << 20, unit="bytes", lo=1, hi=64 << 20, doc="How many bytes of images one DIGEST asks for."
    )
    digest_memory_bytes_max: int = setting(
        256 << 20,
        unit="bytes",
        lo=1,
        doc="No further recovery starts while those in progress hold so many bytes of images; one always runs.",
    )
    grace_period_us: int = setting(
        100 * MILLISECOND,
        unit="us",
        lo=0,
        doc="How long to wait at least for stragglers when the digest suffices but is not complete. They get as long again as the others took, up to five "
        "times this.",
    )
    phase_timeout_us: int = setting(
        10 * SECOND,
        unit="us",
        lo=MILLISECOND,
        doc="Mutation and cleaning of an epoch restart after so long without progress. After each attempt that ends so, the next ones have twice as long.",
    )
    phase_timeout_max_us: int = setting(
        120 * SECOND,
        unit="us",
        lo=MILLISECOND,
        doc="How long that gets at most; `phase_timeout_us`, where that is longer.",
    )
    mutation_timeout_initial_us: int = setting(
        500 * MILLISECOND, unit="us", lo=MILLISECOND, doc="How long the first wave of a mutation waits."
    )
    mutation_timeout_max_us: int = setting(
        5 * SECOND, unit="us", lo=MILLISECOND, doc="How long any wave of a mutation waits at most."
    )
    mutations_in_flight_max: int = setting(
        256, unit="entries", lo=1, hi=65_536, doc="How many entries of an epoch recovery stores at the same time."
    )
    mutation_bytes_in_flight_max: int = setting(
        16 << 20,
        unit="bytes",
        lo=1,
        doc="How many bytes of entries recovery stores at the same time; one entry at least.",
    )
    clean_retry_initial_us: int = setting(
        500 * MILLISECOND, unit="us", lo=MILLISECOND, doc="First wait before an unanswered CLEAN is repeated."
    )
    clean_retry_max_us: int = setting(
        5 * SECOND, unit="us", lo=MILLISECOND, doc="Longest wait before an unanswered CLEAN is repeated."
    )
    epoch_store_retry_initial_us: int = setting(
        100 * MILLISECOND, unit="us", lo=MILLISECOND, doc="First wait before an epoch store operation is repeated."
    )
    epoch_store_retry_max_us: int = setting(
        10 * SECOND, unit="us", lo=MILLISECOND, doc="Longest wait before an epoch store operation is repeated."
    )
