"""The audit log of a real cluster: refusals, trims, internal logs, and what is asked of the admin API."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client.client import Client
from client.identity import ClientIdentity
from logdevice_py import LocalCluster, LogDeviceError
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LOG_TREE_DELTAS
from logdevice_py.core.lsn import LSN
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import Status
from logdevice_py.runtime.admin_token import token_beside
from server.dev import layout
from server.dev.supervisor import write_cluster_file
from tests.integration.test_admin_actions import act
from tests.integration.test_secure_cluster import authority_of


def lines_of(directory: Path) -> list[dict[str, Any]]:
    """Of all nodes."""
    files = sorted((directory / "audit").iterdir())
    assert [each.name for each in files] == ["N0.jsonl", "N1.jsonl"]
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    return [json.loads(line) for each in files for line in each.read_text().splitlines()]


def of(lines: list[dict[str, Any]], what: str, outcome: str) -> list[dict[str, Any]]:
    return [line for line in lines if (line["what"], line.get("outcome")) == (what, outcome)]


async def test_what_was_done_and_refused_is_in_the_files(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=2, logs=2, secure=True, log_tree=True, directory=tmp_path)
    config = load_cluster(layout.cluster_file(tmp_path).read_text())
    security = {**config.settings["security"], "audit_file": "audit/{node}.jsonl"}
    write_cluster_file(tmp_path, replace(config, settings={**config.settings, "security": security}))
    async with cluster:
        mallory_pem = authority_of(tmp_path).certify_principal(Principal("mallory")).path
        async with (
            cluster.client() as operator,
            Client(cluster.config_file, identity=ClientIdentity(certificate=mallory_pem)) as mallory,
        ):
            receipt = await operator.append(1, b"payload")
            await operator.append(1, b"more")
            with pytest.raises(LogDeviceError) as refused:
                await mallory.append(1, b"payload")
            assert refused.value.status is Status.ACCESS
            await operator.trim(1, LSN(receipt.lsn))
            trims = of(lines_of(tmp_path), "TRIM", "ALLOWED")
            assert {line["node"] for line in trims} == {"N0", "N1"}
            assert {(line["who"], line["log"], line["through"]) for line in trims} == {
                ("operator", 1, str(LSN(receipt.lsn)))
            }
            assert all(line["from"].startswith("127.0.0.1:") for line in trims)
            await operator.make_log_group("/made", 1)
        changed = {"section": "settings.sequencer", "name": "no_redirect", "value": "1s"}
        assert (await act(cluster, "set", **changed))[0] == 200
        assert (await act(cluster, "set", **{**changed, "value": "nonsense"}))[0] == 400
        token = token_beside(Path(cluster.config_file))
        token.rename(tmp_path / "elsewhere")
        assert (await act(cluster, "stop"))[0] == 401
    lines = lines_of(tmp_path)
    assert {line["who"] for line in of(lines, "APPEND", "ACCESS")} == {"mallory"}
    assert {(line["who"], line["log"]) for line in of(lines, "APPEND", "ALLOWED")} == {("operator", LOG_TREE_DELTAS)}
    actions = [(line["who"], line.get("parameters"), line["outcome"]) for line in lines if line["what"] == "set"]
    wrong = {**changed, "value": "nonsense"}
    assert actions == [
        ("the admin token", given, outcome)
        for given, outcome in ((changed, "ALLOWED"), (changed, "OK"), (wrong, "ALLOWED"), (wrong, "INVALID_PARAM"))
    ]
    (stranger,) = of(lines, "/v1/actions/stop", "ACCESS")
    assert (stranger["who"], stranger["from"]) == ("", "127.0.0.1")
