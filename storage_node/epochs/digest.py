"""DIGEST: everything stored in ranges of LSNs, released or not.

Served piecewise and without state between requests: an answer says how far it got. A range in which the shard may lack entries (another
generation, unsynced writes lost in a crash) is answered REBUILDING: what is there is shown, what is not is no proof. An entry that cannot be
read is shown with an empty image: that says nothing against what the shard tells of other LSNs. Where damage is wide the range is
REBUILDING. The ends of epochs of which the shard knows are shown as bridges, so that a recovery which finds no copy of them decides nothing else.

What a client gets is charged to the read quotas of its log and of its principal. While one of them is used up, or read streams wait for it,
the answer is OVERLOADED: nobody reads by DIGEST what a read stream would not send him, or takes it from streams.

What recoveries stored in a log before the request, and the disk has not answered yet, is waited for: see `RecoveryStores`. Copies of sequencers
need no such care, because SEALED was sent after them. If the disk does not answer, the asker, which repeats its request, has no answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from logdevice_py.core.entry import records_of
from logdevice_py.core.ids import LogId, PeerId, is_client, is_metadata_log
from logdevice_py.core.lsn import ESN_MAX, Lsn, compose_lsn, epoch_of
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.token_bucket import Meter
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import FIELDS_BUDGET, Digest, Digested, DigestedRange, LogEntry
from logdevice_py.protocol.routing import handles
from storage_node.epochs.epoch_ends import known_ends, with_ends
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.reading.read_quotas import ReadAllowance, ReadQuotas
from storage_node.shard import Shard, begin_turn

_ENTRY_SIZE: Final = 24
_RANGE_SIZE: Final = 22
"""Bytes that an entry's row and a range's row take in a message at most."""
RANGES_PER_MESSAGE_MAX: Final = 2000
ENTRIES_PER_MESSAGE_MAX: Final = (FIELDS_BUDGET - _RANGE_SIZE) // _ENTRY_SIZE
_JOBS_AT_WORK_MAX: Final = 4
_RANGES_WAITING_MAX: Final = 200_000
_DAMAGED_MAX: Final = 64
"""LSNs that one read may show as damaged; of a wider range nothing is known."""
_RANGE_COST: Final = 256
"""What a range costs of a turn, in bytes of images."""


class _Job:
    """A DIGEST under way."""

    __slots__ = (
        "entries",
        "entries_max",
        "images",
        "index",
        "message",
        "meters",
        "peer",
        "position",
        "ranges",
        "room",
        "status",
    )

    def __init__(self, peer: PeerId, message: Digest, room: int) -> None:
        self.peer = peer
        self.message = message
        self.room = room
        """Bytes of images that may still be added; an answer holds at least one entry all the same."""
        self.entries_max = (FIELDS_BUDGET - _RANGE_SIZE * len(message.ranges)) // _ENTRY_SIZE - _DAMAGED_MAX
        self.meters: dict[LogId, tuple[Meter, ...]] = {}
        """What counts the entries of each log, where something does."""
        self.ranges: list[DigestedRange] = []
        self.entries: list[LogEntry] = []
        self.images: list[bytes] = []
        self.index = 0
        """The range at work."""
        self.position = Lsn(0)
        """Where it goes on; 0: it has not begun."""
        self.status = Status.OK

    @property
    def full(self) -> bool:
        return self.room <= 0 or len(self.entries) >= self.entries_max


class DigestHandler:
    """Takes the DIGESTs of one shard."""

    __slots__ = (
        "_at_work",
        "_behind_stores",
        "_budget",
        "_found_damage",
        "_held",
        "_is_awaited",
        "_quotas",
        "_ranges",
        "_shard",
        "_waiting",
    )

    def __init__(
        self,
        shard: Shard,
        found_damage: Callable[[LogState, ReadResult], None],
        quotas: ReadQuotas,
        is_awaited: Callable[[Meter], bool],
    ) -> None:
        """
        Args:
            found_damage: gets reads that met damage.
            quotas: of readers.
            is_awaited: whether read streams wait for a quota.
        """
        self._shard = shard
        self._quotas = quotas
        self._is_awaited = is_awaited
        self._found_damage = found_damage
        self._waiting: deque[_Job] = deque()
        self._held: dict[PeerId, list[_Job]] = {}
        """What is left waiting for each peer that does not read its answers."""
        self._behind_stores: dict[_Job, None] = {}
        """What waits until the disk has answered STOREs of recoveries."""
        self._at_work = 0
        self._ranges = 0
        """Of all that waits."""
        self._budget = 0
        """What this turn may still send, in bytes."""

    @handles(Digest)
    def on_digest(self, peer: PeerId, message: Digest, now: Micros) -> None:
        """Put it in line; it is begun when the turn ends."""
        shard = self._shard
        status = shard.status()
        if status is Status.OK and self._is_full(peer):
            hit("too_many_digests")
            status = Status.OVERLOADED
        if len(message.ranges) > RANGES_PER_MESSAGE_MAX:
            status = Status.INVALID_PARAM
        if status is not Status.OK:
            self._refuse(peer, message, status)
            return
        room = max(1, min(message.bytes_max, shard.settings.digest_bytes_max))
        self._put_in_line(_Job(peer, message, room))
        self._ranges += len(message.ranges)

    def _refuse(self, peer: PeerId, message: Digest, status: Status) -> None:
        self._send(peer, message, _refused_ranges(message, status), [], [])

    def _put_in_line(self, job: _Job) -> None:
        self._held.get(job.peer, self._waiting).append(job)

    def _is_full(self, peer: PeerId) -> bool:
        under_way = len(self._held.get(peer, self._waiting)) + self._at_work + len(self._behind_stores)
        most = self._shard.settings.digests_waiting_max + _JOBS_AT_WORK_MAX
        return under_way >= most or self._ranges >= _RANGES_WAITING_MAX

    def on_peer_down(self, peer: PeerId) -> None:
        """Nobody waits for the answers any more."""
        self._forget(self._held.pop(peer, ()))
        for jobs in (self._waiting, self._behind_stores):
            self._forget(job for job in jobs if job.peer == peer)
        self._waiting = deque(job for job in self._waiting if job.peer != peer)
        self._behind_stores = {job: None for job in self._behind_stores if job.peer != peer}

    def on_peer_congested(self, peer: PeerId) -> None:
        """The connection does not keep up: nothing is begun for it until it is drained."""
        self._held.setdefault(peer, []).extend(job for job in self._waiting if job.peer == peer)
        self._waiting = deque(job for job in self._waiting if job.peer != peer)

    def on_peer_drained(self, peer: PeerId) -> None:
        """The connection takes more."""
        self._waiting.extend(self._held.pop(peer, ()))

    def run(self, now: Micros) -> None:
        """Begin what waits, as far as one turn may go: what piles up for a peer that does not read is noticed between turns."""
        shard = self._shard
        self._budget = shard.settings.read_bytes_per_turn_max
        while self._waiting and self._at_work < _JOBS_AT_WORK_MAX and self._budget > 0:
            job = self._waiting.popleft()
            if self._waits_for_stores(job):
                continue
            self._forget((job,))
            if shard.failed:
                # what was written last may be on disk or not
                self._refuse(job.peer, job.message, Status.FAILED)
                continue
            if not self._is_within_quota(job, now):
                hit("digest_over_quota")
                self._refuse(job.peer, job.message, Status.OVERLOADED)
                continue
            self._at_work += 1
            self._go_on(job)
        if self._waiting and self._at_work < _JOBS_AT_WORK_MAX:
            hit("digests_go_on_next_turn")
            shard.timers.at(now, begin_turn)

    def _is_within_quota(self, job: _Job, now: Micros) -> bool:
        """Whether the asker may be sent something; no more than that, or one entry, is."""
        if not is_client(job.peer):
            return True
        for log in {each.log for each in job.message.ranges if not is_metadata_log(each.log)}:
            meters = self._quotas.of(job.peer, log, now)
            if not meters:
                continue
            allowance = ReadAllowance(meters, now)
            if allowance.is_used_up or any(map(self._is_awaited, meters)):
                return False
            job.meters[log] = meters
            job.room = max(1, min(job.room, allowance.bytes_left))
            job.entries_max = max(1, min(job.entries_max, allowance.records_left))
        return True

    def _waits_for_stores(self, job: _Job) -> bool:
        stores = self._shard.recovery_stores
        log = stores.find(each.log for each in job.message.ranges)
        if log is None:
            return False
        hit("digest_waits_for_stores")
        self._behind_stores[job] = None

        def go_on() -> None:
            if job in self._behind_stores:
                del self._behind_stores[job]
                self._put_in_line(job)

        stores.when_ended(log, go_on)
        return True

    def _forget(self, jobs: Iterable[_Job]) -> None:
        self._ranges -= sum(len(job.message.ranges) for job in jobs)

    def _go_on(self, job: _Job) -> None:
        """Work through the ranges until the answer is full or the disk is needed."""
        ranges = job.message.ranges
        while job.index < len(ranges):
            log, first, last, generation = ranges[job.index]
            if not job.position:
                job.position = Lsn(max(first, 1))
                job.status = Status.OK
            if job.full and job.entries:
                # Not begun, or not to its end: the asker goes on from here.
                self._finish_range(job, log, Lsn(job.position - 1))
                continue
            if self._shard.is_other_generation(generation):
                job.status = Status.REBUILDING
                self._finish_range(job, log, last)
                continue
            if is_metadata_log(log) and not self._shard.metadata_authoritative and not generation:
                # An earlier generation may have held copies. Who names this one asks only what was stored since.
                job.status = Status.REBUILDING
            state = self._shard.find(log)
            if state is None or job.position > last:
                self._finish_range(job, log, last)
                continue
            if state.is_dirty(job.position, last):
                job.status = Status.REBUILDING
            if job.position >= state.in_memory_from:
                self._from_memory(job, state, last)
                continue
            room = max(job.room, 1)
            entries_max = max(1, job.entries_max - len(job.entries))

            def done(
                result: ReadResult, now: Micros, job: _Job = job, state: LogState = state, last: Lsn = last
            ) -> None:
                self._on_read(job, state, last, result)

            self._shard.reads.read(state.log, job.position, last, room, entries_max, done)
            return
        self._at_work -= 1
        self._send(job.peer, job.message, job.ranges, job.entries, job.images)

    def _from_memory(self, job: _Job, state: LogState, last: Lsn) -> None:
        through = last
        recent = () if state.recent is None else state.recent.between(job.position, through)
        for lsn, image in with_ends(recent, self._end(job, state, through)):
            if job.full and job.entries:
                through = Lsn(lsn - 1)
                break
            self._add(job, state.log, lsn, image)
            self._shard.metrics.entries_from_memory += 1
        self._finish_range(job, state.log, through)

    def _on_read(self, job: _Job, state: LogState, last: Lsn, result: ReadResult) -> None:
        log = state.log
        if result.status is not Status.OK:
            job.status = Status.FAILED
            self._finish_range(job, log, Lsn(job.position - 1))
        else:
            entries = result.entries
            if result.corrupt or result.bodiless:
                hit("digest_met_damage")
                self._found_damage(state, result)
                self._shard.metrics.corrupt_ranges += len(result.corrupt) + len(result.bodiless)
                damaged = damaged_lsns(result, job.position)
                if damaged is None:
                    job.status = Status.REBUILDING
                else:
                    entries = sorted([*entries, *((lsn, b"") for lsn in damaged)])
            end = self._end(job, state, min(result.through, last))
            for lsn, image in with_ends(entries, end, result.corrupt):
                self._add(job, log, lsn, image)
            self._shard.metrics.entries_from_disk += len(result.entries)
            if result.through >= last:
                self._finish_range(job, log, last)
            else:
                job.position = Lsn(result.through + 1)
        self._go_on(job)

    def _end(self, job: _Job, state: LogState, through: Lsn) -> list[tuple[Lsn, bytes]]:
        """Where the epoch of the position ended, as far as it is known: recoveries ask for one epoch at a time."""
        last = min(through, compose_lsn(epoch_of(job.position), ESN_MAX))
        return known_ends(state, self._shard.shard, job.position, last)[0]

    @staticmethod
    def _add(job: _Job, log: LogId, lsn: Lsn, image: bytes) -> None:
        job.entries.append(LogEntry(log, lsn, len(image)))
        job.images.append(image)
        job.room -= len(image)
        for meter in job.meters.get(log, ()):
            meter.spend(len(image), records_of(image))

    @staticmethod
    def _finish_range(job: _Job, log: LogId, through: Lsn) -> None:
        job.ranges.append(DigestedRange(log, job.status, through))
        job.index += 1
        job.position = Lsn(0)
        job.status = Status.OK

    def _send(
        self,
        peer: PeerId,
        message: Digest,
        ranges: list[DigestedRange],
        entries: list[LogEntry],
        images: list[bytes],
    ) -> None:
        payload = images[0] if len(images) == 1 else b"".join(images)
        self._shard.metrics.digests += 1
        self._shard.metrics.digest_bytes += len(payload)
        self._budget -= len(payload) + _RANGE_COST * len(ranges)
        self._shard.out.send(
            peer,
            Digested(
                request_id=message.request_id,
                shard=message.shard,
                ranges=ranges,
                entries=entries,
                images=payload,
            ),
        )


def damaged_lsns(result: ReadResult, first: Lsn) -> list[Lsn] | None:
    """Where the read, which began at `first`, found something that it could not read; None when that is too much to be told one by one."""
    damaged = set(result.bodiless)
    for begin, end in result.corrupt:
        begin, end = max(begin, first), min(end, result.through)
        if end - begin >= _DAMAGED_MAX:
            return None
        damaged.update(Lsn(lsn) for lsn in range(begin, end + 1))
    damaged.difference_update([lsn for lsn, _ in result.entries])
    return sorted(damaged) if len(damaged) <= _DAMAGED_MAX else None


def digest_refusal(message: Digest, status: Status) -> Digested:
    """To somebody who may not ask."""
    return Digested(
        request_id=message.request_id,
        shard=message.shard,
        ranges=_refused_ranges(message, status),
        entries=[],
        images=b"",
    )


def _refused_ranges(message: Digest, status: Status) -> list[DigestedRange]:
    return [DigestedRange(each.log, status, Lsn(max(each.first - 1, 0))) for each in message.ranges]
