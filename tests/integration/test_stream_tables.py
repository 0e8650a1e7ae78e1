"""Tables of streams, of what has namespaces and of what has none."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ldquery.session import LDQuery
from server.dev.local_cluster import LocalCluster
from streams.attributes import Roll
from streams.namespace import Namespace
from streams.stream_subscriptions import Subscription
from streams.upkeep.janitor import Janitor, copy_now

TABLES = ("streams", "segments", "subscriptions", "stream_owners", "stream_janitors")


async def test_streams_of_all_namespaces_are_found_in_the_log_tree() -> None:
    async with LocalCluster(nodes=3, log_tree=True) as cluster, cluster.client() as client:
        with LDQuery(cluster.config_file, deadline=60) as session:

            async def ask(sql: str) -> list[tuple[object, ...]]:
                result = await asyncio.to_thread(session.query, sql)
                assert not result.failures
                return result.rows

            for table in TABLES:
                assert await ask(f"SELECT * FROM {table}") == []
            async with Namespace(client, "/streams") as namespace, Namespace(client, "/team/more") as more:
                orders = await namespace.create("orders", txid="writer")
                ledger = await more.create("ledger", writers="exclusive")
                async with orders.writer() as writer:
                    receipt = await writer.write(b"1", txid=7)
                async with ledger.exclusive_writer(owner="host:1") as owner:
                    await owner.write(b"x")
                    rows = await ask("SELECT namespace, stream, owner, token, lease FROM stream_owners")
                    assert rows == [("/team/more", "ledger", "host:1", owner.token, 5_000_000)]
                assert await ask("SELECT * FROM subscriptions") == []
                async with orders.reader(Subscription("billing"), until="tail") as reader:
                    await reader.read()
                    await reader.commit()
                await namespace.group("audit").add_streams(["orders"])
                await namespace.rename("orders", "old")
                assert await ask("SELECT namespace, stream, number, state, log_id, writers, txid FROM streams") == [
                    ("/streams", "old", 1, "live", orders.log, "shared", "writer"),
                    ("/team/more", "ledger", 1, "live", ledger.log, "exclusive", "time"),
                ]
                assert await ask("SELECT subscription, stream, position, shared FROM subscriptions") == [
                    ("audit", "old", None, 1),
                    ("billing", "old", str(receipt.position), 0),
                ]
                sql = "SELECT s.stream, s.state, s.last_lsn FROM segments s WHERE s.log_id = "
                assert await ask(f"{sql}{orders.log}") == [("old", "in progress", receipt.position.lsn)]
                assert len(await ask("SELECT * FROM segments")) >= 2
                await namespace.delete("old")
                assert [row[1] for row in await ask("SELECT * FROM streams")] == ["ledger"]
                assert await ask("SELECT * FROM subscriptions") == []


async def test_segments_that_are_truncated_copied_and_cold_and_who_sees_to_them(tmp_path: Path) -> None:
    async with (
        LocalCluster(nodes=1, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        with LDQuery(cluster.config_file, deadline=60) as session:

            async def ask(sql: str) -> list[tuple[object, ...]]:
                result = await asyncio.to_thread(session.query, sql)
                assert not result.failures
                return result.rows

            async def states() -> list[tuple[object, ...]]:
                return await ask("SELECT state, copied, records FROM segments ORDER BY epoch")

            cold = f"file://{tmp_path}/cold"
            stream = await namespace.create("orders", roll=Roll(bytes=1), cold=cold, truncated_retention="1us")
            epochs: set[int] = set()
            async with stream.writer() as writer:
                while len(epochs) < 3:  # the log rolls behind each record, in its own time
                    epochs.add((await writer.write(b"x")).position.epoch)
            await stream.mark_end()
            counted = [records for *_, records in await states()]
            assert [row[:2] for row in await states()] == [("completed", 0)] * len(counted)
            janitor = "SELECT janitor, token, unattended FROM stream_janitors WHERE namespace = '/streams'"
            assert await ask(janitor) == [(None, None, 1)]
            await copy_now(namespace, stream.number)
            segments = await stream.segments()
            assert [row[:2] for row in await states()] == [("completed", 1)] * len(counted)
            await stream.truncate(segments[1].first)
            assert (await states())[0] == ("truncated", 1, counted[0])
            async with Janitor(namespace, owner="N7") as holder:
                while await holder.round():
                    pass
                assert await ask(janitor) == [("N7", holder.token, 0)]
            assert [segment.state.value for segment in await stream.segments()] == [
                state for state, *_ in await states()
            ]
            await stream.untruncate()
            assert (await states())[:2] == [("cold", 1, counted[0]), ("completed", 1, counted[1])]
