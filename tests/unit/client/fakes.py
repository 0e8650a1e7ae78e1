"""What the tests of the client share: a cluster file, promises, and a client whose messages are caught."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from client.effects import Connect
from client.session import ClientSession
from client.settings import ClientSettings
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import InstanceId, LogId, NodeId, PeerId, ShardId
from logdevice_py.core.lsn import Epoch, Lsn, compose_lsn
from logdevice_py.core.machine import Send, TimerQueue
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.framing import FrameReader, encode_frame
from logdevice_py.protocol.messages import (
    Append,
    Appended,
    ClusterNode,
    ClusterState,
    GetSeqState,
    SeqState,
    SeqStateFlags,
    SplitRun,
)

LOG = LogId(7)


def cluster(nodes: int = 3, version: int = 1, defaults: str = "") -> ClusterConfig:
    """A cluster of some nodes with every role, and the logs 1 to 100."""
    text = (
        f'name = "test"\nversion = {version}\nuuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"\nepoch_store = "memory:"\n'
    )
    text += f'[metadata_log]\nreplicate = "node:{min(nodes, 3)}"\n[defaults]\nreplicate = "node:{min(nodes, 3)}"\n{defaults}\n'
    text += '[logs."/all"]\nids = "1..100"\n'
    for node in range(nodes):
        text += f'[nodes.N{node}]\nhost = "127.0.0.{node + 1}"\nport = 7000\nroles = ["sequencer", "storage"]\n'
    return load_cluster(text)


class FakePromise:
    """A promise that remembers."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        assert not self._done
        self._done, self.result = True, result

    def set_exception(self, exception: BaseException, /) -> None:
        assert not self._done
        self._done, self.error = True, exception

    def exception(self) -> BaseException | None:
        return self.error

    def cancel(self) -> None:
        self._done = True

    @property
    def failure(self) -> LogDeviceError:
        assert isinstance(self.error, LogDeviceError), self.error
        return self.error


def encoded(message: Any) -> Any:
    """The message as the other side gets it."""
    reader, frame, at = FrameReader(), b"".join(encode_frame(message)), 0
    messages: list[Any] = []
    while at < len(frame):
        buffer = reader.get_buffer()
        piece = frame[at : at + len(buffer)]
        buffer[: len(piece)] = piece
        del buffer
        messages += reader.received(len(piece))
        at += len(piece)
    (decoded,) = messages
    return decoded


class Bench:
    """A session whose connections are made at once and whose messages are kept for the test."""

    def __init__(self, nodes: int = 3, *, settings: ClientSettings | None = None, connect: bool = True) -> None:
        self.now = Micros(1_000_000)
        self.timers = TimerQueue()
        self.session = ClientSession(cluster(nodes), self.timers, random.Random(1), settings=settings)
        self.sent: list[tuple[NodeId, Any]] = []
        self.inquiries: list[tuple[NodeId, GetSeqState]] = []
        """Questions what something waits for, among the messages that were taken."""
        self.connect = connect
        self.dialled: list[NodeId] = []

    def turn(self) -> None:
        """End the turn and run its effects."""
        while True:
            self.session.on_turn_end(self.now)
            effects = self.session.links.take()
            if not effects:
                return
            for effect in effects:
                if type(effect) is Send:
                    self.sent.append((NodeId(effect.to), encoded(effect.message)))
                else:
                    assert type(effect) is Connect
                    self.dialled.append(effect.node)
                    if self.connect:
                        self.session.on_peer_up(PeerId(effect.node), self.now)

    def pass_time(self, micros: int) -> None:
        """Let timers fire on the way."""
        self.turn()
        until = self.now + micros
        while True:
            deadline = self.timers.next_deadline()
            if deadline is None or deadline > until:
                break
            self.now = Micros(max(self.now, deadline))
            self.timers.advance(self.now)
            self.turn()
        self.now = Micros(until)

    def taken(self, kind: type[Any] = Append) -> list[tuple[NodeId, Any]]:
        """Messages of a kind sent since the last call; all others are dropped."""
        self.turn()
        sent, self.sent = self.sent, []
        self.inquiries += [each for each in sent if _is_inquiry(each[1])]
        return [each for each in sent if type(each[1]) is kind and not _is_inquiry(each[1])]

    def one(self, kind: type[Any] = Append) -> tuple[NodeId, Any]:
        """The only message of a kind."""
        (only,) = self.taken(kind)
        return only

    def answer(self, node: NodeId, message: Any) -> None:
        """A message from a node."""
        self.session.on_message(PeerId(node), encoded(message), self.now)
        self.turn()

    def down(self, node: NodeId, *, refused: bool = False) -> None:
        """The connection breaks or cannot be made."""
        self.session.on_peer_down(PeerId(node), self.now, refused=refused)
        self.turn()

    def push(self, node: int, states: dict[int, int], version: int = 1) -> None:
        """A CLUSTER_STATE of a node."""
        self.answer(
            NodeId(node),
            ClusterState(
                version=version,
                config_version=1,
                nodes=[ClusterNode(NodeId(n), s, InstanceId(1)) for n, s in states.items()],
            ),
        )


def _is_inquiry(message: Any) -> bool:
    return type(message) is GetSeqState and bool(message.flags & SeqStateFlags.EXPLAIN)


def appended(
    request: Append,
    status: Status = Status.OK,
    *,
    lsn: int = 0,
    offset: int = 0,
    flags: int = 0,
    redirect: int = -1,
    split: Sequence[SplitRun] = (),
    durability: int = 0,
    there: int = 0,
) -> Appended:
    """An answer to APPEND."""
    return Appended(
        request_id=request.request_id,
        log=request.log,
        status=status,
        flags=flags,
        lsn=Lsn(lsn or (compose_lsn(1, 1) if status is Status.OK else 0)),
        batch_offset=offset,
        timestamp=Timestamp(1234),
        redirect=NodeId(redirect),
        durability=durability,
        copyset=[ShardId(0), ShardId(256), ShardId(512)],
        split=list(split),
        there=there,
    )


def seq_state(
    request: GetSeqState, status: Status = Status.OK, *, epoch: int = 1, released: int = 0, redirect: int = -1
) -> SeqState:
    """An answer to GET_SEQ_STATE."""
    return SeqState(
        request_id=request.request_id,
        log=request.log,
        status=status,
        redirect=NodeId(redirect),
        epoch=Epoch(epoch),
        last_released=Lsn(released),
        next_lsn=Lsn(released + 1),
        tail_lsn=Lsn(released),
        tail_timestamp=Timestamp(0),
    )
