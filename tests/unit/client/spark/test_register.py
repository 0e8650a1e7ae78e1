"""Registering the source with a session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client.spark import source
from logdevice_py.spark import IndexLogSource, LogDeviceSource, register


def session(environment: dict[str, str], registered: list[Any]) -> Any:
    return SimpleNamespace(
        sparkContext=SimpleNamespace(environment=environment), dataSource=SimpleNamespace(register=registered.append)
    )


def test_the_processes_of_spark_find_a_package_that_came_in_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "ours.zip"
    archive.touch()
    monkeypatch.setattr(source, "__file__", str(archive / "client" / "spark" / "source.py"))
    environment, registered = {"PYTHONPATH": "/theirs"}, list[Any]()
    register(session(environment, registered))
    assert environment == {"PYTHONPATH": f"{archive}:/theirs"}
    assert registered == [LogDeviceSource, IndexLogSource]


def test_a_package_that_is_installed_needs_no_help() -> None:
    environment: dict[str, str] = {}
    register(session(environment, []))
    assert not environment
