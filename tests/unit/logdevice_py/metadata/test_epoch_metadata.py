"""Epoch metadata: its history, and what is refused as an encoding of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NODESET_SIZE_MAX, Generation, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import EPOCH_MAX, Epoch
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import HISTORY_MAX, JOINED_MAX, EpochInterval, EpochMetaData

NODE_2 = ReplicationProperty.parse("node:2")
RACK_2 = ReplicationProperty.parse("rack:2,node:3")
LARGEST = ReplicationProperty.parse("region:2,datacenter:3,cluster:4,row:5,rack:6,node:7")


def interval(since: int, *nodes: int) -> EpochInterval:
    nodeset = tuple((shard_id(NodeId(node)), Generation(1)) for node in nodes)
    return EpochInterval(Epoch(since), nodeset, NODE_2)


METADATA = EpochMetaData(
    Epoch(9),
    (interval(1, 0, 1), interval(4, 1, 2), interval(8, 2, 3)),
    True,
    False,
    NodeId(3),
    Timestamp(11),
    Timestamp(12),
)


def test_an_epoch_lies_in_the_last_interval_that_began_before_it() -> None:
    first, second, third = METADATA.history
    assert [METADATA.interval(Epoch(epoch)) for epoch in (1, 3, 4, 7, 8, 1000)] == [
        first,
        first,
        second,
        second,
        third,
        third,
    ]
    assert METADATA.interval(Epoch(0)) is None
    assert (METADATA.current, METADATA.effective_since, METADATA.given_epoch) == (third, 8, 8)


def test_the_order_of_shards_does_not_make_another_placement() -> None:
    assert interval(1, 0, 1).same_placement(interval(5, 1, 0))
    assert not interval(1, 0, 1).same_placement(interval(1, 0, 2))
    other = replace(
        interval(1, 0, 1), nodeset=((shard_id(NodeId(0)), Generation(2)), (shard_id(NodeId(1)), Generation(1)))
    )
    assert not interval(1, 0, 1).same_placement(other)
    assert (other.generation(shard_id(NodeId(0))), other.generation(shard_id(NodeId(7)))) == (2, None)


shards = st.dictionaries(
    st.builds(lambda node, index: ShardId(node << 8 | index), st.integers(0, 32767), st.integers(0, 127)),
    st.integers(0, 2**31 - 1).map(Generation),
    min_size=1,
    max_size=20,
)
properties = st.sampled_from(
    [NODE_2, ReplicationProperty.parse("rack:2,node:3"), ReplicationProperty.parse("region:1,node:2")]
)


@given(
    st.lists(
        st.tuples(st.integers(1, EPOCH_MAX - 1), shards, properties),
        min_size=1,
        max_size=10,
        unique_by=lambda row: row[0],
    ),
    st.booleans(),
    st.booleans(),
)
def test_encoding_and_decoding_give_the_same(rows: list[Any], written: bool, disabled: bool) -> None:
    history = tuple(
        EpochInterval(Epoch(since), tuple(nodes.items()), kind)
        for since, nodes, kind in sorted(rows, key=lambda r: r[0])
    )
    metadata = EpochMetaData(Epoch(history[-1].since + 1), history, written, disabled, NodeId(-1), Timestamp(5))
    assert EpochMetaData.decode(metadata.encode()) == metadata


def test_the_largest_metadata_fits_into_a_znode() -> None:
    nodeset = tuple((shard_id(NodeId(32767 - node), 127), Generation(2**31 - 1)) for node in range(NODESET_SIZE_MAX))
    history = tuple(EpochInterval(Epoch(EPOCH_MAX - 1000 + n), nodeset, NODE_2) for n in range(HISTORY_MAX))
    assert len(EpochMetaData(EPOCH_MAX, history, True, False, NodeId(0)).encode()) < 900_000


def test_it_fits_with_the_most_labels_too() -> None:
    nodeset = tuple((shard_id(NodeId(32767 - node), 127), Generation(2**31 - 1)) for node in range(NODESET_SIZE_MAX))
    labels = tuple(tuple(range(NODESET_SIZE_MAX)) for _ in range(5))
    history = tuple(
        EpochInterval(Epoch(EPOCH_MAX - 1000 + n), nodeset, LARGEST, 2**63 - 1, labels) for n in range(HISTORY_MAX)
    )
    largest = EpochMetaData(EPOCH_MAX, history, True, False, NodeId(0), Timestamp(2**63 - 1), Timestamp(2**63 - 1))
    encoded = largest.encode()
    assert len(encoded) < 1_010_000
    assert EpochMetaData.decode(encoded) == largest


def place(text: str) -> Callable[[ShardId], Location | None]:
    places = text.split()
    return lambda shard: None if places[shard >> 8] == "-" else Location.parse(places[shard >> 8])


class TestLabels:
    FOUR = EpochInterval(Epoch(1), interval(1, 3, 0, 1, 2).nodeset, RACK_2)

    def test_they_are_in_ascending_order_of_shards_and_do_not_depend_on_names(self) -> None:
        assert self.FOUR.labelled(place("a a b c")).labels == ((0, 0, 1, 2),)
        assert self.FOUR.labelled(place("c c a b")).labels == ((0, 0, 1, 2),)
        assert interval(1, 0, 1).labelled(place("a a")).labels == ()

    def test_a_node_of_unknown_place_is_a_domain_of_its_own(self) -> None:
        assert self.FOUR.labelled(place("a - - a")).labels == ((0, 1, 2, 0),)

    def test_nodes_without_a_rack_are_one_domain_of_the_row_that_they_share(self) -> None:
        assert self.FOUR.labelled(place("r. r. q. r.x")).labels == ((0, 0, 1, 2),)

    def test_once_there_they_stay_whatever_the_cluster_file_says(self) -> None:
        kept = self.FOUR.labelled(place("a a b b"))
        assert kept.labelled(place("a b a b")) is kept
        assert kept.domains(place("a b a b")).key == kept.domains(place("- - - -")).key
        assert self.FOUR.domains(place("a b a b")).key != self.FOUR.domains(place("a a b b")).key

    def test_other_domains_make_another_placement(self) -> None:
        kept = self.FOUR.labelled(place("a a b b"))
        assert kept.same_placement(self.FOUR.labelled(place("x x y y")))
        assert not kept.same_placement(self.FOUR.labelled(place("a b b b")))
        assert not kept.same_placement(self.FOUR)

    def test_they_are_kept_in_the_record_and_shared_in_memory(self) -> None:
        history = tuple(replace(self.FOUR.labelled(place("a a b b")), since=Epoch(since)) for since in (1, 3))
        metadata = EpochMetaData(Epoch(4), history, True, False, NodeId(0))
        first = EpochMetaData.decode(metadata.encode())
        again = EpochMetaData.decode(metadata.encode())
        assert first == metadata
        assert first.history[0].labels is first.history[1].labels is again.history[0].labels

    def test_readers_that_know_no_labels_read_the_rest(self) -> None:
        kept = replace(METADATA, history=(self.FOUR.labelled(place("a a b b")),))
        limits = {"max_array_len": 512, "max_str_len": 0, "max_bin_len": 0, "max_map_len": 0, "max_ext_len": 0}
        old = replace(METADATA, history=(self.FOUR,))
        assert msgpack.unpackb(kept.encode(), **limits)[:8] == msgpack.unpackb(old.encode())[:8]

    def test_a_record_of_an_older_version_has_none(self) -> None:
        kept = replace(METADATA, history=(self.FOUR.labelled(place("a a b b")),))
        old = msgpack.packb(msgpack.unpackb(kept.encode())[:8])
        assert EpochMetaData.decode(old) == replace(METADATA, history=(self.FOUR,))


def fields(**changes: Any) -> bytes:
    names = ["version", "epoch", "history", "written", "disabled", "writer", "changed_at", "given_at", "labels"]
    values = dict(zip(names, msgpack.unpackb(METADATA.encode()), strict=True)) | changes
    encoded: bytes = msgpack.packb(list(values.values()))
    return encoded


def labelled(labels: object, replication: object = ((1, 2), (0, 3))) -> bytes:
    return fields(history=[[1, [0, 1, 256, 1, 512, 1, 768, 1], replication]], labels=[labels])


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\xc1",
        msgpack.packb(7),
        msgpack.packb([]),
        METADATA.encode()[:-1],
        METADATA.encode() + b"\0",
        bytes(2 << 20),
        fields(version=2),
        fields(version=True),
        fields(epoch=0),
        fields(epoch=EPOCH_MAX + 1),
        fields(epoch=True),
        fields(epoch=8),
        fields(written=1),
        fields(writer=40_000),
        fields(changed_at=-1),
        fields(history=[]),
        fields(history=7),
        fields(history=[[1, [], [[0, 2]]]]),
        fields(history=[[1, [0], [[0, 2]]]]),
        fields(history=[[1, [[0], [1]], [[0, 2]]]]),
        fields(history=[[1, [False, True], [[0, 2]]]]),
        fields(history=[[1, [0, 1], [[0, [2]]]]]),
        fields(history=[[1, [0, 1], [0, 2]]]),
        fields(history=[[1, [0, 1, 0, 2], [[0, 2]]]]),
        fields(history=[[1, [0, 1], []]]),
        fields(history=[[1, [0, 1], [[0, 2], [99, 1]]]]),
        fields(history=[[1, [0, 1], [[0, 0]]]]),
        fields(history=[[1, [1 << 30, 1], [[0, 2]]]]),
        fields(history=[[2, [0, 1], [[0, 2]]], [2, [0, 1], [[0, 2]]]]),
        fields(history=[[1, [0, 1]]]),
        fields(labels=7),
        fields(labels=[None, None]),
        fields(labels=[None, None, 7]),
        fields(labels=[None, None, [[0, 1]]]),  # node:2 has no labels
        labelled([[0, 0, 1]]),  # too few shards
        labelled([[0, 0, 1, 2], [0, 0, 1, 2]]),  # too many scopes
        labelled([]),
        labelled([[1, 0, 0, 1]]),
        labelled([[0, 0, 2, 1]]),
        labelled([[0, 0, -1, 1]]),
        labelled([[0, 0, "a", 1]]),
        labelled([[0, 0, True, 1]]),
        labelled([[0, 0, 1, 1], [0, 1, 1, 2]], [[4, 2], [1, 3], [0, 4]]),  # a rack in two data centers
    ],
)
def test_anything_else_is_corrupt(encoded: bytes) -> None:
    with pytest.raises(CorruptEntryError):
        EpochMetaData.decode(encoded)


@given(st.binary(max_size=200))
def test_noise_is_corrupt_and_nothing_worse(noise: bytes) -> None:
    with pytest.raises(CorruptEntryError):
        EpochMetaData.decode(noise)


def test_fields_that_a_later_version_adds_at_the_end_are_ignored() -> None:
    assert EpochMetaData.decode(fields(added=7)) == replace(METADATA, guarded_since=Epoch(7))
    encoded = msgpack.packb([*msgpack.unpackb(fields(added=7)), 3])
    known = replace(METADATA, guarded_since=Epoch(7), strict_since=Epoch(3))
    assert EpochMetaData.decode(encoded) == known
    first, second, third = known.history
    joined = replace(first, joined=first.shards[:1], widened=Epoch(5))
    with_joined = replace(known, history=(joined, second, replace(third, extra_copies=1)))
    assert EpochMetaData.decode(msgpack.packb([*msgpack.unpackb(with_joined.encode()), [4]])) == with_joined


def test_the_greatest_history_has_room_for_the_shards_that_join_nodesets() -> None:
    nodeset = tuple((shard_id(NodeId(32767 - node), 127), Generation(2**31 - 1)) for node in range(NODESET_SIZE_MAX))
    labels = tuple(tuple(range(NODESET_SIZE_MAX)) for _ in range(5))
    most = NODESET_SIZE_MAX - 1
    joined = [tuple(sorted(shard for shard, _ in nodeset[:most]))] * (JOINED_MAX // most)
    joined += [tuple(sorted(shard for shard, _ in nodeset[: JOINED_MAX % most]))]
    history = tuple(
        EpochInterval(Epoch(EPOCH_MAX - 1000 + n), nodeset, LARGEST, 2**63 - 1, labels, 0, *each)
        for n, each in enumerate(
            [*((shards, Epoch(EPOCH_MAX - 1)) for shards in joined), *[((), Epoch(0))] * (HISTORY_MAX - len(joined))]
        )
    )
    largest = EpochMetaData(EPOCH_MAX, history, True, False, NodeId(0), Timestamp(2**63 - 1), Timestamp(2**63 - 1))
    assert EpochMetaData.decode(largest.encode()) == largest


def test_an_interval_says_who_joined_it_and_earlier_versions_pass_that_over() -> None:
    first, second, third = METADATA.history
    wide = replace(first, nodeset=interval(1, 0, 1, 5).nodeset, joined=interval(1, 5).shards, widened=Epoch(8))
    widened = replace(METADATA, history=(wide, second, third))
    assert EpochMetaData.decode(widened.encode()) == widened
    plain = replace(METADATA, history=(replace(wide, joined=(), widened=Epoch(0)), second, third))
    assert msgpack.unpackb(widened.encode())[:9] == msgpack.unpackb(plain.encode())
    assert wide.original == first
    assert first.original is first


@pytest.mark.parametrize(
    "joined",
    [
        [[], [], []],
        [[8, 256], []],
        [[8], [], []],
        [[0, 256], [], []],
        [[9, 256], [], []],
        [[8, 512], [], []],
        [[8, 256, 0], [], []],
        [[8, 0, 256], [], []],
        [[8, 256, 256], [], []],
        [[None, 256], [], []],
        7,
        [],
    ],
)
def test_what_cannot_be_shards_that_joined_is_refused(joined: Any) -> None:
    encoded = msgpack.packb([*msgpack.unpackb(METADATA.encode()), 0, 0, [0, 0, 0], joined])
    with pytest.raises(CorruptEntryError):
        EpochMetaData.decode(encoded)


def test_a_log_says_since_when_it_is_guarded() -> None:
    guarded = replace(METADATA, guarded_since=Epoch(METADATA.epoch - 1))
    assert EpochMetaData.decode(guarded.encode()) == guarded
    assert msgpack.unpackb(guarded.encode())[:9] == msgpack.unpackb(METADATA.encode()), "nothing else changes"
    with pytest.raises(CorruptEntryError, match="guarded_since"):
        EpochMetaData.decode(fields(added=METADATA.epoch + 1))


def test_a_log_says_since_when_it_is_strictly_ordered() -> None:
    for guarded in (0, 1):
        strict = replace(METADATA, guarded_since=Epoch(guarded), strict_since=Epoch(METADATA.epoch - 1))
        assert EpochMetaData.decode(strict.encode()) == strict
    with pytest.raises(CorruptEntryError, match="strict_since"):
        EpochMetaData.decode(msgpack.packb([*msgpack.unpackb(fields(added=7)), METADATA.epoch + 1]))
    with pytest.raises(CorruptEntryError, match="guarded_since"):
        EpochMetaData.decode(fields(added=0))


@pytest.mark.parametrize("guarded", [0, 7])
@pytest.mark.parametrize("strict", [0, 3])
def test_an_interval_says_how_many_extra_copies_there_are(guarded: int, strict: int) -> None:
    first, second, third = METADATA.history
    history = first, replace(second, extra_copies=2), third
    extra = replace(METADATA, history=history, guarded_since=Epoch(guarded), strict_since=Epoch(strict))
    assert EpochMetaData.decode(extra.encode()) == extra
    assert msgpack.unpackb(extra.encode())[:9] == msgpack.unpackb(METADATA.encode()), "nothing else changes"
    assert [each.copies for each in extra.history] == [2, 4, 2]
    assert not history[1].same_placement(second)


def test_without_extra_copies_nothing_is_added() -> None:
    assert len(msgpack.unpackb(METADATA.encode())) == 9


@pytest.mark.parametrize("extras", [[0, 0, 0], [1, 0], [1, 0, 0, 0], [-1, 1, 0], [126, 0, 0], [None, 1, 0], 1, []])
def test_what_cannot_be_extra_copies_is_refused(extras: Any) -> None:
    encoded = msgpack.packb([*msgpack.unpackb(METADATA.encode()), 0, 0, extras])
    with pytest.raises(CorruptEntryError, match="extra"):
        EpochMetaData.decode(encoded)
