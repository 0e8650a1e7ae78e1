"""What a shard's store counts."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge


@dataclass(slots=True)
class LogStoreMetrics:
    """Of one shard, since it was opened."""

    batches: int = counter("Batches that were applied.", unit="batches")
    entries: int = counter("Copies of entries that were written.", unit="entries")
    bytes_written: int = counter("Bytes of batches that were applied.", unit="bytes")
    refused_overloaded: int = counter("Batches refused because the disk did not keep up.", unit="batches")
    refused_no_space: int = counter("Batches refused for lack of space.", unit="batches")
    failed_batches: int = counter("Batches answered FAILED.", unit="batches")
    syncs: int = counter("Syncs of the write-ahead log.", unit="syncs")
    sync_time: int = counter("Time spent in syncs.", unit="us")
    sync_time_max: int = gauge("The longest sync.", unit="us")
    sync_waiters_max: int = gauge("The most batches that waited for one sync.", unit="batches")
    write_time: int = counter("Time for which writes held up the event loop.", unit="us")
    write_time_max: int = gauge("The longest time for which the writes of one turn held up the event loop.", unit="us")
    reads: int = counter("Reads that were executed.", unit="reads")
    bytes_read: int = counter("Bytes of images that were read.", unit="bytes")
    read_time: int = counter("Time for which reads held up the event loop.", unit="us")
    read_time_max: int = gauge("The longest time for which one read held up the event loop.", unit="us")
    slow_reads: int = counter("Reads that had to wait for the disk.", unit="reads")
    warmed: int = counter("Reads whose range was first brought into the page cache.", unit="reads")
    corrupt_ranges: int = counter("Damaged ranges that reads met.", unit="ranges")
    background_errors: int = counter(
        "Times that RocksDB failed at compaction or at writing a file, because a file is damaged.", unit="errors"
    )
    files_rewritten: int = counter(
        "Times that a damaged manifest, write-ahead log or control part was replaced by what memory had.", unit="times"
    )
    damaged_partitions: int = gauge("Partitions whose files are damaged and not replaced yet.", unit="partitions")
    partitions: int = gauge("Time partitions that are in use.", unit="partitions")
    partitions_to_drop: int = gauge(
        "Partitions that no log needs any more and that still take space.", unit="partitions"
    )
    directory_rows: int = gauge(
        "Rows of the directory: logs, counted once for each partition they lie in.", unit="rows"
    )
    failed: int = gauge(
        "1 after a write or sync has failed: the shard answers nothing until it is opened again.", unit="flag"
    )
    trimming_for_space: int = gauge(
        "1 while the oldest partitions are trimmed because the disk runs full.", unit="flag"
    )
    disk_bytes: int = gauge("Size of the file system that the store is on, as measured last.", unit="bytes")
    available_bytes: int = gauge("What is free there, as measured last.", unit="bytes")
    no_space: int = gauge("1 while entries are refused for lack of space.", unit="flag")
    no_space_for_rebuilding: int = gauge(
        "1 while copies that rebuilding brings are refused for lack of space.", unit="flag"
    )


@dataclass(slots=True)
class RocksDBMetrics:
    """Of the database of one shard, as RocksDB tells it when it is asked."""

    table_file_bytes: int = gauge("Files of tables.", unit="bytes")
    blob_file_bytes: int = gauge("Files of large values.", unit="bytes")
    memtable_bytes: int = gauge("What is not in files yet.", unit="bytes")
    block_cache_bytes: int = gauge("Blocks of files that are held in memory.", unit="bytes")
    estimated_keys: int = gauge("About how many keys there are.", unit="keys")
    pending_compaction_bytes: int = gauge("About what compactions still have to write.", unit="bytes")
    running_compactions: int = gauge("Compactions at work.", unit="compactions")
    running_flushes: int = gauge("Memtables that are being written to files.", unit="flushes")
    delayed_write_rate: int = gauge("To so many bytes a second writes are slowed down; 0: they are not.", unit="rate")
    write_stopped: int = gauge("1 while RocksDB takes no writes.", unit="flag")
    families: int = gauge("Column families.", unit="families")
