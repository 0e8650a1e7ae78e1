"""Operators who change the stored configuration at random nodes, add nodes and put the epoch store back, while others append and nodes die.

1. A version says the same wherever it is in force, and what a node's machines use is all of what it says.
2. No node goes back, whatever it forgets, whatever the epoch store holds and however often it starts.
3. What an operator was told to be stored stands in every later version.
4. In the end all nodes use the newest version, logs that were added take records, and everything that was acknowledged is read, once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from client.client import Client
from epoch_store.cells import CONFIGURATION, Cell, decode_cell
from logdevice_py import LSN, LogDeviceError, Record, SimCluster
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.edit import with_node
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.config.stored import StoredConfiguration
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.status import Status
from server.configuration.keeper import LOOK_EVERY
from server.simulation.machines import SimNode, SimNodeState

OPERATORS: Final = 2
ROUNDS: Final = 6
FIRST_LOG: Final = 1000
"""Of those that operators add: their logs are nobody else's."""
PAUSE: Final = 1.5
"""Virtual seconds between two changes of one operator, on average."""
_LOOK: Final = 0.02
_WITHIN: Final = 120.0
"""Virtual seconds without faults within which everybody uses the newest version."""
_REFUSED: Final = frozenset(
    {Status.AGAIN, Status.TIMEDOUT, Status.STALE, Status.SHUTDOWN, Status.INVALID_PARAM, Status.FAILED}
)
"""What an operator may hear where nothing is wrong with what he wants: a node is behind, ends, or does not reach the epoch store."""


class BrokenRule(AssertionError):
    """A rule of this page does not hold."""


@dataclass(slots=True)
class SeenConfigurations:
    """What nodes had in force so far."""

    texts: dict[int, str] = field(default_factory=dict)
    """What each version says."""
    configs: dict[int, ClusterConfig] = field(default_factory=dict)
    """The same, parsed."""
    newest: dict[NodeId, int] = field(default_factory=dict)
    """The greatest version that each node had in force since it has this disk."""
    _looked_at: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    _held: list[ClusterConfig] = field(default_factory=list)
    """Those that were looked at, so that no other one is taken for them."""
    wipes: dict[NodeId, int] = field(default_factory=dict)
    """How often each had lost its disk then."""

    def look(self, node: SimNode) -> None:
        """Look at a node that serves."""
        found, root = node.configuration, node.root
        if node.state is not SimNodeState.RUNNING or found is None or root is None:
            return
        config = found.config
        if found.configuration.in_force.config.version < config.version:
            raise BrokenRule(f"N{node.id} would go back when it starts again")
        if self._looked_at.get(node.id) == (id(config), id(root.config)):
            return
        self._looked_at[node.id] = (id(config), id(root.config))
        self._held += [config, root.config]
        text = render_cluster(config)
        if self.texts.setdefault(config.version, text) != text:
            raise BrokenRule(f"N{node.id}: two versions {config.version}")
        if node.wipes != self.wipes.get(node.id, 0):
            self.wipes[node.id] = node.wipes
            self.newest.pop(node.id, None)
        if config.version < self.newest.get(node.id, 0):
            raise BrokenRule(f"N{node.id} goes back from version {self.newest[node.id]} to {config.version}")
        self.newest[node.id] = config.version
        said, used = self._parsed(root.config.version), root.config
        if said is not None and (used.nodes, used.logs, used.settings) != (said.nodes, said.logs, said.settings):
            raise BrokenRule(f"N{node.id} uses a part of version {used.version}")

    def _parsed(self, version: int) -> ClusterConfig | None:
        if version not in self.configs and version in self.texts:
            self.configs[version] = load_cluster(self.texts[version])
        return self.configs.get(version)


class Operators:
    """Those of one run, and what they were told."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.seen = SeenConfigurations()
        self.logs: list[LogId] = []
        """Those that were added, one by each change that was told to be stored."""
        self.refused = 0
        self._copy: Cell | None = None
        self._numbers = count(1)

    def newest(self) -> ClusterConfig:
        """In force at any node that serves, or what the cluster began with."""
        found = [node.configuration.config for node in self._serving() if node.configuration is not None]
        return max([self.cluster.machines.file, *found], key=lambda each: each.version)

    def _serving(self) -> list[SimNode]:
        nodes = self.cluster.machines.nodes.values()
        return [node for node in nodes if node.state is SimNodeState.RUNNING and node.root is not None]

    async def watch(self) -> None:
        """Look at all nodes again and again; start those that were added."""
        machines = self.cluster.machines
        while True:
            for node in list(machines.nodes.values()):
                self.seen.look(node)
            newest = self.newest()
            if newest.version > machines.config.version:
                machines.config = newest
                for number in newest.nodes:
                    if number not in machines.nodes:
                        machines.nodes[number] = SimNode(machines, number)
                        machines.nodes[number].start()
            await asyncio.sleep(_LOOK)

    async def operate(self, who: str, rounds: int) -> None:
        """Change something, again and again."""
        rng = self.cluster.rng
        for _ in range(rounds):
            await asyncio.sleep(rng.uniform(0, 2 * PAUSE))
            if rng.random() < 0.5:
                await asyncio.sleep(1 - asyncio.get_running_loop().time() % 1)  # as somebody else does
            await self.change(who)
            if rng.random() < 0.2:
                await self.restart()

    async def own_log(self) -> int:
        """A log of the configuration that is nobody else's."""
        await _until(lambda: self.change("the first"))
        return self.logs[0]

    async def change(self, who: str) -> bool:
        """Have a random node store something more; whether it did."""
        rng, serving = self.cluster.rng, self._serving()
        if not serving:
            return False
        at, number = rng.choice(serving), next(self._numbers)
        configuration = at.configuration
        assert configuration is not None
        # as somebody who asks all nodes knows it
        text = self._text_of(self.newest())
        remark, log = f"# {who} {number}\n", LogId(FIRST_LOG + number)
        changed = text + f'{remark}[logs."/added{number}"]\nids = {log}\n'
        nodes = len(self.newest().nodes)
        if nodes < 7 and rng.random() < 0.3:
            new = max(self.newest().nodes) + 1
            changed += (
                f'[nodes.N{new}]\nhost = "127.0.0.{new + 1}"\nport = 7000\nroles = ["sequencer", "storage"]\n'
                f'location = "rack{new % 2}"\n'
            )
        else:
            node = rng.choice(list(self.newest().nodes))
            changed = with_node(changed, node, {"storage_capacity": rng.choice((1.0, 2.0, 3.0))})
        try:
            await configuration.change(changed, who, f"change {number}")
        except LogDeviceError as error:
            if error.status not in _REFUSED:
                raise BrokenRule(f"{who} is refused what is right: {error.status.name}: {error.detail}") from None
            self.refused += 1
            return False
        self.logs.append(log)
        return True

    def _text_of(self, config: ClusterConfig) -> str:
        """As it is stored; the cluster file's where nothing is."""
        for node in self._serving():
            if node.configuration is not None and node.configuration.config.version == config.version:
                for row in node.configuration.configuration.rows():
                    if row.version == config.version:
                        return row.text
        return render_cluster(config)

    async def put_back(self) -> None:
        """The epoch store's configuration is restored from a copy while operators change it, and a node starts again."""
        rng = self.cluster.rng
        await asyncio.sleep(rng.uniform(0, ROUNDS * PAUSE / 2))
        self._copy = self.cluster.machines.cells.cells.get(CONFIGURATION)
        await asyncio.sleep(rng.uniform(0, ROUNDS * PAUSE))
        await self.restore()

    async def restore(self) -> None:
        """Restore it from the copy, and have a node start again. All nodes use what was stored last: what only nodes know that nobody hears would be given again."""
        cells, copy = self.cluster.machines.cells, self._copy
        cell, newest = cells.cells.get(CONFIGURATION), self.newest().version
        if copy is not None and cell is not None and await self._all_use(newest) and _stored_version(cell) == newest:
            self.cluster.machines.note("run", "the configuration is put back")
            cells.put(CONFIGURATION, Cell(cell.version + 1, copy.content))
        await self.restart()

    async def restart(self) -> None:
        """One node ends, and starts again after a moment."""
        rng, serving = self.cluster.rng, self._serving()
        if serving:
            node = rng.choice(serving)
            node.crash(machine=False)
            await asyncio.sleep(rng.uniform(0, 1))
            node.start_if_down()

    async def _all_use(self, version: int) -> bool:
        roots = [node.root for node in self.cluster.machines.nodes.values()]
        return all(root is not None and root.config.version >= version for root in roots)

    async def converge(self) -> None:
        """Until all nodes use the newest version, which one more change makes."""
        async with asyncio.timeout(_WITHIN):
            await _until(lambda: self.change("the last"))
            newest = self.newest().version
            await _until(lambda: self._all_use(newest))
        logs = self.newest().logs
        missing = [log for log in self.logs if logs.get(log) is None]
        if missing:
            raise BrokenRule(f"what was stored is lost: {missing}")


def _stored_version(cell: Cell) -> int:
    return StoredConfiguration.decode(decode_cell(cell.content)[1]).version


async def _until(done: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await done():
            return
        await asyncio.sleep(0.2)


async def _knows(client: Client, log: int) -> bool:
    """Of a log that is not in its file a client hears from nodes."""
    return (await client.newest_config()).log(LogId(log)) is not None


async def _append(client: Client, acknowledged: dict[tuple[int, int], bytes], log: int, payload: bytes) -> bool:
    try:
        receipt = await client.append(log, payload, timeout=5.0)
    except LogDeviceError as error:
        if not (error.retriable or error.status is Status.NOTFOUND):
            raise
        return False
    acknowledged[(int(receipt.lsn), receipt.batch_offset)] = payload
    return True


async def changed_configurations(cluster: SimCluster) -> Operators:
    """The application; what its operators did."""
    with _quiet():
        return await _changed(cluster)


@contextmanager
def _quiet() -> Iterator[None]:
    """Nodes tell their own log what is wrong with the epoch store, in each run again."""
    log = logging.getLogger("logdevice.node")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


async def _changed(cluster: SimCluster) -> Operators:
    operators = Operators(cluster)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(operators.watch())
        log = await operators.own_log()
        async with cluster.client() as client:
            await _until(lambda: _knows(client, log))
            await _change_and_append(cluster, operators, client, log)
        watching.cancel()
    return operators


async def _change_and_append(cluster: SimCluster, operators: Operators, client: Client, log: LogId) -> None:
    acknowledged: dict[tuple[int, int], bytes] = {}
    working = asyncio.gather(
        *(operators.operate(f"operator {number}", ROUNDS) for number in range(OPERATORS)), operators.put_back()
    )
    number = 0
    while not working.done():
        number += 1
        await _append(client, acknowledged, log, f"{number}".encode())
        await asyncio.sleep(0.05)
    await working
    await operators.restore()
    await asyncio.sleep(LOOK_EVERY / 1e6 + 1)  # all nodes look at what was put back
    await cluster.calm()
    await operators.converge()
    async with asyncio.timeout(_WITHIN):
        for added in operators.logs[1:]:
            await _until(lambda added=added: _append(client, {}, added, b"to a log that was added"))  # type: ignore[misc]
        await _until(lambda: _append(client, acknowledged, log, b"the last"))
    until = LSN(max(lsn for lsn, _ in acknowledged))
    read: dict[tuple[int, int], bytes] = {}
    async with client.reader(log, start=LSN.OLDEST, until=until) as reader:
        async for item in reader:
            if isinstance(item, Record):
                read[(int(item.lsn), item.batch_offset)] = bytes(item.payload)
    lost = [position for position, payload in acknowledged.items() if read.get(position) != payload]
    if lost:
        raise BrokenRule(f"acknowledged records of log {log} are lost: {lost[:3]}")
