"""Rows of tables of index logs: what their manifests say, which this process reads and never changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from client.client import Client
from client.replica.replica import Replica
from indexlog.manifest.commands import token_of
from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind, RetiredPart
from indexlog.manifest.state import MANIFEST, ManifestState
from indexlog.places import commands_group, snapshots_group
from ldquery.own_client import OpensClient
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_OLDEST, epoch_of
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.index_logs import IndexesRow, IndexFilesRow, IndexJobsRow, IndexLogsRow, RawLogsRow


class IndexLogRows:
    """Asks as the client that it is given. Everything on one event loop."""

    def __init__(self, client: OpensClient) -> None:
        self._client = client
        self._manifests: dict[str, Replica[ManifestState]] = {}

    async def close(self) -> None:
        """Stop reading the manifests; before the client is closed."""
        for manifest in self._manifests.values():
            await manifest.close()

    async def rows(self, table: str, index_logs: Iterable[str], log: LogId | None, seconds: float) -> list[Any]:
        """Rows of one of the tables, as they are at this moment.

        Args:
            table: its name.
            index_logs: paths in the log tree.
            log: only what belongs to this log, where the table has logs; None: everything.
            seconds: until answers have to be there.

        Raises:
            LogDeviceError: TIMEDOUT, which says what is waited for.
        """
        found: list[Any] = []
        for path in index_logs:
            try:
                state = (await self._manifest(path, seconds)).state
                if not state.store:  # nobody initialized it
                    continue
                if table == "raw_logs":
                    found += await self._raw_logs(path, state, log, seconds)
                else:
                    found += _FILL[table](path, state)
            except LogDeviceError as error:
                if error.status is Status.NOTFOUND:  # it was removed since
                    continue
                raise LogDeviceError(error.status, f"index log {path}: {error.detail}") from None
        return found

    async def _manifest(self, path: str, seconds: float) -> Replica[ManifestState]:
        manifest = self._manifests.get(path)
        if manifest is None:
            client = await self._client.opened()
            # the client may not have heard of them yet
            commands, snapshots = [
                (await client.get_log_group(group(path), timeout=seconds)).logs[0]
                for group in (commands_group, snapshots_group)
            ]
            manifest = Replica(client, MANIFEST, commands, snapshots, snapshot_every=0)
            await manifest.__aenter__()
            self._manifests[path] = manifest
        await manifest.current(timeout=seconds)
        return manifest

    async def _raw_logs(self, path: str, state: ManifestState, log: LogId | None, seconds: float) -> list[RawLogsRow]:
        client = await self._client.opened()
        wanted = [
            (each.number, raw, end)
            for each in state.generations
            for raw, end in zip(each.logs, each.ends or [None] * len(each.logs), strict=True)
            if log in (None, raw)
        ]
        dealt = dict(state.dealt)
        return list(
            await asyncio.gather(
                *(_raw_log(client, path, number, raw, end, dealt[raw], seconds) for number, raw, end in wanted)
            )
        )


async def _raw_log(
    client: Client, path: str, generation: int, log: int, end: int | None, dealt: int, seconds: float
) -> RawLogsRow:
    tail = int(await client.tail_lsn(log, timeout=seconds))
    last = tail if end is None else end
    since = await _oldest(client, log, dealt, last, seconds) if dealt < last else None
    first = max(dealt, LSN_OLDEST - 1)
    return RawLogsRow(
        index_log=path,
        generation=generation,
        log_id=log,
        dealt_lsn=dealt,
        tail_lsn=tail,
        end_lsn=end,
        is_dealt=int(since is None),
        waiting=0 if since is None else last - dealt if epoch_of(first) == epoch_of(last) else None,
        waiting_since=since,
    )


async def _oldest(client: Client, log: int, dealt: int, last: int, seconds: float) -> int | None:
    """When the first record that is not dealt was sequenced."""
    async with client.reader(log, max(dealt + 1, LSN_OLDEST), LSN(last)) as reader:
        while batch := await reader.read(1, timeout=seconds):
            for time in batch.timestamps:
                return time
    return None


def _index_logs_rows(path: str, state: ManifestState) -> Iterator[IndexLogsRow]:
    parts = [part for of_index in state.indexes.values() for part in of_index]
    yield IndexLogsRow(
        index_log=path,
        store=state.store,
        state=state.serial,
        indexes=len(state.indexes),
        parts=len(parts),
        records=sum(part.records for part in parts),
        bytes=sum(part.bytes for part in parts),
        retired=len(state.retired),
        forgotten=state.forgotten,
        jobs=len(state.jobs),
        drops=state.drops,
        unreadable=state.unreadable,
    )


def _indexes_rows(path: str, state: ManifestState) -> Iterator[IndexesRow]:
    for index, parts in sorted(state.indexes.items()):
        kinds = Counter(part.kind for part in parts)
        yield IndexesRow(
            index_log=path,
            index_code=index,
            unsorted=kinds[PartKind.UNSORTED],
            sorted=kinds[PartKind.SORTED],
            optimized=kinds[PartKind.OPTIMIZED],
            records=sum(part.records for part in parts),
            bytes=sum(part.bytes for part in parts),
        )


def _files_rows(path: str, state: ManifestState) -> Iterator[IndexFilesRow]:
    for index, parts in sorted(state.indexes.items()):
        for part in parts:
            yield _file_row(path, index, part, None)
    for each in state.retired:
        yield _file_row(path, each.index, each.part, each)


def _file_row(path: str, index: str, part: Part, retired: RetiredPart | None) -> IndexFilesRow:
    return IndexFilesRow(
        index_log=path,
        index_code=index,
        kind=part.kind.name.lower(),
        name=part.name,
        path=part.path,
        first_row=None if part.place == WHOLE_FILE else part.place,
        records=part.records,
        bytes=part.bytes,
        timestamp=part.timestamp * 1000,
        made=part.made,
        since=part.since,
        until=part.until,
        retired=None if retired is None else retired.retired,
        retired_at=None if retired is None else retired.time,
    )


def _jobs_rows(path: str, state: ManifestState) -> Iterator[IndexJobsRow]:
    made = Counter(token_of(part.path) for parts in state.indexes.values() for part in parts)
    for token, began in sorted(state.jobs.items()):
        yield IndexJobsRow(path, token, began, made[token])


_FILL: Final[dict[str, Callable[[str, ManifestState], Iterator[Any]]]] = {
    "index_logs": _index_logs_rows,
    "indexes": _indexes_rows,
    "index_files": _files_rows,
    "index_jobs": _jobs_rows,
}
