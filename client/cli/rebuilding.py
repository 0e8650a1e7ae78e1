"""What the event log says, and events that a person wants in it: for ``ldctl`` and for scripts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from client.client import Client
from client.read.items import Record
from client.reader import Reader
from logdevice_py.core.ids import (
    EVENT_LOG_DELTAS,
    EVENT_LOG_SNAPSHOTS,
    Generation,
    LogId,
    NodeId,
    ShardId,
    format_shard,
    shard_id,
)
from logdevice_py.core.lsn import LSN_OLDEST, Epoch, Lsn
from logdevice_py.core.status import LogDeviceError, Status
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
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.metadata.epoch_metadata import EpochInterval

_SHARD = re.compile(r"N(\d{1,5})(?::S(\d{1,3}))?")


def parse_shard(text: str) -> ShardId:
    """``N3:S0``, or ``N3`` for its first shard; ValueError for anything else."""
    match = _SHARD.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no shard: write N3 or N3:S0")
    return shard_id(NodeId(int(match[1])), int(match[2] or 0))


async def read_rebuilding_set(client: Client) -> RebuildingSet:
    """What the event log amounts to at this moment.

    Raises:
        LogDeviceError: NOTSUPPORTED where rebuilding is not enabled; as `Client.tail_lsn`.
    """
    _check_enabled(client)
    state = RebuildingSet()
    for record in await _records(client, EVENT_LOG_SNAPSHOTS, LSN_OLDEST):
        state = RebuildingSet.decode(record.payload)
    for record in await _records(client, EVENT_LOG_DELTAS, Lsn(state.version + 1)):
        state.apply(decode_event(record.payload), Lsn(record.lsn))
    return state


def _check_enabled(client: Client) -> None:
    if client.config.log(EVENT_LOG_DELTAS) is None:
        raise LogDeviceError(
            Status.NOTSUPPORTED,
            "the cluster keeps no event log: set enabled = true in [settings.rebuilding] of its file, and start its nodes again",
        )


async def _records(client: Client, log: LogId, first: Lsn) -> list[Record]:
    tail = await client.tail_lsn(log)
    found: list[Record] = []
    if tail >= first:
        async with Reader(client, log, first, tail) as reader:
            while batch := await reader.read():
                found.extend(batch.records())
    return found


async def generation_of(client: Client, shard: ShardId) -> Generation:
    """The latest generation of a shard that stored events; 0: it never did."""
    future = client.future()

    def known(history: tuple[EpochInterval, ...], now: Micros, certain: Epoch) -> None:
        if not future.done():
            future.set_result(max((interval.generation(shard) or 0 for interval in history), default=0))

    request = client.session.read_history(EVENT_LOG_DELTAS, client.now(), known)
    client.wake()
    try:
        return Generation(await future)
    finally:
        request.cancel()


async def _append(client: Client, event: Event, shown: Callable[[RebuildingSet], bool]) -> RebuildingSet:
    """Append until the state shows it."""
    while True:
        state = await read_rebuilding_set(client)
        if shown(state):
            return state
        try:
            await client.append(EVENT_LOG_DELTAS, encode_event(event))
        except LogDeviceError as error:
            if not error.retriable and not error.maybe_applied:
                raise
            await asyncio.sleep(0.5)


async def start_rebuilding(client: Client, shard: ShardId, mode: RebuildMode, source: str = "ldctl") -> RebuildingSet:
    """Have what a lost shard held stored again, or a living one emptied. Returns when the event log says so.

    Raises:
        LogDeviceError: NOTFOUND: the shard is not in the cluster file, or never stored anything; NOTSUPPORTED.
    """
    _check_enabled(client)
    if shard not in client.config.storage_shards():
        raise LogDeviceError(Status.NOTFOUND, f"{format_shard(shard)} is not in the cluster file")
    generation = await generation_of(client, shard)
    if not generation:
        raise LogDeviceError(Status.NOTFOUND, f"{format_shard(shard)} never stored anything")
    state = await read_rebuilding_set(client)
    before = state.shards.get(shard)
    candidates = [
        (each, await generation_of(client, each) if each in state.shards else Generation(0))
        for each in client.config.storage_shards()
    ]

    def shown(state: RebuildingSet) -> bool:
        entry = state.find(shard, generation)
        if before is not None and before.rebuilt and before.flags and entry == before:
            return False  # some of it was left undone: once more
        if entry is None:
            return False
        return entry.mode is mode or (entry.drained if mode is RebuildMode.RELOCATE else entry.rebuilt)

    return await _append(client, ShardNeedsRebuild(shard, generation, mode, tuple(candidates), True, source), shown)


async def call_off(client: Client, shard: ShardId) -> None:
    """The shard is to be used again: nothing is emptied, or the rebuilt one is back.

    Raises:
        LogDeviceError: NOTFOUND: the event log has nothing of the shard.
    """
    entry = (await read_rebuilding_set(client)).shards.get(shard)
    if entry is None:
        raise LogDeviceError(Status.NOTFOUND, f"{format_shard(shard)} is neither lost nor drained")
    await _append(client, ShardAbortRebuild(shard, entry.generation), lambda state: shard not in state.shards)


async def mark_unrecoverable(client: Client, shard: ShardId) -> None:
    """Nobody is to wait any more for what a lost shard held. Readers report as lost what nobody else has.

    Raises:
        LogDeviceError: NOTFOUND: the event log has nothing of the shard.
    """
    entry = (await read_rebuilding_set(client)).shards.get(shard)
    if entry is None:
        raise LogDeviceError(Status.NOTFOUND, f"{format_shard(shard)} is not lost")
    await _append(
        client,
        ShardUnrecoverable(shard, entry.generation),
        lambda state: shard not in state.shards or not state.shards[shard].recoverable,
    )


async def wait_until_rebuilt(client: Client, shard: ShardId, *, pause: float = 0.5) -> None:
    """Until what the shard held was stored again, or it is back."""
    while True:
        try:
            entry = (await read_rebuilding_set(client)).shards.get(shard)
        except LogDeviceError as error:
            if not error.retriable:
                raise
        else:
            if entry is None or entry.rebuilt:
                return
        await asyncio.sleep(pause)
