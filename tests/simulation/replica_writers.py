"""Replicas of one state machine under faults: equal versions mean equal states, everywhere and always, and each change happens once."""

from __future__ import annotations

import asyncio

from client.replica.commands import StateVersion
from client.replica.replica import Replica
from logdevice_py import LogDeviceError, SimCluster
from tests.unit.client.replica.registers import REGISTERS, Registers, set_command

COMMANDS, SNAPSHOTS = 8, 9
WRITERS = 3
CHANGES = 25
_KEYS = 4


class StatesByVersion:
    """The first state that any replica had at each version."""

    def __init__(self) -> None:
        self._states: dict[StateVersion, bytes] = {}
        self.compared = 0

    def check(self, replica: Replica[Registers]) -> None:
        """It is that of every other replica of this version."""
        state = replica._machine.state.encode()
        before = self._states.setdefault(replica.version, state)
        assert before == state, f"two states of version {replica.version}"
        self.compared += 1


class Writers:
    """Several clients that change registers, and what they were told."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.states = StatesByVersion()
        self.applied: set[str] = set()
        self.refused: set[str] = set()
        self.unknown: set[str] = set()

    async def write(self, number: int) -> None:
        """Change registers of its own once each, and one of all when it is as this writer saw it; start again now and then."""
        rng = self.cluster.rng
        done = 0
        while done < CHANGES:
            async with (
                self.cluster.client() as client,
                Replica(client, REGISTERS, COMMANDS, SNAPSHOTS, snapshot_every=4) as replica,
            ):
                follower = asyncio.create_task(self.follow(replica))
                try:
                    while done < CHANGES and rng.random() > 0.15:
                        done += 1
                        await self.change(replica, f"w{number}-{done}")
                        await asyncio.sleep(rng.uniform(0, 0.3))
                finally:
                    follower.cancel()
                    [failed] = await asyncio.gather(follower, return_exceptions=True)
                    if isinstance(failed, AssertionError):
                        raise failed

    async def follow(self, replica: Replica[Registers]) -> None:
        """Look at each version that the replica has."""
        async for _ in replica.changes():
            self.states.check(replica)

    async def change(self, replica: Replica[Registers], name: str) -> None:
        """Set a register that nobody else sets; now and then ask again what came of it."""
        rng = self.cluster.rng
        command = set_command(name, "set")
        shared = f"shared{rng.randrange(_KEYS)}"
        request = None
        try:
            await replica.caught_up(timeout=60)
            expected = replica.state.values.get(shared, "")
            request = replica.new_request()
            for _ in range(3):
                try:
                    outcome = await replica.propose(command, request=request, timeout=rng.choice([0.3, 3, 30]))
                    assert outcome.applied
                    assert outcome.result == b"1", f"{name} was set {outcome.result!r} times"
                    self.applied.add(name)
                    break
                except LogDeviceError as error:
                    if not error.retriable:
                        raise
            await replica.propose(set_command(shared, name, expected), timeout=3)
        except LogDeviceError:
            pass  # it may be there, or not
        self.states.check(replica)


async def change_under_faults(cluster: SimCluster) -> tuple[int, int, int]:
    writers = Writers(cluster)
    await asyncio.gather(*(writers.write(number) for number in range(WRITERS)))
    await cluster.calm()
    async with cluster.client() as client, Replica(client, REGISTERS, COMMANDS, SNAPSHOTS) as last:
        await last.caught_up(timeout=300)
        outcome = await last.propose(set_command("last", "1"), timeout=300)
        assert outcome.applied
        writers.states.check(last)
        counts = last.state.counts
        missing = sorted(name for name in writers.applied if name not in counts)
        assert not missing, f"acknowledged and gone: {missing}"
        twice = sorted(name for name, count in counts.items() if name.startswith("w") and count != 1)
        assert not twice, f"applied more than once: {twice}"
    return len(writers.applied), writers.states.compared, sum(cluster.faults.values())
