"""Cuts batches into the groups that a store writes at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logdevice_py.core.status import Status
from storage_node.log_store.interface import WriteBatch


def write_in_groups(
    batches: Sequence[WriteBatch],
    bytes_max: int,
    refuses: Callable[[WriteBatch], bool],
    write: Callable[[Sequence[WriteBatch]], list[Status]],
) -> list[Status]:
    """Write batches in their order; a status for each.

    Args:
        bytes_max: of a group, unless one batch is larger.
        refuses: whether a batch gets NOSPC.
        write: a group, perhaps an empty one.
    """
    statuses: list[Status] = []
    group: list[WriteBatch] = []
    size = 0
    for batch in batches:
        if refuses(batch):
            statuses += write(group)
            group, size = [], 0
            statuses.append(Status.NOSPC)
            continue
        # a batch that looks at what is stored must find what stands before it
        if group and (size + batch.size > bytes_max or batch.looks):
            statuses += write(group)
            group, size = [], 0
        group.append(batch)
        size += batch.size
    return statuses + write(group)
