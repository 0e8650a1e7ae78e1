"""What a node asks the epoch store when it opens its disks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from epoch_store.interface import NoteIncarnation, RegisterShard
from epoch_store.memory import MemoryCells, MemoryEpochStore
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import Generation, NodeId, shard_id
from server.registration import ShardRegistration
from storage_node.log_store.identity import LOSS_NOT_ACCEPTED, IdentityVerdict, Judgement
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


async def test_what_the_run_before_told_late_makes_no_older_state_of_the_disk(tmp_path: Path) -> None:
    store = MemoryEpochStore(MemoryCells(), identity(), asyncio.get_running_loop().call_soon)
    await run_one(store, RegisterShard(CONFIG.uuid, NODE, 0, None))
    await run_one(store, NoteIncarnation(NODE, 0, GENERATION, 4))
    (tmp_path / "shard0" / "db").mkdir(parents=True)
    registration = ShardRegistration(store, CONFIG, NODE, shard_id(NODE, 0), tmp_path, LOSS_NOT_ACCEPTED)
    await registration.check()
    # the run before closed its disk in order, and its message to the epoch store was on its way until now
    await run_one(store, NoteIncarnation(NODE, 0, GENERATION, 5))
    registration.admit(Judgement(IdentityVerdict.KEEP, "", GENERATION, 5))
    assert await registration.register(GENERATION) == GENERATION
