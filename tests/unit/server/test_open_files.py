"""The limit of open files."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from logdevice_py.config.admin import AdminSettings
from logdevice_py.core.status import LogDeviceError
from server.node_settings import NodeSettings
from server.open_files import allow_open_files, files_needed, open_files, open_files_limit

ADMIN = AdminSettings()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of this process, the newest last: they are not really changed."""
    found = [(100, 1000)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: found.append(limits))
    return found


def test_a_limit_that_may_be_raised_is_raised(limits: list[tuple[int, int]]) -> None:
    allow_open_files(500)
    assert limits[-1] == (1000, 1000)


def test_a_limit_that_suffices_stays(limits: list[tuple[int, int]]) -> None:
    allow_open_files(100)
    assert limits == [(100, 1000)]


def test_a_limit_that_cannot_be_raised_far_enough_is_refused_with_what_to_do(limits: list[tuple[int, int]]) -> None:
    with pytest.raises(LogDeviceError, match=r"may need 1001 open files .* may have 1000: raise the limit"):
        allow_open_files(1001)


def test_sockets_and_stores_count() -> None:
    few = NodeSettings.of({"runtime": {"connections_max": 10, "connections_introducing_max": 10}})
    assert files_needed(few, ADMIN, 2, 5) - files_needed(few, ADMIN, 1, 5) == few.log_store.open_files_max
    more = NodeSettings.of({"runtime": {"connections_max": 110, "connections_introducing_max": 10}})
    assert files_needed(more, ADMIN, 1, 5) - files_needed(few, ADMIN, 1, 5) == 100
    admins = AdminSettings(connections_max=ADMIN.connections_max + 1000)
    assert files_needed(few, admins, 1, 5) - files_needed(few, ADMIN, 1, 5) == 1000


def test_what_is_open_and_may_be_is_told(tmp_path: Path, limits: list[tuple[int, int]]) -> None:
    before = open_files()
    if before is None:
        pytest.skip("the system does not tell")
    with open(tmp_path / "one", "wb"), open(tmp_path / "two", "wb"):
        assert open_files() == before + 2
    assert open_files_limit() == 100
    limits.append((resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert open_files_limit() is None
