"""The ends of recovered epochs, of which a shard knows without having the bridge.

Recovery stores the bridge of an epoch with as many copies as a record has, and then tells every shard of the mutation set how the epoch ended (CLEAN).
Each of them shows a bridge to readers and to later recoveries, whether it has a copy or not. So the end of an epoch is known for as long as one of
these shards is there, and not only for as long as one that has a copy.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from logdevice_py.core.entry import EntryFlags, EntryHeader, encode_entry
from logdevice_py.core.epoch_summary import EpochSummary
from logdevice_py.core.extensions import encode_summary
from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import ESN_MAX, Lsn, compose_lsn, epoch_of
from logdevice_py.core.marks import hit
from storage_node.log_state import LogState
from storage_node.stored_metadata import RecoveredEpoch

ENDS_MAX: Final = 250
"""Ends at a time, which take about 3 ms."""
END_COST: Final = 12 * 1024
"""What an end costs of a turn, in bytes of images: some 12 us."""
_FLAGS: Final = int(EntryFlags.WRITTEN_BY_RECOVERY | EntryFlags.HOLE | EntryFlags.BRIDGE)
_Entry = tuple[Lsn, bytes]


def known_ends(state: LogState, shard: ShardId, first: Lsn, last: Lsn) -> tuple[list[_Entry], Lsn]:
    """The ends of epochs in a range that are known, ascending, as bridges that this shard alone has; and up to where these are all."""
    ends: list[_Entry] = []
    if state.recovered is None:
        return ends, last
    for epoch, ended in state.recovered.between(epoch_of(first), epoch_of(last)):
        lsn = compose_lsn(epoch, ended.last_digest_esn)
        if not _is_bridge(ended, lsn) or not first <= lsn <= last:
            continue
        if len(ends) == ENDS_MAX:
            hit("epoch_ends_go_on")
            return ends, ends[-1][0]
        header = EntryHeader(state.log, lsn, ended.tail_timestamp, ended.seal_epoch, (shard,), ended.lng, 0, _FLAGS)
        if ended.summary:
            header.extensions = encode_summary(EpochSummary.decode(ended.summary))
        ends.append((lsn, encode_entry(header, b"")))
    return ends, last


def _is_bridge(ended: RecoveredEpoch, lsn: Lsn) -> bool:
    """Whether recovery left a bridge at the last ESN that it looked at. It leaves none when too many shards had lost their data, or where an entry, or what
    cannot be read, has the last ESN that there is."""
    return ended.authoritative and ended.tail_lsn < lsn and ended.last_digest_esn < ESN_MAX


def with_ends(
    entries: Iterable[_Entry], ends: list[_Entry], unreadable: Sequence[tuple[Lsn, Lsn]] = ()
) -> Iterable[_Entry]:
    """Stored entries and the ends of epochs among them, ascending. What is stored where an epoch ends, or may be in an unreadable range, counts."""
    return _merged(entries, ends, unreadable) if ends else entries


def _merged(entries: Iterable[_Entry], ends: list[_Entry], unreadable: Sequence[tuple[Lsn, Lsn]]) -> Iterator[_Entry]:
    rest = [end for end in ends if not any(begin <= end[0] <= until for begin, until in unreadable)]
    told = 0
    for lsn, image in heapq.merge(entries, rest, key=itemgetter(0)):
        if lsn != told:  # of one LSN what is stored comes first
            yield lsn, image
        told = lsn
