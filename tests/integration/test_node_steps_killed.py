"""Nodes that are killed at each step of a sequencer, of a recovery, of the event log's leader and of the log tree: nothing is lost, doubled or brought back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from client.client import Client
from ldquery.ctl.event_log import read_rebuilding_set, wait_until_rebuilt
from logdevice_py import START, GuardError, Namespace, Record
from logdevice_py import Position as StreamPosition
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import EVENT_LOG_DELTAS, Generation, NodeId, shard_id
from logdevice_py.core.status import LogDeviceError
from logdevice_py.event_log.events import RebuildMode, ShardNeedsRebuild, encode_event
from server.dev.supervisor import CommandError
from tests.integration.node_step_worker import ARMED, DECLARED, KILLED, REACHED, SILENT, declared_steps
from tests.integration.process_cluster import (
    DirectWorkload,
    ForkingSupervisor,
    Journal,
    Position,
    ProcessCluster,
    Reading,
    StreamWorkload,
    compare,
    process_cluster,
    read_all,
)

STRIDE = 10
"""Each variant kills at every so many-th step."""
SETTINGS: dict[str, Any] = {
    "sequencer": {"history_trim_from": 2, "graylist_us": "1s"},
    "log_tree": {"enabled": True, "snapshot_commands": 5},
    "rebuilding": {
        "enabled": True,
        "self_initiated_grace_period_us": "2s",
        "supervision_us": "200ms",
        "retry_us_max": "300ms",
        "snapshot_events": 5,
    },
}


def _steps(does: str, *kinds: str) -> list[str]:
    return [f"{each} {kind}" for kind in kinds for each in does.split()]


ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(_steps("takes", "ClusterState", "ShardStatus", "KeyFound", "DataSized"), "clients take it"),
    **dict.fromkeys(_steps("sent", "GuardedAppend", "FindKey", "DataSize"), "clients send it"),
    "takes Shutdown": "the connection takes it",
    **dict.fromkeys(_steps("takes sent", "GetConfiguration", "ConfigurationText"), "nobody has an older configuration"),
    **dict.fromkeys(_steps("asks asked answered", "ChangeConfiguration"), "nobody changes a stored configuration"),
    **dict.fromkeys(_steps("asks asked answered", "SetDisabled"), "a tool asks for it"),
    **dict.fromkeys(_steps("asks asked answered", "ToNextEpoch"), "it is a part of TakeEpoch"),
    **dict.fromkeys(
        _steps("takes sent", "Compare", "Compared", "Fetch", "Fetched"), "shards compare what they hold later"
    ),
    **dict.fromkeys(_steps("runs ran", "WriteAuditLine"), "there is no audit log"),
    **dict.fromkeys(_steps("appends appended", "ShardTookRecords"), "no shard is drained"),
}
"""Steps to which nodes of this cluster come seldom or never, and why."""
PAUSE = 0.01
"""Seconds between two appends of a writer."""
SECONDS = 120.0
"""For what takes a few on a machine with nothing else to do."""


class StepSupervisor(ForkingSupervisor):
    """Its nodes come to steps."""

    def __init__(self, directory: Path, config: ClusterConfig) -> None:
        super().__init__(directory, config)
        self.steps = directory / "steps"
        for name in (ARMED, KILLED):
            (self.steps / name).mkdir(parents=True)
        self.program = ("tests.integration.node_step_worker", str(self.steps))


class Trouble:
    """A cluster at work, whose nodes are killed at steps."""

    def __init__(self, cluster: ProcessCluster, client: Client, log: int, writers: list[StreamWorkload]) -> None:
        self.cluster = cluster
        self.client = client
        self.log = log
        self.writers = writers
        self.wiped: int | None = None
        """A node that lost its disk, and may not have everything back."""
        assert isinstance(cluster.supervisor, StepSupervisor)
        self.supervisor = cluster.supervisor
        self.steps = cluster.supervisor.steps

    def declared(self) -> list[str]:
        """All steps there are."""
        return (self.steps / DECLARED).read_text().splitlines()

    def reached(self) -> set[str]:
        """Those to which some node has come."""
        return set((self.steps / REACHED).read_text().splitlines())

    async def kill_at(self, step: str) -> bool:
        """Have the first node that comes to a step die there. False: none came, whatever happened."""
        (self.steps / ARMED / step).touch()
        for happens in (
            self._nothing,
            self._home_is_killed,
            self.revive,
            self._home_is_restarted,
            self._epoch_store_is_silent,
            self._one_is_paused,
            self._somebody_invents_a_shard,
            self._one_loses_its_disk,
        ):
            await happens()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(4 if happens != self._one_loses_its_disk else SECONDS):
                    while not self._is_killed(step):  # noqa: ASYNC110 - of other processes
                        await asyncio.sleep(0.02)
            if self._is_killed(step):
                return True
        (self.steps / ARMED / step).unlink(missing_ok=True)
        return False

    def _is_killed(self, step: str) -> bool:
        """Whether a node has died there, and its end is known."""
        file = self.steps / KILLED / step
        process = file.read_text() if file.exists() else ""
        running = {
            str(child.process.pid) for child in self.supervisor.children.values() if child.process.returncode is None
        }
        return bool(process) and process not in running

    async def _nothing(self) -> None:
        pass

    async def _home(self) -> int:
        """The node that sequences the stream."""
        return int((await self.client.sequencer(self.log, timeout=SECONDS)).node)

    async def _home_is_killed(self) -> None:
        with contextlib.suppress(CommandError):
            await self.supervisor.kill(await self._home())

    async def _home_is_restarted(self) -> None:
        with contextlib.suppress(CommandError):
            await self.supervisor.restart(await self._home())

    async def _epoch_store_is_silent(self) -> None:
        (self.steps / SILENT).touch()
        await asyncio.sleep(4)
        (self.steps / SILENT).unlink()

    async def _one_is_paused(self) -> None:
        """One that only stores, for so long that others take it for slow, and not for dead."""
        paused = (await self._home() + 1) % len(self.supervisor.config.nodes)
        with contextlib.suppress(CommandError):
            await self.supervisor.pause(paused)
            await asyncio.sleep(1.5)
            await self.supervisor.resume(paused)

    async def _somebody_invents_a_shard(self) -> None:
        """Says that a shard is lost which nobody ever had."""
        shard = shard_id(NodeId(77))
        event = ShardNeedsRebuild(shard, Generation(1), RebuildMode.RESTORE, ((shard, Generation(1)),), False)
        with contextlib.suppress(LogDeviceError):
            await self.client.append(EVENT_LOG_DELTAS, encode_event(event), timeout=10)

    async def _one_loses_its_disk(self) -> None:
        """When all know that it is lost, it comes back empty."""
        await self.revive()
        lost = (await self._home() + 1) % len(self.supervisor.config.nodes)
        with contextlib.suppress(CommandError):
            await self.supervisor.kill(lost)
            async with asyncio.timeout(SECONDS):
                while not await self._is_lost(lost):  # noqa: ASYNC110 - nodes tell each other
                    await asyncio.sleep(0.2)
            await self.supervisor.wipe(lost)
        self.wiped = lost

    async def _is_lost(self, node: int) -> bool:
        """Whether the event log says so."""
        with contextlib.suppress(LogDeviceError):
            entry = (await read_rebuilding_set(self.client)).shards.get(shard_id(NodeId(node)))
            return entry is not None and entry.lost == entry.generation
        return False

    async def revive(self) -> None:
        """Start what is dead, until all run."""
        while dead := [node for node in self.supervisor.config.nodes if node not in self.supervisor.running()]:
            for node in dead:
                with contextlib.suppress(CommandError):  # it was killed as it started
                    await self.supervisor.start_and_wait(node)
        await self.cluster.acquainted()

    async def go_on(self) -> None:
        """Start what is dead, and see that each writer goes on."""
        await self.revive()
        if self.wiped is not None:
            async with asyncio.timeout(SECONDS):
                await wait_until_rebuilt(self.client, shard_id(NodeId(self.wiped)))
            self.wiped = None
        await asyncio.gather(*(writer.more(5, timeout=SECONDS) for writer in self.writers))


async def again_and_again(stop: asyncio.Event, work: Callable[[], Awaitable[object]]) -> None:
    """Do what makes nodes come to steps; what fails meanwhile is no matter."""
    while not stop.is_set():
        with contextlib.suppress(LogDeviceError):
            await work()
        await asyncio.sleep(0.05)


async def follow(client: Client, log: int, found: dict[Position, bytes]) -> None:
    """What a reader gets that reads all the while."""
    async with client.reader(log) as reader:
        async for item in reader:
            if isinstance(item, Record):
                found[int(item.lsn), item.batch_offset] = item.payload


class ChainWorkload:
    """Appends of which each is to follow directly behind the one before."""

    def __init__(self, client: Client, log: int) -> None:
        self.client, self.log = client, log
        self.journal = Journal()
        self.expected: dict[Position, Position] = {}
        """By position of what was acknowledged: what had to be in front of it."""

    async def run(self, stop: asyncio.Event) -> None:
        """Until it is told to stop."""
        last = START
        for number in itertools.count():
            if stop.is_set():
                return
            payload = b"chained %d" % number
            try:
                receipt = await self.client.append(self.log, payload, expect=last, timeout=10)
            except LogDeviceError as error:
                (self.journal.doubtful if error.maybe_applied else self.journal.failed).add(payload)
                if isinstance(error, GuardError) and error.position is not None:
                    last = error.position
                continue
            self.expected[_pair(receipt.position)] = _pair(last)
            self.journal.acknowledged[_pair(receipt.position)] = payload
            last = receipt.position
            await asyncio.sleep(PAUSE)

    def check(self, reading: Reading) -> None:
        """What was acknowledged is there, and follows what it had to follow."""
        compare(reading, self.journal)
        for before, at in itertools.pairwise([_pair(START), *reading.records]):
            assert self.expected.get(at, before) == before, f"{at} follows {before}, not {self.expected[at]}"


def _pair(position: StreamPosition) -> Position:
    return int(position.lsn), position.batch_offset


async def wander(client: Client, stop: asyncio.Event, writing: int) -> None:
    """Everything else that is asked of a log: look-ups, trims, other nodesets, groups that come and go."""
    names = itertools.count()
    await client.make_log_group("/toggled")

    async def trim() -> None:
        await client.append(1, b"soon trimmed", timeout=10)
        await client.trim(1, await client.tail_lsn(1, timeout=10), timeout=10)

    async def make_and_remove() -> None:
        path = f"/g{next(names)}"
        entry = await client.make_log_group(path, timeout=20)
        await client.append(entry.logs[0], b"in a log that goes", timeout=10)
        await client.remove(path, timeout=20)

    async def toggle() -> None:
        log = client.log_id("/toggled")
        for copies in (2, 3):
            await client.set_attributes("/toggled", {"replicate": f"node:{copies}"}, timeout=20)
            await client.append(log, b"by another nodeset", timeout=10)
            await client.trim(log, await client.tail_lsn(log, timeout=10), timeout=10)

    async def look() -> None:
        await client.find_key(writing, b"0", timeout=10)
        await client.data_size(writing, timeout=10)
        await client.segments(writing, timeout=10)
        await client.known_tail(writing, timeout=10)

    async def read() -> None:
        async with client.reader(writing) as reader:
            await reader.read(1, timeout=5)

    await asyncio.gather(*(again_and_again(stop, work) for work in (trim, make_and_remove, toggle, look, read)))


@contextlib.asynccontextmanager
async def at_work(cluster: ProcessCluster) -> AsyncIterator[Trouble]:
    """Shared writers, conditional appends, strict order, and whatever else is asked of logs. In the end all that was acknowledged is there, once; and what a
    reader saw meanwhile is what is there."""
    async with Client(cluster.file) as client, Namespace(client) as namespace:
        orders = (await namespace.create("orders")).log
        rolling = {"strict_order": True, "roll_every": "2s"}
        strict = (await client.make_log_group("/strict", attributes=rolling)).logs[0]
        chain = ChainWorkload(client, (await client.make_log_group("/chain")).logs[0])
        stop = asyncio.Event()
        shared = [StreamWorkload(client, orders, name=name, batch=5, pause=PAUSE) for name in ("a", "b")]
        direct = DirectWorkload(client, strict, tasks=2, pause=PAUSE)
        found: dict[Position, bytes] = {}
        working = [asyncio.create_task(each) for each in (chain.run(stop), wander(client, stop, strict))]
        following = asyncio.create_task(follow(client, orders, found))
        try:
            yield Trouble(cluster, client, orders, shared)
            stop.set()
            await asyncio.gather(*working)
            journals = [await each.finish() for each in shared]
            journals_of_strict = await direct.finish()
            reading = await read_all(client, orders, timeout=SECONDS)
            compare(reading, *journals)
            compare(await read_all(client, strict, timeout=SECONDS), journals_of_strict)
            chain.check(await read_all(client, chain.log, timeout=SECONDS))
            assert len(chain.expected) > 10
            async with asyncio.timeout(SECONDS):
                while not found.keys() >= reading.records.keys():
                    assert not following.done(), following.exception()
                    await asyncio.sleep(0.1)
            assert found == reading.records, "what was read once is read for ever"
        finally:
            stop.set()
            for task in (following, *working):
                task.cancel()
            await asyncio.gather(following, *working, return_exceptions=True)


def test_steps_that_are_left_out_exist() -> None:
    everything = set(declared_steps(()))
    assert {step for step in ELSEWHERE if not step.startswith(("runs ", "ran "))} <= everything


@pytest.mark.slow
@pytest.mark.parametrize("begin", range(STRIDE))
async def test_nodes_are_killed_at_each_of_their_steps(tmp_path: Path, begin: int) -> None:
    async with (
        process_cluster(
            tmp_path, nodes=5, racks=1, replicate="node:3", settings=SETTINGS, supervised_by=StepSupervisor
        ) as cluster,
        at_work(cluster) as trouble,
    ):
        steps = [step for step in trouble.declared() if step not in ELSEWHERE]
        assert len(steps) > 100
        missed = []
        for step in steps[begin::STRIDE]:
            if not await trouble.kill_at(step):
                missed.append(step)
            await trouble.go_on()
        assert missed == [], "no node came to these steps: they are not tested"
        assert trouble.reached() <= set(trouble.declared()), "each step is declared"
