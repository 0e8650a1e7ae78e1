"""Clients that make, rename and remove logs at run time on clusters that break, and use them.

1. Equal versions of the tree are equal states, in all nodes and all clients.
2. No id is given twice.
3. An append that begins after `remove` returned is never acknowledged.
4. A log that was made is never said not to exist before somebody asks to remove it.
5. What was acknowledged of a log that is there is read.
"""

from __future__ import annotations

import asyncio

from client.client import Client
from client.log_tree.client_log_tree import LogTreeEntry
from client.log_tree.state import LogTreeState
from client.replica.applied_state import AppliedState
from client.replica.commands import StateVersion
from logdevice_py import LogDeviceError, SimCluster, Status

WORKERS = 3
STEPS = 14


class TreeChecks:
    """What was promised so far, and whether it holds."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.states: dict[StateVersion, bytes] = {}
        self.compared = 0
        self.ids: dict[int, str] = {}
        """That were given, and to which path."""
        self.removed: set[int] = set()
        """First logs of groups of which `remove` returned."""
        self.doomed: set[int] = set()
        """First logs of groups that somebody asked to remove."""
        self.acknowledged: dict[int, set[bytes]] = {}

    def compare(self) -> None:
        """Every node that runs: its tree is that of all others of the version."""
        for node in self.cluster.machines.nodes.values():
            if node.root is not None and node.root.log_tree is not None:
                self._compare(node.root.log_tree.replica.state)

    def compare_client(self, client: Client) -> None:
        """A client as well."""
        assert client.log_tree is not None
        self._compare(client.log_tree.replica.state)

    def _compare(self, state: AppliedState[LogTreeState]) -> None:
        encoded = state.value.encode()
        before = self.states.setdefault(state.position, encoded)
        assert before == encoded, f"two trees of version {state.position}"
        self.compared += 1

    def made(self, entry: LogTreeEntry) -> None:
        """A group was made: all its ids are new."""
        for log in entry.logs:
            assert log not in self.ids, f"id {log} is given to {self.ids[log]} and to {entry.path}"
            self.ids[log] = entry.path

    async def append(self, client: Client, lo: int, payload: bytes) -> None:
        """Whatever comes of it must be allowed."""
        was_removed = lo in self.removed
        status = await outcome(client, lo, payload, self.cluster.rng.choice([0.5, 5, 20]))
        if status is Status.OK:
            assert not was_removed, f"an append to log {lo} that began after it was removed is acknowledged"
            self.acknowledged.setdefault(lo, set()).add(payload)
        elif status is Status.NOTFOUND:
            assert lo in self.doomed, f"log {lo} is there, and is said not to be"


async def outcome(client: Client, log: int, payload: bytes, timeout: float) -> Status:
    """What an append comes to."""
    try:
        await client.append(log, payload, timeout=timeout)
    except LogDeviceError as error:
        return error.status
    return Status.OK


class TreeWorker:
    """A client that makes logs, uses those that it has heard of, and removes some."""

    def __init__(self, number: int, checks: TreeChecks, known: list[LogTreeEntry]) -> None:
        self.number = number
        self.checks = checks
        self.known = known
        """Groups that some worker made, shared by all."""

    async def work(self) -> None:
        cluster = self.checks.cluster
        rng, done = cluster.rng, 0
        while done < STEPS:
            async with cluster.client() as client:
                while done < STEPS and rng.random() > 0.1:
                    done += 1
                    await self.step(client, done)
                    self.checks.compare()
                    self.checks.compare_client(client)
                    await asyncio.sleep(rng.uniform(0, 0.3))

    async def step(self, client: Client, number: int) -> None:
        checks, rng = self.checks, self.checks.cluster.rng
        kind = rng.random()
        if kind < 0.3 or not self.known:
            try:
                entry = await client.make_log_group(f"/w{self.number}-{number}", rng.randrange(1, 3), timeout=20)
            except LogDeviceError:
                return  # it took too long; nobody else takes this path
            checks.made(entry)
            self.known.append(entry)
            await checks.append(client, entry.logs[0], b"%d-%d" % (self.number, number))
        elif kind < 0.75:
            entry = rng.choice(self.known)
            await checks.append(client, entry.logs[0], b"%d-%d" % (self.number, number))
        elif kind < 0.85:
            await self.rename(client, rng.choice(self.known), number)
        else:
            await self.remove(client, rng.choice(self.known))

    async def rename(self, client: Client, entry: LogTreeEntry, number: int) -> None:
        try:
            found = await client.get_log_group(entry.logs[0], timeout=5)
            await client.rename(found.path, f"/renamed{self.number}-{number}", expect=found.version, timeout=5)
        except LogDeviceError:
            pass  # somebody removes it, or it takes too long: what matters is checked elsewhere

    async def remove(self, client: Client, entry: LogTreeEntry) -> None:
        lo = entry.logs[0]
        try:
            found = await client.get_log_group(lo, timeout=5)
            self.checks.doomed.add(lo)
            await client.remove(found.path, timeout=30)
        except LogDeviceError:
            return
        self.checks.removed.add(lo)


async def use_under_faults(cluster: SimCluster) -> TreeChecks:
    checks = TreeChecks(cluster)
    known: list[LogTreeEntry] = []
    await asyncio.gather(*(TreeWorker(number, checks, known).work() for number in range(WORKERS)))
    await cluster.calm()
    async with cluster.client() as client:
        await client.make_log_group("/last", timeout=300)
        for entry in known:
            lo = entry.logs[0]
            await checks.append(client, lo, b"last")
            if lo not in checks.doomed:
                await read_all(client, lo, checks.acknowledged[lo])
        await asyncio.sleep(5)
        checks.compare()
        checks.compare_client(client)
    return checks


async def read_all(client: Client, lo: int, acknowledged: set[bytes]) -> None:
    tail = await client.tail_lsn(lo, timeout=120)
    found: set[bytes] = set()
    async with client.reader(lo, until=tail) as reader:
        while batch := await reader.read(timeout=120):
            found.update(record.payload for record in batch.records())
    assert acknowledged <= found, f"acknowledged in log {lo} and gone: {acknowledged - found}"
