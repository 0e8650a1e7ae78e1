from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from ldquery.ctl.groups import rewrite
from ldquery.ctl.locations import found_locations, moved, run_script
from logdevice_py.config.edit import with_locations
from logdevice_py.config.location import Location
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError
from logdevice_py.placement.resolvers import HostNames, RememberedLocations
from logdevice_py.placement.settings import PlacementSettings

CLUSTER = """
version = 4
name = "regions"
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "zookeeper://z:2181/l"

[nodes.N0]  # the first
host = "us-r1-a"
port = 1
location = "us....r1"

[nodes]
N1 = {host = "eu-r1-b", port = 1}
N2 = {host = "other", port = 1, location = "eu....r3"}

[metadata_log]
replicate = "METADATA"
nodeset = [0, 1]
"""
NODES_ONLY = CLUSTER.replace("METADATA", "node:2")
EU = Location.parse("eu....r1")


def test_locations_are_written_and_all_else_stays() -> None:
    after = with_locations(NODES_ONLY, {NodeId(1): EU})
    assert after == NODES_ONLY.replace("version = 4", "version = 5").replace(
        'N1 = {host = "eu-r1-b", port = 1}', 'N1 = {host = "eu-r1-b", port = 1, location = "eu....r1"}'
    )


def test_what_a_resolver_does_not_know_stays_or_stands_at_the_default() -> None:
    config = load_cluster(NODES_ONLY)
    found = found_locations(config, PlacementSettings(), RememberedLocations(HostNames()))
    assert {node: str(location) for node, location in found.items()} == {0: "us....r1", 1: "eu....r1"}
    with_default = PlacementSettings(default_location="/none")
    found = found_locations(config, with_default, RememberedLocations(HostNames(), Location.parse("none")))
    assert str(found[NodeId(2)]) == "none"


def test_the_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(NODES_ONLY)
    assert rewrite(path, partial(moved, {NodeId(1): EU})).version == 5
    assert load_cluster(path.read_text()).nodes[NodeId(1)].location == EU


def test_a_move_that_nodes_would_refuse_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    text = CLUSTER.replace("METADATA", "rack:2").replace("[0, 1]", "[0, 1, 2]")
    path.write_text(text)
    with pytest.raises(LogDeviceError, match="it moves nodes that keep metadata logs"):
        rewrite(path, partial(moved, {NodeId(1): Location.parse("us....r1")}))
    assert path.read_text() == text


def test_a_script_gets_names_and_prints_locations(tmp_path: Path) -> None:
    script = tmp_path / "where"
    script.write_text('#!/bin/sh\nfor name; do echo "/eu/$name"; done\n')
    script.chmod(0o755)
    assert run_script(str(script), ["a", "b"]).split() == ["/eu/a", "/eu/b"]
