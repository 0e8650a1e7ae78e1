"""The cluster file of a running node: edited, broken, deleted."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import render_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.runtime.durable_file import write_durably
from server.cluster_file import REMINDER, ClusterFile
from server.dev.dev_cluster import make_config


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    return make_config(tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None)


@pytest.fixture
def file(tmp_path: Path, config: ClusterConfig) -> ClusterFile:
    path = tmp_path / "cluster.toml"
    write_durably(path, render_cluster(config))
    return ClusterFile(path, config)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def look_for(file: ClusterFile, begin: int, seconds: int) -> list[ClusterConfig | None]:
    """As a node does, twice a second."""
    return [file.look(Micros(begin + number * SECOND // 2)) for number in range(2 * seconds)]


def test_a_higher_version_is_taken_once(file: ClusterFile, config: ClusterConfig) -> None:
    assert file.look(Micros(0)) is None
    newer = dataclasses.replace(config, version=2)
    write_durably(file.path, render_cluster(newer))
    assert file.look(Micros(1)) == newer
    assert file.look(Micros(2)) is None


def test_the_log_tree_is_not_switched_off(
    file: ClusterFile, config: ClusterConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with_tree = dataclasses.replace(config, version=2, settings={**config.settings, "log_tree": {"enabled": True}})
    write_durably(file.path, render_cluster(with_tree))
    assert file.look(Micros(0)) == with_tree
    write_durably(file.path, render_cluster(dataclasses.replace(config, version=3)))
    assert file.look(Micros(1)) is None
    assert "switches the log tree off" in errors(caplog)[0]


def test_a_deleted_file_is_an_error_once_then_now_and_then_and_good_news_when_it_is_back(
    file: ClusterFile, config: ClusterConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    aside = file.path.with_suffix(".aside")
    file.look(Micros(0))
    os.rename(file.path, aside)
    assert look_for(file, 0, 60) == [None] * 120
    assert len(errors(caplog)) == 1
    assert "version 1 stays in force" in errors(caplog)[0]
    assert "No such file" in errors(caplog)[0]
    file.look(Micros(REMINDER + SECOND))
    assert len(errors(caplog)) == 2
    os.rename(aside, file.path)
    file.look(Micros(REMINDER + 2 * SECOND))
    assert "in order again" in caplog.records[-1].getMessage()
    os.unlink(file.path)
    file.look(Micros(REMINDER + 3 * SECOND))
    assert len(errors(caplog)) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("version = ", "not valid TOML"),
        ("", "version"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_what_cannot_be_read_is_said_once_and_again_when_asked(
    file: ClusterFile, caplog: pytest.LogCaptureFixture, text: str | bytes, says: str
) -> None:
    file.path.write_bytes(text if isinstance(text, bytes) else text.encode())
    look_for(file, 0, 5)
    assert len(errors(caplog)) == 1
    assert says in errors(caplog)[0]
    file.look(Micros(6 * SECOND), again=True)
    assert len(errors(caplog)) == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "other", "version": 3}, "another cluster"),
        ({"uuid": b"x" * 16, "version": 3}, "another cluster"),
        ({"epoch_store": "sqlite:///elsewhere", "version": 2}, "without a higher version"),
        ({"version": 1}, "without a higher version"),
    ],
)
def test_a_file_that_must_not_be_used_changes_nothing(
    file: ClusterFile,
    config: ClusterConfig,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, object],
    says: str,
) -> None:
    file.config = in_force = dataclasses.replace(config, version=2)
    write_durably(file.path, render_cluster(dataclasses.replace(config, **changes)))  # type: ignore[arg-type]
    assert look_for(file, 0, 5) == [None] * 10
    assert file.config == in_force
    [error] = errors(caplog)
    assert says in error


def test_a_file_that_moves_a_node_which_keeps_metadata_logs_is_refused_and_the_old_one_stays_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(tmp_path, nodes=4, logs=1, replicate="rack:2", racks=2, epoch_store=None)
    path = tmp_path / "cluster.toml"
    write_durably(path, render_cluster(config))
    file = ClusterFile(path, config)
    moved = dataclasses.replace(config.nodes[NodeId(3)], location=config.nodes[NodeId(0)].location)
    newer = dataclasses.replace(config, version=2, nodes={**config.nodes, NodeId(3): moved})
    write_durably(path, render_cluster(newer))
    assert look_for(file, 0, 10) == [None] * 20
    assert file.config is config
    assert len(errors(caplog)) == 1
    assert "version 1 stays in force" in errors(caplog)[0]
    assert (
        "it moves nodes that keep metadata logs (N3 from dev.dc.cluster.row.rack1 to dev.dc.cluster.row.rack0)"
        in errors(caplog)[0]
    )
    back = dataclasses.replace(config, version=3)
    write_durably(path, render_cluster(back))
    assert file.look(Micros(20 * SECOND)) == back
