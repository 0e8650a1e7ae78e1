"""Who a shard is: the marker in its store, and what to do about what is found there.

A disk that was wiped, swapped or restored from an old copy must not answer for what it no longer has: epochs list the generation of
every shard, and a shard that starts without its data takes a new one.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgpack

from logdevice_py.core.ids import Generation, NodeId, ShardId, format_shard, node_of, shard_id, shard_index_of
from storage_node.log_store.later_format import LaterFormatError

MARKER_VERSION: Final = 1
NO_GENERATION: Final = Generation(0)
"""Of a store that is about to be registered."""
_ACCEPTED: Final = re.compile(r"N(\d{1,5}):S(\d{1,3})=(\d{1,9})")


class CorruptMarkerError(Exception):
    """The marker's bytes are not a marker; nothing is known of whose data lies beside it."""


@dataclass(frozen=True, slots=True)
class ShardMarker:
    """Identity of a shard as its store keeps it."""

    cluster: bytes
    """UUID of the cluster, 16 bytes."""
    shard: ShardId
    generation: Generation
    clean: bool = False
    """The last run closed the store in order; cleared, durably, as long as it is open."""
    boot: str = ""
    """Boot id of the operating system that the store was opened under; empty: unknown."""
    incarnation: int = 0
    """Grows, within a generation, whenever the store is opened or closed in order, and now and then in between. The epoch store is told after the
    disk: a marker that is behind it is an older state of the disk."""
    birth: bytes = b""
    """Of a disk that has no generation yet (0): random bytes by which the epoch store knows it again."""

    @property
    def node(self) -> NodeId:
        """The node that the shard is part of."""
        return node_of(self.shard)

    def encode(self) -> bytes:
        """Its bytes in the store."""
        fields = [
            MARKER_VERSION,
            self.cluster,
            node_of(self.shard),
            shard_index_of(self.shard),
            self.generation,
            self.clean,
            self.boot,
            self.incarnation,
            self.birth,
        ]
        packed: bytes = msgpack.packb(fields)
        return packed

    @classmethod
    def decode(cls, data: bytes) -> ShardMarker:
        """From its bytes in the store.

        Raises:
            CorruptMarkerError: they are none.
            LaterFormatError: a later version wrote them.
        """
        try:
            fields = msgpack.unpackb(data)
            if type(fields[0]) is int and fields[0] > MARKER_VERSION:
                raise LaterFormatError("the marker of the store", fields[0], MARKER_VERSION)
            version, cluster, node, index, generation, clean, boot, *later = fields[:9]
        except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
            raise CorruptMarkerError(f"the marker of the shard cannot be read: {error}") from None
        incarnation = later[0] if later else 0  # of a version that kept none
        birth = later[1] if len(later) > 1 else b""
        if not (
            version == MARKER_VERSION
            and type(cluster) is bytes
            and all(type(number) is int for number in (node, index, generation, incarnation))
            and type(clean) is bool
            and type(boot) is str
            and type(birth) is bytes
        ):
            raise CorruptMarkerError(f"the marker of the store has version {version!r} and unknown content")
        return cls(cluster, ShardId(node << 8 | index), Generation(generation), clean, boot, incarnation, birth)

    def opened(self, boot: str, before: ShardMarker | None = None) -> ShardMarker:
        """The marker while the store is open.

        Args:
            before: what the last run left.
        """
        same = before is not None and before.generation == self.generation
        incarnation = before.incarnation + 1 if same and before is not None else 1
        return replace(self, clean=False, boot=boot, incarnation=incarnation)

    def later(self) -> ShardMarker:
        """The marker with the next incarnation."""
        return replace(self, incarnation=self.incarnation + 1)

    def closed(self) -> ShardMarker:
        """The marker after an orderly close."""
        return replace(self, clean=True, incarnation=self.incarnation + 1)


class PreviousEnd(enum.Enum):
    """How the run before this one ended."""

    CLEAN = "clean"  # in order, or there was none: nothing is missing
    PROCESS_DIED = "process died"  # the operating system went on: every write that it had taken is there
    MACHINE_DIED = (
        "machine died"  # writes after the last sync may be missing (power cut, failed disk, or cannot be told)
    )


class IdentityVerdict(enum.Enum):
    """What to do with the store that was found."""

    KEEP = "keep"  # it is this shard's: open it in the generation that the epoch store gives for its own
    NEW_GENERATION = "new generation"  # it is empty: take the generation that the epoch store gives
    QUARANTINE = (
        "quarantine"  # it is not this shard's, or nobody's: rename the directory, start a new generation beside it
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its reason, for the log and the operator."""

    verdict: IdentityVerdict
    reason: str
    kept: Generation | None = None
    """What the marker says; None unless the verdict is KEEP."""
    incarnation: int = 0
    """What the marker says."""
    birth: bytes = b""
    """Of an empty store that was about to be registered when the process ended."""

    def is_rolled_back(self, registered: Generation | None, incarnation: int) -> bool:
        """Whether it is an older state of the disk than the cluster has seen."""
        return self.kept is not None and self.kept == registered and self.incarnation < incarnation


def judge(marker: ShardMarker | None, *, empty: bool, cluster: bytes, shard: ShardId) -> Judgement:
    """What to do with a store. Data is never deleted, and never served by a shard that it does not belong to.

    Args:
        marker: found in the store; None when it has none that can be read.
        empty: the store holds nothing.
        cluster: UUID of the cluster that the node belongs to.
        shard: which shard the store should be.
    """
    name = format_shard(shard)
    if marker is None:
        if empty:
            return Judgement(IdentityVerdict.NEW_GENERATION, f"the store of {name} is empty")
        return Judgement(
            IdentityVerdict.QUARANTINE, f"the store of {name} holds data and no marker that says whose it is"
        )
    if marker.generation == NO_GENERATION:
        ours = marker.cluster == cluster and marker.shard == shard
        return Judgement(
            IdentityVerdict.NEW_GENERATION, f"the store of {name} is empty", birth=marker.birth if ours else b""
        )
    if marker.cluster != cluster:
        return Judgement(
            IdentityVerdict.QUARANTINE,
            f"the store of {name} belongs to cluster {marker.cluster.hex()}, the node to cluster {cluster.hex()}",
        )
    if marker.shard != shard:
        return Judgement(IdentityVerdict.QUARANTINE, f"the store of {name} belongs to {format_shard(marker.shard)}")
    return Judgement(
        IdentityVerdict.KEEP,
        f"the store of {name} has generation {marker.generation}",
        marker.generation,
        marker.incarnation,
    )


@dataclass(frozen=True, slots=True)
class AcceptedLoss:
    """Of which generations of shards whoever starts a node accepts the loss.

    Named one by one a consent holds for one start: what follows has another generation.
    """

    generations: frozenset[tuple[ShardId, Generation]] = frozenset()
    everything: bool = False
    """Whatever is missing is meant to be: for clusters whose data nobody needs."""

    def covers(self, shard: ShardId, generation: Generation | None) -> bool:
        """Whether the loss of that generation (None: the shard has none yet) is accepted."""
        return self.everything or self.names(shard, generation)

    def names(self, shard: ShardId, generation: Generation | None) -> bool:
        """Whether the loss of that generation is accepted by name."""
        return generation is not None and (shard, generation) in self.generations

    def misses(self, shard: ShardId, generation: Generation) -> str:
        """A line for an operator who named other generations of the shard; empty: he did not."""
        name = format_shard(shard)
        others = ", ".join(f"{name}={each}" for other, each in sorted(self.generations) if other == shard)
        if not others or self.names(shard, generation):
            return ""
        return f"\n  --accept-data-loss {others} accepts nothing: the generation is {generation}."

    @classmethod
    def parse(cls, texts: Iterable[str]) -> AcceptedLoss:
        """From what an operator writes: ``N2:S0=1`` for generation 1 of that shard, or ``all``.

        Raises:
            ValueError: a text is neither.
        """
        generations = set()
        everything = False
        for text in texts:
            match = _ACCEPTED.fullmatch(text)
            if text == "all":
                everything = True
            elif match is not None and int(match[2]) < 256 and int(match[3]) > 0:
                shard = shard_id(NodeId(int(match[1])), int(match[2]))
                generations.add((shard, Generation(int(match[3]))))
            else:
                raise ValueError(f"{text!r} names no generation of a shard: write it like N2:S0=1, or all")
        return cls(frozenset(generations), everything)


LOSS_NOT_ACCEPTED: Final = AcceptedLoss()
"""What is missing must be a mistake."""


def why_refused(
    judgement: Judgement,
    registered: Generation | None,
    accepted: AcceptedLoss,
    *,
    cluster: str,
    shard: ShardId,
    directory: str,
    missing: bool = False,
    incarnation: int = 0,
) -> str | None:
    """Why a shard must not start on what lies in its directory, for the operator; None when it may.

    Args:
        judgement: on what was found.
        registered: the generation that the epoch store has for the shard; None: it does not know the shard.
        accepted: what may be lost.
        cluster: name of the cluster.
        shard: which shard the store should be.
        directory: where the store should be.
        missing: there is no such directory, or nothing in it.
        incarnation: that the epoch store has for the generation.
    """
    if judgement.verdict is IdentityVerdict.NEW_GENERATION and registered is None:
        return None
    rolled_back = judgement.is_rolled_back(registered, incarnation)
    if not rolled_back and judgement.kept is not None and (registered is None or judgement.kept >= registered):
        return None  # the epoch store judges what is newer than it knows
    if accepted.covers(shard, registered):
        return None
    name = format_shard(shard)
    if rolled_back:
        found = (
            f"{directory} holds an older state of it (state {judgement.incarnation}; the cluster has seen state {incarnation}), as when a "
            "snapshot or a backup of the disk was put back: what was stored since is not there"
        )
    elif judgement.kept is not None:
        found = (
            f"{directory} holds its generation {judgement.kept}, which ended when a later one began: "
            "its data counts no more"
        )
    elif judgement.verdict is IdentityVerdict.QUARANTINE:
        found = f"{directory} holds something else: {judgement.reason}"
    else:
        found = f"{directory} {'does not exist or is empty' if missing else 'holds an empty store'}"
    if registered is None:
        return (
            f'{name} of cluster "{cluster}" is new, and {found}.\n'
            "  If the directory is the wrong one: name the right one (--data, or data_dir in the cluster file).\n"
            "  If it is right: move what is in it elsewhere first."
        )
    nothing_there = missing or judgement.verdict is IdentityVerdict.NEW_GENERATION
    return (
        f'{name} of cluster "{cluster}" should have generation {registered}, but {found}.\n'
        f"  If its data is elsewhere (a disk that is not mounted, another --data): put it in place and start again.\n"
        f"{_how_to_accept_loss(name, registered, nothing_there=nothing_there)}{accepted.misses(shard, registered)}"
    )


def _how_to_accept_loss(name: str, registered: Generation, *, nothing_there: bool) -> str:
    begin = "an empty store"
    if not nothing_there:
        begin += " in its place; what lies there is quarantined, not deleted"
    return (
        f"  If its data is lost: start it once with --accept-data-loss {name}={registered}. It begins as generation "
        f"{registered + 1} with {begin}; records that it held have one copy less from then on."
    )


def why_damaged(
    trouble: str,
    registered: Generation | None,
    accepted: AcceptedLoss,
    *,
    cluster: str,
    shard: ShardId,
    directory: str,
) -> str:
    """Why a shard cannot serve whose store cannot be opened, and the ways out, for the operator. Arguments as of `why_refused`.

    Args:
        trouble: what is wrong with the store.
    """
    name = format_shard(shard)
    said = f'{name} of cluster "{cluster}" cannot use its store: {trouble.rstrip(".")}.\n'
    if registered is None:
        return (
            f"{said}  If the shard is new: move what is in {directory} elsewhere and start again.\n"
            "  If it is not: the epoch store does not know it, and is another one than before. Put that right first."
        )
    everything = ""
    if accepted.everything:
        everything = "\n  --accept-data-loss all does not cover a store that is there and cannot be opened: name it."
    return (
        f"{said}  If the files are whole and something else is wrong (rights, a full disk): put that right and start again.\n"
        "  If there is a copy of the files, made after the node last stopped: put it in place and start again. An older one is refused.\n"
        f"{_how_to_accept_loss(name, registered, nothing_there=False)} What other shards hold stays.{accepted.misses(shard, registered)}{everything}"
    )


def judge_stop(marker: ShardMarker | None, *, boot: str, failed: bool) -> PreviousEnd:
    """How the last run ended.

    Args:
        marker: found in the store; None when it has none.
        boot: boot id of the operating system at present; empty: unknown.
        failed: the last run noted that its disk failed. The operating system may then have dropped what it could not write.
    """
    if marker is None or marker.generation == NO_GENERATION or (marker.clean and not failed):
        return PreviousEnd.CLEAN
    if not failed and boot and marker.boot == boot:
        return PreviousEnd.PROCESS_DIED
    return PreviousEnd.MACHINE_DIED
