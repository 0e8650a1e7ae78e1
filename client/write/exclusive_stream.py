"""A write stream that several processes may try to continue, one after the other or at once, and at most one at a time does.

They derive one writer id from a name that they share, and each has read what the log holds of that writer below some epoch, its view. A
sequencer takes the first frame that comes from any of them in its epoch, and no other's: so that frame goes alone, and the epoch is this
process's own once it is acknowledged. Before a process enters an epoch it has read all of the epochs below, recovered, so that nothing can be added
to them: what it sends is never stored beside something that it does not know. A process that finds another's frames above its view, or is
refused because the epoch is another's, ends with WRITE_STREAM_BROKEN. Who has had nothing acknowledged yet may read again and take over by moving the log to
a further epoch.

A process tells its own frames from the others' by their numbers, which begin at random.
"""

from __future__ import annotations

from typing import Final

from client.write.context import StreamContext, StreamOwner
from client.write.finder import FoundFrames
from client.write.stream_state import WriteStreamState
from client.write.write_stream import WriteStream
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, NodeId, WriterId
from logdevice_py.core.lsn import Epoch, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import AppendFlags, SeqStateFlags

_WAIT_FOR_RECOVERY: Final = int(SeqStateFlags.WAIT_FOR_RECOVERY)
_NUMBER_BITS: Final = 20
"""A process numbers its frames within a range of this size: far more than it sends, and there are 2^40 of them."""


class ExclusiveStream(WriteStream):
    """One process's try."""

    RESUME_FLAGS = int(AppendFlags.RESUME | AppendFlags.EXCLUSIVE)

    __slots__ = ("_first_number", "_view")

    def __init__(
        self, log: LogId, writer: WriterId, context: StreamContext, owner: StreamOwner, payload_max: int, view: Epoch
    ) -> None:
        """
        Args:
            log, context, owner, payload_max: as for any write stream.
            writer: the id that the processes share.
            view: everything that the log holds of `writer` below this epoch is known to the caller, and the epochs are recovered.
        """
        super().__init__(log, writer, context, owner, payload_max)
        self._view = view
        self._inquiry.min_epoch = view
        self._first_number = (context.rng.getrandbits(40) << _NUMBER_BITS) + 1
        self._frames.last_sequence = self._first_number - 1

    def _frames_in_flight_max(self) -> int:
        return super()._frames_in_flight_max() if self._epoch.accepted else 1

    def _go_on(self, reason: Status, now: Micros) -> None:
        if reason is Status.WRITE_STREAM_BROKEN:
            self._overtaken()
        elif reason is Status.STALE and self._reason_epoch > self._epoch.number:
            self._locate(now)
        else:
            super()._go_on(reason, now)

    def _take_another_id(self) -> None:
        """The processes find each other's records by the id."""

    def _locate(self, now: Micros) -> None:
        self._become(WriteStreamState.LOCATING)
        self._inquiry.ask(self._located, now, at_least=self._lowest_epoch(), flags=_WAIT_FOR_RECOVERY)

    def _located(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        if epoch > max(self._view, self._epoch.number):
            self._look_below(epoch, node, now)
        else:
            self._enter(epoch, node, now)

    def _moved(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        self._look_below(epoch, node, now)

    def _look_below(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """Read what was stored since the view, ours of unknown outcome included."""
        first = max(self._outcomes.last_lsn, compose_lsn(self._view, 1))
        self._read(first, Epoch(epoch - 1), epoch, node, now)

    def _found(self, found: FoundFrames, epoch: Epoch, node: NodeId, now: Micros) -> None:
        own = range(self._first_number, self._first_number + (1 << _NUMBER_BITS))
        has_others = any(number not in own for number in found.positions)
        if not has_others and not found.uncertain:
            super()._found(found, epoch, node, now)
            return
        self._take_found(found)
        if has_others:
            self._overtaken()
        else:
            self._fail_all(Status.DATALOSS, "what another process stored under the same name cannot be read")

    def _enter(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        self._view = max(self._view, epoch)
        super()._enter(epoch, node, now)

    def _overtaken(self) -> None:
        marks.hit("exclusive_stream_overtaken")
        self._fail_all(Status.WRITE_STREAM_BROKEN, "another process goes on with this write stream")
