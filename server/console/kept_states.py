"""What the console shows of states that are kept in logs: streams, index logs, maintenances. The worker reads them as a client while somebody looks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from client.guards import Position
from client.node_tables import NodeAsker, as_dicts
from client.read.items import Record
from indexlog.places import index_logs_of
from ldquery.index_logs import IndexLogRows
from ldquery.maintenance.duties import sees_to
from ldquery.namespaces import NamespaceRows, NamespaceUpkeep
from logdevice_py.core.ids import LogId, format_shard
from logdevice_py.core.lsn import LSN, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING
from server.console.questions import SECONDS, list_logs, shown_rows
from streams.own_logs import namespaces_of

if TYPE_CHECKING:
    from client.client import Client
    from client.maintenance.state import Maintenance
    from ldquery.maintenance.manager import MaintenanceLog

ROWS_MAX: Final = 5000
"""Of one kind in an answer."""
LAGS_MAX: Final = 20
"""Subscriptions of a stream of which the oldest record that waits is looked at."""
COPIES_MAX: Final = 1000
"""Cold copies of a stream that are listed, the last ones."""
_NAMED: Final = 5
IDLE_SECONDS: Final = 60.0
"""For so long states are read on although nobody asks: opening a page again is fast."""


class KeptStates:
    """Reads states as the worker's client. A state that fails is read anew by the next question."""

    def __init__(self, opened: Callable[[], Awaitable[Client]]) -> None:
        """
        Args:
            opened: the client.
        """
        self._opened = opened
        self._namespaces: NamespaceRows | None = None
        self._index_logs: IndexLogRows | None = None
        self._maintenances: MaintenanceLog | None = None
        self._one_at_a_time = asyncio.Lock()
        self._idle: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def opened(self) -> Client:
        """The client, for those who read."""
        return await self._opened()

    async def close(self) -> None:
        """Stop reading; before the client is closed."""
        if self._idle is not None:
            self._idle.cancel()
        if self._ending is not None:
            await self._ending
        await self._end()

    async def streams(self, asker: NodeAsker) -> dict[str, Any]:
        """All namespaces with their streams and subscriptions, and what the cluster says of their logs."""
        client = await self._opened()
        places = _groups(client)
        found = namespaces_of(places)
        streams = await self._of_namespaces("streams", found, None)
        subscriptions = await self._of_namespaces("subscriptions", found, None)
        owners = await self._of_namespaces("stream_owners", found, None)
        logs, silent, took = await _logs(client, asker, (row["log_id"] for row in streams))
        by_stream = {(row["namespace"], row["stream"]): row for row in streams}
        for row in streams:
            row["log"] = logs.get(row["log_id"])
        owned = {(row["namespace"], row["stream"]): row["owner"] for row in owners}
        for key, row in by_stream.items():
            row["owner"] = owned.get(key)
        for row in subscriptions:
            stream = by_stream.get((row["namespace"], row["stream"]))
            log = None if stream is None else stream["log"]
            row["tail"] = None if log is None else log["tail"]
            row["behind"] = entries_behind(row["position"], row["tail"])
        return {
            "namespaces": found,
            "janitors": [_janitor(each) for path in found if (each := self._upkeep(path)) is not None],
            "streams": streams[:ROWS_MAX],
            "subscriptions": subscriptions[:ROWS_MAX],
            "left_out": max(0, len(streams) - ROWS_MAX) + max(0, len(subscriptions) - ROWS_MAX),
            "silent": silent,
            "took_us": took,
        }

    async def stream(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """One stream: segments, owner, and subscriptions with the oldest record that waits for each.

        Args:
            given: `stream`: path of the namespace, and the name behind a slash.
        """
        path = str(given.get("stream", ""))
        client = await self._opened()
        # the longest one that it begins with: names of streams may have slashes
        place = max(
            (each for each in namespaces_of(_groups(client)) if path.startswith(f"{each}/")), key=len, default=None
        )
        name = path.removeprefix(f"{place}/")
        rows = [] if place is None else await self._of_namespaces("streams", [place], None)
        row = next((each for each in rows if each["stream"] == name), None)
        if place is None or row is None:
            raise LogDeviceError(Status.NOTFOUND, f"there is no stream {path[:200]}")
        log = row["log_id"]
        segments = [] if log is None else await self._of_namespaces("segments", [place], LogId(log))
        owners = await self._of_namespaces("stream_owners", [place], None)
        subscriptions = await self._of_namespaces("subscriptions", [place], None)
        subscriptions = [each for each in subscriptions if each["stream"] == name]
        tail = None if log is None else str(await client.tail_lsn(log, timeout=SECONDS))
        await note_lags(client, log, subscriptions, tail)
        upkeep = self._upkeep(place)
        return {
            "stream": row,
            "janitor": None if upkeep is None else _janitor(upkeep),
            "kept": None if upkeep is None else kept_up(upkeep, name),
            "tail": tail,
            "segments": segments[-ROWS_MAX:],
            "owner": next((each for each in owners if each["stream"] == name), None),
            "subscriptions": subscriptions[:ROWS_MAX],
        }

    async def index_logs(self) -> dict[str, Any]:
        """All index logs: their size, what waits to be dealt, jobs that have not ended."""
        found = await self._index_logs_there()
        return {
            "index_logs": await self._of_index_logs("index_logs", found),
            "raw_logs": (await self._of_index_logs("raw_logs", found))[:ROWS_MAX],
            "jobs": (await self._of_index_logs("index_jobs", found))[:ROWS_MAX],
            "indexes": (await self._of_index_logs("indexes", found))[:ROWS_MAX],
        }

    async def index_files(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Files and slices of an index.

        Args:
            given: `index`: path of the index log, and the index's code behind a slash.
        """
        place, _, code = str(given.get("index", "")).rpartition("/")
        there = [each for each in await self._index_logs_there() if each == place]
        rows = [row for row in await self._of_index_logs("index_files", there) if row["index_code"] == code]
        if not rows:
            raise LogDeviceError(Status.NOTFOUND, f"there is no index {place[:200]}/{code[:64]} with files")
        return {"index_log": place, "index": code, "files": rows[:ROWS_MAX], "left_out": max(0, len(rows) - ROWS_MAX)}

    async def maintenances(self, asker: NodeAsker, given: Mapping[str, Any]) -> dict[str, Any]:
        """Maintenances, and why those that wait have to. It changes nothing, and begins no log that nobody used.

        Args:
            given: `reasons`: 0: why they wait is not looked for.
        """
        from ldquery.maintenance.cluster import ClusterDrains, ClusterSurvey
        from ldquery.maintenance.manager import MaintenanceLog, MaintenanceManager, is_used
        from logdevice_py.runtime.clock import wall_us

        client = await self._opened()
        if not client.config.has_maintenances or not await is_used(client, SECONDS):
            enabled = client.config.has_maintenances
            return {
                "enabled": enabled,
                "live": [],
                "ended": [],
                "restart": None,
                "seen_to_by": await _seers(client, asker) if enabled else [],
            }
        async with self._kept():
            if self._maintenances is None:
                log = MaintenanceLog(client, timeout=SECONDS, snapshot_every=0)
                await log.__aenter__()
                self._maintenances = log
            log = self._maintenances
            state = await log.current()
            manager = MaintenanceManager(log, ClusterSurvey(client, asker, SECONDS), ClusterDrains(client), wall_us)
            wanted = given.get("reasons") != "0"
            # at once: each takes as long as a node that hangs is waited for
            seers = asyncio.create_task(_seers(client, asker))
            try:
                reasons = await manager.reasons() if wanted else {}
                seen_to_by = await seers
            finally:
                seers.cancel()
            restart = state.restart
            return {
                "enabled": True,
                "seen_to_by": seen_to_by,
                "live": [_maintenance(each, reasons.get(each.number, [])) for each in state.live.values()],
                "ended": [_maintenance(each, []) for each in reversed(state.ended)],
                "restart": None
                if restart is None
                else {
                    "number": restart.number,
                    "by": restart.by,
                    "reason": restart.reason,
                    "began": int(restart.began),
                    "left": [f"N{node}" for node in restart.left],
                    "done": [f"N{node}" for node in restart.done],
                },
            }

    # How it is read

    def _upkeep(self, path: str) -> NamespaceUpkeep | None:
        """As of the rows that were read last: nobody is asked for it."""
        return None if self._namespaces is None else self._namespaces.upkeep(path)

    async def _of_namespaces(self, table: str, places: Iterable[str], log: LogId | None) -> list[dict[str, Any]]:
        async with self._kept():
            if self._namespaces is None:
                self._namespaces = NamespaceRows(self)
            rows = await self._namespaces.rows(table, places, log, SECONDS)
        return shown_rows(TABLES[table], list(map(asdict, rows)))

    async def _index_logs_there(self) -> list[str]:
        return index_logs_of(_groups(await self._opened()))

    async def _of_index_logs(self, table: str, places: Iterable[str]) -> list[dict[str, Any]]:
        async with self._kept():
            if self._index_logs is None:
                self._index_logs = IndexLogRows(self)
            rows = await self._index_logs.rows(table, places, None, SECONDS)
        return shown_rows(TABLES[table], list(map(asdict, rows)))

    @contextlib.asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        async with self._one_at_a_time:
            try:
                yield
            except LogDeviceError as error:
                if error.status is not Status.TIMEDOUT:
                    await self._forget()
                raise
            finally:
                if self._idle is not None:
                    self._idle.cancel()
                self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._nobody_asks)

    def _nobody_asks(self) -> None:
        self._idle = None
        self._ending = asyncio.create_task(self._end(), name="states that nobody asks for")

    async def _end(self) -> None:
        async with self._one_at_a_time:
            await self._forget()

    async def _forget(self) -> None:
        namespaces, index_logs, maintenances = self._namespaces, self._index_logs, self._maintenances
        self._namespaces = self._index_logs = self._maintenances = None
        if namespaces is not None:
            await namespaces.close()
        if index_logs is not None:
            await index_logs.close()
        if maintenances is not None:
            await maintenances.__aexit__(None, None, None)


def _janitor(each: NamespaceUpkeep) -> dict[str, Any]:
    return {
        "namespace": each.namespace,
        "janitor": each.janitor,
        "at": each.at,
        "did": each.did,
        "unattended": each.unattended[:_NAMED],
        "unattended_count": len(each.unattended),
    }


def kept_up(found: NamespaceUpkeep, stream: str) -> dict[str, Any] | None:
    """What is trimmed and copied of a stream, and its last copies; None: nothing is, and nothing is wanted."""
    upkeep = found.streams.get(stream)
    if upkeep is None:
        return None
    return {
        "attributes": found.attributes.get(stream, {}),
        "trimmed_to": str(upkeep.trimming_to) if upkeep.trimming_to else None,
        "copied_to": str(upkeep.copied_to) if upkeep.copied_to else None,
        "copying": None if upkeep.copying is None else " to ".join(map(str, upkeep.copying)),
        "copies_count": len(upkeep.copies),
        "copies_bytes": sum(each.copy.stored_bytes for each in upkeep.copies),
        "copies": [
            {
                "epoch": each.number,
                "first": str(each.copy.first),
                "last": str(each.copy.last),
                "records": each.copy.records,
                "files": each.copy.files,
                "stored_bytes": each.copy.stored_bytes,
                "began": each.began,
                "ended": each.ended,
                "completed": each.completed,
                "folder": each.copy.folder,
            }
            for each in reversed(upkeep.copies[-COPIES_MAX:])
        ],
    }


async def _seers(client: Client, asker: NodeAsker) -> list[str]:
    """Nodes that see to maintenances, each with what is the matter with it."""
    rows, _ = await asker.ask_each(TABLES["info"], list(client.config.nodes), EVERYTHING, None, SECONDS)
    return sees_to("maintenances", as_dicts(TABLES["info"], rows))


def entries_behind(position: str | None, tail: str | None) -> int | None:
    """How many entries lie between what is handled and the tail; None: nothing is handled yet, or they are of several epochs."""
    if position is None or tail is None:
        return None
    handled, last = Position.parse(position).lsn, LSN.parse(tail)
    if last <= handled:
        return 0
    return last - handled if handled.epoch == last.epoch else None


async def note_lags(client: Client, log: int | None, subscriptions: Sequence[dict[str, Any]], tail: str | None) -> None:
    """Into rows of subscriptions, how far each is behind, and of some since when a record waits for it.

    Args:
        log: None: the stream has none yet.
    """
    for each in subscriptions:
        each["tail"] = tail
        each["behind"] = entries_behind(each["position"], tail)
        each["waiting_since"] = None
    if log is None or tail is None:
        return

    async def note(each: dict[str, Any]) -> None:
        try:
            each["waiting_since"] = await _waiting_since(client, log, each["position"], tail)
        except LogDeviceError as error:
            if error.status is not Status.TIMEDOUT:  # else the others are known
                raise

    # at once: a shard that hangs holds up each of them
    await asyncio.gather(*map(note, subscriptions[:LAGS_MAX]))


async def _waiting_since(client: Client, log: int, position: str | None, tail: str) -> int | None:
    """When the first record behind a position was sequenced; None: there is none that can be read."""
    handled = None if position is None else Position.parse(position)
    start, last = LSN_OLDEST if handled is None else handled.lsn, LSN.parse(tail)
    if start > last:
        return None
    async with client.reader(log, max(start, LSN_OLDEST), last) as reader:
        while batch := await reader.read(100, timeout=SECONDS):
            for item in batch:
                if isinstance(item, Record) and (handled is None or Position(item.lsn, item.batch_offset) > handled):
                    return int(item.timestamp)
    return None


def _groups(client: Client) -> list[str]:
    """Paths of the log tree; none where the cluster has none."""
    tree = client.log_tree
    return [] if tree is None else [group.path for group in tree.view.state.groups() if not group.removing]


async def _logs(
    client: Client, asker: NodeAsker, wanted: Iterable[int | None]
) -> tuple[dict[int, Any], dict[str, str], int]:
    logs = {LogId(log) for log in wanted if log is not None}
    if not logs:
        return {}, {}, 0
    found = await list_logs(client.config, asker, logs)
    names = ("tail", "head", "entries_1min", "bytes_1min", "stored_bytes", "newest_time", "sequencer_node_id", "copies")
    return (
        {row["log_id"]: {name: row[name] for name in names} for row in found["logs"]},
        found["silent"],
        found["took_us"],
    )


def _maintenance(each: Maintenance, reasons: list[str]) -> dict[str, Any]:
    from ldquery.ctl.maintenance import maintenance_row

    row = maintenance_row(each)
    return {
        **{
            name.replace(" ", "_"): row[name]
            for name in ("number", "who", "kind", "phase", "for", "by", "reason", "restart")
        },
        "since": each.since,
        "expires": each.expires,
        "shards": [format_shard(shard) for shard in each.wanted.shards],
        "reasons": reasons,
    }
