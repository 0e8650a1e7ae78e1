"""What the cluster says of shards whose silence does not prove what it seems to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from client.read.sender_state import Sender, SenderStatus
from logdevice_py.core.ids import Generation, PeerId, ShardId
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import ShardStatus

_PARTS_MAX: Final = 16
"""Of a status; one of more is not heeded."""
_EVER: Final = Micros(0)
_TOLD: Final = frozenset({Authority.UNDERREPLICATION.value, Authority.AUTHORITATIVE_EMPTY.value})


class ShardStatuses:
    """The latest SHARD_STATUS of any node; shared by the read streams of a client.

    One that comes in parts counts when all of them are there: shards that are left out of a part may be in another one. Parts of different nodes
    are kept apart, and those of a connection come in order; one that does not follow the one before ends what was begun.
    """

    __slots__ = ("_begun", "_heard", "_shards", "_version")

    def __init__(self) -> None:
        self._version: Lsn = LSN_INVALID
        self._shards: dict[ShardId, tuple[Generation, Authority]] = {}
        self._heard: dict[ShardId, Micros] = {}
        """When what is said of each was heard first."""
        self._begun: dict[PeerId, list[ShardStatus]] = {}
        """Of each node: the parts of its status that are there, while there are others to come."""

    def take(self, peer: PeerId, message: ShardStatus, now: Micros = _EVER) -> bool:
        """Whether the message says something else than was known, and is not older."""
        if message.version < self._version:
            return False
        parts = self._begun.pop(peer, [])
        if parts and not _follows(parts, message):
            hit("shard_status_begun_anew")
            parts = []
        if message.part != len(parts):
            return False  # what came before it is lost
        parts.append(message)
        if len(parts) < min(message.parts, _PARTS_MAX):
            self._begun[peer] = parts
            return False
        if len(parts) < message.parts:
            return False
        self._version = message.version
        shards = {
            each.shard: (each.generation, Authority(each.status))
            for part in parts
            for each in part.shards
            if each.status in _TOLD
        }
        changed = shards != self._shards
        self._heard = {
            shard: self._heard[shard] if self._shards.get(shard) == told else now for shard, told in shards.items()
        }
        self._shards = shards
        return changed

    def forget_begun(self, peer: PeerId) -> None:
        """The connection to a node ended: of what was begun on it nothing more comes."""
        self._begun.pop(peer, None)

    def write_off(self, senders: Iterable[Sender]) -> None:
        """Wait no more for those that cannot be reached and whose data is gone; and again for those of which that is not said any more."""
        for sender in senders:
            status = self._shards.get(sender.shard)
            gone = status is not None and sender.generation <= status[0]
            if gone and sender.status is SenderStatus.WAITING and not sender.lost:
                hit("read_shard_written_off")
                sender.lost = sender.written_off = True
            elif sender.written_off and not gone:
                sender.lost = sender.written_off = False

    def is_empty(self, sender: Sender) -> bool:
        """Whether others have re-replicated what the sender lost."""
        status = self._shards.get(sender.shard)
        return status is not None and sender.generation <= status[0] and status[1] is Authority.AUTHORITATIVE_EMPTY

    def heard_at(self, sender: Sender) -> Micros:
        """When what is said of the sender's data was heard first; 0: nothing is said."""
        status = self._shards.get(sender.shard)
        return self._heard[sender.shard] if status is not None and sender.generation <= status[0] else _EVER


def _follows(parts: list[ShardStatus], message: ShardStatus) -> bool:
    """Whether it is the next part of the same status."""
    last = parts[-1]
    return (message.version, message.parts, message.part) == (last.version, last.parts, last.part + 1)
