"""Tables of streams, of what has namespaces and of what has none."""

from __future__ import annotations

import asyncio

from ldquery.session import LDQuery
from server.dev.local_cluster import LocalCluster
from streams.namespace import Namespace
from streams.stream_subscriptions import Subscription

TABLES = ("streams", "segments", "subscriptions", "stream_owners")


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
