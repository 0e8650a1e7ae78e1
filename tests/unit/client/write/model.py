"""A tiny model of a log's sequencers, the network between them and a client, and every fault that a write stream must survive.

The model keeps the rules that the stream relies on: a frame is stored only in its exact epoch, a writer's numbers within an epoch follow each
other, acknowledgements come in order, recovery of an epoch keeps everything acknowledged and a prefix of the rest, and a log leaves an
epoch for good. Everything else goes wrong at random.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any

from google_crc32c import value as crc32c

from client.effects import Connect
from client.encryption import EncryptionKeys
from client.read.decoding import no_keys
from client.session import ClientSession
from client.settings import ClientSettings, WriterSettings
from client.write.finder import FoundFrames
from client.write.frame import FramePosition
from logdevice_py.core.batch import decode_batch
from logdevice_py.core.ids import LogId, NodeId, PeerId, ShardId, WriterId
from logdevice_py.core.lsn import Epoch, Lsn, compose_lsn, epoch_of, esn_of
from logdevice_py.core.machine import Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.constituents import ContentMark, content_mark
from logdevice_py.protocol.messages import (
    Append,
    Appended,
    AppendedFlags,
    AppendFlags,
    Durability,
    GetSeqState,
    SeqState,
    SeqStateFlags,
)
from tests.unit.client.fakes import LOG, FakePromise, cluster

FORGER = -1
"""The connection of somebody who sends under the client's writer id."""


def mark_of(frame: Append) -> ContentMark:
    """What is compared of a frame."""
    return content_mark(frame.flags, frame.records, frame.crc, frame.payload)


class ModelEpoch:
    """One epoch of the log."""

    def __init__(self, number: int, node: int) -> None:
        self.number = number
        self.node = node
        self.entries: list[Append] = []
        self.waiting: deque[tuple[int, int]] = deque()  # (connection, request id) of entries not reaped yet
        self.reaped = 0
        self.last: dict[bytes, int] = {}
        self.refused: set[int] = set()  # connections that sent other content under a number that was taken
        self.over = False
        self.recovered = False


class Model:
    """The cluster, the network and one client with one BufferedWriter."""

    def __init__(
        self, seed: int, *, nodes: int = 3, timeout_us: int = 0, encryption: EncryptionKeys | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.now = Micros(1_000_000)
        self.timers = TimerQueue()
        settings = ClientSettings(unanswered_us=300_000, attempt_us=400_000, refusal_us=300_000)
        self.session = ClientSession(cluster(nodes), self.timers, self.rng, settings=settings)
        options = WriterSettings(
            time_trigger_us=self.rng.choice([-1, 0, 3_000]),
            size_trigger_bytes=self.rng.choice([1, 40, 200]),
            frames_in_flight_max=self.rng.choice([1, 3, 64]),
            compression=self.rng.choice(["none", "lz4"]),
            timeout_us=timeout_us,
            silence_us=1_000_000,
        )
        self.encryption = encryption
        sealer = None if encryption is None else encryption.writing_streams()
        self.writer = self.session.writer(options, self, sealer)
        self.nodes = nodes
        self.epochs = [ModelEpoch(1, self.rng.randrange(nodes))]
        self.connection: dict[int, int] = {}  # node -> connection of the client
        self.connections = 0
        self.to_node: dict[int, deque[Any]] = {}  # by connection
        self.to_client: dict[int, deque[Any]] = {}
        self.node_of: dict[int, int] = {}
        self.dialling: list[int] = []
        self.silent: set[int] = set()
        self.questions: list[tuple[int, GetSeqState]] = []
        self.searches: list[tuple[WriterId, Lsn, Lsn, dict[int, ContentMark], Any]] = []
        self.faults = True
        self.busy_until: dict[int, int] = {}
        self.promises: list[tuple[int, int, FakePromise]] = []  # (first record, how many, promise)
        self.records = 0
        self.uncertain = False
        self.forges = False
        self.forged = 0

    # The client's side

    def append(self) -> None:
        """Append one record, or many."""
        promise, first = FakePromise(), self.records
        if self.rng.random() < 0.5:
            self.records += 1
            self.writer.append(LOG, first.to_bytes(8, "big"), promise, self.now)
        else:
            count = 1 + self.rng.randrange(30)
            self.records += count
            payloads = [number.to_bytes(8, "big") for number in range(first, self.records)]
            self.writer.append_many(LOG, payloads, promise, self.now)
        self.promises.append((first, self.records - first, promise))

    def find(
        self,
        log: LogId,
        writer: WriterId,
        first: Lsn,
        until: Lsn,
        contents: Mapping[int, ContentMark],
        done: Any,
        now: Any,
    ) -> Model:
        assert self.epochs[epoch_of(until) - 1].recovered, "read before it was recovered"
        self.searches.append((writer, first, until, dict(contents), done))
        return self

    def cancel(self) -> None:
        """The one search is not wanted any more."""
        self.searches.clear()

    def waiting_for(self) -> str:
        """What the one search waits for."""
        return "a search"

    def turn(self) -> None:
        """End the client's turn."""
        self.session.on_turn_end(self.now)
        for effect in self.session.links.take():
            if type(effect) is Send:
                connection = self.connection.get(effect.to)
                if connection is not None:
                    self.to_node[connection].append(effect.message)
            else:
                assert type(effect) is Connect
                self.dialling.append(effect.node)
        self.writer.check()

    # Steps

    def step(self) -> bool:
        """Let one thing happen; False when nothing can but the passing of time."""
        choices: list[Any] = []
        choices += [lambda c=c: self.deliver_to_node(c) for c, queue in self.to_node.items() if queue]
        choices += [lambda c=c: self.deliver_to_client(c) for c, queue in self.to_client.items() if queue]
        choices += [self.dial] * bool(self.dialling)
        choices += [self.reap] * bool(self.epochs[-1].waiting)
        choices += [self.recover] * any(not e.recovered for e in self.epochs[:-1])
        choices += [self.answer_question] * bool(self.questions)
        choices += [self.search] * bool(self.searches)
        if choices:
            self.rng.choice(choices)()
            self.turn()
            return True
        return False

    def pass_time(self) -> None:
        """To the next timer, or a little."""
        deadline = self.timers.next_deadline()
        jump = 1 + self.rng.randrange(5_000)
        self.now = Micros(max(self.now + jump, min(deadline or 0, self.now + 1_000_000)))
        self.timers.advance(self.now)
        self.turn()

    def dial(self) -> None:
        node = self.dialling.pop(self.rng.randrange(len(self.dialling)))
        if self.faults and self.rng.random() < 0.2:
            self.session.on_peer_down(PeerId(node), self.now, refused=True)
            return
        self.connections += 1
        self.connection[node] = self.connections
        self.to_node[self.connections] = deque()
        self.to_client[self.connections] = deque()
        self.node_of[self.connections] = node
        self.session.on_peer_up(PeerId(node), self.now)

    def fault(self) -> None:
        """Something goes wrong."""
        kind = self.rng.randrange(6 if self.forges else 5)
        if kind == 0 and self.connection:
            node = self.rng.choice(sorted(self.connection))
            connection = self.connection.pop(node)
            # What was sent may still arrive, much later; the answers never.
            queue = self.to_node[connection]
            for _ in range(self.rng.randrange(len(queue) + 1)):
                queue.pop()
            self.to_client[connection].clear()
            self.session.on_peer_down(PeerId(node), self.now, refused=False)
        elif kind == 1:
            self.activate(self.rng.randrange(self.nodes))
        elif kind == 2:
            self.silent.add(self.rng.randrange(self.nodes))
        elif kind == 3:
            self.silent.clear()
        elif kind == 5:
            self.forge()
        else:
            self.epochs[-1].last.clear()  # the sequencer forgets its writers
        self.turn()

    def forge(self) -> None:
        """Somebody who has read the log sends the number that is due, or begins a stream that the epoch does not know."""
        stream = self.writer._streams.get(LOG)
        if stream is None:
            return
        epoch, writer = self.epochs[-1], stream.writer
        number = epoch.last.get(writer, self.rng.randrange(40)) + 1
        payload = b"forged %d" % self.forged
        self.forged += 1
        frame = Append(
            request_id=0,
            log=LOG,
            flags=int(AppendFlags.WRITE_STREAM | AppendFlags.RESUME),
            records=1,
            crc=crc32c(payload),
            seen_epoch=Epoch(0),
            previous_lsn=Lsn(0),
            writer=writer,
            sequence=number,
            stream_epoch=Epoch(epoch.number),
            payload=payload,
        )
        if self.take(epoch, frame, FORGER) is Status.OK:
            epoch.waiting.append((FORGER, 0))

    def calm(self) -> None:
        """No more faults."""
        self.faults = False
        self.silent.clear()

    # The nodes' side

    def answer(self, connection: int, message: Any) -> None:
        if connection == FORGER:
            return
        if self.connection.get(self.node_of[connection]) == connection:
            self.to_client[connection].append(message)

    def appended(
        self, connection: int, request: int, status: Status, lsn: int = 0, flags: int = 0, to: int = -1
    ) -> None:
        self.answer(
            connection,
            Appended(
                request_id=request,
                log=LOG,
                status=status,
                flags=flags,
                lsn=Lsn(lsn),
                batch_offset=0,
                timestamp=Timestamp(1),
                redirect=NodeId(to),
                durability=0,
                copyset=[ShardId(0)],
            ),
        )

    def activate(self, node: int) -> ModelEpoch:
        old = self.epochs[-1]
        old.over = True
        for index, (connection, request) in enumerate(old.waiting):
            # The old sequencer learns it from its storage nodes, or never.
            if self.rng.random() < 0.6:
                lsn = compose_lsn(old.number, old.reaped + index + 1)
                self.appended(connection, request, Status.PREEMPTED, lsn=lsn, to=node)
        new = ModelEpoch(old.number + 1, node)
        self.epochs.append(new)
        return new

    def recover(self) -> None:
        epoch = next(epoch for epoch in self.epochs if not epoch.recovered)
        keep = epoch.reaped + self.rng.randrange(len(epoch.entries) - epoch.reaped + 1)
        del epoch.entries[keep:]
        epoch.recovered = True

    def reap(self) -> None:
        epoch = self.epochs[-1]
        connection, request = epoch.waiting.popleft()
        epoch.reaped += 1
        self.appended(connection, request, Status.OK, lsn=compose_lsn(epoch.number, epoch.reaped))

    def deliver_to_node(self, connection: int) -> None:
        message = self.to_node[connection].popleft()
        node = self.node_of[connection]
        if node in self.silent:
            return
        if type(message) is GetSeqState:
            self.questions.append((connection, message))
            return
        assert type(message) is Append
        self.on_append(connection, node, message)

    def on_append(self, connection: int, node: int, message: Append) -> None:
        current = self.epochs[-1]
        mine = next((epoch for epoch in reversed(self.epochs) if epoch.node == node), None)
        request = message.request_id
        if mine is None:
            self.appended(connection, request, Status.REDIRECTED, to=current.node)
        elif message.stream_epoch != mine.number:
            self.appended(connection, request, Status.STALE, lsn=compose_lsn(mine.number, 0))
        elif mine.over:
            if not mine.recovered and self.rng.random() < 0.3 and self.take(mine, message, connection) is Status.OK:
                # An old sequencer that does not know it yet: a copy may be stored before the seal.
                lsn = compose_lsn(mine.number, len(mine.entries))
                self.appended(connection, request, Status.PREEMPTED, lsn=lsn, to=current.node)
            else:
                self.appended(connection, request, Status.PREEMPTED, to=current.node)
        elif self.faults and self.rng.random() < 0.1:
            status = self.rng.choice([Status.SEQNOBUFS, Status.NOTREADY, Status.OVERLOADED, Status.ISOLATED])
            flags = int(AppendedFlags.NOT_REPLICATED) * self.rng.randrange(2)
            self.appended(connection, request, status, flags=flags)
        else:
            verdict = self.take(mine, message, connection)
            if verdict is Status.OK:
                mine.waiting.append((connection, request))
            elif connection in mine.refused:
                flags = int(AppendedFlags.NOT_REPLICATED | AppendedFlags.NUMBER_TAKEN)
                self.appended(connection, request, verdict, lsn=compose_lsn(mine.number, 0), flags=flags)
            else:
                known = compose_lsn(mine.number, 0) if verdict is Status.WRITE_STREAM_UNKNOWN else 0
                self.appended(connection, request, verdict, lsn=known)

    def take(self, epoch: ModelEpoch, message: Append, connection: int) -> Status:
        last = epoch.last.get(message.writer)
        if connection in epoch.refused:
            return Status.WRITE_STREAM_BROKEN
        if last is None:
            if not message.flags & AppendFlags.RESUME:
                return Status.WRITE_STREAM_UNKNOWN
        elif message.sequence != last + 1:
            before = {entry.sequence: entry for entry in epoch.entries if entry.writer == message.writer}
            other = before.get(message.sequence)
            if other is not None and mark_of(other) != mark_of(message):
                epoch.refused.add(connection)
            return Status.WRITE_STREAM_BROKEN
        epoch.last[message.writer] = message.sequence
        epoch.entries.append(message)
        return Status.OK

    def answer_question(self) -> None:
        connection, question = self.questions.pop(self.rng.randrange(len(self.questions)))
        node = self.node_of[connection]
        current = self.epochs[-1]
        status, epoch, to, released = Status.OK, current.number, -1, 0
        if self.faults and self.rng.random() < 0.1:
            status = self.rng.choice([Status.AGAIN, Status.NOTREADY, Status.NOSEQUENCER, Status.ISOLATED])
        elif current.node != node and not question.flags & SeqStateFlags.NO_REDIRECT:
            status, to, epoch = Status.REDIRECTED, current.node, 0
        else:
            if current.node != node or current.number < question.min_epoch:
                current = self.activate(node)
                epoch = current.number
            if question.flags & SeqStateFlags.WAIT_FOR_RECOVERY and not all(e.recovered for e in self.epochs[:-1]):
                status = Status.AGAIN
            released = compose_lsn(current.number, current.reaped)
        self.answer(
            connection,
            SeqState(
                request_id=question.request_id,
                log=LOG,
                status=status,
                redirect=NodeId(to),
                epoch=Epoch(epoch),
                last_released=Lsn(released),
                next_lsn=Lsn(0),
                tail_lsn=Lsn(0),
                tail_timestamp=Timestamp(0),
            ),
        )

    def deliver_to_client(self, connection: int) -> None:
        message = self.to_client[connection].popleft()
        self.session.on_message(PeerId(self.node_of[connection]), message, self.now)

    def search(self) -> None:
        writer, first, until, contents, done = self.searches.pop()
        epoch = self.epochs[epoch_of(until) - 1]
        uncertain = self.uncertain and self.rng.random() < 0.5
        lost = self.rng.randrange(len(epoch.entries) + 1) if uncertain else 0
        found: dict[int, FramePosition] = {}
        taken: dict[int, FramePosition] = {}
        for index, entry in enumerate(epoch.entries, 1):
            if entry.writer == writer and esn_of(first) <= index and not (uncertain and index <= lost):
                ours = contents.get(entry.sequence) in (None, mark_of(entry))
                (found if ours else taken)[entry.sequence] = FramePosition(
                    compose_lsn(epoch.number, index), 0, Timestamp(0), (), Durability.SYNC
                )
        done(FoundFrames(found, uncertain=uncertain, taken=taken), self.now)

    # The log

    def content(self) -> list[tuple[int, int, int]]:
        """(record, LSN, batch offset) of everything in the log, in order. A reader with the keys refuses nothing of it."""
        rows: list[tuple[int, int, int]] = []
        open_sealed = no_keys if self.encryption is None else self.encryption.reading()
        for epoch in self.epochs:
            for index, entry in enumerate(epoch.entries, 1):
                payload = entry.payload
                if payload.startswith(b"forged"):
                    continue
                if self.encryption is not None:
                    payload = open_sealed(LOG, Lsn(compose_lsn(epoch.number, index)))(payload, entry.records)
                batch = decode_batch(payload, entry.records) if entry.flags & AppendFlags.BATCH else [payload]
                rows += [
                    (int.from_bytes(record, "big"), compose_lsn(epoch.number, index), offset)
                    for offset, record in enumerate(batch)
                ]
        return rows

    def run(self, *, operations: int = 60) -> None:
        """Append while faults happen, then let them stop."""
        for _ in range(operations):
            choice = self.rng.random()
            if choice < 0.25:
                self.append()
                self.turn()
            elif choice < 0.33:
                self.fault()
            elif choice < 0.5 or not self.step():
                self.pass_time()
        self.calm()
        steps = 0
        while not self.all_done():
            steps += 1
            assert steps < 20_000, ("does not end", [stream.state for stream in self.writer._streams.values()])
            if not self.step():
                self.pass_time()

    def all_done(self) -> bool:
        return all(promise.done() for _, _, promise in self.promises)
