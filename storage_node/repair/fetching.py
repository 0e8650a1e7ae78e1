"""What other shards hold of a range that this shard has lost, or cannot read: the nodeset is asked for the copies whose copyset names it (FETCH)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from logdevice_py.core.entry import EntryHeader, check_body, parse_header
from logdevice_py.core.ids import Generation, LogId, ShardId, is_metadata_log, node_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import Fetch, Fetched
from storage_node.log_state import LogState
from storage_node.log_store.interface import WriteBatch
from storage_node.repair.requests import ShardRequests
from storage_node.shard import Shard

ANSWER_TIMEOUT: Final = 2 * SECOND
_FETCH_BYTES: Final = 256 << 10

IsReReplicated = Callable[[ShardId, Generation], bool]
"""Whether all that a shard held in a generation was certainly stored by other shards."""
FoundCopies = dict[Lsn, tuple[EntryHeader, bytes, ShardId]]
"""By LSN: a copy and whose it is."""


@dataclass(slots=True)
class FetchAnswer:
    """What one shard said."""

    through: Lsn
    authoritative: bool
    """It holds nothing else up to there that names the asker, and has lost nothing that does."""
    lossy: bool
    """It is not, because a crash may have taken some of what it had; what is left it has sent."""
    images: list[tuple[Lsn, EntryHeader, bytes]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of images."""
        return sum([len(image) for _, _, image in self.images])


Answers = Mapping[ShardId, FetchAnswer]


def nothing_is_re_replicated(shard: ShardId, generation: Generation) -> bool:
    """Without rebuilding."""
    return False


def sound_images(lengths: Iterable[int], images: bytes) -> Iterator[tuple[EntryHeader | None, bytes]]:
    """The images that follow each other in a message, each with its header; None: it does not match its checksums."""
    at = 0
    for length in lengths:
        image = images[at : at + length]
        at += length
        try:
            header = parse_header(image)
            check_body(image, header)
        except CorruptEntryError:
            hit("fetched_copy_is_damaged")
            yield None, image
        else:
            yield header, image


class CopyFetcher:
    """Asks about one range at a time."""

    def __init__(self, shard: Shard, done: Callable[[Answers, Micros], None]) -> None:
        """
        Args:
            done: called once for each `ask`, in a later turn, when everybody answered or had the time to.
        """
        self._shard = shard
        self._answers: dict[ShardId, FetchAnswer] = {}
        self._one_is_enough = False
        self._requests = ShardRequests(shard, Fetched, self._on_fetched, lambda now: done(self._answers, now))

    def ask(
        self, log: LogId, interval: EpochInterval, first: Lsn, last: Lsn, now: Micros, *, one_is_enough: bool = False
    ) -> None:
        """Ask the other shards of the nodeset.

        Args:
            one_is_enough: the answer of the first shard that has a copy will do.
        """
        shard = self._shard
        self._one_is_enough, self._answers = one_is_enough, {}
        messages = {
            peer: partial(
                Fetch,
                shard=peer,
                generation=generation,
                holder=shard.shard,
                log=log,
                first=first,
                last=last,
                bytes_max=_FETCH_BYTES,
            )
            for peer, generation in interval.nodeset
            if peer != shard.shard and node_of(peer) in shard.config.nodes
        }
        self._requests.send(messages, ANSWER_TIMEOUT, now)

    def _on_fetched(self, message: Fetched, now: Micros) -> None:
        """What a shard has."""
        found, through = [], message.through
        lengths = [length for _, length in message.entries]
        for (lsn, _), (header, image) in zip(message.entries, sound_images(lengths, message.images), strict=True):
            if header is None:
                through = min(through, Lsn(lsn - 1))  # there is something: the answer does not say what
            else:
                found.append((Lsn(lsn), header, image))
        authoritative = message.status == Status.OK
        lossy = message.status == Status.REBUILDING and message.lossy
        self._answers[message.shard] = FetchAnswer(through, authoritative, lossy, found)
        if self._one_is_enough and found and authoritative:
            self._requests.forget_rest()

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        self._requests.cancel()


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


def put_copies(batch: WriteBatch, state: LogState, copies: Iterable[tuple[EntryHeader, bytes]]) -> None:
    """Have copies that others hold, too, stored with a batch."""
    for header, image in copies:
        by_recovery, wave = header.rank
        batch.put_again(state.log, header.lsn, by_recovery=bool(by_recovery), wave=wave, image=image)
        state.highest = max(state.highest, header.lsn)


def remember(shard: Shard, state: LogState, copies: Sequence[tuple[Lsn, bytes]]) -> None:
    """Copies are stored: who looks for them among the recent entries finds them there, in so far as all later ones are there."""
    recent = state.recent
    if recent is not None:
        for lsn, image in copies:
            if lsn >= recent.complete_from and lsn not in recent.images:
                shard.recent.add(recent, lsn, image)
