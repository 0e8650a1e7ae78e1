"""Writes that are synced with what others want synced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from storage_node.log_store import group_commit
from storage_node.log_store.interface import WriteShard
from storage_node.log_store.settings import LogStoreSettings
from tests.integration.test_rocksdb_store import at, open_service, write_of

SLOW = LogStoreSettings(free_space_min=0, sync_delay_us=50_000)


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deferrable writes wait until somebody else wants a sync, however long the machine stalls."""
    monkeypatch.setattr(group_commit, "DEFERRABLE_US", 3_600 * SECOND)


def deferrable(token: int, lsn: Lsn) -> WriteShard:
    write = write_of(token, lsn)
    write.deferrable = True
    return write


@pytest.mark.usefixtures("unlimited")
async def test_a_deferrable_write_goes_with_the_next_sync_that_somebody_wants(tmp_path: Path) -> None:
    shell = await open_service(tmp_path / "shard")
    shell.run(deferrable(1, at(1)))
    await asyncio.sleep(0)
    assert shell.service.metrics.syncs == 0
    shell.run(write_of(2, at(2)))
    await shell.until(2)
    assert [[done.token for done in batch] for batch in shell.rounds] == [[1, 2]]
    await asyncio.sleep(0.1)
    assert shell.service.metrics.syncs == 1
    await shell.service.close()


async def test_alone_it_is_synced_a_moment_later(tmp_path: Path) -> None:
    shell = await open_service(tmp_path / "shard")
    shell.run(deferrable(1, at(1)), deferrable(2, at(2)))
    await shell.until(2)
    assert shell.statuses == {1: Status.OK, 2: Status.OK}
    assert shell.service.metrics.syncs == 1
    await shell.service.close()


@pytest.mark.usefixtures("unlimited")
async def test_one_that_comes_while_a_sync_is_under_way_waits_for_one_that_begins_after_it(tmp_path: Path) -> None:
    shell = await open_service(tmp_path / "shard", SLOW)
    shell.run(write_of(1, at(1)))
    assert shell.service._commit.syncing
    shell.run(deferrable(2, at(2)))
    await shell.until(1)
    shell.run(write_of(3, at(3)))
    await shell.until(3)
    assert [[done.token for done in batch] for batch in shell.rounds] == [[1], [2, 3]]
    await shell.service.close()


async def test_a_store_that_is_closed_syncs_it_first(tmp_path: Path) -> None:
    shell = await open_service(tmp_path / "shard")
    shell.run(deferrable(1, at(1)))
    await shell.service.close()
    assert shell.statuses == {1: Status.OK}
