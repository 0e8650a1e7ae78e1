"""Settings of storage nodes."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Section ``[settings.storage]`` of the cluster file."""

    recent_entries_bytes_max: int = setting(
        64 << 20,
        unit="bytes",
        lo=0,
        sim=(0, 1 << 20),
        doc="Entries kept in memory per shard for tailing readers and digests.",
    )
    write_bytes_in_flight_max: int = setting(
        256 << 20,
        unit="bytes",
        lo=1 << 20,
        doc="STOREs of a shard are refused with OVERLOADED while this much waits for its disk.",
    )
    last_released_persist_interval_us: int = setting(
        1_000_000, unit="us", lo=1_000, doc="How often release pointers that moved are written, without sync."
    )
    reads_in_flight_max: int = setting(
        8, unit="reads", lo=1, hi=1024, sim=(1, 8), doc="Reads of a shard given to its disk at a time."
    )
    catchup_reads_in_flight_max: int = setting(
        6, unit="reads", lo=1, hi=1024, sim=(1, 6), doc="How many of the reads in flight may belong to read streams."
    )
    read_bytes_max: int = setting(
        256 << 10,
        unit="bytes",
        lo=1,
        hi=64 << 20,
        sim=(1, 256 << 10),
        doc="A read stream gives way to the others after this much.",
    )
    read_bytes_per_turn_max: int = setting(
        4 << 20,
        unit="bytes",
        lo=1,
        sim=(1, 4 << 20),
        doc="What the read streams of a shard send from memory in one turn of the event loop.",
    )
    records_message_bytes: int = setting(
        64 << 10,
        unit="bytes",
        lo=1,
        hi=16 << 20,
        sim=(1, 64 << 10),
        doc="Small entries are joined into one RECORDS up to this size.",
    )
    streams_per_peer_max: int = setting(
        20_000,
        unit="streams",
        lo=1,
        doc="Read streams of one connection per shard; more are answered AGAIN. A reader needs one for each log.",
    )
    streams_max: int = setting(
        200_000,
        unit="streams",
        lo=1,
        doc="Read streams of all clients per shard. A connection that has more than an eighth of as many as are left is answered AGAIN. Nodes take none of them.",
    )
    digest_bytes_max: int = setting(
        4 << 20,
        unit="bytes",
        lo=1,
        hi=64 << 20,
        sim=(1, 4 << 20),
        doc="Images in one DIGESTED, whatever the asker allows.",
    )
    digests_waiting_max: int = setting(
        1000, unit="requests", lo=1, doc="DIGESTs of a shard under way; more are answered OVERLOADED."
    )
    purges_max: int = setting(
        50, unit="logs", lo=1, sim=(1, 50), doc="Logs of a shard that are purged at a time, beside the cluster's own."
    )
    purge_retry_initial_us: int = setting(
        200_000, unit="us", lo=1_000, doc="First wait before a purge asks its peers again."
    )
    purge_retry_max_us: int = setting(
        10_000_000, unit="us", lo=1_000, doc="Longest wait before a purge asks its peers again."
    )
    retention_interval_us: int = setting(
        10_000_000,
        unit="us",
        lo=1_000,
        doc="How often it is looked for entries that are older than their log keeps them (its backlog), and whether the disk runs full.",
    )
    retention_margin_us: int = setting(
        60_000_000,
        unit="us",
        lo=0,
        doc="Entries are kept this much longer than their log's backlog, in case clocks disagree.",
    )
    retention_logs_per_turn: int = setting(
        1_000, unit="logs", lo=1, sim=(1, 1_000), doc="How many logs are looked at in one go when entries are expired."
    )
    look_ups_max: int = setting(
        1_000,
        unit="requests",
        lo=1,
        sim=(2, 1_000),
        doc="Look-ups by time or key, and of sizes, of a shard under way; more are answered OVERLOADED. Each peer has one of them, and no more than there are free places.",
    )
    trim_exchange_interval_us: int = setting(
        10_000_000,
        unit="us",
        lo=1_000,
        sim=(100_000, 10_000_000),
        doc="How often a shard tells the others of its trim points: those that moved, and some of all.",
    )
    removed_logs_interval_us: int = setting(
        600_000_000,
        unit="us",
        lo=1_000,
        doc="How often it is looked for logs that are not in the cluster file.",
    )
    removed_logs_grace_us: int = setting(
        4 * 86_400 * 1_000_000,
        unit="us",
        lo=1_000,
        doc="What is stored of a log is deleted when the log was not in the cluster file for this long, counted while the shard runs.",
    )
    scrub_bytes_per_s: int = setting(
        4 << 20,
        unit="bytes/s",
        lo=0,
        sim=(1 << 20, 16 << 20),
        doc="How much of a shard is read and compared with other shards in a second, to find damaged and missing copies; 0: none.",
    )
    scrub_interval_us: int = setting(
        3_600_000_000,
        unit="us",
        lo=1_000,
        sim=(500_000, 20_000_000),
        doc="A shard is gone through again after this time at the earliest.",
    )
    scrub_range_bytes: int = setting(
        256 << 10,
        unit="bytes",
        lo=1,
        hi=16 << 20,
        sim=(1, 256 << 10),
        doc="How much is read and compared at a time.",
    )
    repair_logs_max: int = setting(8, unit="logs", lo=1, sim=(1, 8), doc="Logs of a shard that are repaired at a time.")
    repair_bytes_per_s: int = setting(
        32 << 20,
        unit="bytes/s",
        lo=4096,
        sim=(64 << 10, 32 << 20),
        doc="How much a shard fetches from others in a second to repair dirty ranges, and in a metadata resync.",
    )
    repair_retry_max_us: int = setting(
        30_000_000,
        unit="us",
        lo=1_000,
        sim=(1_000_000, 10_000_000),
        doc="Longest wait between attempts to repair a log.",
    )
    consolidate_esns_max: int = setting(
        1000,
        unit="ESNs",
        lo=0,
        doc="Lower-ranking copies of a clean epoch are deleted when recovery wrote at most this many ESNs.",
    )
