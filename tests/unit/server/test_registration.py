"""What a node asks the epoch store when it opens its disks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from epoch_store.interface import EpochStore, NoteIncarnation, RegisterShard
from epoch_store.memory import MemoryCells, MemoryEpochStore
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import Generation, NodeId, shard_id
from logdevice_py.core.status import LogDeviceError
from server.registration import ShardRegistration
from storage_node.log_store.identity import (
    LOSS_NOT_ACCEPTED,
    AcceptedLoss,
    IdentityVerdict,
    Judgement,
    ShardMarker,
)
from tests.epoch_stores import identity, run_one

NODE = NodeId(0)
GENERATION = Generation(1)
CONFIG = load_cluster("""
name = "registration"
version = 1
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "memory:"
[metadata_log]
replicate = "node:1"
[defaults]
replicate = "node:1"
[nodes.N0]
host = "127.0.0.1"
port = 7000
""")


SHARD = shard_id(NODE, 0)
EMPTY = Judgement(IdentityVerdict.NEW_GENERATION, "it is empty")
NAMED = replace(EMPTY, birth=b"a disk")


def memory_store() -> MemoryEpochStore:
    return MemoryEpochStore(MemoryCells(), identity(), asyncio.get_running_loop().call_soon)


async def checked(store: EpochStore, data: Path, accepted: AcceptedLoss = LOSS_NOT_ACCEPTED) -> ShardRegistration:
    """Of a node that finds a directory where its store should be."""
    (data / "shard0" / "db").mkdir(parents=True, exist_ok=True)
    registration = ShardRegistration(store, CONFIG, NODE, SHARD, data, accepted)
    await registration.check()
    return registration


async def test_what_the_run_before_told_late_makes_no_older_state_of_the_disk(tmp_path: Path) -> None:
    store = memory_store()
    await run_one(store, RegisterShard(CONFIG.uuid, NODE, 0, None))
    await run_one(store, NoteIncarnation(NODE, 0, GENERATION, 4))
    registration = await checked(store, tmp_path)
    # the run before closed its disk in order, and its message to the epoch store was on its way until now
    await run_one(store, NoteIncarnation(NODE, 0, GENERATION, 5))
    registration.admit(Judgement(IdentityVerdict.KEEP, "", GENERATION, 5))
    assert await registration.register(GENERATION, b"") == GENERATION


@pytest.mark.parametrize("left", ["the note beside the store", "nothing beside the store"])
async def test_a_first_start_may_end_before_the_first_marker_as_often_as_it_likes(tmp_path: Path, left: str) -> None:
    store = memory_store()
    for _ in range(3):
        registration = await checked(store, tmp_path)
        registration.admit(NAMED)
        assert await registration.register(None, b"a disk") == GENERATION
        if left == "nothing beside the store":
            (tmp_path / "shard0.begun").unlink()


async def test_a_start_that_ended_with_a_generation_goes_on_when_its_disk_was_emptied(tmp_path: Path) -> None:
    store = memory_store()
    for generation, birth in ((1, b"a disk"), (2, b"another"), (2, b"another")):
        registration = await checked(store, tmp_path)
        registration.admit(EMPTY)
        assert await registration.register(None, birth) == generation


async def test_a_start_that_served_is_over_whatever_lies_beside_the_store(tmp_path: Path) -> None:
    store = memory_store()
    registration = await checked(store, tmp_path)
    registration.admit(EMPTY)
    await registration.register(None, b"a disk")
    begun = (tmp_path / "shard0.begun").read_text()
    (tmp_path / ".shard0.begun.new").write_text("")  # an earlier start ended while it was written
    await registration.finish(ShardMarker(CONFIG.uuid, SHARD, GENERATION).opened("boot"))
    assert [path.name for path in tmp_path.iterdir()] == ["shard0"]
    (tmp_path / "shard0.begun").write_text(begun)  # a power cut: its removal was not durable
    for judgement in (EMPTY, NAMED):
        with pytest.raises(LogDeviceError, match="--accept-data-loss N0:S0=1"):
            (await checked(store, tmp_path)).admit(judgement)


async def test_a_shard_does_not_serve_before_the_epoch_store_knows_how_far_its_disk_is(tmp_path: Path) -> None:
    cells = MemoryCells()
    store = MemoryEpochStore(cells, identity(), asyncio.get_running_loop().call_soon)
    registration = await checked(store, tmp_path)
    registration.admit(EMPTY)
    await registration.register(None, b"a disk")
    (key,) = cells.cells
    cells.cells[key] = replace(cells.cells[key], content=b"damaged")
    with pytest.raises(LogDeviceError, match="corrupt"):
        await registration.finish(ShardMarker(CONFIG.uuid, SHARD, GENERATION).opened("boot"))


async def test_a_consent_to_what_a_start_goes_on_with_is_not_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = memory_store()
    for accepted in (LOSS_NOT_ACCEPTED, AcceptedLoss.parse(["N0:S0=1"])):
        registration = await checked(store, tmp_path, accepted)
        registration.admit(NAMED)
        assert await registration.register(None, b"a disk") == GENERATION
    await registration.finish(ShardMarker(CONFIG.uuid, SHARD, GENERATION).opened("boot"))
    assert "N0:S0=1 was not needed" in caplog.text
