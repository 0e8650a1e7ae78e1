"""The SQLite epoch store among processes, and with a file that is locked, damaged, of another program or replaced."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest

from epoch_store.all_cells import read_cells, write_cells
from epoch_store.interface import GetLastCleanEpoch, RegisterShard, Result, SetLastCleanEpoch
from epoch_store.sqlite import SqliteEpochStore, SqliteEpochStoreSettings
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import MILLISECOND
from tests.epoch_stores import LOG, given, identity, next_epoch, run, run_one

ACTIVATE = """
import asyncio, sys
from epoch_store.sqlite import SqliteEpochStore, SqliteEpochStoreSettings
from logdevice_py.core.units import SECOND
from tests.epoch_stores import given, identity, next_epoch, run_one

async def main(path, node):
    # SQLite is not fair: on a slow disk, one of three that write without a pause waits for seconds
    long_timeout = SqliteEpochStoreSettings(busy_timeout_us=120 * SECOND)
    store = SqliteEpochStore(path, "test", identity(node), asyncio.get_running_loop(), long_timeout)
    for _ in range(200):
        print(given(await run_one(store, next_epoch(node=node))), flush=True)
    store.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def open_store(path: Path, instance: int = 1) -> SqliteEpochStore:
    settings = SqliteEpochStoreSettings(busy_timeout_us=50 * MILLISECOND)
    return SqliteEpochStore(str(path), "test", identity(0, instance), asyncio.get_running_loop(), settings)


async def close(store: SqliteEpochStore) -> None:
    """Close it, and wait until its log is folded into the file."""
    store.close()
    await asyncio.to_thread(store._thread.shutdown)


async def failure(path: Path) -> Result:
    store = open_store(path)
    result = await run_one(store, next_epoch())
    store.close()
    assert result.status is Status.FAILED
    assert not result.maybe_applied
    return result


async def test_no_epoch_is_given_twice_among_processes_even_when_one_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "epochs.db"
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", ACTIVATE, str(path), str(node), stdout=asyncio.subprocess.PIPE
        )
        for node in range(3)
    ]
    assert processes[0].stdout is not None
    for _ in range(20):
        await processes[0].stdout.readline()
    processes[0].kill()
    outputs = [(await process.communicate())[0] for process in processes]
    epochs = [int(line) for output in outputs[1:] for line in output.split()]
    assert len(epochs) == len(set(epochs)) == 400
    store = open_store(path)
    assert given(await run_one(store, next_epoch())) > max(epochs)
    store.close()


async def test_a_file_locked_by_another_process_gives_again_and_then_works(tmp_path: Path) -> None:
    path = tmp_path / "epochs.db"
    store = open_store(path)
    await run_one(store, next_epoch())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    refused = await run_one(store, next_epoch())
    assert (refused.status, refused.maybe_applied) == (Status.AGAIN, False)
    assert "locked by another process" in refused.detail
    assert (await run_one(store, GetLastCleanEpoch(LOG))).status is Status.OK
    other.execute("ROLLBACK")
    other.close()
    assert given(await run_one(store, next_epoch())) == 2
    store.close()


async def test_what_waits_while_a_transaction_runs_shares_the_next_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "epochs.db")
    batches = await asyncio.gather(*(run(store, next_epoch(), GetLastCleanEpoch(LOG)) for _ in range(200)))
    assert sorted(given(batch[0]) for batch in batches) == list(range(1, 201))
    store.close()


async def test_a_file_that_is_no_epoch_store_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "epochs.db"
    path.write_bytes(b"something else entirely" * 100)
    assert str(path) in (await failure(path)).detail
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE other (a)")
    other.close()
    assert "no epoch store" in (await failure(path)).detail


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "epochs.db"
    assert str(path) in (await failure(path)).detail


async def test_an_epoch_store_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "epochs.db"
    store = open_store(path)
    await run_one(store, next_epoch())
    await close(store)
    later = sqlite3.connect(path)
    later.execute("PRAGMA user_version = 99")
    later.close()
    assert "version 99" in (await failure(path)).detail


async def test_a_damaged_file_fails_and_gives_no_epoch(tmp_path: Path) -> None:
    path = tmp_path / "epochs.db"
    store = open_store(path)
    await run_one(store, next_epoch())
    await close(store)
    content = bytearray(path.read_bytes())
    content[4096 : 2 * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    await failure(path)


@pytest.mark.parametrize("replace", [False, True])
async def test_a_file_removed_or_replaced_under_an_open_store_stops_it(tmp_path: Path, replace: bool) -> None:
    path = tmp_path / "epochs.db"
    store = open_store(path)
    await run_one(store, next_epoch())
    for file in tmp_path.iterdir():
        file.unlink()
    if replace:
        other = open_store(path, 2)
        await run_one(other, next_epoch())
        other.close()
    for _ in range(2):
        assert (await run_one(store, next_epoch())).status is Status.FAILED
    store.close()


async def test_all_cells_are_copied_and_written_where_there_are_none(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/epochs.db"
    with pytest.raises(LogDeviceError, match="there is no such file"):
        read_cells(url, "test")
    store = SqliteEpochStore(f"{tmp_path}/epochs.db", "test", identity(), asyncio.get_running_loop())
    await run(store, next_epoch(), SetLastCleanEpoch(LOG, Epoch(1), None), RegisterShard(bytes(16), NodeId(3), 2, None))
    copied = read_cells(url, "test")
    assert sorted(copied) == ["logs/7/lce", "logs/7/sequencer", "shards/N3:S2"]
    with pytest.raises(LogDeviceError) as caught:
        write_cells(url, "test", copied)
    assert caught.value.status is Status.EXISTS
    store.close()
    restored = f"sqlite://{tmp_path}/restored.db"
    write_cells(restored, "test", copied)
    assert read_cells(restored, "test") == copied
    with pytest.raises(LogDeviceError) as caught:
        read_cells("memory:", "test")
    assert caught.value.status is Status.NOTSUPPORTED
