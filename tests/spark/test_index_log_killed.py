"""An index log that Spark deals and merges, on executors that are processes: driver, executors and tasks are killed, stopped, or run twice at once. Nothing
is lost, doubled or brought back, and no file is left for good."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from client.client import Client
from indexlog.index_log import IndexLog, make_index_log
from indexlog.planning import ALL_AT_ONCE
from indexlog.writer import IndexWriter
from tests.integration.index_log_documents import WrittenDocuments, check_no_file_is_left
from tests.spark.conftest import ROOT, RunningCluster
from tests.spark.index_log_job import PLACES

pytestmark = pytest.mark.slow
T = TypeVar("T")
MASTER = "local-cluster[2,1,1024]"
RAW_LOGS = 6
"""As many tasks deal."""
STEPS_MAX = 40
SECONDS = 900.0
"""That a program may take: Spark starts ten times as slowly where others have the processors."""


@pytest.fixture(scope="module")
def tree_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = RunningCluster(tmp_path_factory.mktemp("tree"), nodes=3, replicate="node:2", racks=1, log_tree=True)
    yield running
    running.stop()


class SparkJobs:
    """An index log, its documents, and Spark programs that do jobs on it."""

    def __init__(self, cluster: RunningCluster, directory: Path) -> None:
        self.documents = WrittenDocuments([f"index-{number}" for number in range(8)])
        self._cluster = cluster
        self._directory = directory
        self._path = f"/{directory.name}"
        self.notes = directory / "notes"
        cluster.do(
            lambda client: make_index_log(client, f"file://{directory}/store", path=self._path, raw_logs=RAW_LOGS)
        )

    @contextmanager
    def program(self, job: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
        """A driver with its executors, which are gone afterwards."""
        given = {"master": MASTER, "cluster": self._cluster.file, "path": self._path, "job": job, "notes": self.notes}
        arguments = [each for name, value in (given | options).items() for each in (f"--{name}", str(value))]
        command = [sys.executable, str(Path(__file__).with_name("index_log_job.py")), *arguments]
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ROOT, "PYSPARK_PYTHON": sys.executable}
        with self.said.open("ab") as output:
            process = subprocess.Popen(command, env=environment, cwd=self._directory, stdout=output, stderr=output)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, job: str, **options: object) -> int:
        """The exit status of such a program."""
        with self.program(job, **options) as process:
            return process.wait(SECONDS)

    @property
    def said(self) -> Path:
        """What programs printed."""
        return self._directory / "said"

    def notes_of(self) -> list[str]:
        """What tasks told."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def do(self, work: Callable[[IndexLog, IndexWriter], Coroutine[Any, Any, T]]) -> T:
        """Do something with the index log here."""

        async def opened(client: Client) -> T:
            async with IndexLog(client, self._path) as log, log.writer() as writer:
                return await work(log, writer)

        return self._cluster.do(opened, timeout=SECONDS)

    def prepare(self, job: str) -> None:
        """Write something that the job has to do with."""

        async def work(log: IndexLog, writer: IndexWriter) -> None:
            await self.documents.write(writer, 150)
            if job == "optimize":
                await log.deal()

        self.do(work)

    def overtake(self) -> None:
        """Do here all that there is to do, and delete what is left over."""

        async def work(log: IndexLog, writer: IndexWriter) -> None:
            await log.deal()
            await log.optimize(ALL_AT_ONCE)
            await log.collect(grace=-1)

        self.do(work)

    def check(self) -> None:
        """What is there is what was written."""
        self.do(lambda log, _: self.documents.check(log))

    def check_the_end(self) -> None:
        """And no file is left."""

        async def work(log: IndexLog, writer: IndexWriter) -> None:
            await check_no_file_is_left(log)
            await self.documents.check(log)

        self.do(work)

    def files(self) -> set[str]:
        """Of the store, whether they count or not."""

        async def work(log: IndexLog, writer: IndexWriter) -> set[str]:
            return {path for path, _ in log.store.list()}

        return self.do(work)

    def live(self) -> set[str]:
        """Files that count."""

        async def work(log: IndexLog, writer: IndexWriter) -> set[str]:
            return set(log.state.paths())

        return self.do(work)


@pytest.fixture
def jobs(tree_cluster: RunningCluster, tmp_path: Path) -> SparkJobs:
    return SparkJobs(tree_cluster, tmp_path)


@pytest.mark.parametrize(("job", "steps"), [("deal", 4 + RAW_LOGS), ("optimize", 6)])
def test_a_driver_is_killed_before_each_of_its_steps(jobs: SparkJobs, job: str, steps: int) -> None:
    jobs.documents = WrittenDocuments(["books", "songs"])  # few steps, as Spark starts for each
    step, status = 0, -signal.SIGKILL
    while status == -signal.SIGKILL:
        assert step < STEPS_MAX
        jobs.prepare(job)
        status = jobs.run(job, before=step)
        jobs.check()
        step += 1
    assert status == 0, jobs.said.read_text()[-4000:]
    assert step - 1 >= steps
    jobs.check_the_end()


@pytest.mark.parametrize("job", ["deal", "optimize"])
def test_tasks_and_executors_are_killed_where_they_make_files(jobs: SparkJobs, job: str) -> None:
    """Each job is done all the same, by other attempts."""
    jobs.prepare(job)
    assert jobs.run(job, tasks="killed") == 0, jobs.said.read_text()[-4000:]
    assert {f"{who} {place}" for who in ("worker", "executor") for place in PLACES} <= set(jobs.notes_of())
    assert jobs.files() > jobs.live(), "of tasks that were killed"
    jobs.check()
    jobs.check_the_end()


@pytest.mark.parametrize("job", ["deal", "optimize"])
def test_of_a_task_that_runs_twice_at_once_one_file_counts(jobs: SparkJobs, job: str) -> None:
    jobs.prepare(job)
    assert jobs.run(job, tasks="slow") == 0, jobs.said.read_text()[-4000:]
    made = [line.split() for line in jobs.notes_of()]
    twice = {path for task, _, path in made if task == "0"}
    assert {attempt for task, attempt, _ in made if task == "0"} == {"0", "1"}
    assert len(twice) >= 2
    assert len(twice - jobs.live()) >= 1, "its other file"
    assert twice <= jobs.files()
    jobs.check()
    jobs.check_the_end()


@pytest.mark.parametrize("job", ["deal", "optimize"])
def test_a_driver_is_killed_while_its_tasks_make_files(jobs: SparkJobs, job: str) -> None:
    """Its tasks go on, as far as Spark lets them."""
    jobs.prepare(job)
    with jobs.program(job, tasks="waiting") as process:
        deadline = time.monotonic() + SECONDS
        while not jobs.notes_of():
            assert process.poll() is None, jobs.said.read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
    jobs.overtake()
    jobs.notes.with_name("notes.go").touch()
    jobs.check()
    jobs.prepare(job)
    assert jobs.run(job) == 0, jobs.said.read_text()[-4000:]
    jobs.check_the_end()


@pytest.mark.parametrize(("job", "command"), [("deal", "Deal"), ("optimize", "ReplaceRuns")])
def test_a_driver_that_goes_on_behind_its_successor_commits_nothing(jobs: SparkJobs, job: str, command: str) -> None:
    """It was stopped when its tasks had written their files."""
    jobs.prepare(job)
    with jobs.program(job, before=command, signal="STOP") as process:
        stat = Path(f"/proc/{process.pid}/stat")
        while (state := stat.read_text().rpartition(")")[2].split()[0]) != "T":
            assert state != "Z", jobs.said.read_text()[-4000:]
            time.sleep(0.05)
        assert jobs.files() > jobs.live()
        jobs.overtake()
        jobs.prepare(job)
        jobs.overtake()
        process.send_signal(signal.SIGCONT)
        assert process.wait(SECONDS) == 0, jobs.said.read_text()[-4000:]
    jobs.check()
    assert "overtaken=0" not in jobs.said.read_text()
    jobs.check_the_end()
