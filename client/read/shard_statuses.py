"""What the cluster says of shards whose silence does not prove what it seems to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from client.read.sender_state import Sender, SenderStatus
from logdevice_py.core.ids import Generation, ShardId
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import ShardStatus

_TOLD: Final = frozenset({Authority.UNDERREPLICATION.value, Authority.AUTHORITATIVE_EMPTY.value})


class ShardStatuses:
    """The latest SHARD_STATUS of any node; shared by the read streams of a client."""

    __slots__ = ("_shards", "_version")

    def __init__(self) -> None:
        self._version: Lsn = LSN_INVALID
        self._shards: dict[ShardId, tuple[Generation, Authority]] = {}

    def take(self, message: ShardStatus) -> bool:
        """Whether the message says something else than was known, and is not older."""
        if message.version < self._version:
            return False
        self._version = message.version
        shards = {
            ShardId(shard): (Generation(generation), Authority(status))
            for shard, generation, status in message.shards
            if status in _TOLD
        }
        changed = shards != self._shards
        self._shards = shards
        return changed

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
        """Whether others have stored again what the sender lost."""
        status = self._shards.get(sender.shard)
        return status is not None and sender.generation <= status[0] and status[1] is Authority.AUTHORITATIVE_EMPTY
