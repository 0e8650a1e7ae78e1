"""A rolling restart: nodes are started again one after the other, each when it is safe, and the next one when it is back and well.

What is done and what is under way stands in the state of the maintenances, so whoever runs it again goes on. It stops where something is not as it
should be; it says what it waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from client.maintenance.commands import (
    AbandonRestart,
    ApplyMaintenance,
    BeginRestart,
    EndCause,
    EndMaintenance,
    MaintenanceKind,
    NodeRestarted,
    RestartNode,
    TakeRestart,
)
from client.maintenance.state import GOING, Maintenance, MaintenancePhase, RollingRestart
from ldquery.ctl.impact import Survey
from ldquery.maintenance.manager import MaintenanceLog, MaintenanceManager
from ldquery.maintenance.safety import why_unwell
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import Generation, NodeId, ShardId, format_shard
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND

PAUSE: Final = 2.0
"""Seconds between two looks, at least."""
_SHARE_OF_TIME: Final = 5
"""A look that takes long is made rarely: pauses are so many times as long."""
_TOLD_AGAIN: Final = 60.0
_LONG_PAUSE: Final = 10.0


class RestartStopped(Exception):
    """The rolling restart goes no further; the text says why. It can be resumed."""


@dataclass(frozen=True, slots=True)
class Restarting:
    """How a rolling restart is done."""

    restart: Callable[[NodeId], Awaitable[None]]
    """Ends the process of a node and starts it again; raises RestartStopped when it cannot. It may be called again when whoever called it was killed."""
    away: float
    """Seconds that a node may be away, and be waited for."""
    say: Callable[[str], None]
    pause: float = PAUSE


def _now() -> float:
    """Of the loop's clock, in seconds."""
    return asyncio.get_running_loop().time()


class Pace:
    """Says what is waited for, when that changes and now and then, and pauses between looks."""

    def __init__(self, say: Callable[[str], None], pause: float) -> None:
        self._say = say
        self._pause = pause
        self._told: tuple[str, ...] = ()
        self._told_at = 0.0
        self._began = 0.0

    def look(self) -> None:
        """A look begins."""
        self._began = _now()

    async def wait(self, what: str, reasons: Sequence[str]) -> None:
        """Pause until the next look."""
        now = _now()
        told = (what, *reasons)
        pause = max(self._pause, _SHARE_OF_TIME * (now - self._began)) if self._pause else 0.0
        if told != self._told or now - self._told_at > _TOLD_AGAIN:
            self._told, self._told_at = told, now
            for reason in told[1:]:
                self._say(f"{what}: {reason}")
            if pause > _LONG_PAUSE:
                self._say(f"{what}: that look took {now - self._began:.0f} s, the next one is in {pause:.0f} s")
        await asyncio.sleep(pause)


async def until_granted(
    log: MaintenanceLog, manager: MaintenanceManager, number: int, pace: Pace, *, ends: float | None = None
) -> Maintenance | None:
    """Wait until what a maintenance concerns may disappear, and a look after that says so as well. None: the time was over before.

    Args:
        ends: of the loop's clock.

    Raises:
        LogDeviceError: NOTFOUND: the maintenance is over; what does not pass by itself.
    """
    while True:
        pace.look()
        each = None
        try:
            reasons = (await manager.look()).reasons.get(number, [])
            each = log.state.live.get(number)
            if each is None:
                raise LogDeviceError(Status.NOTFOUND, f"maintenance {number} is over")
            if each.phase in GOING:
                reasons = await manager.confirm(number)
                each = log.state.live.get(number)
                if not reasons and each is not None and each.phase in GOING:
                    return each
        except LogDeviceError as error:
            if not error.retriable:
                raise
            reasons = [str(error)]
        if ends is not None and _now() > ends:
            return None
        if each is not None and not reasons:
            reasons = [
                "it is granted, its shards are emptied next"
                if each.phase is MaintenancePhase.DRAINING
                else "it is looked at again"
            ]
        await pace.wait(f"{each.names if each else f'maintenance {number}'} has to wait", reasons)


class RollingRestarter:
    """Goes on with the rolling restart that is under way, or begins one."""

    def __init__(
        self, log: MaintenanceLog, manager: MaintenanceManager, survey: Callable[[], Awaitable[Survey]], how: Restarting
    ) -> None:
        self._log = log
        self._manager = manager
        self._survey = survey
        self._how = how
        self._pace = Pace(how.say, how.pause)
        self._token = 0

    async def run(self, nodes: Sequence[NodeId], by: str, reason: str) -> int:
        """Do it; how many nodes it restarted in the end, those before this process included.

        Args:
            nodes: in this order; when a rolling restart is under way, it is resumed.

        Raises:
            RestartStopped: something is not as it should be.
            LogDeviceError: FENCED: another process goes on with it.
        """
        state = await self._log.current()
        if state.restart is None:
            number = await self._log.propose(BeginRestart(nodes, by, reason))
        else:
            number = state.restart.number
            done = ", ".join(f"N{node}" for node in state.restart.done) or "none"
            self._how.say(f"goes on with rolling restart {number} of {state.restart.by}; done so far: {done}")
        self._token = await self._log.propose(TakeRestart(number, by))
        restarted = 0
        while True:
            restart = (await self._log.current()).restart
            if restart is None or restart.number != number:
                return restarted
            if restart.token != self._token:
                raise LogDeviceError(Status.FENCED, f"{restart.by} goes on with rolling restart {number}")
            node = restart.left[0]
            if node in self._config.nodes:
                await self._restart(restart, node, by)
                self._how.say(f"N{node} is back and well")
            else:
                self._how.say(f"N{node} left the cluster file")
            restarted = len(restart.done) + 1
            await self._log.overtaken(NodeRestarted(number, self._token, node))

    @property
    def _config(self) -> ClusterConfig:
        return self._log.client.config

    async def _restart(self, restart: RollingRestart, node: NodeId, by: str) -> None:
        before = await self._look()
        running = _instance(before, node)
        if restart.instance is not None and running is not None and running > restart.instance:
            self._how.say(f"N{node} was started again already")
            await self._until_well(node, restart.instance, {})
            return
        granted = await self._until_granted(restart, node, by)
        found = await self._until_others_well(node)
        running = _instance(found, node) or 0
        await self._log.propose(RestartNode(restart.number, self._token, node, running))
        ended = running if restart.instance is None else restart.instance
        if (await self._log.current()).live.get(granted.number) != granted:
            raise RestartStopped(f"maintenance {granted.number} changed: N{node} may not go. Run it again")
        self._how.say(f"N{node} is restarted")
        await self._how.restart(node)
        await self._until_well(node, ended, _generations(found))

    async def _until_granted(self, restart: RollingRestart, node: NodeId, by: str) -> Maintenance:
        while True:
            number = self._of(restart, node)
            if number is None:
                wanted = ApplyMaintenance(
                    MaintenanceKind.AWAY,
                    [node],
                    self._config.nodes[node].shard_ids(),
                    int(self._how.away * SECOND),
                    by,
                    restart.reason,
                    restart.number,
                )
                number = await self._log.propose(wanted)
            try:
                granted = await until_granted(self._log, self._manager, number, self._pace)
            except LogDeviceError as error:
                if error.status is not Status.NOTFOUND:
                    raise
                continue  # it expired while it waited
            assert granted is not None
            return granted

    def _of(self, restart: RollingRestart, node: NodeId) -> int | None:
        for number, each in self._log.state.live.items():
            if each.wanted.restart == restart.number and tuple(each.wanted.nodes) == (node,):
                return number
        return None

    async def _look(self) -> Survey:
        """A survey, whatever passes by itself."""
        while True:
            self._pace.look()
            try:
                return await self._survey()
            except LogDeviceError as error:
                if not error.retriable:
                    raise
                await self._pace.wait("cannot look at the cluster", [str(error)])

    async def _until_others_well(self, node: NodeId) -> Survey:
        """Nothing is away or being repaired but what this node has: otherwise its restart would be a second trouble."""
        while True:
            found = await self._look()
            reasons = [*_unwell(self._config, found, but=node), *_silent(self._config, found, but=node)]
            if not reasons:
                return found
            await self._pace.wait(f"N{node} is next when the others are well", reasons)

    async def _until_well(self, node: NodeId, ended: int, generations: dict[ShardId, Generation]) -> None:
        """The node runs again and has all that it had, and the others are well, too."""
        ends = _now() + self._how.away
        while True:
            found = await self._look()
            reasons = [*_unwell(self._config, found), *_silent(self._config, found)]
            running = _instance(found, node)
            if running is not None and running <= ended:
                reasons.append(f"N{node} still runs as before")
            for shard, row in found.shards.items():
                if row["generation"] > generations.get(shard, row["generation"]):
                    raise RestartStopped(
                        f"{format_shard(shard)} came back without its data, as generation {row['generation']}: see ldctl status"
                    )
            if not reasons:
                return
            if _now() > ends:
                text = f"N{node} is not back and well after {self._how.away:g} s: {'; '.join(reasons)}"
                raise RestartStopped(text)
            await self._pace.wait(f"N{node} is not back and well yet", reasons)


async def abandon(log: MaintenanceLog) -> RollingRestart | None:
    """End the rolling restart that is under way, and its maintenance; None: there is none."""
    state = await log.current()
    restart = state.restart
    if restart is None:
        return None
    await log.overtaken(AbandonRestart(restart.number))
    for number, each in list(state.live.items()):
        if each.wanted.restart == restart.number:
            await log.overtaken(EndMaintenance(number, EndCause.CANCELLED))
    return restart


def _instance(found: Survey, node: NodeId) -> int | None:
    row = found.nodes.get(node)
    return None if row is None else int(row["instance"])


def _generations(found: Survey) -> dict[ShardId, Generation]:
    return {shard: Generation(row["generation"]) for shard, row in found.shards.items()}


def _unwell(config: ClusterConfig, found: Survey, *, but: NodeId | None = None) -> list[str]:
    return [
        f"{format_shard(shard)} {why}"
        for node, member in config.nodes.items()
        if node != but
        for shard in member.shard_ids()
        if (why := why_unwell(found, shard)) is not None
    ]


def _silent(config: ClusterConfig, found: Survey, *, but: NodeId | None = None) -> list[str]:
    """Nodes that sequence only and do not answer, or are not ready."""
    troubles = []
    for node, member in config.nodes.items():
        row = found.nodes.get(node)
        if node != but and not member.shard_ids() and (row is None or row["readiness"] != "OK"):
            troubles.append(f"N{node} {'does not answer' if row is None else 'takes no requests: ' + row['readiness']}")
    return troubles
