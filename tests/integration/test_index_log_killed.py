"""Jobs that are killed before each of their steps, and jobs that are stopped there until others have done their work: nothing is lost, doubled or brought
back, and no file is left for good."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from client.client import Client
from indexlog.index_log import IndexLog, make_index_log
from indexlog.planning import ALL_AT_ONCE
from indexlog.writer import IndexWriter
from tests.integration.index_log_documents import WrittenDocuments, check_no_file_is_left
from tests.integration.index_log_trouble import run_trouble
from tests.integration.process_cluster import process_cluster

ROOT = Path(__file__).parents[2]
STEPS_MAX = 80
WORKER = "tests.integration.index_log_worker"


class Jobs:
    """An index log of a cluster of processes, its documents, and workers that do jobs on it."""

    def __init__(self, directory: Path, cluster: str, log: IndexLog, writer: IndexWriter) -> None:
        self.log = log
        self.documents = WrittenDocuments()
        self._writer = writer
        self._cluster = cluster
        self._said = directory / "workers.log"

    async def start(self, job: str, step: int | str, number: signal.Signals) -> Process:
        """A process that does a job, and gets a signal before a step."""
        command = [sys.executable, "-m", WORKER, self._cluster, job, str(step), number.name]
        with self._said.open("ab") as output:
            return await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=output, stderr=output)

    async def prepare(self, job: str) -> None:
        """Write something that the job has to do with."""
        await self.write()
        if not job.startswith("deal"):
            await self.log.deal()
        if job == "collect":
            await self.log.optimize(ALL_AT_ONCE)

    async def write(self) -> None:
        """Some modifications."""
        await self.documents.write(self._writer, 12)

    async def overtake(self) -> None:
        """Do all that there is to do, and delete what is left over."""
        await self.log.manifest.current()
        await self.log.deal()
        await self.log.optimize(ALL_AT_ONCE)
        await self.log.collect(grace=-1)

    async def check(self) -> None:
        """What is there is what was written."""
        await self.log.manifest.current()
        await self.documents.check(self.log)

    def said(self) -> str:
        """What workers printed last."""
        return self._said.read_text()[-3000:]


@pytest.fixture
async def jobs(tmp_path: Path) -> AsyncIterator[Jobs]:
    directory = tmp_path / "cluster"
    directory.mkdir()
    async with (
        process_cluster(directory, nodes=3, replicate="node:2", racks=1, log_tree=True) as cluster,
        Client(cluster.file) as client,
    ):
        await make_index_log(client, f"file://{tmp_path}/store", raw_logs=2)
        async with IndexLog(client) as log, log.writer() as writer:
            yield Jobs(tmp_path, cluster.file, log, writer)


async def ended(process: Process) -> int:
    """Its exit status."""
    return await asyncio.wait_for(process.wait(), 120)


async def stopped(process: Process) -> bool:
    """Wait until it has stopped; False: it has ended."""
    stat = Path(f"/proc/{process.pid}/stat")
    while process.returncode is None:
        try:
            state = stat.read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            state = "X"
        if state == "T":
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "steps"),
    [
        ("deal", 14),  # of each log: read, make a file in four steps, commit; begin, confirm, tails, end
        ("deal on a full disk", 7),  # with an abort as the last one
        ("optimize", 10),
        ("collect", 5),
    ],
)
async def test_a_job_is_killed_before_each_of_its_steps(jobs: Jobs, job: str, steps: int) -> None:
    step, status = 0, -signal.SIGKILL
    while status == -signal.SIGKILL:
        assert step < STEPS_MAX
        await jobs.prepare(job)
        status = await ended(await jobs.start(job, step, signal.SIGKILL))
        await jobs.check()
        step += 1
    assert status == (1 if job == "deal on a full disk" else 0), jobs.said()
    assert step - 1 >= steps
    assert job == "collect" or len(jobs.log.state.jobs) >= 3  # of those that were killed
    await check_no_file_is_left(jobs.log)
    await jobs.check()


async def go_beyond(jobs: Jobs, process: Process, job: str, *, end_it: bool) -> int:
    """With a process that has stopped: others do its work, and more is written; then it goes on. Its exit status."""
    await jobs.overtake()
    if end_it:
        for token in list(jobs.log.state.jobs):
            await jobs.log.end_job(token)
        await jobs.log.collect(grace=-1)
    await jobs.prepare(job)
    await jobs.overtake()
    await jobs.write()
    process.send_signal(signal.SIGCONT)
    status = await ended(process)
    await jobs.check()
    return status


async def test_a_dealer_that_goes_on_behind_its_successor_commits_nothing(jobs: Jobs) -> None:
    """It was stopped with its container written, before the command that makes it count."""
    await jobs.prepare("deal")
    process = await jobs.start("deal", "Deal", signal.SIGSTOP)
    assert await stopped(process), jobs.said()
    assert {path for path, _ in jobs.log.store.list()} > set(jobs.log.state.paths()), "its container"
    assert await go_beyond(jobs, process, "deal", end_it=False) == 0, jobs.said()
    assert jobs.log.state.jobs == {}
    await jobs.overtake()
    assert {path for path, _ in jobs.log.store.list()} == set(jobs.log.state.paths())
    await jobs.check()


@pytest.mark.slow
@pytest.mark.parametrize("job", ["deal", "optimize", "collect"])
async def test_a_job_is_stopped_before_each_of_its_steps_until_others_have_passed_it(jobs: Jobs, job: str) -> None:
    """Every other one is ended meanwhile, and what it wrote deleted."""
    step = 0
    statuses: dict[bool, set[int]] = {True: set(), False: set()}
    """By whether they were ended."""

    async def start() -> Process:
        await jobs.prepare(job)
        return await jobs.start(job, step, signal.SIGSTOP)

    while await stopped(process := await start()):
        end_it = step % 2 == 0
        statuses[end_it].add(await go_beyond(jobs, process, job, end_it=end_it))
        step += 1
        assert step < STEPS_MAX
    assert process.returncode == 0, jobs.said()
    assert step >= 5
    assert statuses[False] == {0}, jobs.said()
    assert statuses[True] <= {0, 1}, "one that was ended is refused what it would commit"
    assert jobs.log.state.jobs == {}
    await check_no_file_is_left(jobs.log)
    await jobs.check()


@pytest.mark.slow
async def test_two_dealers_two_optimizers_and_two_servers_that_are_killed_and_stopped(tmp_path: Path) -> None:
    """While documents are written and followed: ``python -m tests.integration.index_log_trouble`` does it for longer."""
    counts = await run_trouble(tmp_path, 60, 1)
    for what in ("dealer killed", "optimizer killed", "server killed", "dealer stopped", "commits", "readers moved"):
        assert counts.get(what, 0) > 0, counts
