"""Faults of the network."""

from __future__ import annotations

from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.simulation.links import LinkFault
from server.simulation.faults.catalog import FaultInstance, fault


def block_pairs(it: FaultInstance, pairs: list[tuple[int, int]]) -> None:
    """Nothing passes from the first to the second machine of each pair, for a while."""
    network = it.cluster.network
    for source, target in pairs:
        network.block(source, target, it.kind)

    def undo() -> None:
        for source, target in pairs:
            network.unblock(source, target, it.kind)

    it.later(undo, most=it.rng.choice([2, 10, 40]) * SECOND)


def both_ways(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs and their opposites."""
    return pairs + [(target, source) for source, target in pairs]


def _addresses(it: FaultInstance) -> list[int]:
    return [node.id for node in it.nodes()]


def _living_clients(it: FaultInstance) -> list[int]:
    return it.cluster.network.listening(below=0)


@fault("one node is cut off from the other nodes, and perhaps from clients")
def partition_node(it: FaultInstance) -> None:
    node = it.node().id
    others = [other for other in _addresses(it) if other != node]
    if it.rng.random() < 0.5:
        others += _living_clients(it)
    block_pairs(it, both_ways([(node, other) for other in others]))


@fault("one node does not reach one other; the way back is free")
def partition_one_way(it: FaultInstance) -> None:
    one, two = it.rng.sample(_addresses(it), 2)
    block_pairs(it, [(one, two)])


@fault("one node hears nobody, or nobody hears it")
def partition_deaf(it: FaultInstance) -> None:
    node = it.node().id
    pairs: list[tuple[int, int]] = [(other, node) for other in _addresses(it) if other != node]
    block_pairs(it, pairs if it.rng.random() < 0.5 else [(target, source) for source, target in pairs])


@fault("nodes reach only their neighbours in a ring")
def partition_ring(it: FaultInstance) -> None:
    ring = _addresses(it)
    it.rng.shuffle(ring)
    size = len(ring)
    near = {(ring[at], ring[(at + step) % size]) for at in range(size) for step in (-1, 1)}
    block_pairs(it, [(one, two) for one in ring for two in ring if one != two and (one, two) not in near])


@fault("two halves of the nodes see each other only through one node in both")
def partition_bridge(it: FaultInstance) -> None:
    nodes = _addresses(it)
    it.rng.shuffle(nodes)
    middle = len(nodes) // 2
    block_pairs(it, both_ways([(one, two) for one in nodes[:middle] for two in nodes[middle + 1 :]]))


@fault("the nodes fall into two halves, clients see all of them")
def partition_halves(it: FaultInstance) -> None:
    nodes = _addresses(it)
    it.rng.shuffle(nodes)
    middle = it.rng.randrange(1, len(nodes))
    block_pairs(it, both_ways([(one, two) for one in nodes[:middle] for two in nodes[middle:]]))


@fault("a partition comes and goes quickly")
def partition_flapping(it: FaultInstance) -> None:
    network, node = it.cluster.network, it.node().id
    pairs = both_ways([(node, other) for other in _addresses(it) if other != node])

    def close(times: int) -> None:
        for source, target in pairs:
            network.block(source, target, it.kind)
        it.after(it.rng.choice([5, 50, 500, 1500]) * MILLISECOND, lambda: free(times))

    def free(times: int) -> None:
        for source, target in pairs:
            network.unblock(source, target, it.kind)
        if times:
            it.after(it.rng.choice([5, 50, 500, 1500]) * MILLISECOND, lambda: close(times - 1))

    close(it.rng.randrange(2, 10))


@fault("one client is cut off from one node")
def partition_client(it: FaultInstance) -> None:
    if clients := _living_clients(it):
        block_pairs(it, both_ways([(it.rng.choice(clients), it.node().id)]))


@fault("connections are reset between their ends")
def break_connection(it: FaultInstance) -> None:
    network = it.cluster.network
    for _ in range(it.rng.choice([1, 1, 3])):
        ends = network.open_ends()
        if ends:
            it.hit()
            network.break_connection(it.rng.choice(ends))


@fault("all connections of a node are reset")
def break_all(it: FaultInstance) -> None:
    network, node = it.cluster.network, it.node().id
    for end in network.open_ends():
        if node in (end.host.address, end.other.host.address) and not end.broken:
            it.hit()
            network.break_connection(end)


@fault("a connection is forgotten on the way: what is sent vanishes, and the ends learn it late")
def half_open(it: FaultInstance) -> None:
    ends = it.cluster.network.open_ends()
    if ends:
        it.cluster.network.halve(it.rng.choice(ends), it.kind)


@fault("the last frames of a connection arrive after the first ones of the next")
def late_frames(it: FaultInstance) -> None:
    ends = it.cluster.network.open_ends()
    if ends:
        it.cluster.network.linger(
            it.rng.choice(ends),
            hold=it.rng.choice([1, 10, 300]) * MILLISECOND,
            late=it.rng.choice([1, 50, 1000, 3000]) * MILLISECOND,
            kind=it.kind,
        )


def _link(it: FaultInstance, made: LinkFault, *, both: bool = True, clients: bool = True) -> None:
    network, node = it.cluster.network, it.node().id
    others = [other for other in _addresses(it) if other != node] + (_living_clients(it) if clients else [])
    others = it.rng.sample(others, it.rng.randrange(1, len(others) + 1))
    pairs: list[tuple[int, int]] = [(node, other) for other in others]
    pairs = both_ways(pairs) if both else pairs
    for pair in pairs:
        network.add_link_fault(*pair, made)

    def undo() -> None:
        for pair in pairs:
            network.remove_link_fault(*pair, made)

    it.later(undo, most=it.rng.choice([2, 10, 30]) * SECOND)


@fault("connections are reset in the middle of a frame")
def cut_frames(it: FaultInstance) -> None:
    _link(it, LinkFault(kind=it.kind, cut=it.rng.choice([0.02, 0.1, 0.5])))


@fault("bits of frames flip and the transport does not notice it")
def corrupt_frames(it: FaultInstance) -> None:
    _link(it, LinkFault(kind=it.kind, flip=it.rng.choice([0.01, 0.05, 0.3])))


@fault("the links of a node carry little")
def slow_link(it: FaultInstance) -> None:
    rate = it.rng.choice([10_000, 100_000, 1_000_000])
    _link(it, LinkFault(kind=it.kind, bytes_per_second=rate), both=it.rng.random() < 0.5)


@fault("somebody reads what a node sends at a few bytes a second")
def slow_drain(it: FaultInstance) -> None:
    _link(it, LinkFault(kind=it.kind, bytes_per_second=it.rng.choice([100, 1000])), both=False)


@fault("what passes the links of a node takes up to a second longer")
def lagging_link(it: FaultInstance) -> None:
    _link(it, LinkFault(kind=it.kind, lag=it.rng.choice([20, 200, 1000]) * MILLISECOND))


@fault("half of all writes are slow")
def slow_network(it: FaultInstance) -> None:
    it.cluster.network.slow_down(0.5, it.kind)
    it.later(it.cluster.network.speed_up)
