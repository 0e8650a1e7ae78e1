"""Reads from the metadata log of a log which nodesets its epochs have.

Whatever is stored in a metadata log is true, whether it was acknowledged or not, because its content was decided by the epoch store before.
So the log is read by DIGEST, which ignores releases, and the reading is complete when the shards that answered to the end are an f-majority
of the metadata nodeset: every fully stored record has a copy on one of them. Every record carries the history up to itself, so only the
latest counts, and damage below it hides nothing. A shard that cannot read a later one than any that was found does not count as having
answered.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core import marks
from logdevice_py.core.declare import setting
from logdevice_py.core.entry import EntryFlags, body_of, check_body, parse_constituents, parse_header
from logdevice_py.core.ids import Generation, LogId, ShardId, data_log_of, metadata_log_of, node_peer
from logdevice_py.core.lsn import LSN_INVALID, LSN_MAX, LSN_OLDEST, Epoch, Lsn, epoch_of
from logdevice_py.core.machine import Outbox, Rng, Timer, TimerQueue, backoff
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from logdevice_py.placement.failure_domains import Authority, FailureDomains, FMajority
from logdevice_py.protocol.messages import Digest, Digested, DigestRange
from logdevice_py.protocol.requests import Requests

_REQUESTS_PER_SHARD_MAX: Final = 4
"""How many unanswered requests to one shard are remembered: a slow answer to an earlier one still counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataHistorySettings:
    """Settings of readers of metadata logs."""

    grace_us: int = setting(
        100 * MILLISECOND,
        unit="us",
        lo=0,
        hi=60 * SECOND,
        doc="How long the rest of the metadata nodeset is waited for once enough shards have answered.",
    )
    non_authoritative_grace_us: int = setting(
        2 * SECOND,
        unit="us",
        lo=0,
        hi=600 * SECOND,
        doc="How long silent shards that lost their data are waited for when without them the history may be incomplete.",
    )
    retry_us_initial: int = setting(
        200 * MILLISECOND,
        unit="us",
        lo=MILLISECOND,
        hi=60 * SECOND,
        doc="First pause before silent shards are asked again.",
    )
    retry_us_max: int = setting(
        5 * SECOND,
        unit="us",
        lo=MILLISECOND,
        hi=600 * SECOND,
        doc="Longest pause before silent shards are asked again.",
    )
    digest_bytes_max: int = setting(
        1 << 20, unit="bytes", lo=1, hi=64 << 20, doc="How many bytes of metadata records are asked for at a time."
    )


class ReaderState(enum.Enum):
    """How far the reading of a metadata log is."""

    IDLE = enum.auto()  # not started
    READING = enum.auto()  # no f-majority has answered to the end
    GRACE = enum.auto()  # an f-majority has; the others get a moment more
    DONE = enum.auto()  # the history is known
    CANCELLED = enum.auto()  # nobody wants it any more


@dataclass(slots=True)
class _Shard:
    position: Lsn = LSN_OLDEST
    """From here on nothing is known."""
    complete: bool = False
    """It is authoritative: it has told everything."""
    rebuilding: bool = False
    """It answered REBUILDING: it may have lost data."""
    told: bool = False
    """All that it has was told, whether it is authoritative for that or not."""
    damaged: Lsn = LSN_INVALID
    """The last LSN at which it holds something that it cannot read, or that is no record."""
    authority: Authority = Authority.FULLY_AUTHORITATIVE
    """As far as the cluster says."""
    requests: deque[int] = field(default_factory=deque)
    """The latest requests."""


class MetadataHistoryReader:
    """Reads the history of one log. It goes on asking until it knows; `cancel` ends it earlier."""

    def __init__(
        self,
        log: LogId,
        config: ClusterConfig,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        requests: Requests,
        done: Callable[[MetadataHistoryReader, Micros], None],
        settings: MetadataHistorySettings | None = None,
        *,
        generations: Mapping[ShardId, Generation] | None = None,
    ) -> None:
        """
        Args:
            log: the data log or its metadata log.
            done: is called once, unless the reader is cancelled.
            generations: what is asked is only what shards stored since they had these; a shard that lost earlier ones can tell that. Without,
                such a shard cannot tell, and the reading is not authoritative when too many are.
        """
        self.log = log
        self.state = ReaderState.IDLE
        self.metadata: EpochMetaData | None = None
        """The latest record that was found."""
        self.authoritative = False
        """Once DONE: no later record can exist, except one whose writing is under way. False: too many shards lost their data, or every
        copy of a later record is corrupt."""
        self.corrupt_copies = 0
        self._metadata_lsn: Lsn = LSN_INVALID
        self._corrupt: set[Lsn] = set()
        self._metadata_log = metadata_log_of(data_log_of(log))
        self._outbox = outbox
        self._timers = timers
        self._requests = requests
        self._done = done
        self._settings = settings or MetadataHistorySettings()
        self._kept_by = config.metadata_log
        self._location = config.location
        self._domains = self._domains_of(config)
        self._generations = generations or {}
        self._shards = {shard: _Shard() for shard in self._kept_by.nodeset}
        self._pauses = backoff(rng, initial_us=self._settings.retry_us_initial, max_us=self._settings.retry_us_max)
        self._retry: Timer | None = None
        self._grace: Timer | None = None

    @property
    def history(self) -> tuple[EpochInterval, ...]:
        """The intervals, ascending; empty when the metadata log has none. Those without labels have the ones of the cluster file as it is now: whoever keeps
        them goes by these, although nodes may be moved later."""
        if self.metadata is None:
            return ()
        return tuple([interval.labelled(self._location) for interval in self.metadata.history])

    @property
    def unreadable_from(self) -> Epoch | None:
        """From this epoch on the history may be another one: there was a record of which no copy can be read. None: there is no such."""
        hidden = [lsn for lsn in self._corrupt if lsn > self._metadata_lsn]
        return epoch_of(min(hidden)) if hidden else None

    def unanswered(self) -> list[ShardId]:
        """The shards that have not told everything, to look at."""
        return [each for each, shard in self._shards.items() if not shard.told]

    def start(self, now: Micros) -> None:
        """Ask all shards."""
        assert self.state is ReaderState.IDLE
        self.state = ReaderState.READING
        self._ask_incomplete(now)

    def cancel(self) -> None:
        """Stop asking; `done` is not called."""
        if self.state is not ReaderState.DONE:
            self._end(ReaderState.CANCELLED)

    def set_authority(self, shard: ShardId, authority: Authority, now: Micros) -> None:
        """What the cluster says of a shard's data."""
        if shard in self._shards:
            self._shards[shard].rebuilding = False
            self._shards[shard].authority = authority
            self._evaluate(now)

    def _on_digested(self, shard: _Shard, begin: Lsn, message: Digested, now: Micros) -> None:
        """An answer to the question what the shard holds from `begin` on."""
        assert self.is_reading, self.state
        if begin == LSN_OLDEST:
            shard.damaged = LSN_INVALID
        self._take_entries(message, shard)
        for each in message.ranges:
            if each.log == self._metadata_log:
                self._on_range(message.shard, shard, begin, each.status, each.through)
        self._evaluate(now)

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """A newer cluster file: metadata logs may be kept by others, and those that are asked may be gone for good."""
        self._location = config.location
        if not self.is_reading or config.metadata_log == self._kept_by:
            return
        marks.hit("metadata_log_moved_while_read")
        self._kept_by = config.metadata_log
        self._domains = self._domains_of(config)
        before = self._shards
        self._shards = {shard: before.get(shard) or _Shard() for shard in self._kept_by.nodeset}
        for shard_id in before.keys() - self._shards.keys():
            self._forget_requests(before[shard_id])
        self._leave_grace()
        if self._retry is not None:
            self._retry.cancel()
        self._ask_incomplete(now)
        self._evaluate(now)

    @staticmethod
    def _domains_of(config: ClusterConfig) -> FailureDomains:
        return FailureDomains.by_file(config.metadata_log.nodeset, config.metadata_log.replication, config.location)

    def check(self) -> None:
        """Assert what always holds."""
        assert (self.state is ReaderState.GRACE) == (self._grace is not None and self._grace.pending)
        for shard in self._shards.values():
            assert len(shard.requests) <= _REQUESTS_PER_SHARD_MAX

    @property
    def is_reading(self) -> bool:
        """It was started and has not ended."""
        return self.state in (ReaderState.READING, ReaderState.GRACE)

    def _ask_incomplete(self, now: Micros) -> None:
        for shard_id, shard in self._shards.items():
            if shard.told and not self._is_authoritative(shard):
                # it may have got another copy meanwhile
                shard.position = LSN_OLDEST
                shard.complete = False
            if not shard.complete:
                self._ask(shard_id, shard)
        self._retry = self._timers.at(now + next(self._pauses), self._ask_incomplete)

    def _ask(self, shard_id: ShardId, shard: _Shard) -> None:
        while len(shard.requests) >= _REQUESTS_PER_SHARD_MAX:
            self._requests.forget(shard.requests.popleft())
        answered = partial(self._on_digested, shard, shard.position)
        request_id = self._requests.ask_shard(shard_id, Digested, answered)
        shard.requests.append(request_id)
        generation = self._generations.get(shard_id, Generation(0))
        ranges = [DigestRange(self._metadata_log, shard.position, LSN_MAX, generation)]
        digest = Digest(request_id=request_id, shard=shard_id, bytes_max=self._settings.digest_bytes_max, ranges=ranges)
        self._outbox.send(node_peer(shard_id), digest)

    def _on_range(self, shard_id: ShardId, shard: _Shard, begin: Lsn, status: Status, covered: Lsn) -> None:
        if status is Status.REBUILDING:
            # what it still has was taken, but that it has no more means nothing
            marks.hit("metadata_log_shard_lost_its_data")
        elif status is not Status.OK:
            return
        if covered < begin:
            return
        shard.rebuilding = status is Status.REBUILDING
        if covered >= LSN_MAX:
            shard.told = True
            shard.complete = not shard.rebuilding
            self._forget_requests(shard)
        elif covered >= shard.position:
            marks.hit("metadata_log_read_in_parts")
            shard.position = Lsn(covered + 1)
            self._ask(shard_id, shard)

    def _take_entries(self, message: Digested, shard: _Shard) -> None:
        at = 0
        for entry in message.entries:
            image = message.images[at : at + entry.length]
            at += entry.length
            if entry.log != self._metadata_log:
                continue
            try:
                metadata = metadata_of_entry(image, self._metadata_log, entry.lsn)
            except CorruptEntryError:
                marks.hit("metadata_log_copy_is_corrupt")
                self.corrupt_copies += 1
                self._corrupt.add(entry.lsn)
                shard.damaged = max(shard.damaged, entry.lsn)
                continue
            self._corrupt.discard(entry.lsn)
            if metadata is not None and entry.lsn >= self._metadata_lsn:
                self.metadata, self._metadata_lsn = metadata, entry.lsn

    def _is_authoritative(self, shard: _Shard) -> bool:
        """Whether no later record than the latest that was found can hide behind what the shard said."""
        return shard.complete and shard.damaged <= self._metadata_lsn

    def _verdict(self) -> FMajority:
        for shard_id, shard in self._shards.items():
            authority = shard.authority
            if authority is not Authority.AUTHORITATIVE_EMPTY and (
                shard.rebuilding or (shard.told and not self._is_authoritative(shard))
            ):
                authority = Authority.UNDERREPLICATION
            self._domains.set_authority(shard_id, authority)
        return self._domains.f_majority([each for each, shard in self._shards.items() if self._is_authoritative(shard)])

    def _evaluate(self, now: Micros) -> None:
        if not self.is_reading:
            return
        verdict = self._verdict()
        if verdict is FMajority.NONE:
            self._leave_grace()
        elif all(shard.told for shard in self._shards.values()):
            self._finish(now)  # nobody has anything more to say
        elif self.state is ReaderState.READING:
            settings = self._settings
            wait = settings.grace_us if verdict.is_authoritative else settings.non_authoritative_grace_us
            self.state = ReaderState.GRACE
            self._grace = self._timers.at(now + wait, self._on_grace_over)

    def _leave_grace(self) -> None:
        if self.state is ReaderState.GRACE:
            assert self._grace is not None
            self._grace.cancel()
            self.state = ReaderState.READING

    def _on_grace_over(self, now: Micros) -> None:
        self._finish(now)

    def _finish(self, now: Micros) -> None:
        self.authoritative = self._verdict().is_authoritative and self.unreadable_from is None
        self._end(ReaderState.DONE)
        self._done(self, now)

    def _forget_requests(self, shard: _Shard) -> None:
        for request in shard.requests:
            self._requests.forget(request)
        shard.requests.clear()

    def _end(self, state: ReaderState) -> None:
        self.state = state
        for shard in self._shards.values():
            self._forget_requests(shard)
        for timer in (self._retry, self._grace):
            if timer is not None:
                timer.cancel()


def metadata_of_entry(image: bytes, log: LogId, lsn: Lsn) -> EpochMetaData | None:
    """The record in an entry of a metadata log; None when the entry is a hole.

    Raises:
        CorruptEntryError: the image is damaged, or something else.
    """
    header = parse_header(image)
    if header.log != log or header.lsn != lsn:
        raise CorruptEntryError("the entry is another one than the answer says")
    check_body(image, header)
    if header.is_hole:
        return None
    if not header.flags & EntryFlags.METADATA or header.is_amend:
        raise CorruptEntryError("the entry is no metadata record")
    parts = parse_constituents(body_of(image))
    if len(parts) != 1:
        raise CorruptEntryError(f"a metadata record has one constituent, this has {len(parts)}")
    return EpochMetaData.decode(parts[0].payload)
