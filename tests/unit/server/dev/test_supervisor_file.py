"""A development cluster whose file somebody edits while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import parse_security
from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.supervisor import CommandError, Supervisor, write_cluster_file

SECURITY = """
[settings.security]
tls = "require"
permissions = true
ca_file = "identity/ca.pem"
certificate_file = "identity/{node}.pem"
"""


class Unstarted(Supervisor):
    """It starts no process."""

    async def start(self, node: int) -> str:
        return ""


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    config = make_config(tmp_path, nodes=2, logs=1, replicate="node:1", racks=1, epoch_store=None)
    write_cluster_file(tmp_path, config)
    return Unstarted(tmp_path, config)


def edit(supervisor: Supervisor, version: int) -> Path:
    file = layout.cluster_file(supervisor.directory)
    file.write_text(file.read_text().replace("version = 1", f"version = {version}", 1) + SECURITY)
    return file


async def test_a_node_that_is_added_leaves_what_was_edited(supervisor: Supervisor) -> None:
    file = edit(supervisor, 4)
    await supervisor.follow()
    await supervisor.add(None)
    config = load_cluster(file.read_text())
    assert (config.version, list(config.nodes)) == (5, [NodeId(0), NodeId(1), NodeId(2)])
    security = parse_security(config.settings)
    assert (security.tls, security.permissions) == ("require", True)


async def test_what_nodes_do_not_read_is_neither_used_nor_replaced(supervisor: Supervisor) -> None:
    before = supervisor.config
    edited = edit(supervisor, 1).read_text()
    await supervisor.follow()
    assert supervisor.config is before
    with pytest.raises(CommandError, match="give it a higher version if you edited it"):
        await supervisor.add(None)
    assert layout.cluster_file(supervisor.directory).read_text() == edited


async def test_a_file_that_cannot_be_read_stays_as_it_is(supervisor: Supervisor) -> None:
    file = layout.cluster_file(supervisor.directory)
    file.write_text(broken := file.read_text() + "permit = [")
    await supervisor.follow()
    with pytest.raises(CommandError, match=r"cluster\.toml: .*correct it first"):
        await supervisor.add(None)
    assert file.read_text() == broken


async def test_what_nodes_refuse_is_neither_used_nor_replaced(supervisor: Supervisor) -> None:
    before, file = supervisor.config, edit(supervisor, 4)
    file.write_text(file.read_text().replace(f'name = "{before.name}"', 'name = "another"', 1))
    edited = file.read_text()
    assert load_cluster(edited).name == "another"
    await supervisor.follow()
    assert supervisor.config is before
    with pytest.raises(CommandError, match=r"cluster\.toml is of another cluster; correct it first"):
        await supervisor.add(None)
    assert file.read_text() == edited
