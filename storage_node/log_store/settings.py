"""Settings of a shard's store."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStoreSettings:
    """How a shard's store uses disk, memory and threads."""

    write_group_bytes_max: int = setting(
        4 << 20,
        unit="bytes",
        lo=64 << 10,
        hi=64 << 20,
        doc="Batches are handed to RocksDB in groups up to this size; each group holds up the event loop while it is written.",
    )
    free_space_min: int = setting(
        1 << 30,
        unit="bytes",
        lo=0,
        doc="Entries are refused with NOSPC below this much free space, or below free_space_min_percent where that is less.",
    )
    free_space_min_percent: int = setting(
        5, unit="percent", lo=0, hi=90, doc="Entries are refused with NOSPC below this share of the file system."
    )
    free_space_resume_percent: int = setting(
        120,
        unit="percent",
        lo=100,
        hi=1000,
        doc="Entries are taken again when free space reaches this multiple of the limit.",
    )
    free_space_check_bytes: int = setting(
        16 << 20, unit="bytes", lo=4096, doc="Free space is measured after this much was written."
    )
    free_space_check_interval_us: int = setting(
        1_000_000, unit="us", lo=1_000, doc="Free space is also measured this often."
    )
    memtable_bytes: int = setting(
        64 << 20, unit="bytes", lo=64 << 10, doc="Size at which a memtable of entries is written to a file."
    )
    memtables_max: int = setting(6, unit="memtables", lo=2, hi=64, doc="Memtables in memory before writes are refused.")
    block_cache_bytes: int = setting(64 << 20, unit="bytes", lo=0, doc="Memory for blocks of files that were read.")
    blob_bytes_min: int = setting(
        4096,
        unit="bytes",
        lo=0,
        doc="Entries of this size or more are kept in blob files, which compaction leaves alone.",
    )
    wal_bytes_max: int = setting(
        512 << 20, unit="bytes", lo=1 << 20, doc="Size of the write-ahead log at which memtables are written to files."
    )
    directory_save_bytes: int = setting(
        16 << 20,
        unit="bytes",
        lo=4096,
        doc="A log's row in the directory is saved after this much was written for the log, and when the shard closes.",
    )
    async_sync_interval_us: int = setting(
        1_000_000,
        unit="us",
        lo=1_000,
        doc="Writes without sync are synced in the background after this time at the latest.",
    )
    sync_delay_us: int = setting(
        0, unit="us", lo=0, hi=10_000_000, doc="Every sync takes this much longer: to see how slower disks would do."
    )
    disk_read_bytes_max: int = setting(
        256 << 10,
        unit="bytes",
        lo=4096,
        hi=64 << 20,
        doc="A read answers with no more than this (one entry at least): it holds up the event loop.",
    )
    turn_read_bytes_max: int = setting(
        512 << 10,
        unit="bytes",
        lo=4096,
        doc="After this much was read in a turn, the other reads wait for the next one.",
    )
    slow_read_us: int = setting(
        5_000,
        unit="us",
        lo=100,
        doc="A read that takes longer had to wait for the disk: what follows it is first brought into the page cache by another process.",
    )
    warm_bytes: int = setting(
        16 << 20,
        unit="bytes",
        lo=0,
        doc="How much is brought into the page cache ahead of a slow reader; 0 turns it off.",
    )
