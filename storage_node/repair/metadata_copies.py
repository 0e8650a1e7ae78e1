"""FETCH_METADATA: the last record of each metadata log that is here, for a shard that lost what it had of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from logdevice_py.core.ids import LogId, PeerId, is_metadata_log
from logdevice_py.core.lsn import LSN_OLDEST, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import FetchMetadata, LogEntry, MetadataFetched
from logdevice_py.protocol.routing import handles
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.shard import Shard

_LOGS_MAX: Final = 64
"""How many logs one answer looks at."""
_UNDER_WAY_MAX: Final = 4
"""Requests that are worked on at a time; more are answered OVERLOADED, and asked again."""


class _Answer:
    """An answer under way."""

    def __init__(self, peer: PeerId, message: FetchMetadata, logs: list[LogId], *, ended: bool) -> None:
        self.peer = peer
        self.message = message
        self.logs = logs
        self.ended = ended
        self.status = Status.OK
        self.missing = len(logs)
        self.images: dict[LogId, tuple[Lsn, bytes]] = {}


class MetadataCopiesHandler:
    """Answers the FETCH_METADATAs of other shards."""

    def __init__(self, shard: Shard, found_damage: Callable[[LogState, ReadResult], None]) -> None:
        """
        Args:
            found_damage: gets reads that met damage.
        """
        self._shard = shard
        self._found_damage = found_damage
        self._logs: list[LogId] = []
        """The metadata logs that were here when somebody began to ask last."""
        self._count = 0
        """Of how many logs of all these are the metadata logs. Logs are only added."""
        self._under_way = 0

    @handles(FetchMetadata)
    def on_fetch_metadata(self, peer: PeerId, message: FetchMetadata, now: Micros) -> None:
        """Read what is asked for; it is answered when the disk has answered."""
        status = self._shard.status()
        if status is Status.OK and self._under_way >= _UNDER_WAY_MAX:
            hit("too_many_metadata_fetches")
            status = Status.OVERLOADED
        if status is Status.OK and not self._shard.metadata_authoritative:
            status = Status.REBUILDING  # what it has proves nothing
        if status is not Status.OK:
            self._send(peer, message, status, message.after, [], ended=status is Status.REBUILDING)
            return
        logs = self._logs
        if self._count != len(self._shard.logs) and not (message.after and logs):
            # What comes in later was stored when the asker was there to take its own copy.
            self._count = len(self._shard.logs)
            logs = self._logs = sorted(filter(is_metadata_log, self._shard.logs))
        begin = bisect_right(logs, message.after)
        chosen = logs[begin : begin + _LOGS_MAX]
        answer = _Answer(peer, message, chosen, ended=begin + len(chosen) == len(logs))
        self._under_way += 1
        for log in chosen:
            self._read(answer, log)
        if not answer.missing:
            self._finish(answer)

    def _read(self, answer: _Answer, log: LogId) -> None:
        state = self._shard.find(log)
        if state is None or state.highest < LSN_OLDEST:
            answer.missing -= 1
            return

        def done(result: ReadResult, now: Micros) -> None:
            if result.status is not Status.OK:
                answer.status = Status.FAILED
            elif result.corrupt or result.bodiless:
                hit("metadata_fetch_met_damage")
                self._found_damage(state, result)
                answer.status = Status.REBUILDING
            for lsn, image in result.entries:
                answer.images[log] = lsn, image
            answer.missing -= 1
            if not answer.missing:
                self._finish(answer)

        self._shard.reads.read_last(log, LSN_OLDEST, state.highest, done)

    def _finish(self, answer: _Answer) -> None:
        self._under_way -= 1
        message, status = answer.message, answer.status
        if status is Status.OK and not self._shard.metadata_authoritative:
            status = Status.REBUILDING  # there is another cluster file since it was asked
        through, ended = message.after, answer.ended
        sent: list[tuple[LogId, Lsn, bytes]] = []
        size = 0
        for log in answer.logs if status is not Status.FAILED else ():
            if size >= message.bytes_max:
                ended = False
                break
            through = log
            if log in answer.images:
                lsn, image = answer.images[log]
                sent.append((log, lsn, image))
                size += len(image)
        self._send(answer.peer, message, status, through, sent, ended=ended and status is not Status.FAILED)

    def _send(
        self,
        peer: PeerId,
        message: FetchMetadata,
        status: Status,
        through: LogId,
        sent: list[tuple[LogId, Lsn, bytes]],
        *,
        ended: bool,
    ) -> None:
        self._shard.metrics.copies_sent += len(sent)
        self._shard.out.send(
            peer,
            MetadataFetched(
                request_id=message.request_id,
                shard=message.shard,
                status=status,
                through=through,
                ended=ended,
                config_version=self._shard.config.version,
                entries=[LogEntry(log, lsn, len(image)) for log, lsn, image in sent],
                images=b"".join([image for _, _, image in sent]),
            ),
        )
