"""Metrics of storage nodes."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge


@dataclass(slots=True)
class StorageMetrics:
    """Counted by the machines of one storage node, over all its shards."""

    stores_received: int = counter("STOREs that arrived.", unit="messages")
    stores_written: int = counter("Copies of entries written.", unit="entries")
    stored_bytes: int = counter("Images written.", unit="bytes")
    stores_preempted: int = counter("STOREs refused by a seal.", unit="messages")
    stores_refused: int = counter("STOREs refused for another reason.", unit="messages")
    soft_seals_written: int = counter("Soft seals written with the first STORE of an epoch.", unit="seals")
    write_batches: int = counter("Batches given to the disk.", unit="batches")
    write_bytes_in_flight: int = gauge("Given to the disk and not yet answered.", unit="bytes")
    reads_started: int = counter("Reads given to the disk.", unit="reads")
    seals: int = counter("Logs sealed by recovery.", unit="logs")
    seals_preempted: int = counter("SEALs refused because a higher seal holds.", unit="logs")
    digests: int = counter("DIGEST requests answered.", unit="messages")
    digest_bytes: int = counter("Images sent in digests.", unit="bytes")
    epochs_cleaned: int = counter("Epochs that recovery declared clean here.", unit="epochs")
    purges_started: int = counter("Purges of logs that missed a recovery.", unit="purges")
    purges_running: int = gauge("Purges at work or queued.", unit="purges")
    purge_epochs: int = counter("Epochs purged.", unit="epochs")
    purge_epochs_skipped: int = counter("Epochs left as they were because no peer knows how they ended.", unit="epochs")
    releases_applied: int = counter("Release pointers that moved.", unit="logs")
    releases_held: int = counter("RELEASEs held back until a purge ends.", unit="logs")
    read_streams: int = gauge("Read streams open.", unit="streams")
    read_streams_refused: int = counter(
        "STARTs refused because the connection or the shard has enough read streams.", unit="messages"
    )
    records_sent: int = counter("Entries sent to readers.", unit="entries")
    records_bytes_sent: int = counter("Images sent to readers.", unit="bytes")
    records_filtered: int = counter("Entries left to another shard of their copyset to send.", unit="entries")
    gaps_sent: int = counter("GAPs sent to readers.", unit="messages")
    gaps_trimmed: int = counter("Of these, for ranges that are trimmed.", unit="messages")
    gaps_damaged: int = counter("Of these, for ranges in which something cannot be read.", unit="messages")
    gaps_under_replicated: int = counter("Of these, for ranges of which entries may be lost here.", unit="messages")
    logs_behind: int = gauge(
        "Logs of shards that hold entries beyond their release pointer. Looked at every ten seconds.", unit="logs"
    )
    reads_throttled: int = counter(
        "Times that a read stream had to wait because its log, or its reader's principal, was over its quota.",
        unit="times",
    )
    rewinds: int = counter("Read streams rewound by a higher filter version.", unit="rewinds")
    entries_from_memory: int = counter("Entries that read streams and digests got from recent entries.", unit="entries")
    entries_from_disk: int = counter("Entries that read streams and digests read from disk.", unit="entries")
    hedges_served: int = counter("Read streams that asked for what another shard had not sent in time.", unit="streams")
    corrupt_ranges: int = counter("Damaged ranges that a read met.", unit="ranges")
    recent_entries_bytes: int = gauge("Images held as recent entries.", unit="bytes")
    damage_found: int = counter("Ranges that were found unreadable and noted for repair.", unit="ranges")
    copies_missing: int = counter(
        "Copies found missing here because other shards hold copies that name this one.", unit="entries"
    )
    copies_restored: int = counter("Copies that were damaged or missing and were repaired.", unit="entries")
    damaged_ranges: int = gauge("Ranges known to be damaged or missing and not repaired yet.", unit="ranges")
    dirty_logs: int = gauge(
        "Logs of shards that may have lost entries in a crash and have not got them back yet.", unit="logs"
    )
    dirty_copies_restored: int = counter("Copies that a crash had taken and that are repaired.", unit="entries")
    repairs: int = counter("Attempts to repair what is dirty, unreadable or missing of a log.", unit="logs")
    crash_losses: int = counter(
        "Times that entries of a log may have lost all their copies in crashes: nobody has more of them.", unit="logs"
    )
    copies_sent: int = counter("Copies sent to shards that lost theirs.", unit="entries")
    comparisons_answered: int = counter("Comparisons answered for the scrubbers of other shards.", unit="messages")
    scrub_bytes: int = counter("Images that the scrubber read and checked.", unit="bytes")
    scrub_ranges: int = counter("Ranges that the scrubber read and checked.", unit="ranges")
    scrub_mismatches: int = counter("Comparisons in which two shards did not hold the same.", unit="comparisons")
    scrub_passes: int = counter("Times that the scrubber went through a whole shard.", unit="passes")
    trims: int = counter("Trim points that moved.", unit="logs")
    look_ups: int = counter("Look-ups by time or key, and of sizes, that were begun.", unit="requests")
    look_ups_throttled: int = counter(
        "Look-ups, and questions for segments, that were refused because their principal was over its quota.",
        unit="requests",
    )
    look_up_reads: int = counter("Blocks that they read.", unit="reads")
    trims_from_others: int = counter("Trim points that moved because another shard's had.", unit="logs")
    space_trims: int = counter(
        "Trim points that were moved because the disk runs full, which trims records before their time.", unit="logs"
    )
    removed_logs: int = counter("Logs that were deleted because they are not in the cluster file.", unit="logs")
    retention_trims: int = counter(
        "Trim points that were moved because records are older than their log keeps them.", unit="logs"
    )


@dataclass(slots=True)
class ScrubberMetrics:
    """How much of one shard is verified, at the moment when it is asked. What earlier runs of the node have verified is not remembered."""

    verified: int = gauge(
        "1 when the scrubber has gone through the whole shard since the node was started; 0: not yet, and how old the oldest verification "
        "is cannot be told.",
        unit="flag",
    )
    verification_age: int = gauge(
        "Nothing that is released was verified longer ago: the time since the last whole pass began. Before a first pass has ended (`verified` "
        "is 0), the time since the shard was opened. It grows as well while the scrubber is turned off or the disk has failed.",
        unit="us",
    )
    uncompared_ranges: int = gauge(
        "Ranges of the last whole pass for which not every shard concerned answered: they were read, but copies may be missing.",
        unit="ranges",
    )
