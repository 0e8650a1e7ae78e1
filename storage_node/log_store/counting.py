"""How many bytes a shard holds of a log: of each LSN the largest of its copies counts, and counts once, whatever was stored again."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from logdevice_py.core.entry import lacks_body, whole_size
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from storage_node.log_store import keys
from storage_node.log_store.directory import Directory
from storage_node.log_store.interface import PER_ENTRY_BYTES, WriteBatch
from storage_node.log_store.partitions import Partitions


def bytes_of(copies: Iterable[tuple[Lsn, bytes]]) -> int:
    """Of rows (LSN, image, or header of a body that lies apart) by ascending LSN."""
    return bytes_of_sizes((lsn, whole_size(row) if lacks_body(row) else len(row)) for lsn, row in copies)


def bytes_of_sizes(copies: Iterable[tuple[Lsn, int]]) -> int:
    """Of copies (LSN, bytes of the whole image) by ascending LSN."""
    total = largest = 0
    at = Lsn(-1)
    for lsn, size in copies:
        if lsn != at:
            total += largest
            at, largest = lsn, 0
        largest = max(largest, size + PER_ENTRY_BYTES)
    return total + largest


def weigh(directory: Directory, partitions: Partitions) -> None:
    """How much the partitions hold; to be called when the sizes in the directory are right, and every log has the rows that it is to have."""
    for _, rows in directory.rows():
        for partition, size in rows.sizes():
            if partition != keys.UNPARTITIONED:
                partitions[partition].size += size
    for each in partitions:
        directory.expect(each.number)


def uncount_repeated(
    directory: Directory, batches: Iterable[WriteBatch], stored: Callable[[int, LogId, Lsn], int]
) -> None:
    """Take back what a group counted of copies whose LSN has one already, in the store or in the group; to be called before the group is written.

    Args:
        directory: it has noted every entry of the group.
        batches: the group.
        stored: the bytes that count in a partition of an LSN of a log.
    """
    repeated = directory.repeated
    if not repeated:
        return
    sizes: dict[tuple[LogId, Lsn], list[int]] = {each: [] for each in repeated}
    for batch in batches:
        for log, lsn, _, _, image in batch.entries:
            found = sizes.get((log, lsn))
            if found is not None:
                found.append(len(image) + PER_ENTRY_BYTES)
    for (log, lsn), partition in repeated.items():
        counted = sizes[log, lsn]
        held = stored(partition, log, lsn)
        directory.count(log, partition, max(held, *counted) - held - sum(counted))
    repeated.clear()
