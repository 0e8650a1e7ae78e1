"""Metadata resync: a shard in a new generation gets back what earlier ones held of metadata logs, and is then authoritative for them like any other.

Metadata logs have no recovery that would end their epochs, and no rebuilding. All that anybody needs of one is its last record that was fully stored,
or a later one: each tells everything that the ones before it do. So the shard asks the others that keep metadata logs for the last record of
every such log (FETCH_METADATA), and stores it, whether its copyset names this shard or not. When those that have told all and are authoritative are an
f-majority, in which this shard itself counts as one that lost its data, it has for every log such a record:

  - A record that was fully stored before the shard lost its disk was on all shards of its copyset at one time (the sequencer asks them after the last
    has answered, see `sequencer/metadata_log.py`). One of these is in the f-majority, and still has it or a later one.
  - Of one that was stored later, with this shard in its copyset, the copy came here.

Then a mark is written with the store: nothing is missing that had its copyset among the shards that keep metadata logs at this time. It goes with the
store, so the next generation begins again. When others join these (one may have been put back that was away, and may have the only copy that is
left), the shard is not authoritative until each of them has told, or an f-majority has once more; then the mark is for those that keep metadata logs by that
time, and for no others: of a copyset with a shard of each of two nodesets nobody may have told, though both are proved. Everybody that tells goes by
the same cluster file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final

from logdevice_py.config.cluster import MetadataLogConfig
from logdevice_py.core.entry import EntryFlags, EntryHeader
from logdevice_py.core.ids import LogId, PeerId, ShardId, format_shard, is_metadata_log, node_peer
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.machine import Rng, Timer, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.placement.failure_domains import Authority, FailureDomains
from logdevice_py.protocol.messages import FetchMetadata, MetadataFetched
from logdevice_py.protocol.requests import Requests
from storage_node.log_store.interface import Purpose
from storage_node.repair.fetching import ANSWER_TIMEOUT, put_copies, sound_images
from storage_node.repair.log_damage import RETRY_FIRST
from storage_node.repair.notices import Notice
from storage_node.repair.throttle import Throttle
from storage_node.shard import Shard

_FETCH_BYTES: Final = 256 << 10
_QUESTION_COST: Final = 4096
"""What a question costs of the rate, in bytes."""
_RETRY_MAX: Final = 30 * SECOND


class _Source:
    """A shard that is asked, log after log."""

    __slots__ = (
        "after",
        "authoritative",
        "complete",
        "delays",
        "pauses",
        "request",
        "requests",
        "rng",
        "shard",
        "timer",
    )

    def __init__(self, shard: ShardId, rng: Rng, requests: Requests) -> None:
        self.shard = shard
        self.rng = rng
        self.requests = requests
        self.after = LogId(0)
        """It has told of all logs up to this one."""
        self.request: int | None = None
        self.timer: Timer | None = None
        """When it is asked next."""
        self.answered()
        self.pauses = self._retries()
        """Before it is asked for everything again."""
        self.authoritative = True
        """So far, for what it has told since it was asked for the first log."""
        self.complete = False
        """It told everything, and is authoritative."""

    def _retries(self) -> Iterator[int]:
        return backoff(self.rng, initial_us=RETRY_FIRST, max_us=_RETRY_MAX)

    def answered(self) -> None:
        """The next delay before it is asked once more is the first one again."""
        self.delays = self._retries()

    def cancel(self) -> None:
        """It is not asked any more."""
        if self.request is not None:
            self.requests.forget(self.request)
            self.request = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class MetadataResync:
    """The metadata resync of one shard. Nothing happens unless it is in a later generation than the first and keeps metadata logs."""

    def __init__(
        self,
        shard: Shard,
        cluster: ClusterView,
        store_begins: Callable[[LogId], None],
    ) -> None:
        """
        Args:
            store_begins: told of each metadata log of which a record is about to be stored.
        """
        self._shard = shard
        self._cluster = cluster
        self._throttle = Throttle(shard.settings.repair_bytes_per_s)
        self._sources: dict[ShardId, _Source] = {}
        """The shards that are asked."""
        self._writes = 0
        """Batches whose outcome is not known."""
        self._store_begins = store_begins
        self._latest: dict[LogId, Lsn] = {}
        """What was stored, or is on its way to the disk."""
        self._kept_by: MetadataLogConfig | None = None
        """Who is asked, and what the answers prove, goes by this."""
        self._file_is_old = False
        """Another node knows a newer cluster file: others may keep metadata logs."""
        self._marking = False
        """The mark is on its way to the disk."""
        self._resynced = 0
        shard.metadata_authoritative = self._is_whole()

    @property
    def waits_for(self) -> list[ShardId] | None:
        """Who has not told everything, or is not authoritative; empty while a newer cluster file is on its way. None: nothing is to be got back."""
        if self._shard.metadata_authoritative or self._shard.shard not in self._shard.config.metadata_log.nodeset:
            return None
        return [each.shard for each in self._sources.values() if not each.complete]

    def start(self, now: Micros) -> None:
        """Begin, or go on with who keeps metadata logs by now; harmless when that was done."""
        shard = self._shard
        if shard.generation <= 1 or shard.failed:
            return
        metadata, file_is_old = shard.config.metadata_log, self._cluster.config_version > shard.config.version
        if metadata is self._kept_by and file_is_old == self._file_is_old:
            return
        self._kept_by, self._file_is_old = metadata, file_is_old
        self.stop()
        shard.metadata_authoritative = self._is_whole()
        if shard.metadata_authoritative or file_is_old or shard.shard not in metadata.nodeset:
            return
        for each in sorted(set(metadata.nodeset) - {shard.shard}):
            source = self._sources[each] = _Source(each, shard.rng, shard.requests)
            self._ask(source, now)

    def _is_whole(self) -> bool:
        """It has whatever it ever was to keep, as far as it can have been on shards that keep metadata logs."""
        shard = self._shard
        nodeset = shard.config.metadata_log.nodeset
        covered = shard.shard in nodeset and shard.metadata_whole_for.issuperset(nodeset)
        return shard.generation <= 1 or (covered and not self._file_is_old)

    def _proves(self, told: Collection[ShardId]) -> bool:
        """Whether nothing that this shard lost can have been on it and on shards alone that have not told."""
        config, whole_for = self._shard.config, self._shard.metadata_whole_for
        metadata = config.metadata_log
        if self._file_is_old or self._shard.shard not in metadata.nodeset:
            return False
        domains = FailureDomains.by_file(metadata.nodeset, metadata.replication, config.location)
        domains.set_authority(self._shard.shard, Authority.UNDERREPLICATION)
        if domains.f_majority(told).is_authoritative:
            return True
        return bool(whole_for) and set(metadata.nodeset) - whole_for - {self._shard.shard} <= set(told)

    def stop(self) -> None:
        """The disk failed, or everything is here."""
        for source in self._sources.values():
            source.cancel()
        self._sources.clear()
        self._latest.clear()

    def _on_metadata_fetched(self, source: _Source, message: MetadataFetched, now: Micros) -> None:
        """What a shard has."""
        source.cancel()
        if message.status not in (Status.OK, Status.REBUILDING) or message.through < source.after:
            self._ask_later(source, now)
            return
        source.answered()
        if message.status is not Status.OK or message.config_version != self._shard.config.version:
            source.authoritative = False
        self._take(source, message)
        source.after = message.through
        if not message.ended:
            source.timer = self._shard.timers.at(
                self._throttle.reserve(len(message.images) + _QUESTION_COST, now), lambda at: self._ask(source, at)
            )
        elif source.authoritative:
            source.complete = True
            self._evaluate(now)
        else:
            hit("metadata_source_not_authoritative")
            self._ask_for_everything(source, now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """What was waited for may be there: do not wait for the retry."""
        for source in self._sources.values():
            if node_peer(source.shard) == peer and source.request is None and not source.complete:
                source.cancel()
                source.answered()
                source.pauses = source.delays
                self._ask_later(source, now)

    @property
    def _is_over(self) -> bool:
        return self._shard.metadata_authoritative or self._shard.failed

    def _ask(self, source: _Source, now: Micros) -> None:
        source.request = self._shard.requests.ask_shard(
            source.shard,
            MetadataFetched,
            partial(self._on_metadata_fetched, source),
            failed=lambda status, at: self._on_silence(source, at),
            deadline=now + ANSWER_TIMEOUT,
        )
        self._shard.out.send(
            node_peer(source.shard),
            FetchMetadata(request_id=source.request, shard=source.shard, after=source.after, bytes_max=_FETCH_BYTES),
        )

    def _on_silence(self, source: _Source, now: Micros) -> None:
        source.cancel()
        self._ask_later(source, now)

    def _ask_later(self, source: _Source, now: Micros) -> None:
        source.timer = self._shard.timers.at(now + next(source.delays), lambda at: self._ask(source, at))

    def _ask_for_everything(self, source: _Source, now: Micros) -> None:
        source.cancel()
        source.after, source.authoritative, source.complete = LogId(0), True, False
        source.timer = self._shard.timers.at(now + next(source.pauses), lambda at: self._ask(source, at))

    def _take(self, source: _Source, message: MetadataFetched) -> None:
        """Store what is later than what is here."""
        shard = self._shard
        taken: list[tuple[EntryHeader, bytes]] = []
        images = sound_images([length for _, _, length in message.entries], message.images)
        for (log, lsn, _), (header, image) in zip(message.entries, images, strict=True):
            if header is None or (header.log, header.lsn) != (log, lsn) or not _is_record(header):
                source.authoritative = False
                continue
            if lsn > self._latest.get(log, LSN_INVALID):
                self._latest[log] = header.lsn
                taken.append((header, image))
        if not taken:
            return
        hit("metadata_resynced")
        shard.writes.close()
        group = shard.writes.group(True)
        group.batch.purpose = Purpose.ESSENTIAL
        for header, image in taken:
            self._store_begins(header.log)
            put_copies(group.batch, shard.log(header.log), [(header, image)])
        self._writes += 1
        group.done.append(lambda status, now: self._on_written(len(taken), status, now))
        shard.writes.close()

    def _on_written(self, taken: int, status: Status, now: Micros) -> None:
        self._writes -= 1
        if status is Status.OK:
            self._resynced += taken
            self._shard.metrics.copies_restored += taken
            self._evaluate(now)
            return
        hit("metadata_resync_write_refused")
        self._latest.clear()
        for source in self._sources.values():
            self._ask_for_everything(source, now)

    def _evaluate(self, now: Micros) -> None:
        """Whether what is here by now is all that was lost."""
        shard = self._shard
        if self._writes or self._marking or self._is_over:
            return
        told = [source.shard for source in self._sources.values() if source.complete]
        if not self._proves(told):
            return
        self._marking = True
        whole_for = frozenset(shard.config.metadata_log.nodeset)
        shard.writes.close()
        group = shard.writes.group(True)
        group.batch.note_metadata_whole_for(sorted(whole_for))
        group.done.append(lambda status, now: self._on_marked(told, whole_for, status, now))
        shard.writes.close()  # what is refused for lack of space would take the mark along

    def _on_marked(self, told: Collection[ShardId], whole_for: frozenset[ShardId], status: Status, now: Micros) -> None:
        self._marking = False
        shard = self._shard
        if status is not Status.OK:
            return  # the disk failed; a mark alone is refused for nothing else
        shard.metadata_whole_for = whole_for
        shard.metadata_authoritative = self._is_whole()
        if not shard.metadata_authoritative:
            self._evaluate(now)  # there is another cluster file
            return
        hit("metadata_is_whole_again")
        self.stop()
        text = (
            f"{self._resynced} records of metadata logs came back from {', '.join(map(format_shard, sorted(told)))}: readers can rely again "
            "on what this shard, which is in a new generation, has of metadata logs"
        )
        shard.out.emit(Notice(shard.shard, "metadata resynced", text))


def _is_record(header: EntryHeader) -> bool:
    return is_metadata_log(header.log) and bool(header.flags & EntryFlags.METADATA) and not header.is_amend
