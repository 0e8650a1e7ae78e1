"""What a hostile peer sends: a registry of attacks, each of which makes messages from what anybody can know who reaches the cluster.

An attack is a function that yields pairs (node, message). It must do what no node may let it do: honest applications run beside it, and the checks of
the simulator judge what becomes of their records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from google_crc32c import value as crc32c

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.entry import (
    ConstituentFlags,
    EntryHeader,
    body_of,
    lacks_body,
    parse_constituents,
    parse_header,
)
from logdevice_py.core.ids import (
    EVENT_LOG_DELTAS,
    EVENT_LOG_SNAPSHOTS,
    Generation,
    LogId,
    NodeId,
    ShardId,
    WriterId,
    metadata_log_of,
    node_of,
    shard_id,
)
from logdevice_py.core.lsn import EPOCH_MAX, ESN_MAX, LSN_INVALID, LSN_MAX, Epoch, Lsn, compose_lsn, epoch_of
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from logdevice_py.event_log.events import (
    DonorFlags,
    RebuildMode,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardTookRecords,
    encode_event,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet, RebuildingShard
from logdevice_py.protocol.messages import Append, AppendFlags, Records, Trim, TrimPoints

FORGED: Final = b"forged "
"""How the records begin that an attack appends under the writer id of somebody else."""
Sent = tuple[NodeId, Any]
"""A node, and a message for it."""


@dataclass(slots=True)
class Outsider:
    """What somebody knows who has the cluster file and may connect: names and addresses, and what nodes answer to a reader."""

    rng: random.Random
    config: ClusterConfig
    logs: Sequence[LogId]
    """Logs of applications."""
    heard: list[Any] = field(default_factory=list)
    """Messages that nodes sent, in the order in which they came: STARTED, RECORDS and GAP of the reads before the attack, and answers to the attack."""
    released: dict[LogId, Lsn] = field(default_factory=dict)
    """The greatest LSN of each log that may be read, as far as shards told."""

    def shard(self) -> ShardId:
        """Any shard."""
        return self.rng.choice(self.config.storage_shards())

    def log(self) -> LogId:
        """Any log."""
        return self.rng.choice(self.logs)

    def entries(self, log: LogId) -> list[tuple[EntryHeader, bytes]]:
        """The entries of a log that were read: header and image, in the order in which they came."""
        found = []
        for message in self.heard:
            if type(message) is Records and message.log == log:
                at = 0
                for _, length in message.entries:
                    image = bytes(message.images[at : at + length])
                    with suppress(CorruptEntryError):  # the wire that it listens to may damage what it hears
                        found.append((parse_header(image, alone=True), image))
                    at += length
        return found


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to send what nobody should."""

    name: str
    text: str
    make: Callable[[Outsider], Iterable[Sent]]
    as_node: bool
    """Its messages are taken from nodes alone."""

    @property
    def counted_as(self) -> str:
        """Under which name `SimMachines.fault_effects` counts its messages."""
        return f"attack {self.name}"


ATTACKS: dict[str, Attack] = {}
"""All of them by name, in a fixed order."""


def attack(
    text: str, *, as_node: bool = False
) -> Callable[[Callable[[Outsider], Iterable[Sent]]], Callable[[Outsider], Iterable[Sent]]]:
    """Make a function an attack; its name is the attack's.

    Args:
        as_node: whoever sends it introduces itself as a node. Attacks of clients are sent by peers that introduce themselves as nodes as well.
    """

    def register(make: Callable[[Outsider], Iterable[Sent]]) -> Callable[[Outsider], Iterable[Sent]]:
        name = make.__name__
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(name, text, make, as_node)
        return make

    return register


@attack("TRIM beyond everything that is released")
def trim_beyond_the_end(it: Outsider) -> Iterable[Sent]:
    log = it.log()
    for shard in it.rng.sample(it.config.storage_shards(), 2):
        yield node_of(shard), Trim(request_id=it.rng.getrandbits(63), log=log, shard=shard, lsn=_far(it, log))


@attack("trim points beyond everything that is released, as of another shard", as_node=True)
def tell_trim_points_beyond_the_end(it: Outsider) -> Iterable[Sent]:
    log = it.log()
    sender, shard = it.rng.sample(it.config.storage_shards(), 2)
    yield node_of(shard), TrimPoints(shard=shard, sender=sender, wall=Timestamp(0), logs=[(log, _far(it, log))])


def _far(it: Outsider, log: LogId) -> Lsn:
    """An LSN that is not released in the time of a run."""
    epoch = epoch_of(it.released.get(log, LSN_INVALID))
    return it.rng.choice([Lsn(LSN_MAX - 1), compose_lsn(Epoch(epoch + 100_000), 1)])


@attack("TRIM of a metadata log, of a log that does not exist, and to the end of all LSNs")
def trim_what_cannot_be_trimmed(it: Outsider) -> Iterable[Sent]:
    log = it.log()
    everything = compose_lsn(EPOCH_MAX, ESN_MAX - 1)
    for target, lsn in ((metadata_log_of(log), everything), (LogId(987_654), everything), (log, LSN_MAX)):
        shard = it.shard()
        yield node_of(shard), Trim(request_id=it.rng.getrandbits(63), log=target, shard=shard, lsn=lsn)


@attack(
    "the numbers that are due next in a write stream, whose id stands in its records, and numbers that were used, all with other content"
)
def send_under_the_id_of_another(it: Outsider) -> Iterable[Sent]:
    log, rng = it.log(), it.rng
    last: dict[tuple[Epoch, WriterId], int] = {}
    for header, image in it.entries(log):
        if lacks_body(image) or header.is_hole:
            continue
        with suppress(CorruptEntryError):  # the network may have damaged it
            for part in parse_constituents(body_of(image)):
                if part.flags & ConstituentFlags.WRITE_STREAM:
                    key = epoch_of(header.lsn), part.writer
                    last[key] = max(part.sequence, last.get(key, 0))
    if not last:
        return
    newest = max(epoch for epoch, _ in last)
    number, writer = rng.choice(sorted((number, writer) for (epoch, writer), number in last.items() if epoch == newest))
    epoch = rng.choice([newest, max(newest, epoch_of(it.released.get(log, LSN_INVALID)))])
    flags = int(AppendFlags.WRITE_STREAM | rng.choice([AppendFlags.NONE, AppendFlags.RESUME]))
    # from above, as a number that leaves some out only fails, and one that is taken with other content ends what this connection may send
    for sequence in range(number + rng.choice([1, 3, 10]), max(0, number - 2), -1):
        payload = FORGED + b"%x" % rng.getrandbits(64)
        for node in it.config.nodes:
            yield (
                NodeId(node),
                Append(
                    request_id=rng.getrandbits(63),
                    log=log,
                    flags=flags,
                    records=1,
                    crc=crc32c(payload),
                    seen_epoch=Epoch(0),
                    previous_lsn=LSN_INVALID,
                    writer=writer,
                    sequence=sequence,
                    stream_epoch=epoch,
                    payload=payload,
                ),
            )


def _to_event_log(it: Outsider, log: LogId, payload: bytes) -> Iterable[Sent]:
    """Ask every node to append it: one of them sequences the log."""
    for node in it.config.nodes:
        yield (
            NodeId(node),
            Append(
                request_id=it.rng.getrandbits(63),
                log=log,
                flags=0,
                records=1,
                crc=crc32c(payload),
                seen_epoch=Epoch(0),
                previous_lsn=LSN_INVALID,
                writer=b"",
                sequence=0,
                stream_epoch=Epoch(0),
                payload=payload,
            ),
        )


def _invented(it: Outsider) -> ShardId:
    """A shard that the cluster does not have."""
    return shard_id(NodeId(it.rng.randrange(10_000, 30_000)), it.rng.randrange(100))


@attack("events that shards are lost or drained which nobody has, each with others of the kind as donors")
def invent_lost_shards(it: Outsider) -> Iterable[Sent]:
    for _ in range(20):
        shards = [_invented(it) for _ in range(it.rng.choice([1, 10, 100]))]
        candidates = tuple((shard, Generation(1)) for shard in sorted(set(shards)))
        mode, recoverable = it.rng.choice(list(RebuildMode)), it.rng.random() < 0.5
        event = ShardNeedsRebuild(shards[0], Generation(1), mode, candidates, recoverable, "x" * 256)
        yield from _to_event_log(it, EVENT_LOG_DELTAS, encode_event(event))


@attack(
    "events of shards that they do not name, of rounds and drains that there never were, and bytes that are no event"
)
def say_what_cannot_be(it: Outsider) -> Iterable[Sent]:
    shard, rng = it.shard(), it.rng
    lsn = rng.choice([LSN_MAX, Lsn(LSN_MAX - 1), compose_lsn(EPOCH_MAX - 1, 7), Lsn(2**64 - 1)])
    named = tuple((_invented(it), Generation(1)) for _ in range(3))
    for event in (
        ShardNeedsRebuild(shard, Generation(1), RebuildMode.RESTORE, named, False, ""),
        ShardNeedsRebuild(shard, Generation(1), RebuildMode.RELOCATE, (), True, ""),
        ShardIsRebuilt(shard, Generation(1), lsn, DonorFlags.NONE),
        ShardTookRecords(shard, Generation(1), lsn),
    ):
        yield from _to_event_log(it, EVENT_LOG_DELTAS, encode_event(event))
    yield from _to_event_log(it, EVENT_LOG_DELTAS, rng.randbytes(rng.choice([1, 30, 3000])))


@attack("a snapshot of the event log that is ahead of every event, and large")
def write_a_snapshot_of_the_future(it: Outsider) -> Iterable[Sent]:
    state = RebuildingSet()
    state.version = it.rng.choice([LSN_MAX, Lsn(LSN_MAX - 1), compose_lsn(EPOCH_MAX - 1, 7), compose_lsn(1_000_000, 1)])
    for _ in range(it.rng.choice([0, 10, 2000])):
        shard = _invented(it)
        state.shards[shard] = RebuildingShard(shard, Generation(1), RebuildMode.RESTORE, Lsn(1), recoverable=False)
    yield from _to_event_log(it, EVENT_LOG_SNAPSHOTS, state.encode())
