"""Tells clients whose requests take long what a log waits for here: rows of table `waits`, within SEQ_STATE."""

from __future__ import annotations

from itertools import islice
from typing import Final

from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.lsn import EPOCH_INVALID, LSN_INVALID
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, Micros, Timestamp
from logdevice_py.protocol.messages import SEQ_STATE_WAITS_MAX, GetSeqState, SeqState, SeqStateWait
from logdevice_py.tables.constraints import Constraints
from sequencer.frames import NO_NODE
from sequencer.waits import SequencerView, waits_rows

_FRESH_US: Final = 100 * MILLISECOND
"""For so long an answer about a log is given again: many clients may wait for the same, and looking takes time."""
_LOGS_MAX: Final = 1000
_TEXT_MAX: Final = 200


class WaitAnswers:
    """Tells clients what a log of this node waits for."""

    __slots__ = ("_made", "_node")

    def __init__(self, node: SequencerView) -> None:
        self._node = node
        self._made: dict[LogId, tuple[Micros, list[SeqStateWait]]] = {}

    def answer(self, peer: PeerId, message: GetSeqState, now: Micros) -> None:
        """Answer GET_SEQ_STATE with EXPLAIN."""
        node, log = self._node, message.log
        sequencer = node.sequencers.get(log)
        current = None if sequencer is None else sequencer.current
        node.context.outbox.send(
            peer,
            SeqState(
                request_id=message.request_id,
                log=log,
                status=Status.AGAIN,
                redirect=NO_NODE,
                epoch=EPOCH_INVALID if current is None else current.epoch,
                last_released=LSN_INVALID,
                next_lsn=LSN_INVALID,
                tail_lsn=LSN_INVALID,
                tail_timestamp=Timestamp(0),
                waits=self._waits(log, now),
            ),
        )

    def _waits(self, log: LogId, now: Micros) -> list[SeqStateWait]:
        made = self._made.get(log)
        if made is not None and now < made[0] + _FRESH_US:
            return made[1]
        rows = islice(waits_rows(self._node, Constraints(log_id=log), now), SEQ_STATE_WAITS_MAX)
        waits = [
            SeqStateWait(
                row.kind,
                row.cause,
                row.shards[:_TEXT_MAX],
                row.waiting,
                round((row.waited_seconds or 0) * 1e6),
                row.detail[:_TEXT_MAX],
            )
            for row in rows
        ]
        if len(self._made) >= _LOGS_MAX:
            self._made.clear()
        self._made[log] = now, waits
        return waits
