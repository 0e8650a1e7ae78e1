"""``ldctl region``: a region is taken out of use, emptied and taken away while its cluster goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from client.read.items import Record
from logdevice_py.config.location import Location
from logdevice_py.core.status import Status
from logdevice_py.runtime.admin_token import make_token
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.local_cluster import LocalCluster
from server.dev.supervisor import write_cluster_file
from tests.integration.test_configuration import in_force
from tests.integration.test_ldctl_operator import Operator

REGIONS = ("us", "eu", "ap")


@asynccontextmanager
async def cluster_in(regions: Sequence[str], directory: Path) -> AsyncIterator[LocalCluster]:
    """A cluster with a node in each of these."""
    size = len(regions)
    made = make_config(directory, nodes=size, logs=1, replicate="node:2", racks=3, epoch_store=None, rebuilding=True)
    nodes = {
        node: dataclasses.replace(member, location=Location.parse(f"{region}.d.c.r.k"))
        for (node, member), region in zip(sorted(made.nodes.items()), regions, strict=True)
    }
    write_cluster_file(directory, dataclasses.replace(made, nodes=nodes))
    make_token(layout.cluster_file(directory))
    async with LocalCluster(nodes=size, directory=directory) as found:
        yield found


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with cluster_in(REGIONS, tmp_path) as found:
        yield found


async def test_a_region_is_disabled_drained_and_removed(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ldctl = Operator(cluster, capsys)
    rows = await ldctl.gets("region", "list")
    assert [(row["region"], row["nodes"], row["new_records"]) for row in rows] == [
        ("ap", "N2", "yes"),
        ("eu", "N1", "yes"),
        ("us", "N0", "yes"),
    ]
    assert "configured by its file" in str(await ldctl.is_refused("region", "disable", "ap"))
    await ldctl.types("config", "apply", cluster.config_file)
    async with cluster.client() as client:
        written = [await client.append(1, b"%d" % number) for number in range(20)]
        unknown = await ldctl.is_refused("region", "disable", "mars")
        assert unknown.status is Status.NOTINCONFIG
        assert "there are ap, eu, us" in str(unknown)
        await ldctl.types("region", "disable", "ap")
        await in_force(cluster, 3)
        assert [row["new_records"] for row in await ldctl.gets("region", "list")] == ["no", "yes", "yes"]
        assert "needs storage in 2 different nodes" in str(await ldctl.is_refused("region", "disable", "eu"))
        assert "nothing changes" in await ldctl.types("region", "disable", "ap")
        assert "what they hold is not stored elsewhere" in str(await ldctl.is_refused("region", "remove", "ap"))
        assert "N2:S0 is drained" in await ldctl.types("region", "drain", "ap", "--wait")
        written += [await client.append(1, b"%d" % number) for number in range(20, 40)]
        await ldctl.types("region", "remove", "ap")
        await in_force(cluster, 4)
        await cluster.stop_node(2)
        async with client.reader(1, until="tail") as reader:
            found = [(item.lsn, item.payload) async for item in reader if isinstance(item, Record)]
    assert found == [(receipt.lsn, b"%d" % number) for number, receipt in enumerate(written)]
    assert [row["region"] for row in await ldctl.gets("region", "list")] == ["eu", "us"]


async def test_a_region_is_used_again(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    ldctl = Operator(cluster, capsys)
    await ldctl.types("config", "apply", cluster.config_file)
    await ldctl.types("region", "disable", "ap", "--why", "a storm")
    await ldctl.types("region", "drain", "ap")
    assert "N2:S0 is used again" in await ldctl.types("region", "undrain", "ap")
    await ldctl.types("region", "enable", "ap")
    await in_force(cluster, 4)
    assert [row["why"] for row in await ldctl.gets("config", "history")][:2] == ["region enable ap", "a storm"]
    assert "disabled_regions" not in await ldctl.types("config", "show")


async def test_a_region_of_which_only_some_shards_are_drained_is_used_again_as_a_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster_in(("us", "eu", "ap", "ap"), tmp_path) as cluster:
        ldctl = Operator(cluster, capsys)
        await ldctl.types("drain", "N3")
        told = await ldctl.types("region", "undrain", "ap")
        assert told.splitlines() == ["N2:S0 is neither lost nor drained", "N3:S0 is used again"]
        assert await ldctl.gets("rebuildings") == []
