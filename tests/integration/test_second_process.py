"""A second process of a running node must not do any harm before it finds out."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from server.dev.local_cluster import LocalCluster
from storage_node.log_store.rocksdb.store_lock import find_user


async def errors_of_second(cluster: LocalCluster, node: str, data: Path, *options: str) -> bytes:
    """What another process of a node says, which cannot start."""
    second = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "server.logdeviced",
        *("--config", cluster.config_file, "--node", node, "--data", str(data), *options),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await second.communicate()
    assert second.returncode == 1
    return errors


async def test_its_empty_shards_do_not_take_the_place_of_the_real_ones(tmp_path: Path) -> None:
    async with LocalCluster(nodes=2, replicate="node:2", directory=tmp_path / "c") as cluster:
        async with cluster.client() as client:
            await client.append(1, b"kept")
        for node in ("0", "1"):
            errors = await errors_of_second(cluster, node, tmp_path / "other")
            assert b"cannot listen at" in errors, errors
    async with LocalCluster(nodes=2, directory=tmp_path / "c") as cluster, cluster.client() as client:
        payloads: list[bytes | None] = []
        async with client.reader(1, until=await client.tail_lsn(1)) as reader:
            while batch := await reader.read():
                payloads += batch.payloads
        assert payloads == [b"kept"]


async def test_the_directory_of_a_node_that_runs_is_left_as_it_is(tmp_path: Path) -> None:
    async with LocalCluster(nodes=2, replicate="node:1", directory=tmp_path / "c") as cluster:
        await cluster.stop_node(1)
        used = tmp_path / "c" / "n0"
        assert find_user(str(used / "shard0")) == "this process"
        assert find_user(str(tmp_path / "c" / "n1" / "shard0")) is None
        before = (used / "instance").read_bytes(), sorted(used.iterdir()), sorted(used.rglob("LOG*"))
        for consent in ((), ("--accept-data-loss", "N1:S0=1")):
            errors = await errors_of_second(cluster, "1", used, *consent)
            assert f"N1:S0 cannot use {used / 'shard0'}: process {os.getpid()} (" in errors.decode()
            assert b"Nothing was changed." in errors
        assert ((used / "instance").read_bytes(), sorted(used.iterdir()), sorted(used.rglob("LOG*"))) == before
