"""What ``ldctl`` reads of the event log, and when it takes an event for taken."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from client.client import Client
from client.read.items import Gap, GapKind, Record
from ldquery.ctl import event_log as rebuilding
from ldquery.ctl.event_log import call_off, call_off_drain, read_rebuilding_set, start_rebuilding, wait_until_rebuilt
from ldquery.ctl.main import parser
from ldquery.ctl.shards import what_is_so, why_not_done
from logdevice_py.core.ids import EVENT_LOG_DELTAS, EVENT_LOG_SNAPSHOTS, Generation, LogId, ShardId, format_shard
from logdevice_py.core.lsn import LSN, LSN_MAX, Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.event_log.events import (
    DonorFlags,
    Event,
    RebuildMode,
    ShardAbortRebuild,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardUnrecoverable,
    decode_event,
    encode_event,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from tests.unit.storage_node.fakes import SHARDS, make_config

FIRST = Generation(1)
ALL = tuple((shard, FIRST) for shard in SHARDS)
DRAINED, LOST = SHARDS[4], SHARDS[3]


def needs(shard: ShardId, mode: RebuildMode, generation: int = 1) -> ShardNeedsRebuild:
    return ShardNeedsRebuild(shard, Generation(generation), mode, ALL)


@dataclass
class FakeClient:
    """Keeps the two logs of events; what is trimmed is a gap."""

    snapshots: list[bytes] = field(default_factory=list)
    events: dict[int, Event | bytes] = field(default_factory=dict)
    trimmed: int = 0
    config: Any = field(
        default_factory=lambda: replace(make_config(), settings={"rebuilding": {"enabled": True}}, version=7)
    )
    session: Any = field(default_factory=lambda: SimpleNamespace(view=SimpleNamespace(config_version=7)))
    appended: list[Event] = field(default_factory=list)
    meanwhile: Any = None
    """Called once, between the reading of snapshots and that of events."""

    async def read(self, log: LogId, first: Lsn) -> tuple[list[Record], list[Gap]]:
        if log == EVENT_LOG_SNAPSHOTS:
            return [self._record(log, at, payload) for at, payload in enumerate(self.snapshots, 11)], []
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        gaps = [Gap(GapKind.TRIM, LSN(first), LSN(self.trimmed))] if self.trimmed >= first else []
        return [
            self._record(log, at, event if isinstance(event, bytes) else encode_event(event))
            for at, event in sorted(self.events.items())
            if at >= first and at > self.trimmed
        ], gaps

    async def tail_lsn(self, log: LogId) -> LSN:
        assert log == EVENT_LOG_DELTAS
        return LSN(max(self.events, default=self.trimmed))

    def _record(self, log: LogId, at: int, payload: bytes) -> Record:
        return Record(log, LSN(at), 0, Timestamp(0), payload)

    async def append(self, log: LogId, payload: bytes) -> None:
        assert log == EVENT_LOG_DELTAS
        event = decode_event(payload)
        assert event is not None
        self.appended.append(event)
        assert len(self.appended) < 5, "it appends for ever"
        self.add(event)

    def add(self, *events: Event | bytes) -> None:
        for event in events:
            self.events[max(self.events, default=self.trimmed) + 1] = event

    def finish(self, flags: DonorFlags = DonorFlags.NONE) -> None:
        state = self.state()
        self.add(*(ShardIsRebuilt(donor, FIRST, state.round, flags) for donor in state.donors))

    def state(self) -> RebuildingSet:
        state = RebuildingSet()
        for at, event in sorted(self.events.items()):
            state.apply(None if isinstance(event, bytes) else event, Lsn(at))
        return state

    def as_client(self) -> Client:
        return cast(Client, self)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    async def known(client: Client, shard: ShardId) -> Generation:
        return FIRST

    monkeypatch.setattr(rebuilding, "_read", lambda client, log, first: client.read(log, first))
    monkeypatch.setattr(rebuilding, "generation_of", known)
    monkeypatch.setattr(rebuilding, "_PAUSE", 0.001)
    return FakeClient()


def state_of(*events: tuple[int, Event]) -> RebuildingSet:
    state = RebuildingSet()
    for at, event in events:
        state.apply(event, Lsn(at))
    return state


async def test_the_last_snapshot_is_not_always_the_newest_and_some_may_be_none(client: FakeClient) -> None:
    first = (50, needs(LOST, RebuildMode.RESTORE))
    newer = state_of(first, (60, needs(DRAINED, RebuildMode.RELOCATE)))
    client.snapshots = [newer.encode(), state_of(first).encode(), b"damage"]
    client.trimmed = 60
    assert set((await read_rebuilding_set(client.as_client())).shards) == {LOST, DRAINED}


async def test_events_that_were_trimmed_while_snapshots_were_read_are_in_a_later_one(client: FakeClient) -> None:
    def trim() -> None:
        client.snapshots.append(state_of((60, needs(DRAINED, RebuildMode.RELOCATE))).encode())
        client.trimmed = 60

    client.meanwhile = trim
    assert DRAINED in (await read_rebuilding_set(client.as_client())).shards


async def test_a_snapshot_that_goes_further_than_the_log_is_passed_over(client: FakeClient) -> None:
    lie = RebuildingSet()
    lie.version = LSN_MAX
    client.snapshots = [lie.encode(), state_of((50, needs(LOST, RebuildMode.RESTORE))).encode()]
    client.trimmed = 50
    client.add(needs(DRAINED, RebuildMode.RELOCATE))
    assert set((await read_rebuilding_set(client.as_client())).shards) == {LOST, DRAINED}


async def test_a_record_that_is_no_event_is_passed_over(client: FakeClient) -> None:
    client.add(b"damage", needs(DRAINED, RebuildMode.RELOCATE))
    assert DRAINED in (await read_rebuilding_set(client.as_client())).shards


@pytest.mark.parametrize("mode", RebuildMode)
@pytest.mark.parametrize(
    "before",
    [
        [],
        [needs(DRAINED, RebuildMode.RELOCATE)],
        [needs(DRAINED, RebuildMode.RESTORE)],
        [needs(DRAINED, RebuildMode.RESTORE), needs(DRAINED, RebuildMode.RELOCATE)],
        [needs(DRAINED, RebuildMode.RESTORE, 2)],
        [needs(DRAINED, RebuildMode.RELOCATE, 2)],
        [needs(DRAINED, RebuildMode.RESTORE), ShardUnrecoverable(DRAINED, FIRST)],
    ],
)
@pytest.mark.parametrize("flags", [None, DonorFlags.NONE, DonorFlags.UNPLACED])
async def test_whatever_there_is_an_event_is_appended_once_at_most(
    client: FakeClient, mode: RebuildMode, before: list[Event], flags: DonorFlags | None
) -> None:
    client.add(*before)
    if flags is not None:
        client.finish(flags)
    state = await start_rebuilding(client.as_client(), DRAINED, mode)
    assert len(client.appended) <= 1
    entry = state.shards[DRAINED]
    assert entry.mode is mode or (entry.is_to_be_emptied if mode is RebuildMode.RELOCATE else not entry.flags)


async def test_what_was_left_undone_is_tried_once_more(client: FakeClient) -> None:
    client.add(needs(DRAINED, RebuildMode.RELOCATE))
    client.finish(DonorFlags.UNPLACED)
    state = await start_rebuilding(client.as_client(), DRAINED, RebuildMode.RELOCATE)
    assert not state.shards[DRAINED].rebuilt


async def test_with_an_older_cluster_file_than_nodes_have_it_refuses(client: FakeClient) -> None:
    client.session.view.config_version = 8
    with pytest.raises(LogDeviceError, match="version 8 of the cluster file, this is version 7") as caught:
        await start_rebuilding(client.as_client(), DRAINED, RebuildMode.RELOCATE)
    assert caught.value.status is Status.STALE
    assert not client.appended


async def test_a_shard_that_never_stored_events_can_be_drained(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(client: Client, shard: ShardId) -> Generation:
        return Generation(0)

    monkeypatch.setattr(rebuilding, "generation_of", unknown)
    state = await start_rebuilding(client.as_client(), DRAINED, RebuildMode.RELOCATE)
    assert state.shards[DRAINED].generation == FIRST
    assert not state.speaks_for(DRAINED, Generation(2)), "if it is a later one, the leader says so first"
    with pytest.raises(LogDeviceError, match="its generation is not known"):
        await start_rebuilding(client.as_client(), LOST, RebuildMode.RESTORE)


async def test_a_node_that_is_declared_lost_again_while_its_draining_is_called_off_is_drained_no_more(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = needs(DRAINED, RebuildMode.RESTORE)
    client.add(needs(DRAINED, RebuildMode.RELOCATE), lost)
    append = client.append

    async def declare(log: LogId, payload: bytes) -> None:
        if len(client.appended) == 1:
            client.add(lost)
        await append(log, payload)

    monkeypatch.setattr(client, "append", declare)
    await call_off(client.as_client(), DRAINED)
    assert not client.state().shards


async def test_calling_off_a_drain_ends_no_rebuilding_of_a_shard_that_is_lost(client: FakeClient) -> None:
    assert await call_off_drain(client.as_client(), DRAINED) is None
    client.add(needs(DRAINED, RebuildMode.RELOCATE))
    assert await call_off_drain(client.as_client(), DRAINED) is None
    assert len(client.appended) == 1
    client.add(needs(DRAINED, RebuildMode.RELOCATE), needs(DRAINED, RebuildMode.RESTORE))
    entry = await call_off_drain(client.as_client(), DRAINED)
    assert entry is not None
    assert (entry.mode, entry.drained) == (RebuildMode.RESTORE, True)
    assert len(client.appended) == 1, "nothing is said"


@pytest.mark.parametrize("mode", RebuildMode)
async def test_what_is_called_off_leaves_that_an_earlier_generation_was_rebuilt(
    client: FakeClient, mode: RebuildMode
) -> None:
    client.add(needs(DRAINED, RebuildMode.RESTORE))
    client.finish()
    client.add(needs(DRAINED, mode, 2))
    await call_off(client.as_client(), DRAINED)
    assert len(client.appended) == 1
    (entry,) = client.state().shards.values()
    assert (entry.generation, entry.rebuilt) == (FIRST, True)
    assert why_not_done(entry, RebuildMode.RELOCATE) == "is used again, nobody drains it any more"


@pytest.mark.parametrize("flags", [DonorFlags.NONE, DonorFlags.UNPLACED])
@pytest.mark.parametrize("generation", [2, 3])
async def test_a_shard_that_is_back_without_what_it_lost_before_is_waited_for(
    client: FakeClient, generation: int, flags: DonorFlags
) -> None:
    for restored in range(1, generation - 1):
        client.add(needs(LOST, RebuildMode.RESTORE, restored))
        client.finish()
    lost_before = needs(LOST, RebuildMode.RESTORE, generation - 1)
    client.add(lost_before, needs(LOST, RebuildMode.RESTORE, generation))
    begun = client.state().shards[LOST]
    waiting = asyncio.create_task(wait_until_rebuilt(client.as_client(), LOST, begun, pause=0))
    for event in (ShardAbortRebuild(LOST, Generation(generation), RebuildMode.RESTORE), lost_before):
        client.add(event)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done(), "nothing was re-replicated"
    client.finish(flags)
    entry = await waiting
    assert entry is not None
    assert (entry.generation, entry.flags) == (generation - 1, flags)


@pytest.mark.parametrize("restored", [False, True])
async def test_a_shard_that_is_back_with_all_that_it_had_is_not_waited_for(client: FakeClient, restored: bool) -> None:
    if restored:
        client.add(needs(LOST, RebuildMode.RESTORE))
        client.finish()
    generation = 2 if restored else 1
    client.add(needs(LOST, RebuildMode.RESTORE, generation))
    begun = client.state().shards[LOST]
    client.add(ShardAbortRebuild(LOST, Generation(generation), RebuildMode.RESTORE))
    entry = await wait_until_rebuilt(client.as_client(), LOST, begun, pause=0)
    assert entry == client.state().shards.get(LOST)
    assert (entry is not None) is restored


def test_how_waiting_ended_is_said() -> None:
    state = state_of((1, needs(DRAINED, RebuildMode.RELOCATE)))
    assert why_not_done(state.shards[DRAINED], RebuildMode.RELOCATE) is None
    assert why_not_done(None, RebuildMode.RESTORE) is None
    assert why_not_done(None, RebuildMode.RELOCATE) == "is used again, nobody drains it any more"
    state = state_of((1, needs(DRAINED, RebuildMode.RELOCATE)), (2, needs(DRAINED, RebuildMode.RESTORE)))
    lost = replace(state.shards[DRAINED], rebuilt=True)
    assert why_not_done(lost, RebuildMode.RELOCATE) == "was lost (rebuilt), and is drained when it is back"
    assert why_not_done(replace(lost, flags=DonorFlags.UNPLACED), RebuildMode.RESTORE) == "unplaced"


async def test_what_is_so_after_a_verb_is_said(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    async def types(verb: str, shard: ShardId, *options: str) -> str:
        client.appended.clear()
        arguments = parser().parse_args(["-c", "-", *options, verb, format_shard(shard)])
        assert await arguments.run(client.as_client(), arguments) == 0
        return capsys.readouterr().out

    name, lost = format_shard(DRAINED), format_shard(LOST)
    assert await types("drain", DRAINED) == f"{name} is being drained\n"
    assert await types("drain", DRAINED) == f"{name} is being drained already\n"
    client.finish()
    for verb in ("drain", "rebuild"):
        assert await types(verb, DRAINED) == f"{name} is drained already\n"
    assert json.loads(await types("drain", DRAINED, "--json")) == {
        "shard": name,
        "mode": "RELOCATE",
        "status": "rebuilt",
        "already": True,
    }
    assert await types("undrain", DRAINED) == f"{name} is used again\n"
    assert await types("rebuild", LOST) == f"{lost} is being rebuilt\n"
    unrecoverable = f"{lost} is declared unrecoverable{{}}: nobody waits for what only it held\n"
    assert await types("unrecoverable", LOST) == unrecoverable.format("")
    assert await types("unrecoverable", LOST) == unrecoverable.format(" already")
    assert await types("drain", LOST) == f"{lost} is being rebuilt; it is to be drained when it is back\n"
    assert json.loads(await types("undrain", LOST, "--json"))["status"] is None
    client.add(needs(DRAINED, RebuildMode.RESTORE))
    client.finish(DonorFlags.UNPLACED)
    assert (
        what_is_so(DRAINED, client.state().shards[DRAINED]) == f"{name} is rebuilt, but some records have copies less"
    )


async def test_where_the_node_that_should_sequence_the_event_log_keeps_none_it_is_said_why() -> None:
    class HalfUpgraded(FakeClient):
        async def tail_lsn(self, log: LogId) -> LSN:
            raise LogDeviceError(Status.NOTFOUND, f"tail of log {log}: no such log")

    with pytest.raises(
        LogDeviceError, match="not all nodes keep the event log: some are of an earlier version"
    ) as raised:
        await read_rebuilding_set(HalfUpgraded().as_client())
    assert raised.value.status is Status.NOTSUPPORTED
