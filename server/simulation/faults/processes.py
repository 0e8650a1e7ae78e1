"""Faults of processes, machines and their clocks."""

from __future__ import annotations

from logdevice_py.core.units import MILLISECOND, SECOND
from server.simulation.faults.catalog import FaultInstance, fault
from server.simulation.machines import SimNode, SimNodeState

_YEAR = 365 * 86_400 * SECOND


@fault("a process is killed and started again")
def crash_process(it: FaultInstance) -> None:
    node = it.node()
    it.crash(node, machine=False)
    it.later(lambda: it.restart(node))


@fault("a machine loses power: what was not synced may be lost")
def crash_machine(it: FaultInstance) -> None:
    node = it.node()
    it.crash(node, machine=True)
    it.later(lambda: it.restart(node))


@fault("a process ends between two effects of one turn")
def crash_midway(it: FaultInstance) -> None:
    node = it.node()
    share, machine = it.rng.random(), it.rng.random() < 0.5
    node.crash_midway(share, machine=machine and it.budget.take_unsynced(node.disks), kind=it.kind)
    it.after(it.rng.randrange(SECOND), lambda: it.later(lambda: it.restart(node)))


@fault("all processes or all machines go down at one instant")
def crash_all(it: FaultInstance) -> None:
    machine = it.rng.random() < 0.5
    for node in it.nodes():
        it.crash(node, machine=machine)
        it.later(lambda node=node: it.restart(node), most=SECOND)  # type: ignore[misc]


@fault("all machines of a rack lose power")
def crash_rack(it: FaultInstance) -> None:
    nodes = it.cluster.config.nodes
    rack = str(nodes[it.node().id].location)
    for node in it.nodes():
        if str(nodes[node.id].location) == rack:
            it.crash(node, machine=True)
            it.later(lambda node=node: it.restart(node))  # type: ignore[misc]


@fault("a process comes back late after a crash")
def slow_start(it: FaultInstance) -> None:
    node = it.node()
    it.crash(node, machine=it.rng.random() < 0.5)
    it.restart(node, it.rng.choice([SECOND, 5 * SECOND, 15 * SECOND]))


@fault("a process dies again and again while it starts")
def crash_loop(it: FaultInstance) -> None:
    node = it.node()

    def again(times: int) -> None:
        it.crash(node, machine=it.rng.random() < 0.3)
        it.restart(node)
        if times:
            it.after(it.rng.choice([2, 10, 50, 300]) * MILLISECOND, lambda: again(times - 1))

    again(it.rng.randrange(1, 5))


@fault("while others recover from a crash, another one crashes, and then the first again")
def crash_in_recovery(it: FaultInstance) -> None:
    first, second = it.rng.sample(it.nodes(), 2)
    it.crash(first, machine=it.rng.random() < 0.5)

    def third() -> None:
        it.crash(first, machine=it.rng.random() < 0.5)
        for node in (first, second):
            it.later(lambda node=node: it.restart(node), most=2 * SECOND)  # type: ignore[misc]

    def next_one() -> None:
        it.crash(second, machine=it.rng.random() < 0.5)
        it.restart(first)
        it.after(it.rng.randrange(500 * MILLISECOND), third)

    it.after(it.rng.choice([20, 200, 1200, 2000]) * MILLISECOND, next_one)


def _stop(it: FaultInstance, node: SimNode, delay: int) -> None:
    node.pause(it.kind)
    it.after(delay, node.resume)


@fault("a process is stopped for a while and goes on")
def pause(it: FaultInstance) -> None:
    _stop(it, it.node(), it.rng.choice([100 * MILLISECOND, SECOND, 3 * SECOND, 8 * SECOND]))


@fault("the event loop of a process stalls")
def stall(it: FaultInstance) -> None:
    _stop(it, it.node(), it.rng.choice([50, 50, 200, 1000, 5000, 30_000]) * MILLISECOND)


@fault("several processes are stopped at once")
def pause_many(it: FaultInstance) -> None:
    nodes = it.nodes()
    for node in it.rng.sample(nodes, it.rng.randrange(1, len(nodes) + 1)):
        _stop(it, node, it.rng.choice([200, 1000, 4000]) * MILLISECOND)


@fault("a client process is killed, and another one begins")
def kill_client(it: FaultInstance) -> None:
    it.hit()
    it.kill_client()


def _jump(it: FaultInstance, node: SimNode, span: int) -> None:
    node.clock.skew += it.rng.randrange(2 * span + 1) - span
    if node.state is SimNodeState.RUNNING:
        it.hit()


@fault("a wall clock jumps by seconds")
def wall_clock_jump(it: FaultInstance) -> None:
    _jump(it, it.node(), 10 * SECOND)


@fault("a wall clock jumps by years")
def wall_clock_years(it: FaultInstance) -> None:
    node = it.node()
    before = node.clock.skew
    _jump(it, node, 10 * _YEAR)

    def undo() -> None:
        node.clock.skew = before

    if it.rng.random() < 0.7:
        it.later(undo)


@fault("a wall clock jumps to and fro")
def wall_clock_strobe(it: FaultInstance) -> None:
    node, span = it.node(), it.rng.choice([10 * MILLISECOND, SECOND, 60 * SECOND])

    def jump(times: int) -> None:
        _jump(it, node, span)
        if times:
            it.after(1 + it.rng.randrange(100 * MILLISECOND), lambda: jump(times - 1))

    jump(it.rng.randrange(5, 40))


@fault("a machine's clock runs too fast or too slow, by up to five percent")
def clock_drift(it: FaultInstance) -> None:
    node = it.node()
    node.clock.set_rate(it.rng.choice([-50_000, -5_000, -100, 100, 5_000, 50_000]))
    if node.state is SimNodeState.RUNNING:
        it.hit()
    it.later(lambda: node.clock.set_rate(node.rate_ppm), most=30 * SECOND)
