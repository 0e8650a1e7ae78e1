"""A small cluster under virtual time on which a schedule is played: who appends, who is cut off, who dies, and when."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from client.settings import WriterSettings
from client.write.write_streams import WriteStreams
from logdevice_py.config.cluster import default_metadata_nodeset
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId, NodeId, node_of
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST, Lsn
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.simulation.network import NetworkSettings
from sequencer.sequencer import SequencerPhase
from server.simulation.machines import SimClient, SimMachines, SimNode, SimPromise, SimReader
from tests.simulation.history import Attempt, AttemptFate, LogHistory, Observation, Violation

LOG = LogId(1)
TIMEOUT = 120 * SECOND
"""Virtual time within which what must happen happens."""


def config_text(
    nodes: int, replicate: str, extra: str, only_sequencing: Collection[int] = (), locations: Sequence[str] = ()
) -> str:
    section = "[settings.rebuilding]"
    lines = [
        'name = "history"',
        "version = 1",
        'uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"',
        'epoch_store = "memory:"',
        "[metadata_log]",
        f'replicate = "{replicate}"',
        "[defaults]",
        f'replicate = "{replicate}"',
        "sticky_copysets = false",
        extra if section in extra else f"{extra}\n{section}\nenabled = false",
        '[logs."/all"]',
        'ids = "1..10"',
    ]
    for node in range(nodes):
        lines += [f"[nodes.N{node}]", f'host = "127.0.0.{node + 1}"', "port = 7000"]
        if node in only_sequencing:
            lines.append('roles = ["sequencer"]')
        if locations:
            lines.append(f'location = "{locations[node % len(locations)]}"')
    return "\n".join(lines)


class Stage:
    """Plays on one log. Everything that applications see is checked as it comes; `finish` checks the rest."""

    def __init__(
        self,
        *,
        nodes: int = 3,
        replicate: str = "node:2",
        seed: int = 1,
        extra: str = "",
        only_sequencing: Collection[int] = (),
        locations: Sequence[str] = (),
    ) -> None:
        self.cluster = SimMachines(
            load_cluster(config_text(nodes, replicate, extra, only_sequencing, locations)),
            seed,
            network=NetworkSettings(delay_max=200, slow_probability=0.0),
        )
        self.history = LogHistory(LOG)
        self.copysets: dict[bytes, frozenset[NodeId]] = {}
        """Of acknowledged appends: the nodes that have them."""
        self._numbers = 0
        for node in self.cluster.nodes.values():
            node.start()
        self.run(2 * SECOND)

    # Time

    def run(self, micros: int) -> None:
        """Let time pass."""
        self.cluster.scheduler.run_until(self.cluster.scheduler.now + micros)

    def run_until(self, what: str, done: Callable[[], bool]) -> None:
        """Let time pass until something is so."""
        end = self.cluster.scheduler.now + TIMEOUT
        while not done():
            if self.cluster.scheduler.now >= end:
                raise Violation(f"{what}: not within {TIMEOUT // SECOND} s")
            self.run(MILLISECOND)

    # Nodes

    def node(self, node: NodeId) -> SimNode:
        return self.cluster.nodes[node]

    @property
    def sequencer(self) -> SimNode:
        """The node that sequences the log, by its own account; the one with the latest epoch if there are several."""
        found: list[tuple[int, SimNode]] = []
        for node in self.cluster.nodes.values():
            root = None if node.root is None else node.root.sequencer
            log = None if root is None else root.sequencers.get(LOG)
            if log is not None and log.state is SequencerPhase.ACTIVE:
                found.append((int(log.epoch), node))
        assert found, "nobody sequences the log"
        return max(found, key=lambda item: item[0])[1]

    def take_out(self, node: SimNode) -> None:
        """Take a node out of the cluster file, which everybody has at once, and end it. What it holds is gone."""
        cluster = self.cluster
        left = {id_: each for id_, each in cluster.config.nodes.items() if id_ != node.id}
        kept_by = replace(cluster.config.metadata_log, nodeset=default_metadata_nodeset(left))
        config = replace(cluster.config, version=cluster.config.version + 1, nodes=left, metadata_log=kept_by)
        cluster.config = config
        cluster.retire(node.id)
        for each in cluster.nodes.values():
            each.take_config(config)
        for client in cluster.clients:
            client.take_config(config)
        node.crash(machine=True)

    def others(self, *nodes: SimNode) -> list[SimNode]:
        """All nodes but these."""
        return [node for node in self.cluster.nodes.values() if node not in nodes]

    def block(self, source: SimNode | SimClient, target: SimNode | SimClient) -> None:
        """Hold back what goes from one to the other."""
        self.cluster.network.block(address_of(source), address_of(target))

    def unblock(self, source: SimNode | SimClient, target: SimNode | SimClient) -> None:
        """Let it go."""
        self.cluster.network.unblock(address_of(source), address_of(target))

    # Applications

    def client(self) -> SimClient:
        return self.cluster.client()

    def append(self, client: SimClient) -> Attempt:
        """Append directly. The attempt gets its fate."""
        attempt = self._attempt()

        def start(now: Micros) -> None:
            client.session.append(LOG, attempt.payload, SimPromise(self._done(attempt)), 60 * SECOND)

        client.event(start)
        return attempt

    def writer(self, client: SimClient) -> WriteStreams:
        """The write stream of a client."""
        return client.writer(WriterSettings(time_trigger_us=0))

    def append_to(self, client: SimClient, streams: WriteStreams) -> Attempt:
        """Append through a write stream."""
        attempt = self._attempt(client.name)
        client.event(lambda now: streams.append(LOG, attempt.payload, SimPromise(self._done(attempt)), now))
        return attempt

    def acknowledged(self, client: SimClient) -> Attempt:
        """Append until it works."""
        while True:
            attempt = self.append(client)
            self.run_until("an append", lambda attempt=attempt: attempt.fate is not AttemptFate.PENDING)  # type: ignore[misc]
            if attempt.fate is AttemptFate.ACKNOWLEDGED:
                return attempt

    def _attempt(self, stream: str = "") -> Attempt:
        self._numbers += 1
        return self.history.attempt(f"record-{self._numbers}".encode(), (0, 0), stream, self._numbers)

    def _done(self, attempt: Attempt) -> Callable[[SimPromise], None]:
        def done(promise: SimPromise) -> None:
            if promise.error is None:
                receipt = promise.result
                self.copysets[attempt.payload] = frozenset(node_of(shard) for shard in receipt.copyset)
                self.history.acknowledge(attempt, receipt.lsn, receipt.batch_offset)
            else:
                assert isinstance(promise.error, LogDeviceError), promise.error
                self.history.note_failure(attempt, maybe_applied=promise.error.maybe_applied)

        return done

    # The end

    def read(self, until: int, *, single_copy: bool = False) -> Observation:
        """Read the whole log."""
        seen, reader = self.reader(self.client(), LSN_OLDEST, until, single_copy=single_copy)
        self.run_until(f"a reader of everything ({reader.stream.waiting_for()})", lambda: reader.finished)
        return seen

    def follow(self, client: SimClient, first: Lsn) -> None:
        """Read from an LSN on for as long as the schedule goes on."""
        self.reader(client, first, LSN_MAX)

    def reader(
        self, client: SimClient, first: Lsn, until: int, *, single_copy: bool = False
    ) -> tuple[Observation, SimReader]:
        """Begin to read, and note what is read."""
        history = self.history
        seen = Observation("reader", first)
        history.observations.append(seen)
        reader = SimReader(
            client, LOG, first, until, lambda batch: history.observe(seen, batch), single_copy=single_copy
        )
        client.event(reader.start)
        return seen, reader

    def acknowledged_elsewhere(self) -> tuple[Attempt, list[SimNode]]:
        """Append until a record is on other nodes than that of the sequencer; it, and these nodes."""
        client = self.client()
        while True:
            attempt = self.acknowledged(client)
            holders = self.copysets[attempt.payload]
            if self.sequencer.id not in holders:
                return attempt, [self.node(node) for node in sorted(holders)]

    def recover_while_away(self, damaged: SimNode, away: SimNode, damage: Callable[[], None]) -> None:
        """Two holders of a record and its sequencer's node end at once. The epoch is recovered while one holder is away and the disk of the other
        one is damaged; then all are back, and everything is compared."""
        sequencer = self.sequencer
        for node in (damaged, away, sequencer):
            node.crash(machine=False)
        damage()
        self.run(10 * MILLISECOND)
        for node in (damaged, sequencer):
            node.start()
        self.append(self.client())
        self.run(8 * SECOND)
        away.start()
        self.run(5 * SECOND)
        self.finish()

    def finish(self) -> Observation:
        """Repair everything, append once more, and compare what readers see with what was acknowledged."""
        self.cluster.calm()
        self.run(5 * SECOND)
        last = self.acknowledged(self.client())
        self.run(SECOND)
        assert last.position is not None
        self.read(last.position[0], single_copy=True)
        whole = self.read(last.position[0])
        self.history.check_end(whole)
        return whole


def address_of(who: SimNode | SimClient) -> int:
    return who.id if isinstance(who, SimNode) else who.address
