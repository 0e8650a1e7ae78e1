"""Groups of readers on clusters that break, with members that die, pause, dawdle and come back.

1. Equal versions of the subscriptions are equal states, in all processes.
2. An assignment's token belongs to one member, and nothing is handed out with a token below one that was handed out before.
3. In the order of the log, neither tokens nor positions of the commits of a stream fall.
4. Every record that was acknowledged to its writer is handled and committed, once faults end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from client.client import Client
from client.guards import Position
from client.replica.commands import StateVersion
from logdevice_py import LogDeviceError, SimCluster, Status
from streams.subscriptions.group import Group, GroupBatch, GroupReader
from streams.subscriptions.subscriptions import Subscriptions

COMMANDS, SNAPSHOTS = 10, 11
STREAMS = {f"s{log}": log for log in range(12, 16)}
MEMBERS = 3
RECORDS = 25
"""Of each stream."""
SECONDS = 15.0
"""For which members are troubled."""


class GroupHistory:
    """What members were handed and told, and what must hold of it."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.acknowledged: dict[str, set[bytes]] = defaultdict(set)
        self.handled: dict[str, set[bytes]] = defaultdict(set)
        self.commits: dict[str, list[tuple[StateVersion, Position, int]]] = defaultdict(list)
        self.fenced = 0
        self.rejoined = 0
        self._handed_out: dict[int, list[GroupBatch]] = defaultdict(list)
        """By token."""
        self._states: dict[StateVersion, bytes] = {}
        self._holders: dict[int, int] = {}
        """By token, the member that was handed something with it."""
        self._tokens: dict[str, int] = defaultdict(int)
        """The greatest by stream."""

    def on_state(self, subscriptions: Subscriptions) -> None:
        """Look at a version that a process has."""
        replica = subscriptions._replica
        state = replica.state.encode()
        assert self._states.setdefault(replica.version, state) == state, f"two states of version {replica.version}"

    def on_handed_out(self, member: int, batch: GroupBatch) -> None:
        """A member got a batch."""
        holder = self._holders.setdefault(batch.token, member)
        assert holder == member, f"token {batch.token} of {batch.stream} belongs to two members"
        greatest = self._tokens[batch.stream]
        assert batch.token >= greatest, f"{batch.stream} was handed out with token {batch.token} after {greatest}"
        self._tokens[batch.stream] = batch.token
        self._handed_out[batch.token].append(batch)

    def on_committed(self, batch: GroupBatch, version: StateVersion | None) -> None:
        """The member was told that it is committed, or that it may be: then there is no version. So are those before it."""
        if version is not None:
            self.commits[batch.stream].append((version, batch.last, batch.token))
        for each in self._handed_out[batch.token]:
            if each.last <= batch.last:
                self.handled[batch.stream] |= {record.payload for record in each.records.records()}

    def check_commits(self) -> None:
        """In the order of the log."""
        for stream, commits in self.commits.items():
            commits.sort()
            tokens = [token for _, _, token in commits]
            assert tokens == sorted(tokens), f"a lower token of {stream} committed after a higher one"
            positions = [position for _, position, _ in commits]
            assert positions == sorted(positions), f"the position of {stream} fell"

    def is_all_handled(self) -> bool:
        """Nothing that was acknowledged is missing."""
        return all(self.acknowledged[stream] <= self.handled[stream] for stream in STREAMS)


class TroubledMembers:
    """Writers, and members that come and go."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.history = GroupHistory(cluster)
        self.members = 0

    async def write(self, stream: str) -> None:
        """Append records, some of which fail."""
        rng = self.cluster.rng
        async with self.cluster.client() as client:
            for number in range(RECORDS):
                payload = f"{stream}-{number}".encode()
                try:
                    await client.append(STREAMS[stream], payload, timeout=10)
                    self.history.acknowledged[stream].add(payload)
                except LogDeviceError:
                    pass  # it may be there, or not
                await asyncio.sleep(rng.uniform(0, SECONDS / RECORDS))

    async def run_member(self, slot: int) -> None:
        """One life after the other, each as another process, until the time of trouble is over."""
        loop, rng = asyncio.get_running_loop(), self.cluster.rng
        until = loop.time() + SECONDS
        while loop.time() < until:
            await self.live(slot, rng.uniform(1, 15), crashes=rng.random() < 0.5)
            await asyncio.sleep(rng.uniform(0, 2))

    async def live(self, slot: int, seconds: float, *, crashes: bool) -> None:
        """Join, read, and end somehow."""
        self.members += 1
        number = self.members
        client = self.cluster.client()
        async with client:
            subscriptions = Subscriptions(client, COMMANDS, SNAPSHOTS, snapshot_every=20)
            try:
                async with asyncio.timeout(seconds), subscriptions:
                    subscriptions.watch(lambda: self.history.on_state(subscriptions))
                    group = Group(subscriptions, "billing")
                    await group.add_streams(STREAMS)
                    async with group.member(f"m{slot}", max_records=5, handover=1.0) as member:
                        try:
                            await self.read(number, member, subscriptions, client)
                        finally:
                            self.history.rejoined += member.joins - 1
                            if crashes:
                                await client.close()  # leaves nothing behind: others have to find out
            except TimeoutError:
                pass
            except LogDeviceError as error:
                if error.status not in (Status.TIMEDOUT, Status.SHUTDOWN, Status.FENCED):
                    raise

    async def read(self, number: int, member: GroupReader, subscriptions: Subscriptions, client: Client) -> None:
        """Handle batches: quickly, slowly, or not to the end; be paused now and then."""
        rng = self.cluster.rng
        before: GroupBatch | None = None
        async for batch in member:
            self.history.on_handed_out(number, batch)
            what = rng.random()
            if what < 0.04:
                process = client._network._process  # type: ignore[attr-defined]
                process.pause()  # nothing comes and goes; the application does not notice
                asyncio.get_running_loop().call_later(rng.uniform(0.2, 4), process.resume)
            elif what < 0.1:
                await asyncio.sleep(rng.uniform(0, 3))
            elif what < 0.25:
                continue  # it is committed with a later one, or not at all
            await self.commit(subscriptions, member, batch)
            if before is not None and before.stream == batch.stream and rng.random() < 0.2:
                await self.commit(subscriptions, member, before)
            before = batch

    async def commit(self, subscriptions: Subscriptions, member: GroupReader, batch: GroupBatch) -> None:
        """As a member does, and remember the version."""
        try:
            version = await subscriptions.commit(
                "billing", batch.stream, batch.last, token=batch.token, timeout=self.cluster.rng.choice([1, 5])
            )
        except asyncio.CancelledError:
            self.history.on_committed(batch, None)
            raise
        except LogDeviceError as error:
            if error.status is Status.FENCED:
                self.history.fenced += 1
            elif error.maybe_applied:
                self.history.on_committed(batch, None)
            elif error.status is not Status.STALE and not error.retriable:
                raise
            return
        self.history.on_committed(batch, version)
        member.done(batch)

    async def finish(self) -> None:
        """Faults have ended: one process handles what is left."""
        async with self.cluster.client() as client, Subscriptions(client, COMMANDS, SNAPSHOTS) as subscriptions:
            subscriptions.watch(lambda: self.history.on_state(subscriptions))
            await subscriptions.caught_up(timeout=200)
            group = Group(subscriptions, "billing")
            await group.add_streams(STREAMS)
            async with asyncio.timeout(200), group.member("last", handover=1.0) as member:
                self.members += 1
                while not self.history.is_all_handled():
                    batch = await anext(member)
                    self.history.on_handed_out(self.members, batch)
                    await self.commit(subscriptions, member, batch)


async def troubled_group(cluster: SimCluster) -> tuple[int, int, int]:
    troubled = TroubledMembers(cluster)
    await asyncio.gather(*map(troubled.write, STREAMS), *map(troubled.run_member, range(MEMBERS)))
    await cluster.calm()
    history = troubled.history
    finishing = asyncio.create_task(troubled.finish())
    try:
        await finishing
    except TimeoutError:
        missing = {stream: sorted(history.acknowledged[stream] - history.handled[stream]) for stream in STREAMS}
        raise AssertionError(f"acknowledged and never committed: {missing}") from None
    finally:
        history.check_commits()
    return sum(map(len, history.handled.values())), history.fenced, history.rejoined
