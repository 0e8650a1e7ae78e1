"""Guards and atomic batches from the command line, against a cluster inside this process."""

from __future__ import annotations

import asyncio
import json

from client.read.items import Record
from ldquery.session import LDQuery
from logdevice_py.core.lsn import LSN
from server.dev.local_cluster import LocalCluster
from tests.forked import run_program_async


async def program(cluster: LocalCluster, module: str, *arguments: str, lines: str = "") -> tuple[int, str, str]:
    """Exit status, standard output and diagnostics."""
    return await run_program_async(module, "-c", cluster.config_file, *arguments, given=lines)


async def ldwrite(cluster: LocalCluster, *arguments: str, lines: str) -> tuple[int, str, str]:
    return await program(cluster, "client.cli.write", *arguments, lines=lines)


async def ldctl(cluster: LocalCluster, *arguments: str) -> tuple[int, str, str]:
    return await program(cluster, "ldquery.ctl.main", *arguments)


async def test_lines_are_a_batch_behind_a_record() -> None:
    async with LocalCluster(nodes=3) as cluster, cluster.client() as client:
        status, out, err = await ldwrite(cluster, "--json", "--atomic", "--expect", "start", "1", lines="a\nb\nc\n")
        assert (status, json.loads(out)["acknowledged"]) == (0, 3), err
        position = json.loads(out)["position"]
        status, out, err = await ldwrite(cluster, "--atomic", "--expect", "start", "1", lines="d\n")
        assert status != 0
        assert f"the last record is {position}" in err
        status, out, err = await ldwrite(cluster, "--json", "--atomic", "--expect", position, "1", lines="d\ne\n")
        assert status == 0, err
        async with client.reader(1, until="tail") as reader:
            records = [item async for item in reader if isinstance(item, Record)]
        assert [record.payload for record in records] == [b"a", b"b", b"c", b"d", b"e"]
        assert len({record.lsn for record in records}) == 2
        status, out, err = await ldwrite(cluster, "--atomic", "1", lines="x" * 600_000 + "\n" + "y" * 600_000 + "\n")
        assert status != 0
        assert "never split" in err
        status, out, err = await ldwrite(cluster, "--atomic", "--format", "json", "1", lines='{"payload": "x"}\n{}\n')
        assert "line 2: it has neither payload nor payload_base64; nothing was written" in err
        assert (await ldwrite(cluster, "--expect", "e1n1", "1", lines="x"))[0] == 2
        assert (await ldwrite(cluster, "--txid", "3", "-K", ":", "1", lines="x"))[0] == 2


async def test_fences_transaction_ids_and_ends() -> None:
    async with LocalCluster(nodes=3) as cluster, cluster.client() as client:
        status, out, err = await ldwrite(cluster, "--txid", "7", "2", lines="a\nb\n")
        assert status == 0, err
        status, out, err = await ldwrite(cluster, "--txid", "7", "2", lines="c\n")
        assert status != 0
        assert "transaction id 7 is below 8" in err
        status, out, err = await ldctl(cluster, "fence", "2", "5")
        assert status == 0, err
        status, out, err = await ldwrite(cluster, "--fence", "4", "2", lines="c\n")
        assert status != 0
        assert "its fence is 5, the append has token 4" in err
        assert (await ldwrite(cluster, "--fence", "5", "2", lines="c\n"))[0] == 0
        status, out, err = await ldctl(cluster, "fence", "2", "6", "--accept-loss")
        assert status == 2
        assert "Give --yes to do it" in err
        assert (await ldctl(cluster, "fence", "2", "6", "--accept-loss", "--yes"))[0] == 0
        follower = asyncio.create_task(program(cluster, "client.cli.cat", "--until", str(int(LSN.MAX)), "2"))
        status, out, err = await ldctl(cluster, "end", "2")
        assert status == 2
        assert "for ever" in err
        status, out, err = await ldctl(cluster, "end", "2", "--yes")
        assert (status, "its fence is 6: give --fence TOKEN" in err) == (1, True)
        status, out, err = await ldctl(cluster, "--json", "end", "2", "--fence", "6", "--yes")
        assert status == 0, err
        assert json.loads(out)["ended"]
        status, out, err = await ldwrite(cluster, "--fence", "6", "2", lines="d\n")
        assert status != 0
        assert "it was ended with" in err
        async with client.reader(2) as reader:
            assert not reader.ended
            payloads = [item.payload async for item in reader if isinstance(item, Record)]
            assert payloads == [b"a", b"b", b"c"]
            assert reader.ended
            assert not await reader.read()
        assert (await follower)[1].splitlines() == ["a", "b", "c"]
        with LDQuery(cluster.config_file, deadline=60) as session:
            found = await asyncio.to_thread(
                session.query,
                "SELECT is_guarded, transaction_id, fence, is_ended, is_tail_lost FROM sequencers WHERE log_id = 2 AND state = 'ACTIVE'",
            )
        assert found.rows == [(1, 8, 6, 1, 0)]
