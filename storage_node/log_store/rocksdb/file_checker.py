"""Checks the files of a store while it is in use: finds damaged ones, says so, and has partitions rewritten piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from logdevice_py.core.ids import ShardId
from logdevice_py.core.units import SECOND, Timestamp
from storage_node.log_store.interface import DamageFound
from storage_node.log_store.metrics import LogStoreMetrics
from storage_node.log_store.rocksdb.store import RocksLogStore
from storage_node.log_store.rocksdb.unhurried import Unhurried
from storage_node.log_store.settings import LogStoreSettings

_REWRITE_BYTES = 256 << 10
_REWRITE_PAUSE = 0.01
"""Seconds between two pieces of the work of replacing damaged files, each of which holds up the loop."""


class FileChecker:
    """The checks of one store. All methods belong to the loop's thread, which is also the one that writes."""

    def __init__(
        self,
        store: RocksLogStore,
        shard: ShardId,
        settings: LogStoreSettings,
        metrics: LogStoreMetrics,
        wall: Callable[[], Timestamp],
        report: Callable[[str], None],
        tell: Callable[[DamageFound], None],
    ) -> None:
        """
        Args:
            wall: the node's wall clock.
            report: gets sentences for the operator.
            tell: gets what the machines of the shard must know, never within a call of theirs.
        """
        self._store = store
        self._shard = shard
        self._settings = settings
        self._metrics = metrics
        self._wall = wall
        self._report = report
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._search: asyncio.Future[list[int]] | None = None
        self._rewriting = False
        self._told_of_errors = False
        self._looking: asyncio.Future[str] | None = None
        self._look_again_at = 0.0
        self._stopped = False
        self._unhurried = Unhurried(settings.file_check_share_percent)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="file-check")

    def look(self) -> None:
        """To be called about every second."""
        self._look_for_damage()
        self._look_at_files()

    def stop(self) -> None:
        """Begin with nothing any more."""
        self._stopped = True
        self._unhurried.stop()

    async def close(self) -> None:
        """Wait for what is under way in other threads."""
        self.stop()
        self._store.rewriter.stopping = True
        under_way = [each for each in (self._search, self._looking) if each is not None]
        await asyncio.gather(*under_way, return_exceptions=True)
        self._thread.shutdown()

    def _look_for_damage(self) -> None:
        store = self._store
        errors = store.background_errors()
        self._metrics.background_errors += errors
        if errors and not store.rewriter.suspects and self._search is None:
            if not self._told_of_errors:
                self._told_of_errors = True
                self._report(
                    f"files of the store in {store.directory} are damaged: compaction met what does not match its checksum; it is looked "
                    "for, and copies that cannot be read are fetched from other shards"
                )
            self._tell(DamageFound(self._shard, []))
            self._search = self._loop.run_in_executor(None, store.rewriter.find_damaged)
        if self._search is not None and self._search.done():
            search, self._search = self._search, None
            for partition in search.result():
                store.rewriter.suspect(partition)
        self._told_of_errors = self._told_of_errors and (bool(errors) or bool(store.rewriter.suspects))
        self._metrics.damaged_partitions = len(store.rewriter.suspects)
        if store.rewriter.suspects and not self._rewriting:
            self._rewriting = True
            self._rewrite()

    def _look_at_files(self) -> None:
        """The manifest and the write-ahead log are read when the store is opened: damage is to be found before, as long as all is in memory."""
        store = self._store
        if store.failed or (self._looking is not None and not self._looking.done()):
            return
        now = self._loop.time()
        if self._looking is None and now >= self._look_again_at:
            self._looking = self._loop.run_in_executor(self._thread, self._find_damage_in_use)
        elif self._looking is not None:
            looked, self._looking = self._looking, None
            self._look_again_at = now + self._settings.file_check_interval_us / SECOND
            found = looked.result()
            if found:
                self._metrics.files_rewritten += 1
                self._report(f"{found}: a bit flipped on the disk. It is replaced by what memory has, nothing is lost")
                flush = store.write_from_memory(self._wall())

                def rewrite() -> str:
                    flush()
                    return ""

                self._looking = self._loop.run_in_executor(None, rewrite)

    def _find_damage_in_use(self) -> str:
        """In the thread; BrokenOffError after `stop`."""
        self._unhurried.begin()
        return self._store.find_damage_in_use(self._unhurried.rest)

    def _rewrite(self) -> None:
        self._rewriting = False
        if self._stopped:
            return
        store = self._store
        more = store.rewrite_damaged(self._wall(), _REWRITE_BYTES)
        found, store.rewriter.found = store.rewriter.found, []
        said, store.rewriter.said = store.rewriter.said, []
        for text in said:
            self._report(text)
        if found:
            self._tell(DamageFound(self._shard, found))
        if more:
            self._rewriting = True
            self._loop.call_later(_REWRITE_PAUSE, self._rewrite)
