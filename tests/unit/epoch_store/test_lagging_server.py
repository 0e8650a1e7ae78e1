"""A ZooKeeper server that has not heard of the last change, and what may be answered from it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import KazooState

import epoch_store.zookeeper
from epoch_store.cells import WriteId, encode_cell
from epoch_store.interface import RegisterShard, ShardIdentity
from epoch_store.zookeeper import ZooKeeperEpochStore
from logdevice_py.core.ids import Generation, NodeId, shard_id
from logdevice_py.core.status import Status
from tests.epoch_stores import identity, run_one

UUID = b"u" * 16


class LaggingClient:
    """A kazoo client whose server knows of the cell only after a sync."""

    def __init__(self, content: bytes, **_: Any) -> None:
        self.client_state = "CONNECTED"
        self.requests: list[str] = []
        self._content = content
        self._listener: Callable[[str], None] = lambda state: None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def start_async(self) -> None:
        self._listener(KazooState.CONNECTED)

    def sync_async(self, path: str) -> None:
        self.requests.append("sync")

    def get_async(self, path: str) -> Any:
        self.requests.append("get")
        synced = "sync" in self.requests
        answer = SimpleNamespace(
            value=(self._content, SimpleNamespace(version=0)) if synced else None,
            exception=None if synced else NoNodeError(),
        )
        answer.rawlink = lambda callback: threading.Thread(target=callback, args=(answer,)).start()
        return answer

    def stop(self) -> None:
        """Nothing to stop."""

    def close(self) -> None:
        """Nothing to close."""


async def test_a_shard_is_not_refused_because_a_server_has_not_heard_of_its_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = shard_id(NodeId(3))
    registered = ShardIdentity(UUID, shard, Generation(1))
    content = encode_cell(WriteId(identity(), 1), b"\x93\xc4\x10" + UUID + b"\xcd\x03\x00\x01")
    made: list[LaggingClient] = []

    def make(**options: Any) -> LaggingClient:
        made.append(LaggingClient(content, **options))
        return made[-1]

    monkeypatch.setattr(epoch_store.zookeeper, "KazooClient", make)
    store = ZooKeeperEpochStore("nowhere:1", "", "test", identity(), asyncio.get_running_loop())
    try:
        result = await run_one(store, RegisterShard(UUID, NodeId(3), 0, Generation(1)))
    finally:
        store.close()
    assert (result.status, result.value) == (Status.OK, registered), result.detail
    assert made[0].requests == ["get", "sync", "get"]
