"""Settings and metrics of rebuilding."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildingSettings:
    """Section ``[settings.rebuilding]`` of the cluster file."""

    enabled: bool = setting(
        True,
        unit="flag",
        doc="Keep an event log, and re-replicate what lost or drained shards held. The same in all nodes' files.",
    )
    self_initiated_grace_period_us: int = setting(
        1_200_000_000,
        unit="us",
        lo=0,
        doc="A shard whose node was dead for so long, or says for so long that the shard's disk failed, is taken for lost, and rebuilding begins; "
        "0: only by command.",
    )
    max_lost_percent: int = setting(
        45,
        unit="percent",
        lo=0,
        hi=100,
        doc="No further shard is taken for lost by itself while more than this share of those that are not rebuilt is gone: then something else is wrong.",
    )
    unrecoverable_after_us: int = setting(
        0,
        unit="us",
        lo=0,
        doc="Nobody waits any more for the data of a lost shard that was gone for so long, even where it had the only copies; "
        "0: only by command.",
    )
    rate_limit_bytes: int = setting(
        32 << 20, unit="bytes", lo=1 << 10, doc="What the donor of a shard re-replicates in a second at most."
    )
    rate_min_bytes: int = setting(
        1 << 20,
        unit="bytes",
        lo=1 << 10,
        doc="What it re-replicates in a second at least, however long appends take, so that rebuilding comes to an end.",
    )
    append_tolerance_percent: int = setting(
        120,
        unit="percent",
        lo=101,
        hi=10_000,
        sim=(101, 400),
        doc="Donors slow down where the slowest tenth of appends takes longer than this to reach the disk, in percent of what it takes "
        "while nothing is rebuilt. The slowest hundredth that clients see grows by more: it waits for the slowest of several shards, "
        "and for the loops of nodes.",
    )
    chunk_bytes: int = setting(
        1 << 20,
        unit="bytes",
        lo=1,
        hi=8 << 20,
        sim=(1, 1 << 20),
        doc="A donor reads, and re-replicates, so much of a log at a time at most.",
    )
    busy_chunk_bytes: int = setting(
        64 << 10,
        unit="bytes",
        lo=1,
        hi=8 << 20,
        sim=(1, 128 << 10),
        doc="So much at a time where there are appends: storing it holds the event loop of a node for about half a millisecond.",
    )
    logs_in_flight: int = setting(
        8, unit="logs", lo=1, hi=1_000, sim=(1, 8), doc="Logs that a donor works on at a time."
    )
    store_timeout_us: int = setting(
        10_000_000, unit="us", lo=1_000, doc="A copy that is not acknowledged within this time is stored elsewhere."
    )
    retry_us_min: int = setting(
        100_000, unit="us", lo=1_000, doc="First pause before something that failed is tried again."
    )
    retry_us_max: int = setting(5_000_000, unit="us", lo=1_000, doc="Longest pause before it is tried again.")
    tries_max: int = setting(
        20,
        unit="tries",
        lo=1,
        doc="How often a donor asks for an epoch without the lost shard, where as far as it sees the log may never get one, for the nodesets "
        "of a log, or for a place for a record, before it goes on without and says so.",
    )
    supervision_us: int = setting(
        1_000_000, unit="us", lo=1_000, doc="How often it is looked whether a shard must be rebuilt or has come back."
    )
    snapshot_events: int = setting(
        1_000, unit="events", lo=1, sim=(2, 20), doc="A snapshot of the event log is written after so many events."
    )


@dataclass(slots=True)
class RebuildingMetrics:
    """Counted by one node."""

    events_applied: int = counter("Events of the event log applied.", unit="events")
    events_written: int = counter("Events appended to the event log.", unit="events")
    event_log_losses: int = counter("Gaps of the event log that are losses.", unit="gaps")
    snapshots_written: int = counter("Snapshots of the event log written.", unit="snapshots")
    shards_rebuilding: int = gauge("Shards that are lost or drained and not rebuilt yet.", unit="shards")
    logs_to_rebuild: int = gauge("Logs that the donors of this node still have to look through.", unit="logs")
    rate_bytes: int = gauge(
        "What the donors of this node that have work may re-replicate in a second at present.", unit="bytes"
    )
    append_percent: int = gauge(
        "How long the slowest tenth of appends takes to reach the disk here, in percent of what it takes while nothing is rebuilt; 0: there "
        "are none. The greatest of the node's shards.",
        unit="percent",
    )
    records_rebuilt: int = counter("Entries of which copies were re-replicated, by this node as donor.", unit="entries")
    bytes_rebuilt: int = counter("Images sent to be re-replicated.", unit="bytes")
    records_amended: int = counter("Copies that were given another copyset, by this node as donor.", unit="entries")
    amends_skipped: int = counter("Copies that kept their copyset because their shard did not answer.", unit="entries")
    records_unplaced: int = counter(
        "Entries that stay short of copies because too few shards of their nodeset are left.", unit="entries"
    )
    copies_taken: int = counter("Copies stored here for donors.", unit="entries")
    bytes_taken: int = counter("Images stored here for donors.", unit="bytes")
