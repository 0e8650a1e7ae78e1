"""What other shards hold of a range that this shard has lost, or cannot read: the nodeset is asked for the copies whose copyset names it (FETCH)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from logdevice_py.core.entry import EntryHeader, check_body, parse_header
from logdevice_py.core.ids import Generation, LogId, PeerId, ShardId, is_metadata_log, node_of, node_peer
from logdevice_py.core.lsn import EPOCH_MAX, ESN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import Fetch, Fetched
from storage_node.log_state import LogState
from storage_node.log_store.interface import WriteBatch
from storage_node.shard import Shard

ANSWER_TIMEOUT: Final = 2 * SECOND
_FETCH_BYTES: Final = 256 << 10

Nodeset = tuple[tuple[ShardId, Generation], ...]
IsMadeGood = Callable[[ShardId, Generation], bool]
"""Whether all that a shard held in a generation was certainly stored again elsewhere."""
FoundCopies = dict[Lsn, tuple[EntryHeader, bytes, ShardId]]
"""By LSN: a copy and whose it is."""


@dataclass(slots=True)
class FetchAnswer:
    """What one shard said."""

    through: Lsn
    vouches: bool
    """It holds nothing else up to there that names the asker."""
    lossy: bool
    """It does not vouch, because a crash may have taken some of what it had; what is left it has sent."""
    images: list[tuple[Lsn, EntryHeader, bytes]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of images."""
        return sum([len(image) for _, _, image in self.images])


Answers = Mapping[ShardId, FetchAnswer]


def nothing_is_made_good(shard: ShardId, generation: Generation) -> bool:
    """Without rebuilding."""
    return False


class CopyFetcher:
    """Asks about one range at a time."""

    def __init__(self, shard: Shard, request_ids: Iterator[int], done: Callable[[Answers, Micros], None]) -> None:
        """
        Args:
            done: called once for each `ask`, in a later turn, when everybody answered or had the time to.
        """
        self._shard = shard
        self._request_ids = request_ids
        self._done = done
        self._requests: dict[int, ShardId] = {}
        self._answers: dict[ShardId, FetchAnswer] = {}
        self._asking = False
        self._one_is_enough = False
        self._timer: Timer | None = None

    def ask(
        self, log: LogId, nodeset: Nodeset, first: Lsn, last: Lsn, now: Micros, *, one_is_enough: bool = False
    ) -> None:
        """Ask the other shards of the nodeset.

        Args:
            one_is_enough: the answer of the first shard that has a copy will do.
        """
        assert not self._asking, "one range at a time"
        shard = self._shard
        self._asking, self._one_is_enough = True, one_is_enough
        self._answers = {}
        for peer, generation in nodeset:
            if peer == shard.shard or node_of(peer) not in shard.config.nodes:
                continue
            request = next(self._request_ids)
            self._requests[request] = peer
            shard.out.send(
                node_peer(peer),
                Fetch(
                    request_id=request,
                    shard=peer,
                    generation=generation,
                    holder=shard.shard,
                    log=log,
                    first=first,
                    last=last,
                    bytes_max=_FETCH_BYTES,
                ),
            )
        self._timer = shard.timers.at(Micros(now + (ANSWER_TIMEOUT if self._requests else 0)), self._finish)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._asking = False
        self._requests.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_fetched(self, message: Fetched, now: Micros) -> None:
        """What a shard has."""
        shard = self._requests.pop(message.request_id, None)
        if shard is None:
            return
        images, through, at = [], message.through, 0
        for lsn, length in message.entries:
            image = message.images[at : at + length]
            at += length
            try:
                header = parse_header(image)
                check_body(image, header)
            except CorruptEntryError:
                hit("fetched_copy_is_damaged")
                through = min(through, Lsn(lsn - 1))  # there is something, so its absence is not vouched for
            else:
                images.append((Lsn(lsn), header, image))
        vouches = message.status == Status.OK
        lossy = message.status == Status.REBUILDING and message.lossy
        self._answers[shard] = FetchAnswer(through, vouches, lossy, images)
        if not self._requests or (self._one_is_enough and images and vouches):
            self._finish(now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """Its answer is lost."""
        lost = [request for request, shard in self._requests.items() if node_peer(shard) == peer]
        for request in lost:
            del self._requests[request]
        if lost and not self._requests:
            self._finish(now)

    def _finish(self, now: Micros) -> None:
        if self._asking:
            self.cancel()
            self._done(self._answers, now)


def best_copies(state: LogState, holder: ShardId, answers: Answers, first: Lsn, through: Lsn) -> FoundCopies:
    """Per LSN of the range that is not trimmed, the sound copy of highest rank that names `holder`; of metadata logs any."""
    found: FoundCopies = {}
    for shard in sorted(answers):
        for lsn, header, image in answers[shard].images:
            if not max(first, state.trim_point + 1) <= lsn <= through:
                continue
            if header.log != state.log or header.lsn != lsn or header.is_amend:
                continue
            if holder not in header.copyset and not is_metadata_log(state.log):
                continue
            if lsn not in found or header.rank > found[lsn][0].rank:
                found[lsn] = header, image, shard
    return found


def put_again(batch: WriteBatch, state: LogState, found: FoundCopies, lsns: Iterable[Lsn]) -> None:
    """Have copies stored again with a batch."""
    for lsn in lsns:
        header, image, _ = found[lsn]
        by_recovery, wave = header.rank
        batch.put_again(state.log, lsn, by_recovery=bool(by_recovery), wave=wave, image=image)
        state.highest = max(state.highest, lsn)


def remember(shard: Shard, state: LogState, copies: Iterable[tuple[Lsn, bytes]]) -> None:
    """Copies were stored again: who looks for them among the recent entries finds them there, in so far as all later ones are there."""
    recent = state.recent
    if recent is not None:
        for lsn, image in copies:
            if lsn >= recent.complete_from and lsn not in recent.images:
                shard.recent.add(recent, lsn, image)


def spans(history: Sequence[EpochInterval]) -> Iterator[tuple[EpochInterval, Lsn, Lsn]]:
    """The intervals of a history, each with the first and the last LSN that it may hold; none where nothing of it was found."""
    bounds = [interval.since for interval in history] + [Epoch(EPOCH_MAX)]
    for interval, end in zip(history, bounds[1:], strict=True):
        yield interval, compose_lsn(interval.since, 0), compose_lsn(Epoch(end - 1), ESN_MAX)
