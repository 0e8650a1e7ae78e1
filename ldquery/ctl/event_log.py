"""What the event log says, and events that a person wants in it: for ``ldctl`` and for scripts."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from client.client import Client
from client.read.items import Gap, GapKind, Record
from client.reader import Reader
from logdevice_py.core.ids import (
    EVENT_LOG_DELTAS,
    EVENT_LOG_SNAPSHOTS,
    NODE_ID_MAX,
    SHARD_INDEX_MAX,
    Generation,
    LogId,
    NodeId,
    ShardId,
    format_shard,
    shard_id,
)
from logdevice_py.core.lsn import LSN, LSN_INVALID, LSN_OLDEST, Epoch, Lsn
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.event_log.events import (
    Event,
    RebuildMode,
    ShardAbortRebuild,
    ShardNeedsRebuild,
    ShardUnrecoverable,
    decode_event,
    encode_event,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet, RebuildingShard
from logdevice_py.event_log.snapshots import SnapshotChoice
from logdevice_py.metadata.epoch_metadata import EpochInterval

_SHARD = re.compile(r"N(\d{1,5})(?::S(\d{1,3}))?")
_PAUSE: Final = 0.5
_SECONDS: Final = 30.0
"""Whoever reads the event log is told what it waits for when nothing of it comes for so long."""


def parse_shard(text: str) -> ShardId:
    """``N3:S0``, or ``N3`` for its first shard; ValueError for anything else."""
    match = _SHARD.fullmatch(text)
    node, index = (int(match[1]), int(match[2] or 0)) if match is not None else (-1, -1)
    if not (0 <= node <= NODE_ID_MAX and 0 <= index <= SHARD_INDEX_MAX):
        raise ValueError(f"{text!r} is no shard: write N3 or N3:S0")
    return shard_id(NodeId(node), index)


async def read_rebuilding_set(client: Client) -> RebuildingSet:
    """What the event log amounts to at this moment.

    Raises:
        LogDeviceError: NOTSUPPORTED where rebuilding is not enabled, or not in all nodes; TIMEDOUT, which says what the event log waits for; as `Client.tail_lsn`.
    """
    _check_enabled(client)
    ends = asyncio.get_running_loop().time() + _SECONDS
    while True:
        records, gaps = await _read(client, EVENT_LOG_DELTAS, LSN_OLDEST)
        trimmed = max((gap.hi for gap in gaps if gap.kind is GapKind.TRIM), default=LSN_INVALID)
        lost = max((gap.hi for gap in gaps if gap.kind is GapKind.DATALOSS), default=LSN_INVALID)
        state = RebuildingSet()
        if trimmed or lost:
            state = await _snapshot(client, Lsn(max(trimmed, lost)))
        if state.version >= trimmed:
            break
        # A snapshot that was not there yet says what the events did that are trimmed.
        if asyncio.get_running_loop().time() > ends:
            text = f"the event log is trimmed up to {LSN(trimmed)}, and for {_SECONDS:g} s no snapshot was there that says what was in it"
            raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=False)
        await asyncio.sleep(_PAUSE)
    for record in records:
        event: Event | None = None
        with contextlib.suppress(CorruptEntryError):
            event = decode_event(record.payload)
        if record.lsn > state.version:
            state.apply(event, Lsn(record.lsn))
    return state


async def _snapshot(client: Client, needed: Lsn) -> RebuildingSet:
    """What the events amount to up to `needed`, or somewhat further, if a snapshot says it."""
    snapshots = SnapshotChoice(needed)
    for record in (await _read(client, EVENT_LOG_SNAPSHOTS, LSN_OLDEST))[0]:
        snapshots.offer(record.payload, Lsn(record.lsn))
    return snapshots.choose(Lsn(await client.tail_lsn(EVENT_LOG_DELTAS)), RebuildingSet())


def _check_enabled(client: Client) -> None:
    if client.config.log(EVENT_LOG_DELTAS) is None:
        raise LogDeviceError(
            Status.NOTSUPPORTED,
            "the cluster keeps no event log, as enabled = false stands in [settings.rebuilding] of its file: take that out, and start its nodes again",
        )


async def _read(client: Client, log: LogId, first: Lsn) -> tuple[list[Record], list[Gap]]:
    try:
        tail = await client.tail_lsn(log)
    except LogDeviceError as error:
        if error.status is not Status.NOTFOUND:
            raise
        text = "not all nodes keep the event log: some are of an earlier version, or have enabled = false in [settings.rebuilding]; ldctl status names them"
        raise LogDeviceError(Status.NOTSUPPORTED, text, maybe_applied=False) from None
    records: list[Record] = []
    gaps: list[Gap] = []
    if tail >= first:
        async with Reader(client, log, first, tail) as reader:
            while batch := await reader.read(timeout=_SECONDS):
                records.extend(batch.records())
                gaps.extend(batch.gaps)
    return records, gaps


async def generation_of(client: Client, shard: ShardId) -> Generation:
    """The latest generation of a shard that stored events; 0: it never did. Of a node with several shards one alone does.

    Raises:
        LogDeviceError: TIMEDOUT, which says what the metadata log waits for.
    """
    future = client.future()

    def known(history: tuple[EpochInterval, ...], now: Micros, certain: Epoch) -> None:
        if not future.done():
            future.set_result(max((interval.generation(shard) or 0 for interval in history), default=0))

    request = client.session.histories.read(EVENT_LOG_DELTAS, client.now(), known)
    client.wake()
    try:
        async with asyncio.timeout(_SECONDS):
            return Generation(await future)
    except TimeoutError:
        text = f"nothing came of the metadata log of the event log for {_SECONDS:g} s: it waits for {request.waiting_for()}"
        raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=False) from None
    finally:
        request.cancel()


async def _append(client: Client, event: Event, shown: Callable[[RebuildingSet], bool]) -> RebuildingSet:
    """Append until the state shows it. When the log takes nothing for long, the error of the last try says why."""
    ends = asyncio.get_running_loop().time() + _SECONDS
    while True:
        state = await read_rebuilding_set(client)
        if shown(state):
            return state
        try:
            await client.append(EVENT_LOG_DELTAS, encode_event(event))
        except LogDeviceError as error:
            if (not error.retriable and not error.maybe_applied) or asyncio.get_running_loop().time() > ends:
                raise
            await asyncio.sleep(_PAUSE)


async def start_rebuilding(client: Client, shard: ShardId, mode: RebuildMode, source: str = "ldctl") -> RebuildingSet:
    """Have what a lost shard held re-replicated, or a living one emptied. Returns when the event log says so.

    Raises:
        LogDeviceError: NOTFOUND: the shard is not in the cluster file, or nobody knows which generation of it is lost; NOTSUPPORTED; STALE: nodes
            have a newer cluster file.
    """
    _check_enabled(client)
    if shard not in client.config.storage_shards():
        raise LogDeviceError(Status.NOTFOUND, f"{format_shard(shard)} is not in the cluster file")
    generation = await generation_of(client, shard)
    state = await read_rebuilding_set(client)
    before = state.shards.get(shard)
    if before is not None:
        generation = max(generation, before.generation)
    if not generation:
        if mode is RebuildMode.RESTORE:
            raise LogDeviceError(
                Status.NOTFOUND,
                f"{format_shard(shard)} never stored events, so its generation is not known; when its node was dead for the grace period, it is "
                "taken for lost by itself",
            )
        # If it is a later one, it does not finish before the leader, which heard of it, says that it is to be emptied.
        generation = Generation(1)
    candidates = [
        (each, await generation_of(client, each) if each in state.shards else Generation(0))
        for each in client.config.storage_shards()
    ]

    known, own = client.session.view.config_version, client.config.version
    if known > own:
        raise LogDeviceError(
            Status.STALE,
            f"nodes have version {known} of the cluster file, this is version {own}: shards that it does not name would be left out",
            retriable=False,
        )
    event = ShardNeedsRebuild(shard, generation, mode, tuple(candidates), True, source)
    return await _append(client, event, partial(_is_taken, event, LSN_INVALID if before is None else before.since))


def _is_taken(event: ShardNeedsRebuild, since: Lsn, state: RebuildingSet) -> bool:
    """Whether the state shows an event that was appended when the entry of its shard was `since` some other one, or has no need of it."""
    entry = state.find(event.shard, event.generation)
    done = entry is not None and entry.mode is event.mode and entry.since > since
    return done or not state.says_something_new(event)


async def call_off(client: Client, shard: ShardId) -> RebuildingShard | None:
    """The shard is to be used again: nothing is emptied, or the rebuilt one is back. What is so of it then, if it was lost again meanwhile.

    Raises:
        LogDeviceError: NOTFOUND: the event log has nothing of the shard.
    """
    first = entry = (await read_rebuilding_set(client)).shards.get(shard)
    if first is None:
        raise LogDeviceError(Status.NOTFOUND, f"{format_shard(shard)} is neither lost nor drained")
    while entry is not None and not _is_called_off(first, entry):
        # one that was lost while it was drained is drained further
        event = ShardAbortRebuild(shard, entry.generation, entry.mode)
        entry = (await _append(client, event, partial(_is_no_more, entry))).shards.get(shard)
    return None if entry is None or entry.generation < first.generation else entry


async def call_off_drain(client: Client, shard: ShardId) -> RebuildingShard | None:
    """Nobody is to empty the shard any more; of one that was lost meanwhile nothing changes. What is so of it then; None: it is used again.

    Raises:
        LogDeviceError: NOTSUPPORTED; as `Client.tail_lsn`.
    """
    entry = (await read_rebuilding_set(client)).shards.get(shard)
    if entry is None or entry.mode is not RebuildMode.RELOCATE:
        return entry
    event = ShardAbortRebuild(shard, entry.generation, entry.mode)
    return (await _append(client, event, partial(_is_no_more, entry))).shards.get(shard)


def _is_called_off(first: RebuildingShard, entry: RebuildingShard) -> bool:
    """Whether what is left is something else: that earlier generations were rebuilt, or that the shard is lost again."""
    is_another = entry.mode is RebuildMode.RESTORE and entry.since > first.since
    return entry.generation < first.generation or (is_another and not entry.drained)


def _is_no_more(before: RebuildingShard, state: RebuildingSet) -> bool:
    entry = state.shards.get(before.shard)
    return entry is None or entry.since != before.since


async def mark_unrecoverable(client: Client, shard: ShardId) -> RebuildingShard | None:
    """Nobody is to wait any more for what a lost shard held. Readers report as lost what nobody else has. What is so of the shard then; None: it is
    used again.

    Raises:
        LogDeviceError: NOTFOUND: the event log has nothing of the shard.
    """
    entry = (await read_rebuilding_set(client)).shards.get(shard)
    if entry is None:
        name = format_shard(shard)
        advice = (
            f"ldctl rebuild {name} says that it is"
            if shard in client.config.storage_shards()
            else "it left the configuration, and nothing waits for it"
        )
        raise LogDeviceError(Status.NOTFOUND, f"{name} is not lost, as far as the event log says: {advice}")
    state = await _append(
        client,
        ShardUnrecoverable(shard, entry.generation),
        lambda state: shard not in state.shards or not state.shards[shard].recoverable,
    )
    return state.shards.get(shard)


async def wait_until_rebuilt(
    client: Client, shard: ShardId, begun: RebuildingShard | None = None, *, pause: float = _PAUSE
) -> RebuildingShard | None:
    """Until what the shard held is re-replicated, or it is back with all of that (None).

    Args:
        begun: what the event log said when waiting began. A shard that is back in that generation has not got back what it lost in earlier ones:
            the leader declares these anew when they were not re-replicated.
        pause: seconds between two looks.
    """
    lost = begun.generation - 1 if begun is not None and begun.mode is RebuildMode.RESTORE else 0
    while True:
        try:
            entry = (await read_rebuilding_set(client)).shards.get(shard)
        except LogDeviceError as error:
            if not error.retriable:
                raise
        else:
            restored = 0 if entry is None else entry.generation
            if (entry is None or entry.rebuilt) and restored >= lost:
                return entry
        await asyncio.sleep(pause)
