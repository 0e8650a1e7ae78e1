"""An operation that raises an exception fails alone, and the store goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import KazooState

import epoch_store.zookeeper
from epoch_store.interface import ChangeConfiguration, EpochStore, ReadConfiguration, Result
from epoch_store.sqlite import SqliteEpochStore
from epoch_store.zookeeper import ZooKeeperEpochStore, ZooKeeperEpochStoreSettings
from logdevice_py.config.stored import ConfigurationVersion, ToNextConfiguration
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from tests.epoch_stores import identity, next_epoch, run, run_one

NO_TEXT = b"f\xfcr uns".decode("utf-8", "surrogateescape")
NOT_ENCODED = ChangeConfiguration(
    ToNextConfiguration(1, ConfigurationVersion(2, Timestamp(1), "ann", NO_TEXT, "version = 2"))
)


class EmptyServer:
    """A kazoo client whose server has no znode."""

    def __init__(self, **_: Any) -> None:
        self.client_state = "CONNECTED"
        self._listener: Callable[[str], None] = lambda state: None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def start_async(self) -> None:
        self._listener(KazooState.CONNECTED)

    def sync_async(self, path: str) -> None:
        """Nothing is behind."""

    def get_async(self, path: str) -> Any:
        answer = SimpleNamespace(value=None, exception=NoNodeError())
        answer.rawlink = lambda callback: threading.Thread(target=callback, args=(answer,)).start()
        return answer

    def stop(self) -> None:
        """Nothing to stop."""

    def close(self) -> None:
        """Nothing to close."""


class BrokenLibrary(EmptyServer):
    """A kazoo client that takes no request at first."""

    def get_async(self, path: str) -> Any:
        if path.endswith("sequencer"):
            raise ValueError("not this one")
        return super().get_async(path)


def zookeeper(monkeypatch: pytest.MonkeyPatch, client: type[EmptyServer]) -> ZooKeeperEpochStore:
    monkeypatch.setattr(epoch_store.zookeeper, "KazooClient", client)
    one_at_a_time = ZooKeeperEpochStoreSettings(requests_in_flight_max=1)
    return ZooKeeperEpochStore("nowhere:1", "", "test", identity(), asyncio.get_running_loop(), one_at_a_time)


async def fails_alone(store: EpochStore) -> Result:
    """The answer to a change that cannot be encoded, beside which everything is answered."""
    try:
        async with asyncio.timeout(30):
            failed, beside = await run(store, NOT_ENCODED, ReadConfiguration())
            assert beside.status is Status.EMPTY
            assert (await run_one(store, ReadConfiguration())).status is Status.EMPTY
    finally:
        store.close()
    assert "UnicodeEncodeError" in failed.detail
    return failed


async def test_sqlite(tmp_path: Path) -> None:
    store = SqliteEpochStore(str(tmp_path / "epochs.db"), "test", identity(), asyncio.get_running_loop())
    failed = await fails_alone(store)
    assert (failed.status, failed.maybe_applied) == (Status.FAILED, False)


async def test_sqlite_whose_thread_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteEpochStore(str(tmp_path / "epochs.db"), "test", identity(), asyncio.get_running_loop())
    working = store._file.run

    def fail(operations: Any) -> Any:
        monkeypatch.setattr(store._file, "run", working)
        raise RuntimeError("no way")

    monkeypatch.setattr(store._file, "run", fail)
    async with asyncio.timeout(30):
        read, written = await run(store, ReadConfiguration(), next_epoch())
    assert [read.maybe_applied, written.maybe_applied] == [False, True]
    assert [read.status, written.status] == [Status.FAILED, Status.FAILED]
    assert (await run_one(store, next_epoch())).status is Status.OK
    store.close()


async def test_zookeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = await fails_alone(zookeeper(monkeypatch, EmptyServer))
    assert (failed.status, failed.maybe_applied) == (Status.FAILED, False)


async def test_zookeeper_whose_library_takes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    store = zookeeper(monkeypatch, BrokenLibrary)
    try:
        async with asyncio.timeout(30):
            refused = await run_one(store, next_epoch())
            assert (await run_one(store, ReadConfiguration())).status is Status.EMPTY
    finally:
        store.close()
    assert refused.status is Status.FAILED
    assert "ValueError not this one" in refused.detail
