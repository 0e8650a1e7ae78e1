"""How many bytes a range of a log holds: the cluster's own figures. They decide how many partitions there are, and where they are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from client.client import Client
from client.spark.ranges import Segment
from client.spark.survey import Stretch, sample
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_OLDEST
from logdevice_py.core.status import LogDeviceError

_ASKED_APART_US: Final = 1_800_000_000
"""Shards know sizes by time partition, of 15 minutes or more, and take bytes as evenly spread within one. Of less time than this the sizes of entries that were
read say more."""


async def size_between(client: Client, log: LogId, lo: int, hi: int, tail: int, timeout: float) -> int | None:
    """The bytes of [lo, hi]; `timeout` in seconds. 0: there is no record. None: the shards do not say."""
    try:
        since = until = None
        if lo > LSN_OLDEST:
            first = await sample(client, log, lo, hi)
            if first is None:
                return 0
            since = first.timestamp
        if hi < tail:
            behind = await sample(client, log, hi + 1, tail)
            until = None if behind is None else behind.timestamp - 1
        found = await client.data_size(log, since, until, timeout=timeout)
        # there is a record: what shards estimate by time comes to nothing where a log was written within moments
        return None if not found and since is not None else found
    except LogDeviceError:
        return None  # what does not answer here is told by who reads


async def sized(
    client: Client, log: LogId, stretches: Sequence[Stretch], whole: int | None, timeout: float
) -> tuple[Segment, ...]:
    """Stretches of a range with the bytes that the cluster says they have.

    Args:
        client: an open client.
        log: whose they are.
        stretches: ascending, as a survey estimates them.
        whole: the bytes of the range; None: not known, so the estimates hold.
        timeout: of a question, seconds.
    """
    if whole is None or not stretches:
        return tuple(each.segment for each in stretches)
    segments: list[Segment] = []
    for group in _apart(stretches):
        size = None
        if len(group) < len(stretches):
            following = stretches[len(segments) + len(group) :]
            until = following[0].since - 1 if following else None
            try:
                size = await client.data_size(log, group[0].since, until, timeout=timeout)
            except LogDeviceError:
                segments = [each.segment for each in stretches]
                break
        segments += _scaled([each.segment for each in group], size)
    return _scaled(segments, whole)


def _apart(stretches: Sequence[Stretch]) -> list[list[Stretch]]:
    """Neighbours that the cluster is asked for together."""
    groups: list[list[Stretch]] = []
    for each in stretches:
        if groups and each.since - groups[-1][0].since < _ASKED_APART_US:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups


def _scaled(segments: Sequence[Segment], size: float | None) -> tuple[Segment, ...]:
    """With another sum."""
    total = sum(each.bytes for each in segments)
    if size is None or not total:
        return tuple(segments)
    return tuple(replace(each, bytes=each.bytes * size / total) for each in segments)
