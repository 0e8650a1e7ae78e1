"""The driver of JetStream: which connection is used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse

import pytest

from benchmarks.ldbench.engine import DurabilityClass, StartOptions
from benchmarks.ldbench.server_processes import ServerProcesses

jetstream = pytest.importorskip("benchmarks.ldbench.engines.jetstream", reason="needs nats-py")


async def test_a_connection_that_moved_to_another_server_is_not_taken_for_one_to_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(servers: list[str], **_: Any) -> SimpleNamespace:
        return SimpleNamespace(connected_url=urlparse(servers[0]))

    monkeypatch.setattr("nats.connect", connect)
    options = StartOptions(directory=tmp_path, durability=DurabilityClass.SYNC)
    running = jetstream.RunningJetStream(ServerProcesses(tmp_path), options, {"n0": 4000, "n1": 4001})
    first = await running.connection("n0")
    assert await running.connection("n0") is first
    first.connected_url = urlparse("nats://127.0.0.1:4001")
    assert await running.connection("n1") is first
    again = await running.connection("n0")
    assert again is not first
    assert again.connected_url.port == 4000
    first.connected_url = None  # it is looking for a server
    assert await running.connection("n1") is not first


@pytest.mark.parametrize(
    ("replicas", "whole"),
    [
        ([(True, False), (True, False)], True),
        ([(True, False), (False, False)], False),
        ([(True, False), (True, True)], False),
        ([(True, False)], False),
    ],
)
async def test_a_stream_is_whole_with_all_its_followers_there_and_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicas: list[tuple[bool, bool]], whole: bool
) -> None:
    async def information(self: object, log: str) -> SimpleNamespace:
        peers = [SimpleNamespace(current=current, offline=offline) for current, offline in replicas]
        return SimpleNamespace(cluster=SimpleNamespace(leader="n0", replicas=peers))

    monkeypatch.setattr(jetstream.RunningJetStream, "_information", information)
    options = StartOptions(directory=tmp_path, durability=DurabilityClass.SYNC, copies=3)
    running = jetstream.RunningJetStream(ServerProcesses(tmp_path), options, {"n0": 4000})
    assert await running.whole("log0") is whole
