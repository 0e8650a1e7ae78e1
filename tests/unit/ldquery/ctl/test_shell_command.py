"""The command with which an operator has nodes restarted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ldquery.ctl.maintenance import ShellCommand
from ldquery.maintenance.rolling import RestartStopped
from logdevice_py.core.ids import NodeId
from tests.unit.storage_node.fakes import make_config


def command(text: str, host: str) -> ShellCommand:
    config = make_config()
    nodes = {node: replace(each, host=host) for node, each in config.nodes.items()}
    client: Any = SimpleNamespace(config=replace(config, nodes=nodes))
    return ShellCommand(client, text)


@pytest.mark.parametrize("host", ["db-2.example", "fe80::1%eth0", "h; exit 7", "$(exit 7)", "it's"])
async def test_the_host_is_one_word_whatever_the_configuration_says(host: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    await command(f"printf '%s|' {{host}} {{node}} {{number}} > {said}", host)(NodeId(2))
    assert said.read_text() == f"{host}|N2|2|"


async def test_a_command_that_fails_stops_the_restart() -> None:
    with pytest.raises(RestartStopped, match="ended with status 7"):
        await command("exit 7", "h")(NodeId(2))
