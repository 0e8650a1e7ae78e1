"""Jobs that are killed before each of their steps: nothing is lost, doubled or brought back, and no file is left for good."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from client.client import Client
from indexlog.index_log import IndexLog, make_index_log
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord, Modification
from indexlog.verifying import verify
from tests.integration.process_cluster import process_cluster

ROOT = Path(__file__).parents[2]
STEPS_MAX = 60


async def run_job(cluster: str, job: str, step: int) -> int:
    """The exit status of a process that does the job."""
    command = [sys.executable, "-m", "tests.integration.index_log_worker", cluster, job, str(step)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    return await asyncio.wait_for(process.wait(), 120)


async def check(log: IndexLog) -> None:
    await log.manifest.current()
    troubles = [report async for report in verify(log) if report.trouble]
    assert troubles == []


@pytest.mark.slow
async def test_a_job_is_killed_before_each_of_its_steps(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    directory.mkdir()
    async with (
        process_cluster(directory, nodes=3, replicate="node:2", racks=1, log_tree=True) as cluster,
        Client(cluster.file) as client,
    ):
        await make_index_log(client, f"file://{tmp_path}/store", raw_logs=2)
        async with IndexLog(client) as log, log.writer() as writer:
            killed = {}
            for job in ("deal", "optimize", "collect"):
                step, status = 0, -signal.SIGKILL
                while status == -signal.SIGKILL:
                    assert step < STEPS_MAX
                    for number in range(6):
                        change = Modification(number % 3 == step % 3, {"step": f"{job}-{step}"}, {step % 5: 1.0})
                        await writer.append(LogRecord(f"index-{number % 2}", f"doc-{number}", change))
                    await writer.delete("index-0", f"doc-{step % 4}")
                    if job != "deal":
                        await log.deal()
                    if job == "collect":
                        await log.optimize(ALL_AT_ONCE)
                    status = await run_job(cluster.file, job, step)
                    await check(log)
                    step += 1
                assert status == 0
                killed[job] = step - 1
            assert killed["deal"] >= 8  # begin, confirm, tails, read, write, commit, for each log, and end
            assert killed["optimize"] >= 6
            assert killed["collect"] >= 4
            await log.manifest.current()
            assert len(log.state.jobs) >= 10  # of those that were killed
            for token in list(log.state.jobs):
                await log.end_job(token)
            await log.deal()
            await log.optimize(ALL_AT_ONCE)
            await log.collect(grace=-1)
            assert {path for path, _ in log.store.list()} == set(log.state.paths())
            await check(log)
