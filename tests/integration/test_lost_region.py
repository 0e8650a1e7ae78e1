"""Most nodes of a region are lost for good, with records of which they had all copies: the steps of docs/disaster.md on real processes."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Final

import pytest

from client.client import Client
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn, epoch_of
from tests.forked import run_program_async
from tests.integration.process_cluster import ProcessCluster, process_cluster, read_all

LOST: Final = (3, 4)
SHARDS: Final = frozenset(f"N{node}:S0" for node in LOST)
NEAR: Final = LogId(1)
"""Any two nodes have its copies."""
FAR: Final = LogId(2)
"""Each region has a copy."""
RECORDS: Final = 150


def two_regions(config: ClusterConfig) -> ClusterConfig:
    """N0 to N2 are in one region, N3 to N5 in another; each record of a log has a copyset of its own."""
    nodes = {
        node: dataclasses.replace(member, location=Location.parse("us....r" if node < 3 else "eu....r"))
        for node, member in config.nodes.items()
    }
    everywhere = ReplicationProperty.parse("region:2,node:3")
    tree = LogTree.build(
        defaults={**config.logs.defaults, "sticky_copysets": False},
        groups=[("/near", NEAR, NEAR, {}), ("/far", FAR, FAR, {"replication": everywhere})],
    )
    shards = [shard for member in nodes.values() for shard in member.shard_ids()]
    kept = dataclasses.replace(
        config.metadata_log, nodeset=type(config.metadata_log.nodeset)(shards), replication=everywhere
    )
    return dataclasses.replace(config, nodes=nodes, logs=tree, metadata_log=kept)


async def ldctl(cluster: ProcessCluster, *arguments: object, statuses: tuple[int, ...] = (0,)) -> str:
    """What it says."""
    status, out, errors = await run_program_async("ldquery.ctl.main", "-c", cluster.file, *arguments, timeout=120)
    assert status in statuses, (arguments, status, out, errors)
    return out + errors


@pytest.mark.slow
@pytest.mark.parametrize("stay", [False, True], ids=["nodes are taken out", "nodes stay"])
async def test_what_is_left_goes_on_and_readers_are_told_what_is_lost(stay: bool, tmp_path: Path) -> None:
    written: dict[LogId, dict[int, tuple[bytes, frozenset[str]]]] = {NEAR: {}, FAR: {}}
    async with process_cluster(
        tmp_path, nodes=6, logs=2, replicate="node:2", racks=1, rebuilding=True, change=two_regions
    ) as cluster:
        await ldctl(cluster, "config", "apply", cluster.file, "--why", "the first one")
        async with Client(cluster.file) as client:
            for number in range(RECORDS):
                for log, found in written.items():
                    receipt = await client.append(log, b"%d" % number, timeout=60)
                    found[int(receipt.lsn)] = b"%d" % number, frozenset(map(str, receipt.shards))
        lost = [lsn for lsn, (_, shards) in written[NEAR].items() if shards <= SHARDS]
        assert lost, "no record had all its copies there"
        assert "DATA" in await ldctl(cluster, "check-impact", *(f"N{node}" for node in LOST), statuses=(5,))
        await cluster.kill(*LOST)
        for node in LOST:
            await cluster.wipe(node)
        async with Client(cluster.file) as client:
            assert len((await read_all(client, FAR)).records) == RECORDS
            with pytest.raises(TimeoutError):
                await read_all(client, NEAR, timeout=5)
        for node in LOST:
            if stay:
                assert f"ldctl rebuild N{node}:S0" in await ldctl(cluster, "unrecoverable", f"N{node}", statuses=(2,))
                await ldctl(cluster, "rebuild", f"N{node}:S0")
                await ldctl(cluster, "unrecoverable", f"N{node}")
            else:
                # 4: the nodes that are gone do not use it
                await ldctl(cluster, "nodes", "remove", f"N{node}", "--accept-data-loss", f"N{node}", statuses=(0, 4))
                assert "nothing waits for it" in await ldctl(cluster, "unrecoverable", f"N{node}:S0", statuses=(2,))
        for log in written:
            await ldctl(cluster, "recovery", log)
        async with Client(cluster.file) as client:
            for log, found in written.items():
                receipt = await client.append(log, b"later", timeout=60)
                async with asyncio.timeout(120):
                    reading = await read_all(client, log, timeout=110)
                expected = {lsn: payload for lsn, (payload, _) in found.items() if log != NEAR or lsn not in lost}
                read = {lsn: payload for (lsn, _), payload in reading.records.items()}
                assert {lsn: read[lsn] for lsn in expected} == expected
                assert read.keys() - expected.keys() <= {int(receipt.lsn)}
                told = [(lo, hi) for kind, lo, hi in reading.gaps if kind == "dataloss"]
                if log == FAR:
                    assert told == []
                    continue
                assert all(any(lo <= lsn <= hi for lo, hi in told) for lsn in lost)
                ends = [(lo, hi) for lo, hi in told if not any(lo <= lsn <= hi for lsn in lost)]
                last = max(found)
                assert all(lo > last for lo, _ in ends), "behind what was written nobody knows how the epoch ended"
                assert all(epoch_of(Lsn(lo)) < epoch_of(receipt.lsn) for lo, _ in ends)
