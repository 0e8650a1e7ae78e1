"""What an operator is told who adds a node, and traps on the way that are closed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ldquery.ctl import configuration
from ldquery.ctl.main import parser, run
from logdevice_py.config.edit import with_node
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from tests.simulation.cluster_plan import ClusterPlan, NodePlan

TEXT = ClusterPlan("node:2", 3, {}, {node: NodePlan(["sequencer", "storage"], node) for node in range(3)}).render()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(TEXT)
    return path


async def ctl(file: Path, *words: str) -> int:
    return await run(parser().parse_args(["-c", str(file), *words]))


async def test_nobody_makes_a_certificate_of_a_principal_where_that_of_a_node_belongs(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cryptography")
    with pytest.raises(LogDeviceError, match="config show --to") as refused:
        await ctl(file, "identity", "make", "ops", "N3")
    assert refused.value.status is Status.INVALID_PARAM
    assert not (file.parent / "identity").exists(), "nothing was made"
    assert await ctl(file, "identity", "make") == 0
    assert await ctl(file, "identity", "make") == 0
    assert "all nodes of" in capsys.readouterr().err


def test_a_node_that_was_added_is_started_next() -> None:
    config = load_cluster(TEXT)
    assert "start it now" in configuration.start_text("c.toml", NodeId(3), config)
    assert "certificate" not in configuration.start_text("c.toml", NodeId(3), config)
    secure = load_cluster(TEXT + '\n[settings.security]\ntls = "require"\nca_file = "a"\ncertificate_file = "b"\n')
    assert "ldctl identity make" in configuration.start_text("c.toml", NodeId(3), secure)


class Editor:
    """In place of a cluster."""

    late: ClassVar[list[NodeId]] = []

    @classmethod
    def of_program(cls, *_: Any) -> Editor:
        return cls()

    async def __aenter__(self) -> Editor:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self) -> Any:
        row = {"version": 1, "text": TEXT}
        return SimpleNamespace(version=1, text=TEXT, is_stored=True, versions=[row], find=lambda version: row)

    async def change(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"version": 2, "stored": True, "changed": True}

    async def in_use(self, version: int) -> list[NodeId]:
        return list(self.late)


@pytest.mark.parametrize(("late", "status"), [([3], 0), ([1, 3], 4)])
async def test_a_new_node_that_does_not_run_yet_is_no_failure(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    late: list[int],
    status: int,
) -> None:
    monkeypatch.setattr(configuration, "ConfigurationEditor", Editor)
    monkeypatch.setattr(Editor, "late", list(map(NodeId, late)))
    arguments = parser().parse_args(["-c", str(file), "nodes", "add", "N3", "host=127.0.0.9", "port=4440"])
    assert await arguments.run(None, arguments) == status
    said = capsys.readouterr().err
    assert "N3: start it now" in said
    assert ("N1: does not use it yet" in said) == (status == 4)


async def test_the_cluster_file_itself_can_be_brought_up_to_date(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "ConfigurationEditor", Editor)
    file.write_text(TEXT.replace("version = 1", "version = 0"))
    arguments = parser().parse_args(["-c", str(file), "config", "show", "--to", str(file)])
    assert await arguments.run(None, arguments) == 0
    assert file.read_text() == TEXT


def test_tables_of_nodes_that_are_added_stand_apart() -> None:
    text = '[nodes.N0]\nhost = "127.0.0.1"\nport = 1\n\n[metadata_log]\nreplicate = "node:1"\n'
    text = f'version = 1\nname = "a"\nuuid = "6a3dbd0c-30a5-4b4e-9b35-5e4f4b7a7a11"\nepoch_store = "memory:"\n\n{text}'
    made = with_node(text, NodeId(7), {"host": "127.0.0.7", "port": 4440})
    lines = made.splitlines()
    at = lines.index("[nodes.N7]")
    after = next(place for place in range(at + 1, len(lines)) if lines[place].startswith("["))
    assert lines[after - 1] == ""
