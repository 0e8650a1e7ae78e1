"""Runs a search of a store to its end."""

from __future__ import annotations

from typing import Any

from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import Timestamp
from storage_node.log_store.interface import LogSpan, ReadDirectory, ReadShard
from storage_node.log_store.search import BLOCK_BYTES, BLOCK_ENTRIES, Search, SearchResult, search_key, search_time

_SHARD = ShardId(0)


def spans_of(store: Any, log: LogId, first: Lsn, last: Lsn) -> list[LogSpan]:
    """Where a range lies."""
    found: list[LogSpan] = store.read_directory(ReadDirectory(1, _SHARD, [], (log, first, last))).spans
    return found


def run(store: Any, log: LogId, search: Search) -> SearchResult:
    """Read what the search asks for."""
    result = None
    while True:
        try:
            low, high = next(search) if result is None else search.send(result)
        except StopIteration as done:
            found: SearchResult = done.value
            return found
        result = store.read(ReadShard(1, _SHARD, log, low, high, BLOCK_BYTES, BLOCK_ENTRIES))


def find_time(store: Any, log: LogId, timestamp: int, first: Lsn, last: Lsn) -> SearchResult:
    """Where [first, last] reaches a timestamp."""
    return run(store, log, search_time(spans_of(store, log, first, last), Timestamp(timestamp), first, last))


def find_key(store: Any, log: LogId, key: bytes, first: Lsn, last: Lsn) -> SearchResult:
    """Where [first, last] reaches a key."""
    return run(store, log, search_key(spans_of(store, log, first, last), key, first, last))
