"""Maintenances as operators have them: verbs, the table and what status says, on a cluster inside this process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from client.admin_access import AdminAccess
from client.cli.program import EXIT_OK, EXIT_UNHEALTHY
from client.node_tables import NodeAsker
from ldquery.ctl.main import parser, run
from ldquery.session import LDQuery
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.local_cluster import LocalCluster


async def test_a_node_goes_when_it_is_safe_and_everybody_sees_it(capsys: pytest.CaptureFixture[str]) -> None:
    async with LocalCluster(nodes=3, logs=2, replicate="node:2") as cluster, cluster.client() as client:

        async def types(*words: str, status: int = EXIT_OK) -> list[dict[str, Any]]:
            assert await run(parser().parse_args(["-c", cluster.config_file, "--json", *words])) == status
            out, said.err = capsys.readouterr()
            return [json.loads(line) for line in out.splitlines()]

        class said:
            err = ""

        await client.append(1, b"x")
        (granted,) = await types("maintenance", "apply", "N1", "--may-disappear", "--for", "1h", "--reason", "new disk")
        assert (granted["number"], granted["who"], granted["phase"]) == (1, "N1", "granted")
        ask = ("maintenance", "apply", "N2", "--may-disappear", "--for", "1h", "--within", "1ms")
        assert await types(*ask, status=EXIT_UNHEALTHY) == []
        assert "N2 has to wait: DATA: metadata logs" in said.err or "not granted in time" in said.err
        with pytest.raises(LogDeviceError, match="N1 is in maintenance 1") as refused:
            await types("maintenance", "apply", "N1:S0", "--drain")
        assert refused.value.status is Status.EXISTS
        await types("maintenance", "apply", "N2", "--drain", "--no-wait")
        rows = await types("maintenance", "list", "--all")
        assert [(row["number"], row["phase"]) for row in rows] == [
            (2, "over: cancelled"),
            (1, "granted"),
            (3, "waiting"),
        ]
        assert "take enabled = false out of [settings.rebuilding]" in rows[2]["waits_for"]
        await run(parser().parse_args(["-c", cluster.config_file, "status"]))
        assert "maintenance 1: N1 may disappear until" in capsys.readouterr().err
        (told,) = await types("check-impact", "N1", "N2", status=EXIT_UNHEALTHY)
        assert "/internal/maintenance/" in told["losses"][0]["which"], "the logs of the cluster itself are looked at"
        await types("maintenance", "cancel", "1", "3")
        assert await types("maintenance", "list") == []

        asker = NodeAsker(
            load_cluster(Path(cluster.config_file).read_text()), AdminAccess.of_program(Path(cluster.config_file))
        )
        given = {"who": "N0, N2:S0", "kind": "may disappear", "seconds": 60, "reason": "by hand"}
        try:
            made = await asker.act(NodeId(1), "apply_maintenance", given, 30)
            assert made == {"number": 4, "phase": "waiting"}
            over = await asker.act(NodeId(2), "cancel_maintenance", {"number": 4}, 30)
            assert over == {"number": 4, "phase": "over"}
            with pytest.raises(LogDeviceError, match="may disappear or drain"):
                await asker.act(NodeId(1), "apply_maintenance", {**given, "kind": "go"}, 30)
        finally:
            await asker.close()

        def table() -> list[tuple[Any, ...]]:
            with LDQuery(cluster.config_file) as query:
                return query.query("SELECT number, who, kind, phase, cause FROM maintenances").rows

        assert await asyncio.to_thread(table) == [
            (2, "N2", "may disappear", "over", "cancelled"),
            (1, "N1", "may disappear", "over", "cancelled"),
            (3, "N2", "drain", "over", "cancelled"),
            (4, "N0, N2:S0", "may disappear", "over", "cancelled"),
        ]
