"""FIND_KEY: where a log reaches a timestamp or a key on this shard. DATA_SIZE: how much of it is here.

A search reads a block at a time and gives way to other work between blocks. A peer has one of them under way always, and no more than
there are free places: whoever asks without end leaves others theirs. A principal that is over its quota is answered THROTTLED before anything is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from logdevice_py.core.ids import PeerId
from logdevice_py.core.lsn import EPOCH_INVALID, ESN_MAX, LSN_INVALID, LSN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import DataSize, DataSized, FindFlags, FindKey, KeyFound
from logdevice_py.protocol.routing import handles
from storage_node.log_state import LogState
from storage_node.log_store.interface import NO_RECORD, DirectoryResult, LogSpan, ReadResult
from storage_node.log_store.search import (
    BLOCK_BYTES,
    BLOCK_ENTRIES,
    Search,
    SearchResult,
    approximate_time,
    search_key,
    search_time,
)
from storage_node.log_store.wanted import keyed_bodies, no_body
from storage_node.reading.read_quotas import ReadQuotas
from storage_node.shard import Shard

_EVERYTHING: Final = (Lsn(1), Lsn((1 << 64) - 3))


class _Job:
    """A request under way."""

    __slots__ = ("first", "last", "lossy", "message", "peer", "search", "state", "through")

    def __init__(self, peer: PeerId, message: FindKey, state: LogState, first: Lsn, last: Lsn) -> None:
        self.peer = peer
        self.message = message
        self.state = state
        self.first = first
        self.last = last
        self.through = known_through(state)
        """What the answer speaks for. What is released while the search runs was not looked at."""
        self.lossy = state.dirty_epochs()
        self.search: Search | None = None


class LookUpHandler:
    """The look-ups of one shard."""

    __slots__ = ("_found_damage", "_jobs", "_of", "_quotas", "_shard")

    def __init__(self, shard: Shard, found_damage: Callable[[LogState, ReadResult], None], quotas: ReadQuotas) -> None:
        """
        Args:
            shard: where.
            found_damage: gets reads that met damage.
            quotas: of the node.
        """
        self._shard = shard
        self._found_damage = found_damage
        self._quotas = quotas
        self._jobs: set[_Job] = set()
        """What is asked of the disk for whom; a request whose asker is gone is taken out, and its answer is dropped."""
        self._of: Counter[PeerId] = Counter()
        """How many of each peer."""

    @property
    def running(self) -> int:
        """How many are under way."""
        return len(self._jobs)

    def on_peer_down(self, peer: PeerId) -> None:
        """Nobody waits for the answers."""
        if self._of.pop(peer, 0):
            self._jobs = {job for job in self._jobs if job.peer != peer}

    def _refusal(self, peer: PeerId, now: Micros) -> Status:
        shard = self._shard
        status = shard.status()
        running = self._of.get(peer, 0)
        if status is Status.OK and running and running >= shard.settings.look_ups_max - len(self._jobs):
            status = Status.OVERLOADED
        if status is Status.OK and not self._quotas.admits_look_up(peer, now):
            shard.metrics.look_ups_throttled += 1
            status = Status.THROTTLED
        return status

    def _begin(self, job: _Job) -> None:
        self._jobs.add(job)
        self._of[job.peer] += 1

    def _end(self, job: _Job) -> None:
        if job not in self._jobs:
            return
        self._jobs.remove(job)
        self._of[job.peer] -= 1
        if not self._of[job.peer]:
            del self._of[job.peer]

    # FIND_KEY

    @handles(FindKey)
    def on_find(self, peer: PeerId, message: FindKey, now: Micros) -> None:
        """Search, from the trim point on and as far as everything is known here."""
        shard = self._shard
        status = self._refusal(peer, now)
        state = shard.find(message.log)
        if status is Status.OK and not message.first <= message.last < LSN_MAX:
            status = Status.INVALID_PARAM
        if status is not Status.OK or state is None:
            shard.out.send(peer, find_answer(message, status, generation=shard.generation))
            return
        shard.metrics.look_ups += 1
        first = Lsn(max(message.first, state.trim_point + 1, 1))
        job = _Job(peer, message, state, first, Lsn(min(message.last, known_through(state))))
        if first > job.last:
            self._found(job, SearchResult(Status.OK, Lsn(first - 1), Lsn(message.last + 1)))
            return
        self._begin(job)
        shard.reads.read_spans(message.log, first, job.last, partial(self._on_spans, job))

    def _on_spans(self, job: _Job, result: DirectoryResult, now: Micros) -> None:
        if job not in self._jobs:
            return
        message = job.message
        if result.status is not Status.OK:
            self._found(job, SearchResult(Status.FAILED, LSN_INVALID, LSN_INVALID))
        elif message.flags & FindFlags.BY_KEY:
            job.search = search_key(result.spans, message.key, job.first, job.last)
            self._go_on(job, None)
        elif message.flags & FindFlags.APPROXIMATE:
            self._found(job, approximate_time(result.spans, message.timestamp, job.first, job.last))
        else:
            job.search = search_time(result.spans, message.timestamp, job.first, job.last)
            self._go_on(job, None)

    def _on_read(self, job: _Job, result: ReadResult, now: Micros) -> None:
        if job not in self._jobs:
            return
        if result.status is Status.OK and result.corrupt:
            hit("look_up_met_damage")
            self._found_damage(job.state, result)
        self._go_on(job, result)

    def _go_on(self, job: _Job, result: ReadResult | None) -> None:
        assert job.search is not None
        try:
            low, high = next(job.search) if result is None else job.search.send(result)
        except StopIteration as done:
            self._found(job, done.value)
            return
        self._shard.metrics.look_up_reads += 1
        wants = keyed_bodies if job.message.flags & FindFlags.BY_KEY else no_body
        take = partial(self._on_read, job)
        self._shard.reads.probe(job.message.log, low, high, BLOCK_BYTES, BLOCK_ENTRIES, take, wants)

    def _found(self, job: _Job, found: SearchResult) -> None:
        self._end(job)
        message, state = job.message, job.state
        reached, stamp = (
            (found.reached, found.timestamp) if found.reached <= job.last else (message.last + 1, NO_RECORD)
        )
        before = min(max(found.before, state.trim_point), message.last)
        lossy_first, lossy_last = job.lossy
        self._shard.out.send(
            job.peer,
            KeyFound(
                request_id=message.request_id,
                shard=message.shard,
                log=message.log,
                status=found.status,
                before=Lsn(before),
                reached=Lsn(reached),
                timestamp=stamp,
                through=job.through,
                trim_point=state.trim_point,
                generation=self._shard.generation,
                lossy_first=lossy_first,
                lossy_last=lossy_last,
            ),
        )

    # DATA_SIZE

    @handles(DataSize)
    def on_data_size(self, peer: PeerId, message: DataSize, now: Micros) -> None:
        """Add up what partitions hold of the log, of each as much as lies in the range."""
        shard = self._shard
        status = self._refusal(peer, now)
        state = shard.find(message.log)
        if status is not Status.OK or state is None:
            shard.out.send(peer, size_answer(message, status))
            return
        shard.metrics.look_ups += 1
        asked = _Job(peer, message, state, *_EVERYTHING)  # type: ignore[arg-type]
        self._begin(asked)

        def done(result: DirectoryResult, at: Micros) -> None:
            if asked not in self._jobs:
                return
            self._end(asked)
            size = sum(_share(span, state.trim_point, message.first, message.last) for span in result.spans)
            shard.out.send(peer, size_answer(message, result.status, size))

        shard.reads.read_spans(message.log, *_EVERYTHING, done)


def known_through(state: LogState) -> Lsn:
    """Up to here the shard has everything of the log that it is to have, as far as it lost nothing."""
    return max(state.last_released, compose_lsn(state.clean_epoch, ESN_MAX) if state.clean_epoch else LSN_INVALID)


def _share(span: LogSpan, trim_point: Lsn, first: Timestamp, last: Timestamp) -> int:
    """The bytes of a span that lie in a range of timestamps, as if its records were spread evenly."""
    low, high = max(span.oldest, first), min(span.newest, last)
    if low > high or span.last <= trim_point:
        return 0
    return round(span.size * min(1.0, (high - low + 1) / (span.newest - span.oldest + 1)))


def find_answer(message: FindKey, status: Status, *, generation: int = 0) -> KeyFound:
    """Of a shard that knows nothing of the log, or does not say."""
    return KeyFound(
        request_id=message.request_id,
        shard=message.shard,
        log=message.log,
        status=status,
        before=Lsn(max(message.first, 1) - 1),
        reached=Lsn(min(message.last + 1, LSN_MAX)),
        timestamp=NO_RECORD,
        through=LSN_INVALID,
        trim_point=LSN_INVALID,
        generation=generation,  # type: ignore[arg-type]
        lossy_first=EPOCH_INVALID,
        lossy_last=Epoch(0),
    )


def size_answer(message: DataSize, status: Status, size: int = 0) -> DataSized:
    """DATA_SIZED."""
    return DataSized(request_id=message.request_id, shard=message.shard, log=message.log, status=status, size=size)
