"""Tables of index logs, of what has some and of what has none."""

from __future__ import annotations

import asyncio
from pathlib import Path

from indexlog.index_log import IndexLog, make_index_log
from indexlog.manifest.commands import BeginJob
from indexlog.planning import ALL_AT_ONCE
from ldquery.session import LDQuery
from server.dev.local_cluster import LocalCluster

TABLES = ("index_logs", "indexes", "index_files", "index_jobs", "raw_logs")


async def test_index_logs_are_found_in_the_log_tree(tmp_path: Path) -> None:
    async with LocalCluster(nodes=3, log_tree=True) as cluster, cluster.client() as client:
        with LDQuery(cluster.config_file, deadline=60) as session:

            async def ask(sql: str) -> list[tuple[object, ...]]:
                result = await asyncio.to_thread(session.query, sql)
                assert not result.failures
                return result.rows

            assert [await ask(f"SELECT * FROM {table}") for table in TABLES] == [[]] * len(TABLES)
            for path in ("/indexlog", "/team/more"):
                await make_index_log(client, f"file://{tmp_path}{path}", path=path, raw_logs=1)
            async with IndexLog(client) as log, log.writer() as writer, IndexLog(client, "/team/more") as more:
                (raw,) = log.state.generations[0].logs
                await writer.put("books", "a", {})
                receipt = await writer.put("books", "b", {})
                ((since, dealt),) = await ask(
                    "SELECT waiting_since, is_dealt FROM raw_logs WHERE index_log = '/indexlog'"
                )
                assert isinstance(since, int)
                assert abs(since - receipt.timestamp) < 60_000_000
                assert dealt == 0
                await log.deal()
                await writer.put("books", "a", {"n": "1"})
                await writer.put("songs", "s", {})
                await log.deal()
                await log.optimize(ALL_AT_ONCE, index="books")
                last = await writer.put("songs", "t", {})
                begun = await more.command(BeginJob())
                assert await ask("SELECT index_log, state, indexes, parts, records, retired, jobs FROM index_logs") == [
                    ("/indexlog", log.state.serial, 2, 2, 3, 2 + 1, 0),
                    ("/team/more", 0, 0, 0, 0, 0, 1),
                ]
                assert await ask("SELECT index_code, unsorted, sorted, optimized, records FROM indexes") == [
                    ("books", 0, 0, 1, 2),
                    ("songs", 1, 0, 0, 1),
                ]
                assert await ask("SELECT index_code, kind, records, first_row, retired IS NULL FROM index_files") == [
                    ("books", "optimized", 2, 0, 1),
                    ("songs", "unsorted", 1, 1, 1),
                    ("books", "unsorted", 2, 0, 0),
                    ("books", "unsorted", 1, 0, 0),
                    ("books", "sorted", 2, 0, 0),
                ]
                assert await ask("SELECT index_log, token, files FROM index_jobs") == [("/team/more", begun.number, 0)]
                columns = "generation, log_id, dealt_lsn, tail_lsn, end_lsn, is_dealt, waiting"
                assert await ask(f"SELECT {columns} FROM raw_logs WHERE log_id = {raw}") == [
                    (0, raw, log.state.dealt[raw], last.lsn, None, 0, last.lsn - log.state.dealt[raw])
                ]
                await log.deal()
                await log.change_routing(1)
                assert await ask(
                    "SELECT generation, is_dealt, waiting FROM raw_logs WHERE index_log = '/indexlog'"
                ) == [
                    (0, 1, 0),  # but for the entry that ends it
                    (1, 1, 0),
                ]
