"""Cluster files: what is rendered reads back, and no text does worse than being refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from logdevice_py.config.attributes import ATTRIBUTES, Durability
from logdevice_py.config.cluster import (
    SETTINGS_SECTIONS,
    ClusterConfig,
    MetadataLogConfig,
    NodeConfig,
    Roles,
    ShardState,
)
from logdevice_py.config.location import NOWHERE, Areas, Location, Scope
from logdevice_py.config.logs import LogTree
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.config.permits import parse_permits
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.compression import Compression
from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.core.status import LogDeviceError, Status

EXAMPLE = (Path(__file__).parents[2] / "conf" / "cluster.toml").read_text()
LABEL = st.text("abAB01_-", max_size=3)
LOCATIONS = st.builds(Location, st.tuples(LABEL, LABEL, LABEL, LABEL, LABEL))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
PRINCIPALS = st.sampled_from(["anonymous", "svc-clicks", "group/bi", "anna@example.org"])
NODE_1 = ReplicationProperty.parse("node:1")


def attribute_values(name: str, field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    if name == "replication":
        return st.sampled_from(Scope).map(lambda scope: ReplicationProperty.of({scope: 1}))
    if name == "durability":
        return st.sampled_from(Durability)
    if name == "batching_compression":
        return st.sampled_from(Compression)
    if name == "sequencer_affinity":
        return st.lists(LOCATIONS.filter(lambda place: place != NOWHERE), max_size=3, unique=True).map(
            lambda places: Areas(tuple(places))
        )
    if name == "nodeset_size":  # more than copies that a log may have; they are drawn apart, for each directory
        copies_max = 1 + ATTRIBUTES["extra_copies"].metadata["hi"]
        return st.just(0) | st.integers(copies_max, field.metadata["hi"])
    if name == "permit":
        grants = st.builds("{}:{}".format, st.sampled_from(["append", "read", "trim", "admin"]), PRINCIPALS)
        return st.lists(grants, max_size=4, unique=True).map(parse_permits)
    if field.metadata["unit"] == "flag":
        return st.booleans()
    return st.integers(field.metadata["lo"], field.metadata["hi"])


OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        field.name: attribute_values(field.name, field)
        for field in ATTRIBUTES.values()
        if field.name not in ("window_bytes", "max_payload_bytes")
    },
)


@st.composite
def log_trees(draw: st.DrawFn) -> LogTree:
    names = draw(st.lists(st.text("abc._-", min_size=1, max_size=4), unique=True, max_size=5))
    next_id, groups = 1, []
    for index, name in enumerate(names):
        lo = next_id + draw(st.integers(0, 5))
        hi = lo + draw(st.sampled_from([0, 1, 100_000]))
        next_id = hi + 1
        groups.append((f"/{'dir/' * (index % 3)}{name}", lo, hi, draw(OVERRIDES)))
    directories = draw(
        st.fixed_dictionaries({}, optional={"/dir": OVERRIDES, "/dir/dir": OVERRIDES, "/empty": OVERRIDES})
    )
    return LogTree.build(defaults={"replication": NODE_1, **draw(OVERRIDES)}, directories=directories, groups=groups)


@st.composite
def nodes(draw: st.DrawFn, node: NodeId) -> NodeConfig:
    return NodeConfig(
        node=node,
        host=f"h{node}.example",
        port=draw(st.integers(1, 1000)),
        roles=Roles.SEQUENCER | Roles.STORAGE
        if node == 0
        else draw(st.sampled_from([*Roles, Roles.SEQUENCER | Roles.STORAGE])),
        location=draw(LOCATIONS),
        shards=draw(st.integers(1, 128)),
        sequencer_weight=1.0 if node == 0 else draw(st.floats(0, 1e6)),
        storage_capacity=draw(st.floats(1e-6, 1e6)),
        shard_state=draw(st.sampled_from(ShardState)),
        data_dir=draw(st.none() | TEXT),
        admin_port=draw(st.none() | st.integers(1001, 65535)),
    )


@st.composite
def cluster_configs(draw: st.DrawFn) -> ClusterConfig:
    indices = sorted({0, *draw(st.lists(st.integers(0, 32767), max_size=4))})
    by_node = {NodeId(index): draw(nodes(NodeId(index))) for index in indices}
    storage = [node for node in by_node if Roles.STORAGE in by_node[node].roles]
    nodeset = draw(st.lists(st.sampled_from(storage), min_size=1, unique=True))
    values = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT
    return ClusterConfig(
        name=draw(st.text("abc-_.9", min_size=1, max_size=10)),
        uuid=draw(st.binary(min_size=16, max_size=16)),
        version=draw(st.integers(1, 2**64 - 1)),
        nodes=by_node,
        logs=draw(log_trees()),
        metadata_log=MetadataLogConfig(tuple(sorted(map(shard_id, nodeset))), NODE_1),
        epoch_store=draw(st.sampled_from(["memory:", "zookeeper://a:1,b:2/root"])),
        settings=draw(st.dictionaries(st.sampled_from(SETTINGS_SECTIONS), st.dictionaries(TEXT, values, max_size=3))),
    )


@settings(max_examples=40)
@given(cluster_configs())
def test_a_rendered_cluster_reads_back_equal(config: ClusterConfig) -> None:
    sizes = [group.attributes for group in config.logs.groups]
    if any(0 < attributes.nodeset_size < attributes.replication.copies for attributes in sizes):
        return
    assert load_cluster(render_cluster(config)) == config


def refused_or_valid(text: str) -> None:
    """Any other exception than this one fails the test."""
    error: LogDeviceError | None = None
    try:
        load_cluster(text)
    except LogDeviceError as caught:
        error = caught
    assert error is None or (error.status is Status.INVALID_CONFIG and error.detail)


@given(st.data())
def test_a_damaged_file_is_valid_or_refused_with_a_reason(data: st.DataObject) -> None:
    lines = EXAMPLE.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        key = lines[at].partition("=")[0]
        value = data.draw(
            st.sampled_from(["", "1", "-1", "[]", "{}", '""', '"x"', "[1]", "1e400", "nan", "true", "1979-05-27"])
        )
        lines[at] = data.draw(st.sampled_from([f"{key} = {value}", "", f"[{value}]", f"x = {value}", lines[at] * 2]))
    refused_or_valid("\n".join(lines))


@given(st.text())
def test_any_text_is_refused_with_a_reason(text: str) -> None:
    refused_or_valid(text)
