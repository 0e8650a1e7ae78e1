"""Settings of a shard's store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from logdevice_py.core.declare import setting
from logdevice_py.core.units import SECOND

STORE_KINDS: Final = ("rocksdb", "extents")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStoreSettings:
    """How a shard's store uses disk, memory and threads."""

    store: str = setting(
        "rocksdb",
        unit="text",
        doc="What the store of a shard that has none yet is made as: rocksdb or extents. A store that is there stays what it is; to change it, drain the node, "
        "empty its directory and let it join again.",
    )
    extent_bytes: int = setting(
        64 << 20,
        unit="bytes",
        lo=64 << 10,
        hi=1 << 32,
        doc="Size of an extent of a store in extents. The one in use and one or two that follow take that space before there is anything in them.",
    )
    extent_rows_max: int = setting(
        100_000,
        unit="copies",
        lo=16,
        hi=10_000_000,
        doc="An extent is also closed when it holds so many copies: rows on those that are not closed, or wait for their index, are in memory.",
    )
    checkpoint_bytes: int = setting(
        64 << 20,
        unit="bytes",
        lo=1 << 10,
        doc="A store in extents writes what lives long anew when so much was written since, or four times what lives long: after a kill at most about so "
        "much is read again.",
    )
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
        doc="Entries are refused with NOSPC below this much free space, or below free_space_min_percent where that is less. Room for what waits in "
        "memory to be written to files is kept besides: twice wal_bytes_max, at most 15 percent of the file system. What recovery stores, and "
        "metadata logs and the event log, are refused below half of it. 0: never refused.",
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
    free_space_rebuilding_percent: int = setting(
        200,
        unit="percent",
        lo=100,
        hi=1000,
        doc="Copies that rebuilding brings are refused below this multiple of the limit, so that they leave room for appends, and are taken again "
        "at free_space_resume_percent of that.",
    )
    free_space_check_bytes: int = setting(
        16 << 20, unit="bytes", lo=4096, doc="Free space is measured after this much was written."
    )
    space_retention_percent: int = setting(
        0,
        unit="percent",
        lo=0,
        hi=90,
        doc="When less than this share of the file system is free, the oldest partitions are trimmed, of all logs, whatever their backlog; 0: never. "
        "It should be well above free_space_rebuilding_percent of free_space_min_percent, so that no entry is refused meanwhile.",
    )
    upkeep_interval_us: int = setting(
        1_000_000,
        unit="us",
        lo=1_000,
        hi=60_000_000,
        doc="How often free space is measured and partitions are looked after: begun when due, dropped when no log needs them.",
    )
    file_check_interval_us: int = setting(
        60_000_000,
        unit="us",
        lo=10_000,
        doc="Between two times that the manifest and the write-ahead log, or the control parts that the next opening would read, are compared with their checksums.",
    )
    file_check_share_percent: int = setting(
        5,
        unit="percent",
        lo=1,
        hi=100,
        doc="How much of its time a thread may spend on that: it takes from the event loop, which appends feel.",
    )
    memtable_bytes: int = setting(
        64 << 20, unit="bytes", lo=64 << 10, doc="Size at which a memtable of entries is written to a file."
    )
    memtables_max: int = setting(
        6, unit="memtables", lo=2, hi=64, doc="Memtables of one partition in memory before writes are refused."
    )
    memtables_bytes_max: int = setting(
        512 << 20,
        unit="bytes",
        lo=1 << 20,
        doc="Memtables of all partitions together: beyond it, those are written to files that hold the oldest entries.",
    )
    open_files_max: int = setting(
        2_000,
        unit="files",
        lo=16,
        hi=1_000_000,
        doc="Files of partitions that are kept open; others are opened when they are read.",
    )
    partition_duration_us: int = setting(
        900 * SECOND,
        unit="us",
        lo=1_000,
        doc="A time partition is closed and the next one begun when it is this old and something was written to it.",
    )
    partition_bytes: int = setting(
        4 << 30,
        unit="bytes",
        lo=1 << 10,
        doc="The next partition is also begun when this much was written to the latest.",
    )
    partitions_soft_max: int = setting(
        200,
        unit="partitions",
        lo=1,
        hi=100_000,
        doc="With this many partitions, each lasts three times as long and as large: RocksDB takes longer to begin and drop one the more there are.",
    )
    partitions_max: int = setting(
        500,
        unit="partitions",
        lo=2,
        hi=100_000,
        doc="Beyond this many partitions, each lasts three times the usual longer than the one before, so that their number hardly grows any more.",
    )
    partition_drop_share_percent: int = setting(
        5,
        unit="percent",
        lo=1,
        hi=100,
        doc="Dropping partitions holds up the event loop for at most this share of the time: a few hundredths of a second each.",
    )
    partition_compact_percent: int = setting(
        50,
        unit="percent",
        lo=1,
        hi=100,
        doc="A partition that some logs still need is rewritten when this share of its bytes belongs to logs that were trimmed; in a store in extents, when this "
        "share was trimmed, of whatever logs.",
    )
    rewrite_bytes_per_second: int = setting(
        16 << 20,
        unit="bytes",
        lo=0,
        doc="A store in extents takes no more than about this out of extents of which much was trimmed, in a second, each copy counted as 1 KiB more than it is. "
        "0: never; their space then comes back with their partitions.",
    )
    block_cache_bytes: int = setting(
        64 << 20,
        unit="bytes",
        lo=0,
        doc="Memory for blocks of files that were read; of a store in extents, for what was read of its tables.",
    )
    blob_bytes_min: int = setting(
        4096,
        unit="bytes",
        lo=0,
        doc="Of entries of this size or more, header and body lie apart, and the body in a blob file, which compaction leaves alone.",
    )
    wal_bytes_max: int = setting(
        512 << 20, unit="bytes", lo=1 << 20, doc="Size of the write-ahead log at which memtables are written to files."
    )
    direct_io: bool = setting(
        True,
        unit="flag",
        doc="Files of entries are written past the page cache, where the file system can: appends wait less while a memtable is written to a "
        "file. Readers far behind the tail then fetch what was just written from the disk.",
    )
    directory_save_bytes: int = setting(
        64 << 10,
        unit="bytes",
        lo=4096,
        doc="A log's row in the directory is saved after this much was written for the log, and when the shard closes. After a kill what was "
        "written since is counted again, entry by entry.",
    )
    async_sync_interval_us: int = setting(
        1_000_000,
        unit="us",
        lo=1_000,
        doc="Writes without sync are synced in the background after this time at the latest.",
    )
    kernel_sync: bool = setting(
        True,
        unit="flag",
        doc="Files of a store in extents are synced by the kernel beside the event loop, where it can (Linux), else by a thread.",
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
    turn_read_us_max: int = setting(
        1_000,
        unit="us",
        lo=100,
        doc="After so long a read ends with what it has, one entry at least, and the other reads wait for the next turn: small entries take their time, however few bytes they are.",
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
        doc="How much is brought into the page cache ahead of a reader of cold data, no more than 2 MiB or 32 times what it asks for; 0 turns it off.",
    )
    cold_readers_max: int = setting(
        2,
        unit="threads",
        lo=0,
        hi=64,
        doc="Threads of a store in extents that bring into the page cache what reads need and it does not have. 0: such reads hold up the event loop.",
    )

    def __post_init__(self) -> None:
        """Refuse what is no kind of store (ValueError)."""
        if self.store not in STORE_KINDS:
            raise ValueError(f"store: {self.store!r} is no kind of store; there are {', '.join(STORE_KINDS)}")
