"""Applications under simulation: unchanged asyncio code, on a cluster that breaks in every way, again and again the same way.

``simulate(application, seed=7)`` runs ``await application(cluster)`` under virtual time; `SimCluster` has the face of `LocalCluster`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import CodeType, TracebackType
from typing import Any, Final, TypeVar

from client.client import Client
from client.effects import Connect
from client.network import ClientMachines
from logdevice_py.config.logs import Durability
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.suggestion import suggestion
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.simulation.clock import SimClock
from logdevice_py.simulation.event_loop import SimEventLoop, VirtualTimeExceeded
from logdevice_py.simulation.process import Process
from logdevice_py.simulation.scheduler import Scheduler
from logdevice_py.simulation.trace import Trace
from server.dev.local_cluster import durability_argument
from server.simulation.client import client_identity
from server.simulation.faults.nemesis import CATALOG, FaultSchedule, Nemesis
from server.simulation.machines import SimMachines, SimNode, SimNodeState
from server.simulation.real_network import guard_sockets
from server.simulation.standing_tasks import where_tasks_stand

T = TypeVar("T")

APPLICATION_ADDRESS = -100_000
"""In the network, of the application's first client; later ones count down."""
_NOT_FOR_APPLICATIONS = frozenset({"kill_client"})
_STARTS_WITHIN = 60 * SECOND
_FAULTS_FOR = 20 * SECOND
_REST = 20 * SECOND
"""A cluster of which most machines are down at most times gets nowhere, however good it is: an application must end at some time."""


_VIRTUAL_SECONDS: Final = 600
_FAULTS_TOLD: Final = 20
"""Of those before a failure, in its report."""


class SimulationFailed(Exception):
    """An application failed in a run; the text says which. The cause is the application's own exception."""


class SimClientNetwork:
    """The `ClientNetwork` of a simulated client."""

    def __init__(self, simulated: SimMachines, machines: ClientMachines, address: int) -> None:
        """
        Args:
            simulated: whose nodes the client reaches.
            machines: of the client.
            address: of its process in the simulated network; negative, and nobody else's.
        """
        self._simulated = simulated
        self._machines = machines
        self._address = address
        self._clock = SimClock(simulated.scheduler, offset=-address * SECOND)
        self._process: Process | None = None

    def now(self) -> Micros:
        return self._clock.monotonic()

    def start(self) -> None:
        machines, simulated = self._machines, self._simulated

        def run_connects(effects: list[Any]) -> None:
            for effect in effects:
                self._running().connect(effect.node)

        self._process = Process(
            machines.name or f"A{APPLICATION_ADDRESS - self._address}",
            self._address,
            machines.session,
            machines.links,
            machines.timers,
            identity=client_identity(machines.config, machines.name),
            is_member=lambda node: node in machines.session.config.nodes,
            effects={Connect: run_connects},
            network=simulated.network,
            clock=self._clock,
            rng=machines.rng,
            trace=simulated.trace,
            turn_max=simulated.turn_max,
            security=simulated.security,
            principals=machines.session.routes.principals,
        )

    def _running(self) -> Process:
        assert self._process is not None
        return self._process

    def event(self, handler: Callable[[Micros], None]) -> None:
        if self._process is not None:
            self._process.event(handler)

    def set_config_version(self, version: int) -> None:
        if self._process is not None:
            self._process.identity.config_version = version

    def troubles(self) -> Mapping[NodeId, LogDeviceError]:
        return {}

    def stop(self) -> None:
        if self._process is not None and self._process.alive:
            self._process.kill(machine=False)

    async def close(self) -> None:
        """`stop` has disconnected it."""


class SimCluster:
    """``async with SimCluster(nodes=3) as cluster`` within `simulate`: the face of `LocalCluster`, on simulated machines.

    Everything that happens follows from the seed, as long as the application takes time and chance from where it can be repeated:
    from the loop (``asyncio.sleep``, ``loop.time()``) and from `rng`.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        logs: int = 8,
        replicate: str | None = None,
        racks: int = 1,
        regions: int = 1,
        round_trip: float = 0.0,
        durability: str = "sync",
        log_tree: bool = False,
        attributes: Mapping[str, str | int | bool] | None = None,
        permissions: bool = False,
        rebuilding: bool = False,
        maintenances: bool = False,
        stored_configuration: bool = False,
        seed: int = 0,
        faults: str | Collection[str] = (),
        fault_interval: float = 0.7,
        trace: Trace | None = None,
    ) -> None:
        """
        Args:
            nodes: how many nodes.
            logs: logs 1 to `logs` exist.
            replicate: replication property; by default ``node:3``, or as many copies as there are nodes.
            racks: nodes are spread over so many racks, of each region.
            regions: nodes stand in ``region0``, ``region1`` and so on in turn.
            round_trip: virtual seconds from one region to another and back.
            durability: "sync" or "async".
            log_tree: logs can be made at run time.
            attributes: further ones of all logs, as in a cluster file.
            permissions: clients may do what the attribute `permit` grants to the principal that they prove to be, and nothing else.
            rebuilding: what lost or drained shards held is re-replicated.
            maintenances: a log of maintenances is kept; any share of the cluster may be away, if it is safe.
            stored_configuration: nodes follow what the epoch store keeps, once something is stored there.
            seed: of everything that is left to chance.
            faults: kinds of `server.simulation.faults.catalog.CATALOG` that happen until the application calls `calm`; "all" takes a few of them, others
                with each seed. No more data is destroyed than the replication makes up for. They come for 20 s, then there are none for 20 s, and
                so on.
            fault_interval: virtual seconds between two faults, on average, while they come.
            trace: gets what happens; by default only the last events are kept.

        Raises:
            ValueError: one of them is wrong.
        """
        for what, number in (("nodes", nodes), ("logs", logs), ("racks", racks), ("regions", regions)):
            if number < 1:
                raise ValueError(f"{what} is a number from 1 on, not {number}")
        if racks * regions > nodes:
            where = f"{racks} racks" if regions == 1 else f"{regions} regions of {racks} racks"
            raise ValueError(f"{nodes} nodes cannot be spread over {where}")
        _check_time("fault_interval", fault_interval)
        loop = asyncio.get_running_loop()
        if not isinstance(loop, SimEventLoop):
            raise RuntimeError("a SimCluster lives under virtual time: run the application with simulate(...)")
        config = load_cluster(
            _cluster_file(
                nodes,
                logs,
                replicate or f"node:{min(3, nodes)}",
                racks,
                regions,
                durability_argument(durability),
                log_tree,
                attributes or {},
                permissions,
                rebuilding,
                maintenances,
            )
        )
        self._regions = regions
        self._one_way = round(round_trip * 1e6 / 2)
        self.rng = random.Random(f"application {seed}")
        """For the application's own choices."""
        self.machines = SimMachines(
            config, seed, scheduler=loop.scheduler, trace=trace, loop=loop if stored_configuration else None
        )
        self._clients = 0
        for node in range(nodes):
            self._place(node, node % regions)
        self.state_at_end = ""
        """What it still shows when all nodes were taken down, as a test that failed prints it then."""
        kinds = _kinds(faults, self.rng)
        schedule = FaultSchedule(
            kinds,
            max(1, round(fault_interval * 1e6)),
            loop.limit,
            [LogId(log) for log in range(1, logs + 1)],
            burst=_FAULTS_FOR,
            rest=_REST,
        )
        self._nemesis = Nemesis(schedule, self.machines, _no_client, random.Random(f"faults {seed}"))

    def __repr__(self) -> str:
        return f"<SimCluster: {self.state_at_end or self.state}>"

    @property
    def state(self) -> str:
        """The nodes at this moment and the number of faults, for people."""
        nodes = ", ".join(f"N{node.id} {node.state.name.lower()}" for node in self.machines.nodes.values())
        return f"{nodes}; {sum(self.faults.values())} faults so far"

    async def __aenter__(self) -> SimCluster:
        for node in self.machines.nodes.values():
            node.start()
        await self._wait(lambda: all(node.state is SimNodeState.RUNNING for node in self.machines.nodes.values()))
        self._nemesis.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.state_at_end = self.state_at_end or self.state
        for node in self.machines.nodes.values():
            if node.state is SimNodeState.PAUSED:
                node.resume()
            node.crash(machine=False)

    async def _wait(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(_STARTS_WITHIN / 1e6):
            while not done():  # noqa: ASYNC110 - virtual time, and machines that know no asyncio
                await asyncio.sleep(0.001)

    def _place(self, address: int, region: int) -> None:
        """A machine stands in a region: what it sends to nodes of others, and they to it, takes its time."""
        if self._one_way:
            for node in self.machines.nodes:
                if node % self._regions != region:
                    self.machines.network.distances[address, node] = self._one_way
                    self.machines.network.distances[node, address] = self._one_way

    def client(
        self, region: int | None = None, *, principal: str | None = None, groups: Collection[str] = ()
    ) -> Client:
        """A client of this cluster; use it as an async context manager.

        Args:
            region: where it stands, by number; its readers then get the nearest copies. None: nowhere in particular, near all nodes.
            principal: whom its certificate names; None: it has none.
            groups: those that the certificate names beside it.
        """
        if region is not None and not 0 <= region < self._regions:
            raise ValueError(f"there is no region {region} among {self._regions}")
        address = APPLICATION_ADDRESS - self._clients
        self._clients += 1
        if region is not None:
            self._place(address, region)
        if principal is not None:
            self.machines.certify_client(address, Principal(principal, frozenset(groups)))
        return Client(
            self.machines.config,
            location=f"region{region}...." if region is not None and self._regions > 1 else "",
            seed=self.machines.rng.getrandbits(64),
            network=lambda machines: SimClientNetwork(self.machines, machines, address),
        )

    async def calm(self) -> None:
        """No more faults; what is broken is repaired and what is down is started."""
        self._nemesis.stop()

    @property
    def faults(self) -> Mapping[str, int]:
        """How many faults of each kind happened."""
        return self._nemesis.caused

    @property
    def past_faults(self) -> tuple[tuple[float, str], ...]:
        """When each fault began so far, in virtual seconds, and its kind."""
        return tuple((planned.at / 1e6, planned.kind) for planned in self._nemesis.past)

    # What can be done to nodes

    def node(self, node: int) -> SimNode:
        """One simulated machine; ValueError if there is none of that number."""
        try:
            return self.machines.nodes[NodeId(node)]
        except KeyError:
            raise ValueError(f"there is no node {node}; there are {', '.join(map(str, self.machines.nodes))}") from None

    def _node_that_is_down(self, node: int) -> SimNode:
        found = self.node(node)
        if found.state is not SimNodeState.DOWN:
            raise ValueError(f"node {node} is not down but {found.state.name.lower()}")
        return found

    async def start_node(self, node: int) -> None:
        """Start one node that is down; it serves when this returns."""
        started = self._node_that_is_down(node)
        started.start()
        await self._wait(lambda: started.state is SimNodeState.RUNNING)

    async def stop_node(self, node: int) -> None:
        """End one node's process at once; its disk keeps what was written."""
        self.node(node).crash(machine=False)

    async def power_off(self, node: int) -> None:
        """Its machine loses power: what was not synced may be lost."""
        self.node(node).crash(machine=True)

    async def pause_node(self, node: int) -> None:
        """Stop its process as SIGSTOP does."""
        self.node(node).pause()

    async def resume_node(self, node: int) -> None:
        """Let it run on."""
        self.node(node).resume()

    async def wipe_node(self, node: int) -> None:
        """Replace the disks of a node that is down by empty ones."""
        self._node_that_is_down(node).wipe()

    def cut_off(self, node: int) -> None:
        """Nothing passes between a node and the other nodes; clients still reach it."""
        alone = self.node(node).id
        for other in self.machines.nodes:
            if other != alone:
                self.machines.network.block(alone, other)
                self.machines.network.block(other, alone)

    def heal(self) -> None:
        """End all partitions."""
        self.machines.network.unblock_all()


def simulate(
    application: Callable[[SimCluster], Awaitable[T]],
    *,
    seed: int = 0,
    virtual_seconds: float = _VIRTUAL_SECONDS,
    echo: Callable[[str], None] | None = None,
    **cluster: Any,
) -> T:
    """Run an application under virtual time on a simulated cluster, and return what it returns.

    Args:
        application: a coroutine function; it gets the `SimCluster`.
        seed: two runs of the same seed are the same, if the application is.
        virtual_seconds: the application must end within them.
        echo: gets a line for every event.
        cluster: further arguments of `SimCluster`.

    Raises:
        SimulationFailed: from the exception that left the application or one of the machines.
        TypeError: there is no such argument.
        ValueError, LogDeviceError: an argument of the cluster is wrong. No run took place.
    """
    __tracebackhide__ = True  # pytest shows the frames of the application and of the test
    _check_names(cluster)
    _check_time("virtual_seconds", virtual_seconds)
    guard_sockets()
    scheduler = Scheduler()
    trace = Trace(echo=echo)
    made: SimCluster | None = None
    standing: list[str] = []
    failures: list[tuple[BaseException, int]] = []
    """The first is what left the application, and when, in microseconds. When its cleaning up does not end either, that has an exception of its own."""

    async def run() -> T:
        nonlocal made
        made = SimCluster(seed=seed, trace=trace, **cluster)
        async with made:
            return await application(made)

    if asyncio._get_running_loop() is not None:
        raise RuntimeError("simulate runs an event loop of its own: call it from outside of coroutines")
    try:
        with asyncio.Runner(loop_factory=lambda: SimEventLoop(scheduler, limit=round(virtual_seconds * 1e6))) as runner:
            try:
                return runner.run(run())
            except BaseException as raised:
                if isinstance(raised, VirtualTimeExceeded):
                    standing = where_tasks_stand(asyncio.all_tasks(runner.get_loop()))
                    if made is not None:
                        made.state_at_end = made.state  # the application's cleaning up may still take its time
                failures.append((raised, scheduler.now))
                raise
    except BaseException as raised:  # noqa: BLE001 - what is first is raised again below
        failures.append((raised, scheduler.now))
    error, at = failures[0]
    if made is None:
        raise error.with_traceback(
            None
        ) from None  # the caller's arguments: where they were looked at says nothing more
    name = getattr(application, "__name__", "the application")
    where = f"{name} failed with seed {seed} after {at / 1e6:.3f} s of virtual time"
    # that the time is over was found by the loop, whose frames say nothing of the application
    error.__traceback__ = None if standing else _within(run.__code__, error.__traceback__)
    limit = {} if virtual_seconds == _VIRTUAL_SECONDS else {"virtual_seconds": virtual_seconds}
    report = _report(name, seed, {**limit, **cluster}, made, standing)
    if isinstance(error, Exception):
        failed = SimulationFailed(f"{where}: {type(error).__name__}: {error}")
        failed.add_note(report)
        raise failed from error
    # what is to end the test or the program must stay what it is
    error.add_note(f"{where}\n{report}")
    raise error


def _within(code: CodeType, trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is below the frame of `code`, where the application is; all of it when that frame is not there."""
    found = trace
    while found is not None:
        if found.tb_frame.f_code is code:
            return found.tb_next or trace
        found = found.tb_next
    return trace


def _report(name: str, seed: int, arguments: Mapping[str, Any], cluster: SimCluster, standing: Sequence[str]) -> str:
    """For people: where the tasks of an application that does not end stand, the cluster and the faults before, and how to have the run again."""
    lines = ["where its tasks stood:", *(f"  {line}" for line in standing)] if standing else []
    faults = cluster.past_faults
    lines.append(f"the cluster then: {cluster.state_at_end or cluster.state}")
    if faults:
        last = faults[-_FAULTS_TOLD:]
        which = "" if len(last) == len(faults) else f", the last {len(last)} of {len(faults)}"
        lines += [f"faults before it{which}:", *(f"{at:12.6f} s  {kind}" for at, kind in last)]
    else:
        lines.append("faults before it: none")
    options = "".join(f", {key}={value!r}" for key, value in arguments.items())
    lines.append(f"the same run, showing every event: simulate({name}, seed={seed}{options}, echo=print)")
    return "\n".join(lines)


def usual_faults() -> list[str]:
    """The kinds of faults of which "all" takes some: those that applications can have and that are over soon."""
    return [
        kind.name
        for kind in CATALOG.values()
        if kind.name not in _NOT_FOR_APPLICATIONS and not kind.minutes and not kind.regional
    ]


def _kinds(faults: str | Collection[str], rng: random.Random) -> list[str]:
    """A few kinds a run, so that each run is bad in its own way: one with all of them hardly gets anywhere."""
    if faults == "all":
        return rng.sample(usual_faults(), rng.randrange(1, 8))
    wanted = [faults] if isinstance(faults, str) else list(faults)
    usable = [name for name in CATALOG if name not in _NOT_FOR_APPLICATIONS]
    for name in wanted:
        if name not in usable:
            raise ValueError(f"there is no kind of fault {name!r} for applications{suggestion(name, usable)}")
    return wanted


def _check_names(given: Iterable[str]) -> None:
    """That a cluster has all of these arguments."""
    __tracebackhide__ = True
    known = [name for name in inspect.signature(SimCluster).parameters if name not in ("seed", "trace")]
    for name in given:
        if name not in known:
            raise TypeError(f"simulate has no argument {name!r}{suggestion(name, known)}")


def _check_time(what: str, seconds: float) -> None:
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"{what} is a number of seconds above 0, not {seconds}")


def _no_client() -> None:
    """The application's clients are its own."""


def _location(node: int, racks: int, regions: int) -> str:
    rack = f"rack{node // regions % racks}"
    return rack if regions == 1 else f"region{node % regions}.d.c.r.{rack}"


def _cluster_file(
    nodes: int,
    logs: int,
    replicate: str,
    racks: int,
    regions: int,
    durability: Durability,
    log_tree: bool,
    attributes: Mapping[str, str | int | bool],
    permissions: bool,
    rebuilding: bool,
    maintenances: bool,
) -> str:
    lines = [
        'name = "simulation"',
        "version = 1",
        'uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"',
        'epoch_store = "memory:"',
        "[metadata_log]",
        f'replicate = "{replicate}"',
        "[defaults]",
        f'replicate = "{replicate}"',
        f'durability = "{durability.name.lower()}"',
        *(f"{key} = {json.dumps(value)}" for key, value in attributes.items()),
        '[logs."/logs"]',
        f'ids = "1..{logs}"',
    ]
    if log_tree:
        # runs are short, and snapshots are to be met in them
        lines += ["[settings.log_tree]", "enabled = true", "snapshot_commands = 10"]
    if permissions:
        lines += ["[settings.security]", 'tls = "require"', "permissions = true"]
    lines += ["[settings.rebuilding]", f"enabled = {str(rebuilding).lower()}"]
    if maintenances:
        lines += ["[settings.maintenance]", "enabled = true", "away_percent_max = 100"]
    for node in range(nodes):
        lines += [
            f"[nodes.N{node}]",
            f'host = "127.0.0.{node + 1}"',
            "port = 7000",
            'roles = ["sequencer", "storage"]',
            f'location = "{_location(node, racks, regions)}"',
        ]
    return "\n".join(lines)
