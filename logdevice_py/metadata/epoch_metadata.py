"""Epoch metadata: the next epoch of a log, and the nodeset and replication property of every epoch so far.

One record of it stands in the epoch store; the same bytes are appended to the metadata log whenever the nodeset or the replication property
changes. Each record carries the whole history, so the latest one alone tells where every entry of the log is, and which shards were one failure domain
when it was stored.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import msgpack

from logdevice_py.config.location import Location, Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.extensions import TailState, parse_extensions
from logdevice_py.core.ids import (
    COPYSET_SIZE_MAX,
    NODE_ID_MAX,
    NODESET_SIZE_MAX,
    SHARD_INDEX_MAX,
    Generation,
    NodeId,
    ShardId,
)
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MAX, EPOCH_MIN, Epoch, Lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from logdevice_py.core.unpacking import check_complete
from logdevice_py.placement.failure_domains import FailureDomains, Labels, labelled_scopes, labels_by_file, numbered

METADATA_VERSION: Final = 1
TIMESTAMP_UNKNOWN: Final = Timestamp(0)
HISTORY_MAX: Final = 512
"""Intervals of one log at most: keeps the encoded record well below the 1 MB that a znode and an entry may have."""
HISTORY_LONG: Final = 400
"""Intervals from which on somebody should do something about it."""
JOINED_MAX: Final = 1_000
"""Shards that join nodesets of one history later at most: with the greatest history that there is otherwise, the encoded record stays below its limit."""
ENCODED_SIZE_MAX: Final = 1 << 20
_GENERATION_MAX: Final = 2**31 - 1
_CONFIG_VERSION_MAX: Final = 2**63 - 1
_SHARD_MAX: Final = NODE_ID_MAX << 8 | SHARD_INDEX_MAX
_TIMESTAMP_MAX: Final = 2**63 - 1
_FIELDS: Final = 8
"""Without labels, which records of older versions do not have, and their readers pass over."""


@dataclass(frozen=True, slots=True)
class TailRecord:
    """The last record of the epochs that are recovered."""

    lsn: Lsn
    """0: no record can be read, and `state` says that there was one."""
    timestamp: Timestamp
    records: int | None = None
    """Of its entry; None: not known."""
    state: TailState | None = None
    """Behind it; None: the log had no guards."""
    condition: int = 0
    """Id of the conditional append that made its entry; 0: none did."""


def tail_record(lsn: Lsn, timestamp: Timestamp, records: int, extensions: bytes) -> TailRecord:
    """By what the header of an entry says. `records`: 0 when it is not known."""
    try:
        found = parse_extensions(extensions)
    except CorruptEntryError:
        return TailRecord(lsn, timestamp)
    condition = found.condition
    return TailRecord(lsn, timestamp, records or None, found.tail, condition.id if condition is not None else 0)


@dataclass(frozen=True, slots=True)
class EpochInterval:
    """What holds from epoch `since` until the next interval begins."""

    since: Epoch
    nodeset: tuple[tuple[ShardId, Generation], ...]
    """Each shard with the generation that takes part; a shard that lost its data since has another one."""
    replication: ReplicationProperty
    config_version: int = 0
    """The version of the cluster file that the nodeset was chosen from; 0 if not known. A node or client with an older file cannot tell
    a shard that it does not find there from one that was added since."""
    labels: Labels | None = None
    """The failure domains of the shards, for as long as the interval is in the history: whoever moves a node to another rack changes nothing about
    where older entries may be. None: a version of the software that kept none decided the interval; the cluster file holds."""
    extra_copies: int = 0
    """Copies that sequencers send beside those that the replication property asks for. Proofs do not depend on it."""
    joined: tuple[ShardId, ...] = ()
    """Shards of the nodeset that were added when all these epochs were clean, so that rebuilding finds places there; ascending. They took no part in the epochs:
    nobody asks them how one ended."""
    widened: Epoch = EPOCH_INVALID
    """The epoch of the log with which the last of them joined; 0: none did. Once something of that epoch is released, who reads the metadata log finds them."""

    @property
    def copies(self) -> int:
        """How many shards get an entry when all goes well."""
        return self.replication.copies + self.extra_copies

    def domains(self, location: Callable[[ShardId], Location | None]) -> FailureDomains:
        """What every proof and every judgement of copysets about these epochs goes by. The only way to get it.

        Args:
            location: of the cluster file; counts for an interval without labels only.
        """
        labels = self.labels
        if labels is None:
            labels = labels_by_file(self.shards, self.replication, location)
        return FailureDomains(self.shards, self.replication, labels)

    def labelled(self, location: Callable[[ShardId], Location | None]) -> EpochInterval:
        """The same with labels; those of the cluster file if it has none."""
        if self.labels is not None:
            return self
        return replace(self, labels=labels_by_file(self.shards, self.replication, location))

    @property
    def original(self) -> EpochInterval:
        """The same without those that joined later: the shards that recovered the epochs."""
        if not self.joined:
            return self
        left = [member for member in self.nodeset if member[0] not in self.joined]
        labels = self.labels
        if labels is not None:
            order = sorted(self.shards)
            labels = tuple(
                numbered([level[at] for at, shard in enumerate(order) if shard not in self.joined]) for level in labels
            )
        return replace(self, nodeset=tuple(left), labels=labels, joined=(), widened=EPOCH_INVALID)

    @property
    def shards(self) -> tuple[ShardId, ...]:
        """The nodeset without generations."""
        return tuple(shard for shard, _ in self.nodeset)

    def generation(self, shard: ShardId) -> Generation | None:
        """The generation of the shard that takes part; None when the shard does not."""
        for member, generation in self.nodeset:
            if member == shard:
                return generation
        return None

    def same_placement(self, other: EpochInterval) -> bool:
        """Whether both ask for the same shards, generations, failure domains, replication and extra copies; the order of shards does not matter."""
        return (
            self.replication == other.replication
            and self.extra_copies == other.extra_copies
            and self.labels == other.labels
            and sorted(self.nodeset) == sorted(other.nodeset)
        )


def interval_at(history: Sequence[EpochInterval], epoch: Epoch) -> EpochInterval | None:
    """The interval that an epoch lies in; None for epochs before the first one."""
    index = bisect_right(history, epoch, key=lambda interval: interval.since)
    return history[index - 1] if index else None


@dataclass(frozen=True, slots=True)
class EpochMetaData:
    """The epoch metadata of one log.

    A nodeset may be replaced only while `written` is True: whoever finds an interval in the epoch store that begins later thereby knows
    that all earlier ones are in the metadata log.
    """

    epoch: Epoch
    """The next epoch: what the next activation gets."""
    history: tuple[EpochInterval, ...]
    """Ascending by `since`; the last one is current. Never empty."""
    written: bool
    """The current interval is in the metadata log."""
    disabled: bool
    """No sequencer may be activated."""
    writer: NodeId
    """The node that took the latest epoch."""
    replication_changed_at: Timestamp = TIMESTAMP_UNKNOWN
    """When the current interval was decided; 0 if not known."""
    epoch_given_at: Timestamp = TIMESTAMP_UNKNOWN
    """When the latest epoch was taken; 0 if not known."""
    guarded_since: Epoch = EPOCH_INVALID
    """From this epoch on the entries of the log carry a tail state; 0: nobody guarded an append yet."""
    strict_since: Epoch = EPOCH_INVALID
    """From this epoch on acknowledgements wait until the epochs before are sealed (`strict_order`); 0: they never had to."""

    @property
    def current(self) -> EpochInterval:
        """The interval of the latest epoch and, unless it is changed before, of the next."""
        return self.history[-1]

    @property
    def effective_since(self) -> Epoch:
        """The first epoch of the current interval."""
        return self.history[-1].since

    @property
    def given_epoch(self) -> Epoch:
        """The epoch that the latest activation got."""
        return Epoch(self.epoch - 1)

    def interval(self, epoch: Epoch) -> EpochInterval | None:
        """The interval of an epoch as far as this record knows: one that began after the record was made is not in it."""
        return interval_at(self.history, epoch)

    def check(self) -> None:
        """Assert what must hold of every record."""
        assert EPOCH_MIN <= self.epoch <= EPOCH_MAX, self.epoch
        assert 1 <= len(self.history) <= HISTORY_MAX, len(self.history)
        assert self.history[0].since >= EPOCH_MIN
        assert all(a.since < b.since for a, b in itertools.pairwise(self.history))
        assert self.current.since < self.epoch, "an interval begins with an epoch that was given"
        for interval in self.history:
            assert 1 <= len(interval.nodeset) <= NODESET_SIZE_MAX, len(interval.nodeset)
            assert len(set(interval.shards)) == len(interval.nodeset), "a shard is listed twice"
            assert interval.extra_copies >= 0, interval
            assert interval.copies <= COPYSET_SIZE_MAX, interval
            assert set(interval.joined) < set(interval.shards), interval
            assert bool(interval.joined) is bool(interval.widened), interval
            assert interval.widened < self.epoch, interval
            if interval.labels is not None:
                assert len(interval.labels) == len(labelled_scopes(interval.replication)), interval
                assert all(len(level) == len(interval.nodeset) for level in interval.labels), interval

    def encode(self) -> bytes:
        """The bytes in the epoch store and in the metadata log."""
        self.check()
        history = [
            [
                interval.since,
                [number for member in interval.nodeset for number in member],
                interval.replication.to_wire(),
                interval.config_version,
            ]
            for interval in self.history
        ]
        extras = [interval.extra_copies for interval in self.history]
        joined = [[interval.widened, *interval.joined] if interval.joined else [] for interval in self.history]
        has_joined = any(joined)
        has_extras = has_joined or any(extras)
        encoded: bytes = msgpack.packb(
            [
                METADATA_VERSION,
                self.epoch,
                history,
                self.written,
                self.disabled,
                self.writer,
                self.replication_changed_at,
                self.epoch_given_at,
                [interval.labels for interval in self.history],
                *([self.guarded_since] if self.guarded_since or self.strict_since or has_extras else ()),
                *([self.strict_since] if self.strict_since or has_extras else ()),
                *([extras] if has_extras else ()),
                *([joined] if has_joined else ()),
            ]
        )
        assert len(encoded) <= ENCODED_SIZE_MAX, len(encoded)
        return encoded

    @classmethod
    def decode(cls, encoded: bytes) -> EpochMetaData:
        """From `encode`.

        Raises:
            CorruptEntryError: the bytes are something else, or break one of the rules that `check` asserts.
        """
        if len(encoded) > ENCODED_SIZE_MAX:
            raise CorruptEntryError(f"epoch metadata of {len(encoded)} bytes is over the limit of {ENCODED_SIZE_MAX}")
        try:
            check_complete(encoded)
            fields = msgpack.unpackb(
                encoded,
                max_array_len=max(HISTORY_MAX, 2 * NODESET_SIZE_MAX),
                max_str_len=0,
                max_bin_len=0,
                max_map_len=0,
                max_ext_len=0,
            )
            return _metadata(fields)
        except (ValueError, msgpack.UnpackException) as error:
            raise CorruptEntryError(f"this is no epoch metadata: {error}") from None


def _metadata(fields: Any) -> EpochMetaData:
    if type(fields) is not list or not fields or type(fields[0]) is not int:
        raise ValueError("an array that begins with its version expected")
    if fields[0] != METADATA_VERSION:
        raise ValueError(f"version {fields[0]} is not known, this program knows {METADATA_VERSION}")
    if len(fields) < _FIELDS:
        raise ValueError(f"{len(fields)} fields instead of {_FIELDS}")
    epoch = _integer(fields[1], "epoch", EPOCH_MIN, EPOCH_MAX)
    intervals = _list(fields[2], "history", HISTORY_MAX)
    labels = _list(fields[_FIELDS], "labels", HISTORY_MAX) if len(fields) > _FIELDS else [None] * len(intervals)
    if len(labels) != len(intervals):
        raise ValueError(f"labels of {len(labels)} intervals for {len(intervals)}")
    extras = _extra_copies(fields[_FIELDS + 3 :], len(intervals))
    joined = _joined(fields[_FIELDS + 4 :], len(intervals))
    history = tuple(map(_interval, intervals, labels, extras, joined))
    if not history or history[-1].since >= epoch or any(a.since >= b.since for a, b in itertools.pairwise(history)):
        raise ValueError("the intervals do not ascend up to the epoch")
    if any(interval.widened >= epoch for interval in history):
        raise ValueError("a nodeset was widened with an epoch that was not given")
    if type(fields[3]) is not bool or type(fields[4]) is not bool:
        raise ValueError("written and disabled are flags")
    return EpochMetaData(
        Epoch(epoch),
        history,
        fields[3],
        fields[4],
        NodeId(_integer(fields[5], "writer", -1, NODE_ID_MAX)),
        Timestamp(_integer(fields[6], "replication_changed_at", 0, _TIMESTAMP_MAX)),
        Timestamp(_integer(fields[7], "epoch_given_at", 0, _TIMESTAMP_MAX)),
        *_promises(fields[_FIELDS + 1 :], epoch),
    )


def _promises(fields: list[Any], epoch: int) -> tuple[Epoch, Epoch]:
    """Since when the log is guarded, and strictly ordered; 0 only where more follows."""
    guarded = strict = EPOCH_INVALID
    if fields:
        least = EPOCH_MIN if len(fields) == 1 else EPOCH_INVALID
        guarded = Epoch(_integer(fields[0], "guarded_since", least, epoch))
    if len(fields) > 1:
        least = EPOCH_MIN if len(fields) == 2 else EPOCH_INVALID
        strict = Epoch(_integer(fields[1], "strict_since", least, epoch))
    return guarded, strict


def _extra_copies(fields: list[Any], intervals: int) -> tuple[int, ...]:
    """Of each interval; records have it only where some interval has extra copies."""
    if not fields:
        return (0,) * intervals
    extras = tuple(
        _integer(each, "extra_copies", 0, COPYSET_SIZE_MAX) for each in _list(fields[0], "extra_copies", HISTORY_MAX)
    )
    if len(extras) != intervals or (not any(extras) and len(fields) == 1):
        raise ValueError(f"extra_copies: a number for each of {intervals} intervals expected, not all 0")
    return extras


def _joined(fields: list[Any], intervals: int) -> tuple[tuple[int, ...], ...]:
    """Of each interval: the epoch with which shards joined last, and all that joined; records have it only where some did."""
    if not fields:
        return ((),) * intervals
    joined = tuple(_integers(each, "joined", NODESET_SIZE_MAX) for each in _list(fields[0], "joined", HISTORY_MAX))
    if len(joined) != intervals or not any(joined):
        raise ValueError(f"joined: a list for each of {intervals} intervals expected, not all empty")
    return joined


def _interval(raw: Any, labels: Any, extra_copies: int, joined: tuple[int, ...]) -> EpochInterval:
    fields = len(_list(raw, "interval", 4))
    if fields < 3:
        raise ValueError("an interval has three or four fields")
    since = _integer(raw[0], "since", EPOCH_MIN, EPOCH_MAX)
    nodeset = _nodeset(_integers(raw[1], "nodeset", 2 * NODESET_SIZE_MAX))
    factors = tuple(_integers(pair, "factor", 2) for pair in _list(raw[2], "replication", 16))
    version = _integer(raw[3], "config_version", 0, _CONFIG_VERSION_MAX) if fields == 4 else 0
    replication = _replication(factors)
    if labels is not None:
        levels = _list(labels, "labels", len(Scope))
        labels = _labels(tuple(_integers(level, "labels", NODESET_SIZE_MAX) for level in levels))
        if len(labels) != len(labelled_scopes(replication)) or any(len(level) != len(nodeset) for level in labels):
            raise ValueError("labels: a number for each shard at each scope above node expected")
    if replication.copies + extra_copies > COPYSET_SIZE_MAX:
        raise ValueError(f"{extra_copies} extra copies are too many")
    widened = _integer(joined[0], "widened", EPOCH_MIN, EPOCH_MAX) if joined else EPOCH_INVALID
    shards = tuple(map(ShardId, joined[1:]))
    members = {shard for shard, _ in nodeset}
    if (
        bool(joined) is not bool(shards)
        or list(shards) != sorted(set(shards))
        or (shards and not set(shards) < members)
    ):
        raise ValueError("joined: some shards of the nodeset expected, not all of them, in ascending order")
    return EpochInterval(Epoch(since), nodeset, replication, version, labels, extra_copies, shards, Epoch(widened))


# Cached, so that the logs of a node that have equal nodesets share them in memory.
@lru_cache(maxsize=8192)
def _nodeset(flat: tuple[int, ...]) -> tuple[tuple[ShardId, Generation], ...]:
    if not flat or len(flat) % 2:
        raise ValueError("a nodeset is a shard and a generation in turn")
    nodeset = tuple(
        (
            ShardId(_integer(flat[index], "shard", 0, _SHARD_MAX)),
            Generation(_integer(flat[index + 1], "generation", 0, _GENERATION_MAX)),
        )
        for index in range(0, len(flat), 2)
    )
    if len({shard for shard, _ in nodeset}) != len(nodeset):
        raise ValueError("a shard is twice in a nodeset")
    return nodeset


@lru_cache(maxsize=8192)
def _labels(levels: Labels) -> Labels:
    for level in levels:
        if list(dict.fromkeys(level)) != list(range(len(set(level)))):
            raise ValueError("labels: domains are numbered in the order of their first shard")
    for larger, smaller in itertools.pairwise(levels):
        if len(set(zip(larger, smaller, strict=True))) != len(set(smaller)):
            raise ValueError("labels: a domain lies in two larger ones")
    return levels


@lru_cache(maxsize=256)
def _replication(factors: tuple[tuple[int, ...], ...]) -> ReplicationProperty:
    return ReplicationProperty.from_wire(factors)


def _integers(value: Any, name: str, size_max: int) -> tuple[int, ...]:
    numbers = tuple(_list(value, name, size_max))
    if any(type(number) is not int for number in numbers):
        raise ValueError(f"{name}: integers expected")
    return numbers


def _integer(value: Any, name: str, lo: int, hi: int) -> int:
    if type(value) is not int or not lo <= value <= hi:
        raise ValueError(f"{name}: {value!r:.40} is not from {lo} to {hi}")
    return value


def _list(value: Any, name: str, size_max: int) -> list[Any]:
    if type(value) is not list or len(value) > size_max:
        raise ValueError(f"{name}: an array of at most {size_max} expected")
    return value
