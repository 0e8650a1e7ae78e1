"""What an operator does with ``ldctl`` to nodes, settings and groups of logs, against a cluster inside this process."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.cli.program import EXIT_OK, EXIT_UNANSWERED
from ldquery.ctl.main import parser, run
from ldquery.session import LDQuery
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.local_cluster import LocalCluster


class Operator:
    """Types commands."""

    def __init__(self, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._file = cluster.config_file
        self._capsys = capsys

    async def types(self, *words: str, status: int = EXIT_OK) -> str:
        """Standard output of a command that ends with a status."""
        assert await run(parser().parse_args(["-c", self._file, *words])) == status
        self.said = self._capsys.readouterr()
        return self.said.out

    async def gets(self, *words: str, status: int = EXIT_OK) -> list[dict[str, Any]]:
        """The objects that a command prints."""
        return [json.loads(line) for line in (await self.types("--json", *words, status=status)).splitlines()]

    async def sees(
        self, holds: Callable[[list[dict[str, Any]]], bool], *, status: int = EXIT_OK
    ) -> list[dict[str, Any]]:
        """What ``status`` prints once it is so."""
        async with asyncio.timeout(60):
            while not holds(rows := await self.gets("status", status=status)):
                pass
        return rows

    async def is_refused(self, *words: str) -> LogDeviceError:
        with pytest.raises(LogDeviceError) as refused:
            await run(parser().parse_args(["-c", self._file, *words]))
        return refused.value


async def test_the_status_of_a_cluster_that_is_well_and_of_one_that_lost_a_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with LocalCluster(nodes=3, replicate="node:3") as cluster, cluster.client() as client:
        operator = Operator(cluster, capsys)
        await client.append(1, b"x")
        # what a node waits for at one moment is no trouble that stays
        rows = await operator.sees(lambda rows: not any(row["troubles"] for row in rows))
        assert [row["node"] for row in rows] == ["N0", "N1", "N2"]
        assert {row["readiness"] for row in rows} == {"OK"}
        assert {row["seen_as"] for row in rows} == {"ALIVE"}
        assert sum(row["logs"] for row in rows) >= 1
        assert all(row["shards"][0].startswith("S0 OK ") for row in rows)
        assert [row["troubles"] for row in rows] == [[], [], []]
        table = (await operator.types("status")).splitlines()
        assert "configuration version 1: 3 nodes, 0 of which do not answer" in table[0]
        assert table[1] == (
            "short of copies: 0 logs; records may be gone: 0 logs; generations above 1: none; rebuildings: none; drains: none"
        )
        assert table[2].split()[:2] == ["NODE", "ADDRESS"]
        assert len(table) == 6

        home = (await client.sequencer(1)).node
        gone = next(node for node in cluster.hosts if node != home)
        await cluster.stop_node(gone)
        waits = "APPEND waits for NODE_DEAD (1 row in table waits of ldquery)"
        rows = await operator.sees(
            lambda rows: rows[gone]["seen_as"] == "DEAD" and waits in rows[home]["troubles"], status=EXIT_UNANSWERED
        )
        assert "CONNFAILED" in rows[gone]["troubles"][0]
        assert rows[gone]["readiness"] is None
        await operator.types("status", status=EXIT_UNANSWERED)
        assert f"N{gone}: it does not answer" in operator.said.err


async def test_groups_of_logs_come_change_and_go_while_the_cluster_runs(capsys: pytest.CaptureFixture[str]) -> None:
    async with LocalCluster(nodes=3, logs=2, replicate="node:2") as cluster, cluster.client() as client:
        operator = Operator(cluster, capsys)
        path = Path(cluster.config_file)
        path.write_text("# kept\n" + path.read_text())
        path.chmod(0o640)
        # nodes get 60 s to read their file, which they look at every second
        create = ("--timeout", "60s", "logs", "create", "/team/clicks", "--ids", "10..12", "--set", "replicate=node:3")
        (made,) = await operator.gets(*create)
        assert made == {"path": "/team/clicks", "done": "created", "version": 2, "late": []}
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        while client.config.log(10) is None:  # noqa: ASYNC110 - the client looks at its file
            await asyncio.sleep(0.02)
        receipt = await client.append("/team/clicks/1", b"x")
        assert len(receipt.copyset) == 3
        await operator.types("logs", "update", "/team/clicks", "--ids", "10..20", "--set", "backlog=3d")
        rows = await operator.gets("logs", "list", "/team")
        assert [(row["ids"], row["backlog"], row["replicate"]) for row in rows] == [("10..20", "3d", "node:3")]
        assert rows[0]["set_here"] == ["backlog", "replicate"]
        assert len((await operator.types("logs", "list")).splitlines()) == 3

        assert (
            "does not contain"
            in (await operator.is_refused("logs", "update", "/team/clicks", "--ids", "11..20")).detail
        )
        assert "--yes" in (await operator.is_refused("logs", "delete", "/team/clicks")).detail
        assert (await operator.is_refused("logs", "list", "/nowhere")).status is Status.NOTFOUND
        assert load_cluster(path.read_text()).version == 3, "what was refused changed nothing"
        await operator.types("logs", "delete", "/team/clicks", "--yes")
        assert path.read_text().startswith("# kept\n")
        assert [group.path for group in load_cluster(path.read_text()).logs.groups] == ["/logs"]
        assert [path.name for path in path.parent.glob(".cluster*")] == [], "nothing is left lying about"


async def test_several_operators_at_once_lose_no_change(capsys: pytest.CaptureFixture[str]) -> None:
    async with LocalCluster(nodes=1, logs=1) as cluster:
        operator = Operator(cluster, capsys)
        await asyncio.gather(
            *(operator.types("--timeout", "1ms", "logs", "create", f"/g/a{n}", "--ids", str(50 + n)) for n in range(6))
        )
        config = load_cluster(Path(cluster.config_file).read_text())
        assert (config.version, len(config.logs.groups)) == (7, 7)


async def test_settings_are_shown_changed_and_taken_back_on_all_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    async with LocalCluster(nodes=2, logs=1) as cluster:
        operator = Operator(cluster, capsys)
        changed = await operator.gets("settings", "set", "all", "sequencer.graylist", "3s")
        assert [(row["node"], row["value"]) for row in changed] == [("N0", "3s"), ("N1", "3s")]
        shown = await operator.gets("settings", "show", "all", "--section", "sequencer", "--changed")
        assert [(row["node"], row["setting"], row["from"]) for row in shown] == [
            ("N0", "sequencer.graylist", "operator"),
            ("N1", "sequencer.graylist", "operator"),
        ]
        (back,) = await operator.gets("settings", "unset", "N1", "settings.sequencer.graylist_us")
        assert back["value"] == "10s"
        assert await operator.types("settings", "set", "N0", "sequencer.graylist_us", "3", status=2) == ""
        assert "is no duration" in operator.said.err
        await operator.types("settings", "set", "all", "sequencer.graylisted", "3s", status=2)
        assert operator.said.err.count("no setting of settings.sequencer") == 1, "once and not once a node"
        assert "ldctl: N0, N1: " in operator.said.err
        await operator.types("settings", "set", "N0", "foo.bar", "1", status=2)
        assert "there is no section settings.foo; those with settings" in operator.said.err
        assert "settings.sequencer, settings.recovery" in operator.said.err
        await operator.types("settings", "set", "N0", "security.bar", "1", status=2)
        assert "settings.security: cannot be changed while the node runs" in operator.said.err
        assert (await operator.is_refused("settings", "show", "N7")).status is Status.NOTINCONFIG


async def test_a_recovery_takes_the_log_on_and_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    async with LocalCluster(nodes=3, replicate="node:3") as cluster, cluster.client() as client:
        operator = Operator(cluster, capsys)
        before = (await client.append(1, b"before")).lsn
        (row,) = await operator.gets("recovery", "1")
        assert row["epoch"] > row["epoch_before"] == before.epoch
        after = (await client.append(1, b"after")).lsn
        async with client.reader(1, start=before, until=after) as reader:
            assert (await reader.read()).payloads[0] == b"before"


async def test_a_node_is_drained_and_then_stopped_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    async with LocalCluster(nodes=3, replicate="node:2") as cluster, cluster.client() as client:
        operator = Operator(cluster, capsys)
        node = (await client.sequencer(1)).node
        assert await operator.gets("stop", f"N{node}", "--only-sequencing") == [{"node": f"N{node}", "drained": True}]
        await client.append(1, b"elsewhere")
        assert (await client.sequencer(1)).node != node

        async def obey() -> None:
            host = cluster.hosts[NodeId(node)]
            await host.stop_wanted
            await cluster.stop_node(node)

        obeying = asyncio.create_task(obey())
        assert await operator.gets("stop", str(node)) == [{"node": f"N{node}", "stopped": True}]
        await obeying
        assert (await operator.is_refused("stop", str(node))).status is Status.CONNFAILED


async def test_an_action_does_not_reach_another_node_that_answers_at_the_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with LocalCluster(nodes=2, logs=1) as cluster:
        path = Path(cluster.config_file)
        first, second = (cluster.hosts[NodeId(node)].config.nodes[NodeId(node)] for node in range(2))
        swapped = path.read_text().replace(first.host, "X").replace(second.host, first.host).replace("X", second.host)
        wrong = path.with_name("wrong.toml")
        wrong.write_text(swapped)
        with pytest.raises(LogDeviceError, match="answers at") as refused:
            await run(parser().parse_args(["-c", str(wrong), "stop", "N0"]))
        assert refused.value.status is Status.INVALID_CLUSTER
        assert not any(cluster.hosts[NodeId(node)].stop_wanted.done() for node in range(2))


@pytest.mark.parametrize(
    "words",
    [
        ["stop"],
        ["stop", "all"],
        ["stop", "N99999"],
        ["settings"],
        ["settings", "set", "N0", "graylist_us", "3s"],
        ["logs", "create"],
        ["logs", "create", "/a", "--ids", "8..1"],
        ["logs", "create", "/a", "--set", "replicate"],
        ["logs", "update", "/a", "--unset", "nope"],
    ],
)
def test_wrong_use_is_told_at_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        parser().parse_args(["-c", "nowhere.toml", *words])
    assert error.value.code == 2
    assert "error: " in capsys.readouterr().err


async def test_one_row_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    async with LocalCluster(nodes=3, logs=3, replicate="node:3") as cluster, cluster.client() as client:
        operator = Operator(cluster, capsys)
        before = await client.append(1, b"old")
        await client.trim(1, before.lsn)
        receipt = await client.append(1, b"new")
        home = await client.sequencer(1)
        tail = await client.tail(1)
        async with asyncio.timeout(60):  # shards learn of releases and look through their logs by and by
            while (rows := await operator.gets("logs", "status"))[0]["copies"] != "OK":
                pass
        assert [row["path"] for row in rows] == ["/logs/1", "/logs/2", "/logs/3"]
        used, unused = rows[0], rows[1]
        assert (used["sequencer_node_id"], used["epoch"]) == (home.node, home.epoch)
        assert (used["head"], used["tail"], used["newest_time"]) == (receipt.lsn, receipt.lsn, tail.timestamp)
        assert used["stored_bytes"] > 0
        assert (unused["head"], unused["stored_bytes"], unused["newest_time"]) == (None, 0, None)
        [header, line] = (await operator.types("logs", "status", "1")).splitlines()
        assert header.split()[:4] == ["LOG", "PATH", "SEQUENCER", "EPOCH"]
        assert line.split()[:6] == [
            "1",
            "/logs/1",
            f"N{home.node}",
            str(home.epoch),
            str(receipt.lsn),
            str(receipt.lsn),
        ]
        with LDQuery(cluster.config_file, deadline=30) as session:
            result = await asyncio.to_thread(session.query, "SELECT * FROM logs WHERE log_id = 1")
        assert result.to_dicts() == [used]

        await cluster.stop_node((home.node + 1) % 3)
        [row] = await operator.gets("logs", "status", "/logs/1", status=EXIT_UNANSWERED)
        assert row["copies"] == "UNKNOWN"
        assert "what is known there is missing: CONNFAILED" in operator.said.err
