"""LIST_EPOCHS: what the recovered epochs of a log hold, from what the shard has in memory of each (its epoch recovery metadata)."""

from __future__ import annotations

from itertools import islice

from google_crc32c import value as crc32c

from logdevice_py.core.epoch_summary import encode_rows
from logdevice_py.core.ids import Generation, PeerId
from logdevice_py.core.lsn import EPOCH_INVALID, LSN_INVALID
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import EPOCHS_PER_ANSWER, EpochsListed, ListEpochs
from logdevice_py.protocol.routing import handles
from storage_node.reading.look_up import known_through
from storage_node.reading.read_quotas import ReadQuotas
from storage_node.shard import Shard


class EpochListHandler:
    """Answers at once: nothing is read for it."""

    __slots__ = ("_quotas", "_shard")

    def __init__(self, shard: Shard, quotas: ReadQuotas) -> None:
        self._shard = shard
        self._quotas = quotas

    @handles(ListEpochs)
    def on_list(self, peer: PeerId, message: ListEpochs, now: Micros) -> None:
        """Tell what is known."""
        shard = self._shard
        status, state = shard.status(), shard.find(message.log)
        if status is Status.OK and not (0 < message.first <= message.last and message.rows):
            status = Status.INVALID_PARAM
        if status is Status.OK and not self._quotas.admits_look_up(peer, now):
            shard.metrics.look_ups_throttled += 1
            status = Status.THROTTLED
        answer = epochs_answer(message, status)
        answer.generation = shard.generation
        if status is Status.OK and state is not None:
            shard.metrics.look_ups += 1
            answer.through, answer.trim_point = known_through(state), state.trim_point
            if state.recovered is not None:
                most = min(message.rows, EPOCHS_PER_ANSWER)
                rows = list(islice(state.recovered.summaries(message.first, message.last), most))
                if len(rows) == most:
                    answer.covered = rows[-1][0]
                answer.rows = encode_rows(rows)
                answer.crc = crc32c(answer.rows)
        shard.out.send(peer, answer)


def epochs_answer(message: ListEpochs, status: Status) -> EpochsListed:
    """Of a shard that knows nothing of the log, or does not say."""
    return EpochsListed(
        request_id=message.request_id,
        shard=message.shard,
        log=message.log,
        status=status,
        covered=message.last if status is Status.OK else EPOCH_INVALID,
        through=LSN_INVALID,
        trim_point=LSN_INVALID,
        generation=Generation(0),
        rows=b"",
    )
