"""Peers that do not keep to the protocol: they introduce themselves as a client or as a node, and send messages that they made up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from logdevice_py.core.ids import InstanceId, LogId, NodeId, node_of
from logdevice_py.core.lsn import LSN_INVALID, LSN_MAX, LSN_OLDEST, Lsn
from logdevice_py.core.status import ProtocolError, Status
from logdevice_py.core.units import MILLISECOND
from logdevice_py.protocol.framing import FrameReader, encode_frame
from logdevice_py.protocol.messages import Ack, ShardGap, Start, Started, StartFlags
from logdevice_py.shell.introduction import Identity, Introduction
from logdevice_py.shell.settings import RuntimeSettings
from logdevice_py.simulation.connection import End
from server.simulation.faults.attacks import ATTACKS, Attack, Outsider
from server.simulation.faults.catalog import FaultInstance, fault

HOSTILE_ADDRESS: Final = -500_000
"""In the network, of the peer of the first fault of a run; later ones count down."""
LET_IN_AS_NODE: Final = "false node let in"
"""What `fault_effects` counts when a node believes that such a peer is another node."""
_READ_FOR: Final = 100 * MILLISECOND
_CREDIT: Final = 1 << 16
_EARLIER: Final = (3, 50, LSN_MAX)


class SimHostilePeer:
    """A process outside of the cluster. It reads a little of each log, attacks once or several times, and is gone."""

    def __init__(self, it: FaultInstance, attack: Attack, introduced_as: NodeId | None) -> None:
        """
        Args:
            introduced_as: the node that it says it is when it attacks; None: it is a client.
        """
        self._it = it
        self._attack = attack
        self._introduced_as = introduced_as
        self._address = HOSTILE_ADDRESS - it.index
        self._ends: dict[tuple[NodeId, bool], End] = {}
        """Connections, by the node that was dialled and whether this peer introduced itself as a node."""
        self._then: dict[End, list[Callable[[End], None]]] = {}
        """What to do once a connection's introduction is answered."""
        self._readers: dict[End, FrameReader] = {}
        self.knows = Outsider(it.rng, it.cluster.config, sorted(it.logs))

    def begin(self) -> None:
        """Connect to the nodes, and read."""
        it, network = self._it, self._it.cluster.network
        network.listen(self._address, self)
        for node in self.knows.config.nodes:
            self._with(NodeId(node), False, self._read)
        times = it.rng.choice([1, 1, 3, 10])
        it.cluster.scheduler.after(_READ_FOR, lambda: self._strike(times))

    def _strike(self, times: int) -> None:
        it = self._it
        if it.is_over() or not times:
            it.cluster.network.die(self._address, machine=False)
            return
        for node, message in self._attack.make(self.knows):
            self._with(node, self._introduced_as not in (None, node), lambda end, m=message: self._send(end, m))  # type: ignore[misc]
        pause = it.rng.choice([10, 100, 1000]) * MILLISECOND
        it.cluster.scheduler.after(pause, lambda: self._strike(times - 1))

    # Connections

    def _with(self, node: NodeId, as_node: bool, then: Callable[[End], None]) -> None:
        """Do something with a connection to a node; nothing when there is none to be had."""
        end = self._ends.get((node, as_node))
        if end is not None and not end.broken:
            waiting = self._then.get(end)
            if waiting is None:
                then(end)
            else:
                waiting.append(then)
            return

        def outcome(end: End | None, refused: bool) -> None:
            if end is not None:
                self._ends[node, as_node] = end
                self._then[end] = [then]
                introduced_as = self._introduced_as if as_node else None
                self._put(end, self._introduction(introduced_as).hello(node))

        self._it.cluster.network.dial(self._address, node, outcome)

    def _introduction(self, node: NodeId | None) -> Introduction:
        config = self.knows.config
        number = NodeId(-1) if node is None else node
        identity = Identity(config.name, config.uuid, number, InstanceId(1), config.version)
        return Introduction(identity, lambda node: True, RuntimeSettings(), lambda version: None)

    def _send(self, end: End, message: Any) -> None:
        it = self._it
        it.hit()
        it.cluster.fault_effects[self._attack.counted_as] += 1
        it.cluster.note("hostile", self._attack.name, message)
        self._put(end, message)

    @staticmethod
    def _put(end: End, message: Any) -> None:
        end.send(b"".join(encode_frame(message)))

    # Reading

    def _read(self, end: End) -> None:
        """Ask the shards of a node how far each log goes."""
        for shard in self.knows.config.storage_shards():
            if node_of(shard) == end.other.host.address:
                for log in self.knows.logs:
                    self._put(end, _start(log, shard, LSN_OLDEST, 1, 0))

    def _on_message(self, end: End, message: Any) -> None:
        if type(message) is Ack:
            waiting = self._then.pop(end, [])
            if message.status is Status.OK:
                if self._ends.get((NodeId(end.other.host.address), True)) is end:
                    self._it.cluster.fault_effects[LET_IN_AS_NODE] += 1
                for then in waiting:
                    then(end)
            return
        knows = self.knows
        knows.heard.append(message)
        if type(message) in (Started, ShardGap):
            log, released = LogId(message.log), message.last_released
            knows.released[log] = max(knows.released.get(log, LSN_INVALID), released)
            if type(message) is Started and message.filter_version == 1 and released:
                # the newest records, from a little before the end, or the oldest
                first = Lsn(max(LSN_OLDEST, released - knows.rng.choice(_EARLIER)))
                self._put(end, _start(log, message.shard, first, 2, _CREDIT))

    # Listener

    def accepted(self, end: End) -> None:
        """Nobody knows its address."""

    def received(self, end: End, data: bytes) -> None:
        """See `Listener`."""
        reader = self._readers.get(end)
        if reader is None:
            reader = self._readers[end] = self._it.cluster.network.reader(dialled=True)
        with suppress(ProtocolError):  # the network may damage what it reads, too
            for message in reader.feed(data):
                self._on_message(end, message)

    def lost(self, end: End) -> None:
        """See `Listener`."""
        self._readers.pop(end, None)
        self._then.pop(end, None)

    def congested(self, end: End, congested: bool) -> None:
        """It sends little."""


def _start(log: LogId, shard: int, first: Lsn, version: int, credit: int) -> Start:
    return Start(
        log=log,
        stream=1,
        shard=shard,  # type: ignore[arg-type]
        generation=0,  # type: ignore[arg-type]
        first=first,
        until=LSN_MAX,
        window_high=LSN_MAX,
        bytes_credit=credit,
        flags=int(StartFlags.NONE),
        filter_version=version,
        replication=0,
        known_down=[],
    )


@fault("a peer that introduced itself as a client sends messages that it made up", hostile=True)
def hostile_client(it: FaultInstance) -> None:
    attacks = [each for each in ATTACKS.values() if not each.as_node]
    SimHostilePeer(it, it.rng.choice(attacks), None).begin()


@fault("a peer that introduced itself as a node sends messages that it made up", hostile=True)
def hostile_node(it: FaultInstance) -> None:
    SimHostilePeer(it, it.rng.choice(list(ATTACKS.values())), it.node().id).begin()
