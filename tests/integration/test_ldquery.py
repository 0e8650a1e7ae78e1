"""ldquery and the admin API against real processes."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from client.client import Client
from ldquery.session import LDQuery
from logdevice_py.config.admin import admin_endpoint
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import format_lsn
from logdevice_py.core.status import Status
from logdevice_py.tables.catalog import TABLES
from tests.forked import run_program_async
from tests.integration.process_cluster import ProcessCluster, process_cluster
from tests.unit.server.admin.test_dashboard import shown

PAYLOADS = [f"record {number}".encode() for number in range(40)]
SILENT_NODE_DEADLINE = 12
"""Seconds. A quarter of it is for the second table of a join when a node is silent: much more than others need, also on a machine that is busy."""

NOTHING_TO_TELL = (
    "extents",  # the shards of this cluster are in RocksDB
    "append_trace",  # nobody asks for it
    "recoveries",
    "recovered_epochs",
    "purges",
    "graylist",
    "readers",
    "waits",
    "quotas",
    "under_replicated",
    "log_tree",
    "log_tree_replicas",
    "maintenances",
    "under_replicated_logs",
    "append_throughput",
    "shard_rebuildings",
    "log_rebuildings",
    "client_read_streams",
    "client_shard_delays",
    "quarantined_stores",
    "streams",
    "segments",
    "subscriptions",
    "stream_owners",
    "stream_janitors",
    "index_logs",
    "indexes",
    "index_files",
    "index_jobs",
    "raw_logs",
)
"""Of a cluster that is well and has just begun. `test_tables_in_trouble.py` makes them have rows; of `under_replicated` see below, of
`quarantined_stores` `test_wrong_disk.py`, of the log tree `test_log_tree.py`, of streams `test_stream_tables.py`, of index
logs `test_index_log_tables.py`."""


async def one_shot(cluster: ProcessCluster, *arguments: str, given: str = "") -> tuple[int, str, str]:
    """Exit status, standard output, standard error of the program that reads what is `given`."""
    return await run_program_async("ldquery.main", "-c", cluster.file, "--timeout", "60s", *arguments, given=given)


def fetch(cluster: ProcessCluster, node: int, path: str, **headers: str) -> tuple[int, str]:
    """HTTP status and body of a request to a node's admin API."""
    config = cluster.supervisor.config
    endpoint = admin_endpoint(config, config.nodes[NodeId(node)])
    assert endpoint is not None
    request = urllib.request.Request(f"http://{endpoint.host}:{endpoint.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def every_table_answers(session: LDQuery, log: int, lsn: int) -> None:
    for name, table in TABLES.items():
        where = f" WHERE log_id = {log} AND lsn = {lsn}" if table.required else ""
        result = session.query(f"SELECT * FROM {name}{where}")
        assert result.columns == [column.name for column in table.columns], name
        assert not result.failures, (name, result.failures)
        if name not in NOTHING_TO_TELL:
            assert result.rows, f"{name} is empty"


def constraints_touch_what_they_name(session: LDQuery, log: int, lsn: int) -> None:
    everything = session.query("SELECT * FROM stored_logs")
    of_one = session.query(f"SELECT * FROM stored_logs WHERE log_id = {log} AND node_id = 1")
    assert (everything.requests, of_one.requests) == (3, 1)
    by_parameters = session.query(
        "SELECT * FROM stored_logs WHERE log_id = :log AND node_id = :node", {"log": log, "node": 1}
    )
    assert (by_parameters.rows, by_parameters.requests, by_parameters.rows_fetched) == (of_one.rows, 1, 1)
    assert of_one.rows_fetched == 1 < everything.rows_fetched
    record = session.query(f"SELECT node_id, lsn, is_current FROM record WHERE log_id = {log} AND lsn = {lsn}")
    assert {row[1] for row in record.rows} == {lsn}
    assert sorted(row[0] for row in record.rows if row[2]) == [0, 1, 2]
    assert record.rows_fetched == len(record.rows), "every copy, and nothing else, was got"


def what_an_index_of_copysets_would_show_is_that_of_the_records(session: LDQuery, log: int, lsn: int) -> None:
    columns = "node_id, shard, lsn, is_current, wave, recovery_epoch, copyset, flags"
    where = f"log_id = {log} AND lsn BETWEEN 'e1n1' AND {lsn} ORDER BY 1, 3, 5"
    index = session.query(f"SELECT {columns} FROM record_csi WHERE {where}")
    assert index.rows == session.query(f"SELECT {columns} FROM record WHERE {where}").rows
    assert len(index.rows) >= 3


def copies_are_counted_where_they_lie(session: LDQuery, log: int, last: int) -> None:
    where = f"log_id = {log} AND lsn BETWEEN 'e1n1' AND {last}"
    counted = session.query(
        f"SELECT node_id, sum(entries), sum(records) FROM copyset_distribution WHERE {where} GROUP BY 1"
    )
    listed = session.query(
        f"SELECT node_id, count(*), sum(records) FROM record WHERE {where} AND is_current GROUP BY 1"
    )
    assert counted.rows == listed.rows
    assert counted.rows_fetched <= 6 < listed.rows_fetched, "one row for each copyset, at each node"
    assert session.query(f"SELECT * FROM under_replicated WHERE {where}").rows == []


def where_copies_lie_is_told_from_what_is_stored(session: LDQuery, log: int, last: int) -> None:
    placed = session.query(
        "SELECT scope, entries, spanned_min, data_survives, appends_survive, recovery_survives, data_fatal FROM log_placement "
        f"WHERE log_id = {log} AND lsn BETWEEN 'e1n1' AND {last}"
    )
    assert [row[0] for row in placed.rows] == ["node"]
    _, entries, *found, fatal = placed.rows[0]
    assert entries >= 3
    assert (found, fatal) == ([3, 2, 0, 2], "N0, N1, N2")


async def what_may_fail_is_told_in_words(cluster: ProcessCluster) -> None:
    status, out, _ = await run_program_async(
        "ldquery.ctl.main", "-c", cluster.file, "--timeout", "60s", "placement", "1"
    )
    assert status == 0
    assert out.splitlines()[-5:] == [
        "what is stored satisfies what is configured",
        "keeps every record that was looked at: without any two nodes",
        "can be read from its beginning: without any two nodes",
        "takes appends: as long as nothing else fails",
        "goes on after its sequencer dies: without any two nodes",
    ]


def statements_combine_tables(session: LDQuery, log: int) -> None:
    joined = session.query(
        "SELECT s.log_id, r.node_id, r.payload FROM sequencers s JOIN record r ON r.log_id = s.log_id AND r.lsn = s.last_released "
        f"WHERE r.is_current AND s.state = 'ACTIVE' AND s.log_id = {log}"
    )
    assert [json.loads(row[2])[-1] for row in joined.rows] == [PAYLOADS[-1].decode()] * 3
    windowed = session.query(
        "SELECT log_id, count(*), rank() OVER (ORDER BY max(highest_lsn) DESC) FROM stored_logs "
        f"WHERE log_id <= 4 GROUP BY log_id HAVING log_id = {log}"
    )
    assert windowed.rows == [(log, 3, 1)]


def the_api_refuses_what_it_should(cluster: ProcessCluster) -> None:
    for path, code, status in [
        ("/v1/tables/nope", 404, "NOTFOUND"),
        ("/elsewhere", 404, "NOTFOUND"),
        ("/v1/tables/record", 400, "INVALID_PARAM"),
        ("/v1/tables/sequencers?log_id=minus", 400, "INVALID_PARAM"),
        ("/v1/tables/sequencers?log_id=1&log_id=2", 400, "INVALID_PARAM"),
    ]:
        answered, body = fetch(cluster, 0, path)
        assert (answered, json.loads(body)["error"]["status"]) == (code, status), path
    assert fetch(cluster, 0, "/v1/health", Host="somewhere.example")[0] == 403
    answered, body = fetch(cluster, 0, "/v1/ready")
    assert (answered, json.loads(body)["status"]) == (200, "OK")


async def test_tables_of_live_nodes_and_of_a_cluster_that_lost_one(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, nodes=3, logs=4, replicate="node:3", racks=1) as cluster:
        async with Client(cluster.file) as client:
            receipts = [await client.append(LogId(1), payload) for payload in PAYLOADS]
        last = int(receipts[-1].lsn)
        with LDQuery(cluster.file, deadline=60) as session:
            await asyncio.to_thread(every_table_answers, session, 1, last)
            await asyncio.to_thread(constraints_touch_what_they_name, session, 1, last)
            await asyncio.to_thread(statements_combine_tables, session, 1)
            await asyncio.to_thread(what_an_index_of_copysets_would_show_is_that_of_the_records, session, 1, last)
            await asyncio.to_thread(copies_are_counted_where_they_lie, session, 1, last)
            await asyncio.to_thread(where_copies_lie_is_told_from_what_is_stored, session, 1, last)
        await what_may_fail_is_told_in_words(cluster)
        await asyncio.to_thread(the_api_refuses_what_it_should, cluster)
        code, page = await asyncio.to_thread(fetch, cluster, 0, "/metrics")
        assert code == 200
        assert "logdevice_storage_stored_bytes_total" in page
        assert {name for name in shown() if f"\n{name}{{" not in page and f"\n{name} " not in page} == set()
        assert 'logdevice_log_store_sync_time_seconds_total{shard="0"}' in page
        assert 'logdevice_scrubber_verification_age_seconds{shard="0"}' in page

        status, out, err = await one_shot(
            cluster, f"SELECT DISTINCT lsn FROM record WHERE log_id = 1 AND lsn = '{format_lsn(last)}'"
        )
        assert (status, out.splitlines()[2:], err) == (0, [format_lsn(last)], "")

        statements = ".format tsv\nSELECT node_id FROM nodes WHERE node_id < :n;\nSELECT count(*) AS n FROM nodes;\n"
        assert await one_shot(cluster, "-p", "n=2", given=statements) == (0, "node_id\n0\n1\nn\n3\n", "")
        status, out, err = await one_shot(cluster, given="SELECT 1 AS one;\nSELECT nope FROM nodes;\nSELECT 2;")
        assert (status, out.split()) == (2, ["one", "---", "1"])
        assert err.startswith("ldquery: INVALID_PARAM: statement of line 2: no such column: nope")

        await cluster.kill(2)
        status, out, err = await one_shot(cluster, "SELECT node_id FROM info ORDER BY 1", "--format", "csv")
        assert (status, out) == (4, "node_id\n0\n1\n")
        assert "N2: info: CONNFAILED" in err
        with LDQuery(cluster.file, deadline=60) as session:  # who is dead is not waited for
            result = await asyncio.to_thread(
                session.query,
                f"SELECT copies, missing_on, unknown_on FROM under_replicated WHERE log_id = 1 AND lsn = {last}",
            )
        assert result.rows == [(2, "", "N2:S0")], "what N2 has is not known"
        assert [failure.node for failure in result.failures] == [2]
        status, out, err = await one_shot(cluster, "SELECT count(*) AS n FROM nodes", "--format", "json")
        assert (status, json.loads(out), err) == (0, [{"n": 3}], "")

        cluster.supervisor.children[NodeId(1)].process.send_signal(19)  # SIGSTOP
        try:
            # half of it is for the first table: much more than N0 needs, also where the machine is busy
            with LDQuery(cluster.file, deadline=SILENT_NODE_DEADLINE) as session:
                result: Any = await asyncio.to_thread(session.query, "SELECT node_id FROM info")
        finally:
            cluster.supervisor.children[NodeId(1)].process.send_signal(18)  # SIGCONT
        assert result.rows == [(0,)]
        assert [(failure.node, failure.status) for failure in result.failures] == [
            (1, Status.TIMEDOUT),
            (2, Status.CONNFAILED),
        ]
        assert result.seconds < SILENT_NODE_DEADLINE
        cluster.supervisor.children[NodeId(1)].process.send_signal(19)
        try:
            with LDQuery(cluster.file, deadline=SILENT_NODE_DEADLINE) as session:
                joined: Any = await asyncio.to_thread(
                    session.query, "SELECT i.node_id, count(*) FROM info i JOIN shards s USING (node_id) GROUP BY 1"
                )
        finally:
            cluster.supervisor.children[NodeId(1)].process.send_signal(18)
        assert joined.rows == [(0, 1)], "one that is silent does not take the time of the others"
        assert [failure.node for failure in joined.failures] == [1, 2]
        assert joined.seconds < SILENT_NODE_DEADLINE
