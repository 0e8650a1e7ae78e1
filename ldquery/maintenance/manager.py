"""Sees to maintenances: grants what is safe, has shards drained and used again, ends what is over. Any number of processes may do it at the same time.

A manager looks at the state, then at the cluster, decides, and proposes commands; `client.maintenance.state` refuses those that others overtook.
Nothing of it is kept anywhere: one that is killed is replaced by the next one that looks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol

import msgpack

from client.client import Client
from client.maintenance.commands import (
    EndCause,
    EndMaintenance,
    GrantMaintenance,
    MaintenanceCommand,
    MaintenanceKind,
    ShardsDrained,
    ShardsReturned,
    WithdrawMaintenance,
    encode,
)
from client.maintenance.state import GOING, MAINTENANCES, Maintenance, MaintenancePhase, MaintenancesState
from client.replica.commands import refusal
from client.replica.replica import Replica
from ldquery.ctl.impact import Survey
from ldquery.maintenance.safety import has_left, is_back, why_not
from logdevice_py.core.ids import MAINTENANCE_DELTAS, MAINTENANCE_SNAPSHOTS, ShardId, format_shard
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp

SNAPSHOT_EVERY: Final = 200
_OVERTAKEN: Final = frozenset({Status.CONFLICT, Status.VERSION_MISMATCH, Status.NOTFOUND})


class Drains(Protocol):
    """What has shards emptied, and used again."""

    async def begin(self, shard: ShardId) -> None:
        """Have it emptied; once more, when that ended with records that found no place. Harmless when it is emptied already."""

    async def progress(self, shards: Iterable[ShardId]) -> dict[ShardId, str | None]:
        """How far each is, from the event log itself: its status there, "rebuilt" when it is empty, "unplaced" when some records found no other place;
        None: nobody drains it."""

    async def call_off(self, shard: ShardId) -> str | None:
        """It is to be used again. Harmless when nobody drains it. Why it is not; None: it is."""


@dataclass(slots=True)
class Round:
    """What one look came to."""

    reasons: dict[int, list[str]] = field(default_factory=dict)
    """Why a maintenance goes no further, by its number."""


class MaintenanceLog:
    """A client's replica of the maintenances, and commands to it. Use it as an async context manager.

    Raises:
        LogDeviceError: NOTSUPPORTED, when it is made: the cluster keeps no log of maintenances.
    """

    def __init__(self, client: Client, *, timeout: float = 30.0, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        """
        Args:
            timeout: seconds that the cluster gets to take a command, or to tell the newest ones.
        """
        if not client.config.has_maintenances:
            raise LogDeviceError(
                Status.NOTSUPPORTED,
                "the cluster keeps no log of maintenances: set enabled = true in [settings.maintenance] of its file",
            )
        self.client = client
        self.timeout = timeout
        self._replica = Replica(
            client, MAINTENANCES, MAINTENANCE_DELTAS, MAINTENANCE_SNAPSHOTS, snapshot_every=snapshot_every
        )

    async def __aenter__(self) -> MaintenanceLog:
        await self._replica.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._replica.close()

    def waiting_for(self) -> str:
        """What holds it up, for people."""
        return f"the log of maintenances: {self._replica.waiting_for()}"

    @property
    def state(self) -> MaintenancesState:
        """As far as it is read."""
        return self._replica.state

    async def current(self) -> MaintenancesState:
        """The state with all that was applied anywhere before this call.

        Raises:
            LogDeviceError: TIMEDOUT.
        """
        await self._replica.current(timeout=self.timeout)
        return self.state

    async def propose(self, command: MaintenanceCommand) -> int:
        """Have a command applied; the number that it made, or 0.

        Raises:
            LogDeviceError: why it was refused; TIMEDOUT, `maybe_applied`: it may be applied later.
        """
        await self._replica.caught_up(timeout=self.timeout)
        outcome = await self._replica.propose(encode(command), timeout=self.timeout)
        if not outcome.applied:
            status, text = refusal(outcome.reason)
            raise LogDeviceError(status, text, retriable=False, maybe_applied=False)
        made: Any = msgpack.unpackb(outcome.result) if outcome.result else 0
        return int(made)

    async def overtaken(self, command: MaintenanceCommand) -> bool:
        """Propose what somebody else may have proposed meanwhile, or made needless: whether it was so."""
        try:
            await self.propose(command)
        except LogDeviceError as error:
            if error.status in _OVERTAKEN:
                return True
            raise
        return False


async def is_used(client: Client, timeout: float) -> bool:
    """Whether there may be maintenances, found out without a sequencer: who looks at a cluster must not begin a log that nobody has used.

    Args:
        timeout: seconds.

    Raises:
        LogDeviceError: as `Client.known_tail`.
    """
    return bool(await client.known_tail(MAINTENANCE_DELTAS, timeout=timeout))


async def read_maintenances(client: Client, timeout: float) -> MaintenancesState:
    """All of them, as they are now; none where the cluster keeps no log of them, or nobody has used it.

    Args:
        timeout: seconds.

    Raises:
        LogDeviceError: as `is_used` and `MaintenanceLog.current`.
    """
    if not client.config.has_maintenances or not await is_used(client, timeout):
        return MaintenancesState()
    async with MaintenanceLog(client, timeout=timeout, snapshot_every=0) as log:
        return await log.current()


class MaintenanceManager:
    """One that sees to all maintenances."""

    def __init__(
        self,
        log: MaintenanceLog,
        survey: Callable[[], Awaitable[Survey]],
        drains: Drains,
        wall: Callable[[], int],
    ) -> None:
        """
        Args:
            survey: asks the cluster.
            wall: microseconds since the Unix epoch. What it says too early is refused by the state.
        """
        self.log = log
        self._survey = survey
        self._drains = drains
        self._wall = wall

    @property
    def has_work(self) -> bool:
        """Whether a look may find something to do, as far as the state and the time tell: nothing waits, is drained or has to end otherwise."""
        return any(
            each.phase not in GOING or self._is_late(each) or has_left(self.log.client.config, each)
            for each in self.log.state.live.values()
        )

    async def look(self) -> Round:
        """Look once, and do what is to be done.

        Raises:
            LogDeviceError: the cluster, or the log of maintenances, does not answer.
        """
        state = await self.log.current()
        done = Round()
        if not state.live:
            return done
        # in this order: whatever is granted after this survey has another basis
        found = await self._survey()
        for number in list(state.live):
            each = state.live.get(number)
            if each is not None:
                done.reasons[number] = await self._see_to(each, found)
        return done

    async def reasons(self) -> dict[int, list[str]]:
        """Why those that wait have to, by number. It changes nothing."""
        state = await self.log.current()
        waiting = [each for each in state.live.values() if each.phase is MaintenancePhase.WAITING]
        if not waiting:
            return {}
        found = await self._survey()
        return {each.number: why_not(self.log.client.config, found, state, each) for each in waiting}

    async def confirm(self, number: int) -> list[str]:
        """For whoever is about to take away what was granted: why he must not, after another look. Then it waits again.

        A grant may have been applied long after it was judged, and the cluster may be another one since.

        Raises:
            LogDeviceError: NOTFOUND: it is over.
        """
        each = (await self.log.current()).live.get(number)
        if each is None:
            raise LogDeviceError(Status.NOTFOUND, f"maintenance {number} is over")
        found = await self._survey()
        state = self.log.state
        reasons = why_not(self.log.client.config, found, state, each)
        if state.live.get(number) != each:
            return ["it changed while it was looked at"]
        if reasons and each.phase is MaintenancePhase.GRANTED:
            await self.log.overtaken(WithdrawMaintenance(number, each.version))
        return reasons

    async def _see_to(self, each: Maintenance, found: Survey) -> list[str]:
        config, log = self.log.client.config, self.log
        if has_left(config, each):
            await log.overtaken(EndMaintenance(each.number, EndCause.LEFT, each.version))
            return []
        if each.phase is MaintenancePhase.ENDING:
            return await self._return(each)
        if self._is_late(each) and (each.phase is MaintenancePhase.WAITING or is_back(config, found, each)):
            await log.overtaken(EndMaintenance(each.number, EndCause.EXPIRED, each.version))
            return []
        if each.phase is MaintenancePhase.WAITING:
            return await self._grant(each, found)
        if each.phase is MaintenancePhase.DRAINING:
            return await self._drain(each, found)
        return []

    def _is_late(self, each: Maintenance) -> bool:
        expires = each.expires
        return expires is not None and Timestamp(self._wall()) >= expires

    async def _grant(self, each: Maintenance, found: Survey) -> list[str]:
        state = self.log.state
        basis = state.basis
        reasons = why_not(self.log.client.config, found, state, each)
        if reasons:
            return reasons
        if await self.log.overtaken(GrantMaintenance(each.number, basis)):
            return ["another maintenance was granted or ended meanwhile"]
        return []

    async def _drain(self, each: Maintenance, found: Survey) -> list[str]:
        in_file = set(self.log.client.config.storage_shards())
        shards = [shard for shard in each.wanted.shards if shard in in_file]
        progress = await self._drains.progress(shards)
        if all(status == "rebuilt" for status in progress.values()):
            await self.log.overtaken(ShardsDrained(each.number, each.version))
            return []
        begun = any(progress.values())
        reasons: list[str] = []
        if not begun or "unplaced" in progress.values():
            reasons = why_not(self.log.client.config, found, self.log.state, each)
        if reasons and not begun:
            await self.log.overtaken(WithdrawMaintenance(each.number, each.version))
            return reasons
        for shard, status in progress.items():
            # what found no place while some node was away or slow may have one by now
            if status is None or (status == "unplaced" and not reasons):
                await self._drains.begin(shard)
        return [
            f"{format_shard(shard)} is being drained: {_told(status, is_tried_again=not reasons)}"
            for shard, status in progress.items()
            if status != "rebuilt"
        ] + reasons

    async def _return(self, each: Maintenance) -> list[str]:
        in_file = set(self.log.client.config.storage_shards())
        called_off = [await self._drains.call_off(shard) for shard in each.wanted.shards if shard in in_file]
        if reasons := [why for why in called_off if why is not None]:
            return reasons
        await self.log.overtaken(ShardsReturned(each.number, each.version))
        return []


def _told(status: str | None, *, is_tried_again: bool) -> str:
    if status is None:
        return "asked for"
    if status == "unplaced":
        return f"some records found no other place{', asked for once more' * is_tried_again}"
    return "records may be gone: see ldctl status, then cancel it" if status == "uncertain" else status


def kind_named(kind: MaintenanceKind) -> str:
    """As people write it."""
    return "drain" if kind is MaintenanceKind.DRAIN else "may disappear"
