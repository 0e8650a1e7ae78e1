"""A small simulated cluster on which a story is played, with even latencies: what takes long, does so for a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client.guard_arguments import guard_argument
from client.guards import AppendGuard, Position
from client.look_up.epochs_request import KnownEpochs
from client.look_up.segments import EpochInProgress, listed_segments
from client.look_up.survey import LogParts
from client.read.batch import RecordBatch
from client.read.items import Gap, Record
from client.receipt import Receipt
from client.settings import WriterSettings
from client.write.write_streams import WriteStreams
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId, ShardId, node_of
from logdevice_py.core.lsn import EPOCH_MIN, ESN_MAX, LSN, LSN_OLDEST, Epoch, compose_lsn, format_lsn
from logdevice_py.core.machine import Send
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import GuardFlags, Store
from logdevice_py.simulation.network import NetworkSettings
from sequencer.sequencer import SequencerPhase
from server.simulation.machines import SimClient, SimMachines, SimNode, SimPromise, SimReader
from tests.history.stage import LOG, address_of
from tests.stories.recorder import Recorder
from tests.stories.words import amount_said, shard_said

NETWORK = 200
"""Microseconds of every message."""
SYNC = MILLISECOND
TIMEOUT = 120 * SECOND
SEQUENCERS = 2


def _cluster_file(shards: int, replicate: str, settings: str) -> str:
    section = "[settings.rebuilding]"
    lines = [
        'name = "stories"',
        "version = 1",
        'uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"',
        'epoch_store = "memory:"',
        "[metadata_log]",
        f'replicate = "{replicate}"',
        "[defaults]",
        f'replicate = "{replicate}"',
        "sticky_copysets = false",
        '[logs."/stories"]',
        f'ids = "{LOG}"',
        settings if section in settings else f"{settings}\n{section}\nenabled = false",
    ]
    for node in range(SEQUENCERS + shards):
        role = "sequencer" if node < SEQUENCERS else "storage"
        lines += [f"[nodes.N{node}]", f'host = "127.0.0.{node + 1}"', "port = 7000", f'roles = ["{role}"]']
    return "\n".join(lines)


class StoryStage:
    """A simulated cluster with one log, its clients, and what a story lets happen to them."""

    def __init__(
        self,
        shards: int,
        replicate: str,
        *,
        seed: int = 1,
        settings: str = "",
    ) -> None:
        """
        Args:
            shards: how many nodes store: N2 and those after it, with one shard each. N0 and N1 sequence.
            settings: further lines of the cluster file.
        """
        self.recorder = Recorder()
        self.about = f"N0 and N1 sequence, N2 to N{SEQUENCERS + shards - 1} store; log {LOG} keeps {replicate.removeprefix('node:')} copies"
        """The cluster, for the page."""
        self.cluster = SimMachines(
            load_cluster(_cluster_file(shards, replicate, settings)),
            seed,
            network=NetworkSettings(delay_min=NETWORK, delay_max=NETWORK, slow_probability=0.0, chop_probability=0.0),
            trace=self.recorder,
            turn_max=0,
        )
        self.cluster.weather.delay_max = 0
        self.cluster.watch_epoch_store = lambda node, operations, results: self.recorder.asked_epoch_store(
            self.now, node.name, operations, results
        )
        self.cluster.watch = lambda node, effects: self.recorder.effects(self.now, effects)
        self.cluster.watch_done = lambda node, done: self.recorder.done(self.now, done)
        self.recorder.on_introduction = lambda at, who, other, message, came: self.recorder.introduced(
            at, who, self._name_at(other), message, came
        )
        self._held: list[tuple[SimNode, SimNode]] = []
        self._guard_ids = 0
        self.names: dict[str, str] = {}
        """Names for the text before the story."""
        for node in self.cluster.nodes.values():
            node.clock.skew = 0
            node.rate_ppm = 0
            node.clock.set_rate(0)
            node.disk_settings.sync_min = node.disk_settings.sync_max = SYNC
            node.disk_settings.read_max = 0
            node.start()
        self.run(3 * SECOND)

    # Time

    @property
    def now(self) -> int:
        return self.cluster.scheduler.now

    def run(self, micros: int) -> None:
        """Let time pass."""
        self.cluster.scheduler.run_until(self.now + micros)

    def run_until(self, what: str, done: Callable[[], bool]) -> None:
        """Let time pass until something is so."""
        end = self.now + TIMEOUT
        while not done():
            assert self.now < end, f"{what}: not within {TIMEOUT // SECOND} s"
            self.run(NETWORK // 2)

    def begin(self) -> None:
        """What happens from here on is the story."""
        self.recorder.begin(self.now, self._peer_name)

    def end(self) -> None:
        """What happens from here on is not; what is under way may arrive."""
        self.recorder.end()
        self.run(SECOND)

    def say(self, who: str | SimNode | SimClient, text: str) -> None:
        """A line of its own."""
        self.recorder.say(self.now, who if isinstance(who, str) else who.name, text)

    def _peer_name(self, who: str, peer: int) -> str:
        if peer >= 0:
            return f"N{peer}"
        node = next((node for node in self.cluster.nodes.values() if node.name == who), None)
        address = None if node is None or node.process is None else node.process.address_of(peer)  # type: ignore[arg-type]
        return "a client" if address is None else self._name_at(address)

    def _name_at(self, address: int) -> str:
        """Of the process at an address of the network."""
        if address >= 0:
            return f"N{address}"
        return next((client.name for client in self.cluster.clients if client.address == address), "a client")

    # Nodes

    def node(self, node: int) -> SimNode:
        return self.cluster.nodes[NodeId(node)]

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
        """A client, which is C1 when it is the first."""
        client = self.cluster.client()
        client.name = client.process.name = client.process.identity.name = f"C{len(self.cluster.clients)}"
        return client

    def connect(self, client: SimClient, node: SimNode) -> None:
        """Let a client have a connection, by which it hears of changes."""
        client.event(lambda now: client.session.links.connect(node.id))
        self.run(5 * MILLISECOND)

    def writer(self, client: SimClient) -> WriteStreams:
        """The write stream of a client; every record goes in a frame of its own."""
        return client.writer(WriterSettings(time_trigger_us=0))

    def append_to(self, client: SimClient, streams: WriteStreams, text: str) -> StoryAppend:
        """Append through a write stream."""
        append = StoryAppend(self, client, text)
        self.say(client, f'appends "{text}" to its write stream')

        def start(now: Micros) -> None:
            streams.append(LOG, text.encode(), SimPromise(append.done), now)

        client.event(start)
        return append

    def trim(self, client: SimClient, lsn: int, timeout: int) -> StoryCall:
        """Trim the log on all shards."""
        call = StoryCall(self, client, f"trim up to {format_lsn(lsn)}")
        shards = sorted(self.cluster.config.storage_shards())
        self.say(client, f"trims log {LOG} up to {format_lsn(lsn)}")
        client.event(lambda now: client.session.trim(LOG, lsn, shards, SimPromise(call.done), now, timeout))
        return call

    def tail(self, client: SimClient) -> StoryCall:
        """Ask for the tail of the log."""
        call = StoryCall(self, client, "tail")
        self.say(client, f"asks for the tail of log {LOG}")
        client.event(lambda now: client.session.sequencers.tail_lsn(LOG, SimPromise(call.done), now))
        return call

    def segments(self, client: SimClient) -> StoryCall:
        """Ask for the segments of the log: its sequencer for the one in progress, and then the shards for those before it."""
        call = StoryCall(self, client, "segments")
        self.say(client, f"asks for the segments of log {LOG}")
        session = client.session

        def ended(promise: SimPromise) -> None:
            end = promise.result
            assert isinstance(end, EpochInProgress), promise.error
            client.later(
                lambda now: session.histories.read(LOG, now, lambda history, at, certain: ask(end, history, at))
            )

        def ask(end: EpochInProgress, history: tuple[EpochInterval, ...], now: Micros) -> None:
            before = Epoch(end.epoch - 1)
            parts = LogParts(history, compose_lsn(before, ESN_MAX), session.config)
            answer = SimPromise(lambda promise: answered(promise, end))
            session.look_ups.epochs(LOG, parts, EPOCH_MIN, before, answer, now, TIMEOUT)

        def answered(promise: SimPromise, end: EpochInProgress) -> None:
            known = promise.result
            assert isinstance(known, KnownEpochs), promise.error
            for segment in [*listed_segments(known, EPOCH_MIN, LSN_OLDEST), end.segment(known.trim_point)]:
                if segment is not None:
                    what = f"{amount_said(segment.records, segment.bytes)}, {segment.state.value}"
                    self.say(client, f"is told: {segment.first_lsn} to {segment.last_lsn}: {what}")
            call.ended = True

        client.event(lambda now: session.sequencers.log_end(LOG, SimPromise(ended), now))
        return call

    def append(
        self, client: SimClient, text: str, *, expect: int | None = None, fence: int | None = None
    ) -> StoryAppend:
        """Append directly.

        Args:
            expect: LSN of the record that the log must end with; None: whatever it ends with.
            fence: the token that it has; None: none.
        """
        append = StoryAppend(self, client, text)
        guard = None
        asked = "" if expect is None else f" if {format_lsn(expect)} is the last record"
        asked += "" if fence is None else f" with token {fence}"
        if asked:
            position = None if expect is None else Position(LSN(expect), 0)
            guard = guard_argument(None, position, fence, self._new_guard_id())
        self.say(client, f'appends "{text}"{asked}')

        def start(now: Micros) -> None:
            client.session.append(LOG, text.encode(), SimPromise(append.done), TIMEOUT, guard=guard)

        client.event(start)
        return append

    def raise_fence(self, client: SimClient, token: int) -> StoryCall:
        """Let the log take only appends with this token, or a greater one."""
        self.say(client, f"raises the fence of log {LOG} to {token}")
        guard = guard_argument(None, None, token, self._new_guard_id(), GuardFlags.RAISE, control=True)
        return self._control(client, "the fence", guard)

    def mark_end(self, client: SimClient, token: int) -> StoryCall:
        """End the log."""
        self.say(client, f"ends log {LOG} with token {token}")
        guard = guard_argument(None, None, token, self._new_guard_id(), GuardFlags.END, control=True)
        return self._control(client, "the end", guard)

    def _control(self, client: SimClient, what: str, guard: AppendGuard) -> StoryCall:
        call = StoryCall(self, client, what)
        client.event(lambda now: client.session.append(LOG, b"", SimPromise(call.done), TIMEOUT, guard=guard))
        return call

    def _new_guard_id(self) -> int:
        self._guard_ids += 1
        return self._guard_ids

    def append_in_part(self, client: SimClient, text: str, *, copies: int) -> StoryAppend:
        """Append, while the network holds back what the sequencer sends to all shards of the copyset but so many."""
        self.hold_back(text, copies=copies)
        return self.append(client, text)

    def hold_back(self, text: str, *, copies: int) -> None:
        """Let the network hold back from now on what the sequencer sends to all shards that shall store this text but so many."""
        sequencer = self.sequencer

        def hold(node: SimNode, effects: list[Any]) -> None:
            stores = [each.message for each in effects if isinstance(each, Send) and isinstance(each.message, Store)]
            ours = [store for store in stores if store.log == LOG and text.encode() in store.image]
            if node is sequencer and ours:
                self.cluster.watchers.remove(hold)
                for store in ours[copies:]:
                    self._held.append((sequencer, self.node(node_of(ShardId(store.shard)))))
                    self.block(*self._held[-1])

        self.cluster.watchers.append(hold)

    def let_go(self) -> None:
        """Nothing is held back any more."""
        for source, target in self._held:
            self.unblock(source, target)
        self._held = []

    def appended(self, client: SimClient, text: str, *, fence: int | None = None) -> StoryAppend:
        """Append, and wait for the outcome."""
        append = self.append(client, text, fence=fence)
        self.run_until("an append", lambda: append.ended)
        return append

    def read(
        self, client: SimClient, first: int = LSN_OLDEST, until: int = LSN_OLDEST, *, single_copy: bool = True
    ) -> SimReader:
        """Read from one LSN to another."""
        self.say(
            client,
            f"reads log {LOG} from {format_lsn(first) if first > LSN_OLDEST else 'the beginning'} to {format_lsn(until)}",
        )

        def got(batch: RecordBatch) -> None:
            for item in batch:
                if isinstance(item, Gap):
                    self.say(
                        client,
                        f"gets a gap {item.kind.name} {item.lo} to {item.hi}" + (f": {item.loss}" if item.loss else ""),
                    )
                else:
                    assert isinstance(item, Record), item
                    self.say(client, f'gets {item.lsn} "{item.payload.decode()}"')

        reader = SimReader(client, LOG, first, until, got, single_copy=single_copy)
        client.event(reader.start)
        return reader


class StoryCall:
    """A call of an application, and what it came to."""

    def __init__(self, stage: StoryStage, client: SimClient, what: str) -> None:
        self.ended = False
        self._stage = stage
        self._client = client
        self._what = what

    def done(self, promise: SimPromise) -> None:
        self.ended = True
        if isinstance(promise.error, LogDeviceError):
            outcome = promise.error.status.name
        elif isinstance(promise.result, Receipt):
            outcome = f"at {promise.result.lsn}"
        else:
            outcome = promise.result or "done"
        self._stage.say(self._client, f"is told: {self._what}: {outcome}")


class StoryAppend:
    """An append of the story, and what became of it."""

    def __init__(self, stage: StoryStage, client: SimClient, text: str) -> None:
        self.text = text
        self.ended = False
        self.lsn = 0
        """Of the record, once it is acknowledged."""
        self.where = ""
        """The record, its LSN and its copyset, once it is acknowledged."""
        self._stage = stage
        self._client = client

    def done(self, promise: SimPromise) -> None:
        self.ended = True
        if promise.error is None:
            receipt = promise.result
            self.lsn = int(receipt.lsn)
            self.where = f'{receipt.lsn} "{self.text}" on {" ".join(map(shard_said, receipt.copyset))}'
            self._stage.say(self._client, f'is told that "{self.text}" is at {receipt.lsn}')
        else:
            assert isinstance(promise.error, LogDeviceError), promise.error
            applied = "it may be stored all the same" if promise.error.maybe_applied else "it is certainly not stored"
            self._stage.say(self._client, f'is told that "{self.text}" failed: {promise.error.status.name}, {applied}')
