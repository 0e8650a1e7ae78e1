"""The example of an application that stores its position with its output: killed at every step, its table has each record of the stream once."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from client.guards import Position
from client.read.batch import RecordBatch
from client.read.items import RecordRun
from examples.exactly_once import OrdersTable, connect
from logdevice_py import LSN, LocalCluster
from streams.subscriptions.group import GroupBatch
from tests.slow import quick

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 5
STREAM = 3


@contextmanager
def postgresql() -> Iterator[str]:
    """A server of the test's own; its address."""
    programs = Path(os.path.realpath(shutil.which("pg_ctl") or "")).parent
    if not (programs / "initdb").exists():
        pytest.skip("no PostgreSQL server program (pg_ctl) is installed here")
    user = None
    if os.geteuid() == 0:  # which the server refuses
        users = {each.pw_name for each in pwd.getpwall()}
        user = "postgres" if "postgres" in users else "nobody"
    with TemporaryDirectory(prefix="ld-pg-") as directory:
        if user is not None:
            shutil.chown(directory, user)
        data, where = f"{directory}/data", f"-c listen_addresses= -k {directory}"

        def run(*command: str) -> None:
            done = subprocess.run(command, user=user, capture_output=True, text=True, cwd=directory, check=False)
            assert done.returncode == 0, done.stderr + done.stdout

        run(str(programs / "initdb"), "-D", data, "-U", "tester", "-A", "trust", "--no-sync")
        run(str(programs / "pg_ctl"), "-D", data, "-o", where, "-l", f"{directory}/log", "-w", "start")
        try:
            yield f"postgresql://tester@/postgres?host={directory}"
        finally:
            run(str(programs / "pg_ctl"), "-D", data, "-m", "immediate", "-w", "stop")


@contextmanager
def sqlite() -> Iterator[str]:
    """A file."""
    with TemporaryDirectory(prefix="ld-sqlite-") as directory:
        yield f"{directory}/orders.db"


DATABASES = {"sqlite": (sqlite, "?"), "postgresql": (postgresql, "%s")}


@pytest.mark.parametrize("kind", quick(DATABASES, 1))
async def test_killed_at_every_step_the_table_equals_the_stream(kind: str) -> None:
    opened, mark = DATABASES[kind]
    with opened() as database:
        async with LocalCluster(nodes=3, logs=3) as cluster, cluster.client() as client:
            for number in range(RECORDS):
                await client.append(STREAM, f"order {number}".encode())
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.integration.exactly_once_worker", cluster.config_file, database),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=ROOT,
            )
            assert worker.stdin is not None
            assert worker.stdout is not None
            written, step, kills, status = RECORDS, 0, 0, int(signal.SIGKILL)
            while status:
                step += 1
                worker.stdin.write(f"{written} {step}\n".encode())
                status = int(await worker.stdout.readline())
                if status:
                    assert os.WTERMSIG(status) == signal.SIGKILL, f"step {step}"
                    kills += 1
                    written += 1  # there is something to do, wherever the one before died
                    await client.append(STREAM, f"order {written - 1}".encode())
            worker.stdin.close()
            assert await worker.wait() == 0
            table = OrdersTable(connect(database), mark)
            rows = table.execute("SELECT content FROM orders ORDER BY lsn, batch_offset").fetchall()
            table.connection.close()
            assert [content for (content,) in rows] == [f"order {number}" for number in range(written)]
            assert kills >= 15  # two statements and a commit at the beginning, as many for each batch


@pytest.mark.parametrize("kind", quick(DATABASES, 1))
def test_who_was_fenced_changes_nothing(kind: str) -> None:
    opened, mark = DATABASES[kind]
    with opened() as database:
        first, second = (OrdersTable(connect(database), mark) for _ in range(2))
        records = RecordBatch(STREAM)
        records.add_records([b"x"], RecordRun(5, 0, 0, 1))
        first.take_over("orders", 7)
        assert second.take_over("orders", 8) == Position(LSN(0), 0)
        assert not first.store(GroupBatch("orders", 7, records))
        assert second.store(GroupBatch("orders", 8, records))
        assert first.take_over("orders", 7) == Position(LSN(5), 0)  # who comes late does not take it back
        assert not first.store(GroupBatch("orders", 7, records))
        [count] = second.execute("SELECT count(*) FROM orders").fetchone()
        assert count == 1
        for table in (first, second):
            table.connection.close()
