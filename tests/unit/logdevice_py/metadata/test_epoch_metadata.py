"""Epoch metadata: its history, and what is refused as an encoding of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NODESET_SIZE_MAX, Generation, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import EPOCH_MAX, Epoch
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import HISTORY_MAX, EpochInterval, EpochMetaData

NODE_2 = ReplicationProperty.parse("node:2")


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


def fields(**changes: Any) -> bytes:
    names = ["version", "epoch", "history", "written", "disabled", "writer", "changed_at", "given_at"]
    values = dict(zip(names, msgpack.unpackb(METADATA.encode()), strict=True)) | changes
    encoded: bytes = msgpack.packb(list(values.values()))
    return encoded


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
    assert EpochMetaData.decode(fields(added=7)) == METADATA
