"""Who a shard is: the marker in its store, and what to do about what is found there.

A disk that was wiped, swapped or restored from an old copy must not answer for what it no longer has: epochs list the generation of
every shard, and a shard that starts afresh takes a new one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final

import msgpack

from logdevice_py.core.ids import Generation, NodeId, ShardId, format_shard, node_of, shard_index_of

MARKER_VERSION: Final = 1


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
        ]
        packed: bytes = msgpack.packb(fields)
        return packed

    @classmethod
    def decode(cls, data: bytes) -> ShardMarker:
        """From its bytes in the store.

        Raises:
            CorruptMarkerError: they are none.
        """
        try:
            version, cluster, node, index, generation, clean, boot = msgpack.unpackb(data)[:7]
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise CorruptMarkerError(f"the marker of the shard cannot be read: {error}") from None
        if not (
            version == MARKER_VERSION
            and type(cluster) is bytes
            and all(type(number) is int for number in (node, index, generation))
            and type(clean) is bool
            and type(boot) is str
        ):
            raise CorruptMarkerError(f"the marker of the shard has version {version!r} and unknown content")
        return cls(cluster, ShardId(node << 8 | index), Generation(generation), clean, boot)

    def opened(self, boot: str) -> ShardMarker:
        """The marker while the store is open."""
        return replace(self, clean=False, boot=boot)

    def closed(self) -> ShardMarker:
        """The marker after an orderly close."""
        return replace(self, clean=True)


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
    START_AFRESH = "start afresh"  # it is empty: take a new generation
    MOVE_ASIDE = "move aside"  # it is not this shard's, or nobody's: rename the directory, start afresh beside it


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its reason, for the log and the operator."""

    verdict: IdentityVerdict
    reason: str


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
            return Judgement(IdentityVerdict.START_AFRESH, f"the store of {name} is empty")
        return Judgement(
            IdentityVerdict.MOVE_ASIDE, f"the store of {name} holds data and no marker that says whose it is"
        )
    if marker.cluster != cluster:
        return Judgement(
            IdentityVerdict.MOVE_ASIDE,
            f"the store of {name} belongs to cluster {marker.cluster.hex()}, the node to cluster {cluster.hex()}",
        )
    if marker.shard != shard:
        return Judgement(IdentityVerdict.MOVE_ASIDE, f"the store of {name} belongs to {format_shard(marker.shard)}")
    return Judgement(IdentityVerdict.KEEP, f"the store of {name} has generation {marker.generation}")


def judge_stop(marker: ShardMarker | None, *, boot: str, failed: bool) -> PreviousEnd:
    """How the last run ended.

    Args:
        marker: found in the store; None when it has none.
        boot: boot id of the operating system at present; empty: unknown.
        failed: the last run noted that its disk failed. The operating system may then have dropped what it could not write.
    """
    if marker is None or (marker.clean and not failed):
        return PreviousEnd.CLEAN
    if not failed and boot and marker.boot == boot:
        return PreviousEnd.PROCESS_DIED
    return PreviousEnd.MACHINE_DIED
