"""Rows of tables of streams: what the states of all namespaces say, which this process reads and never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from client.look_up.segments import LogSegment, SegmentState
from client.replica.replica import Replica
from ldquery.own_client import OpensClient
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.streams import SegmentsRow, StreamJanitorsRow, StreamOwnersRow, StreamsRow, SubscriptionsRow
from streams.attributes import StreamAttributes
from streams.own_logs import find_namespace_logs, find_own_logs
from streams.state import NAMESPACE, NamespaceState, StreamEntry, StreamPhase
from streams.stream_subscriptions import SUBSCRIPTIONS_GROUP, subscription_rows
from streams.subscriptions.state import SUBSCRIPTIONS, SubscriptionsState
from streams.upkeep.segments import StreamSegment, StreamSegmentState, listed_stream_segments
from streams.upkeep.state import StreamUpkeep


@dataclass(frozen=True, slots=True)
class NamespaceUpkeep:
    """What a namespace's state says of its janitor, and of what is trimmed and copied."""

    namespace: str
    janitor: str | None
    """None: nobody is it."""
    at: int | None
    """When the last one showed life, in microseconds since the Unix epoch."""
    did: str
    """What was done last."""
    unattended: list[str]
    """Streams whose attributes take a janitor, while nobody is it."""
    streams: dict[str, StreamUpkeep]
    """By name: of those whose attributes take a janitor, or of which something is copied or trimmed."""
    attributes: dict[str, dict[str, str]]
    """What these attributes say, by name of the stream."""


def namespace_upkeep(path: str, state: NamespaceState) -> NamespaceUpkeep:
    """Of a namespace's state."""
    role = state.role
    wanted = {
        entry.name: asked
        for entry in _existing(state)
        if (asked := StreamAttributes.from_mapping(entry.attributes).for_janitor)
    }
    kept = {
        entry.name: entry.upkeep
        for entry in _existing(state)
        if entry.name in wanted or entry.upkeep.copies or entry.upkeep.trimming_to
    }
    return NamespaceUpkeep(
        path,
        None if role.lease is None else role.lease.owner,
        int(role.at) or None,
        role.did,
        sorted(wanted) if role.lease is None else [],
        kept,
        wanted,
    )


class NamespaceRows:
    """Asks as the client that it is given. Everything on one event loop."""

    def __init__(self, client: OpensClient) -> None:
        self._client = client
        self._states: dict[str, Replica[NamespaceState]] = {}
        self._subscriptions: dict[str, Replica[SubscriptionsState]] = {}

    async def close(self) -> None:
        """Stop reading the states; before the client is closed."""
        for state in self._states.values():
            await state.close()
        for subscriptions in self._subscriptions.values():
            await subscriptions.close()

    async def rows(self, table: str, namespaces: Iterable[str], log: LogId | None, seconds: float) -> list[Any]:
        """Rows of one of the tables, as they are at this moment.

        Args:
            namespaces: paths in the log tree.
            log: only what belongs to this log, where the table has logs; None: everything.
            seconds: until answers have to be there.

        Raises:
            LogDeviceError: TIMEDOUT, which says what is waited for; as `Client.segments`.
        """
        found: list[Any] = []
        for path in namespaces:
            try:
                state = (await self._state(path, seconds)).state
            except LogDeviceError as error:
                if error.status is Status.NOTFOUND:  # it was removed since
                    continue
                raise LogDeviceError(error.status, f"namespace {path}: {error.detail}") from None
            if table == "subscriptions":
                found += await self._subscription_rows(path, state, seconds)
            elif table == "segments":
                found += await self._segment_rows(path, state, log, seconds)
            else:
                found += [row for row in _FILL[table](path, state) if log is None or row.log_id == log]
        return found

    def upkeep(self, path: str) -> NamespaceUpkeep | None:
        """Who is the janitor of a namespace, and what he does of its streams; as of the rows that were asked for last. None: none were."""
        replica = self._states.get(path)
        return None if replica is None else namespace_upkeep(path, replica.state)

    async def _state(self, path: str, seconds: float) -> Replica[NamespaceState]:
        replica = self._states.get(path)
        if replica is None:
            client = await self._client.opened()
            logs = await find_namespace_logs(client, path, seconds)
            replica = Replica(client, NAMESPACE, logs.commands, logs.snapshots, snapshot_every=0)
            await replica.__aenter__()
            self._states[path] = replica
        await replica.current(timeout=seconds)
        return replica

    async def _subscription_rows(self, path: str, state: NamespaceState, seconds: float) -> list[SubscriptionsRow]:
        replica = self._subscriptions.get(path)
        if replica is None:
            client = await self._client.opened()
            logs = await find_own_logs(client, f"{path}/{SUBSCRIPTIONS_GROUP}", seconds)
            if logs is None:
                return []
            replica = Replica(client, SUBSCRIPTIONS, logs.commands, logs.snapshots, snapshot_every=0)
            await replica.__aenter__()
            self._subscriptions[path] = replica
        await replica.current(timeout=seconds)
        names = {entry.number: entry.name for entry in _existing(state)}
        return [
            SubscriptionsRow(
                namespace=path,
                subscription=row.subscription,
                stream=row.stream,
                number=row.number,
                position=None if row.position is None else str(row.position),
                committed=None if row.committed is None else round(row.committed.timestamp() * 1e6),
                commits=row.commits,
                shared=int(row.is_shared),
                owner=row.owner,
                token=row.token,
            )
            for row in subscription_rows(replica.state, names)
        ]

    async def _segment_rows(
        self, path: str, state: NamespaceState, log: LogId | None, seconds: float
    ) -> list[SegmentsRow]:
        client = await self._client.opened()
        found = []
        for entry in list(_existing(state)):
            if not entry.log or log not in (None, entry.log):
                continue
            try:
                segments = await client.segments(entry.log, timeout=seconds)
            except LogDeviceError as error:
                if error.status is Status.NOTFOUND:  # the stream was deleted since
                    continue
                raise LogDeviceError(error.status, f"stream {entry.name} of {path}: {error.detail}") from None
            live = {segment.epoch: segment for segment in segments}
            found += [
                _segment_row(path, entry, each, live.get(each.number))
                for each in listed_stream_segments(entry, segments)
            ]
        return found


def _existing(state: NamespaceState) -> Iterator[StreamEntry]:
    return (entry for entry in state.streams.values() if entry.phase is not StreamPhase.DELETING)


def _streams_rows(path: str, state: NamespaceState) -> Iterator[StreamsRow]:
    for entry in state.streams.values():
        phase = entry.phase.name.lower()
        attributes = StreamAttributes.from_mapping(entry.attributes)
        yield StreamsRow(
            namespace=path,
            stream=entry.name,
            number=entry.number,
            state="ended" if entry.phase is StreamPhase.LIVE and entry.ended is not None else phase,
            log_id=entry.log or None,
            writers=attributes.writers.value,
            txid=attributes.txid.value,
            begins_at=str(entry.min_active) if entry.min_active.lsn else None,
            end_lsn=entry.ended,
            version=str(entry.version),
        )


def _owners_rows(path: str, state: NamespaceState) -> Iterator[StreamOwnersRow]:
    for entry in _existing(state):
        lease = entry.lease
        if lease is not None:
            yield StreamOwnersRow(
                path, entry.name, entry.log, lease.owner, lease.token, lease=lease.lease_us, signs=lease.beats
            )


def _janitors_rows(path: str, state: NamespaceState) -> Iterator[StreamJanitorsRow]:
    upkeep, lease = namespace_upkeep(path, state), state.role.lease
    yield StreamJanitorsRow(
        namespace=path,
        janitor=upkeep.janitor,
        token=None if lease is None else lease.token,
        lease=None if lease is None else lease.lease_us,
        signed=upkeep.at,
        did=upkeep.did,
        unattended=len(upkeep.unattended),
    )


def _segment_row(path: str, entry: StreamEntry, segment: StreamSegment, live: LogSegment | None) -> SegmentsRow:
    """Of a segment; `live` is what the log knows of it, None where only copies have it."""
    is_unknown = live is not None and live.state is SegmentState.UNKNOWN
    state = segment.state
    return SegmentsRow(
        namespace=path,
        stream=entry.name,
        log_id=entry.log,
        epoch=segment.number,
        state="unknown" if is_unknown and state is StreamSegmentState.COMPLETED else state.value,
        first_lsn=segment.first.lsn,
        last_lsn=None if segment.last is None else segment.last.lsn,
        entries=None if live is None else live.entries,
        records=segment.records,
        bytes=segment.bytes,
        first_time=segment.began,
        last_time=segment.ended,
        completed=segment.completed,
        first_txid=segment.first_txid,
        last_txid=segment.last_txid,
        lost=0 if live is None else live.lost,
        authoritative=int(live is None or live.authoritative),
        trimmed_to=None if live is None else live.trimmed_to or None,
        copied=int(segment.is_copied),
    )


_FILL: Final[dict[str, Callable[[str, NamespaceState], Iterator[Any]]]] = {
    "streams": _streams_rows,
    "stream_owners": _owners_rows,
    "stream_janitors": _janitors_rows,
}
