"""Two dealers, two optimizers and two servers of an index log as processes that are killed and stopped, while documents are written and followed:
``python -m tests.integration.index_log_trouble [--seconds 300] [--seed 1]``."""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

from client.client import Client
from indexlog.index_log import IndexLog, make_index_log
from indexlog.records import Modification, merge
from indexlog.writer import IndexWriter
from logdevice_py.programs import own_program
from server.dev.free_ports import free_ports
from tests.integration.index_log_documents import Contents, WrittenDocuments, check_no_file_is_left, contents_of
from tests.integration.process_cluster import process_cluster

HOST = "127.0.0.1"
LAST = "the last one"
"""A document of each index that is written when nothing breaks any more."""
ANSWER_SECONDS = 6.0
"""A server that does not answer for so long may have stopped: another one is asked."""
CALM_SECONDS = 300.0
"""So long readers may take at the end, on a busy machine."""


class IndexLogProcesses:
    """The processes by name, each started again when it has ended."""

    def __init__(self, cluster: str, directory: Path) -> None:
        dealing = own_program("indexlog.cli.main", "-c", cluster, "deal", "--every", "100ms")
        merging = own_program("indexlog.cli.main", "-c", cluster, "optimize", "--all", "--every", "150ms")
        self.ports = free_ports(2, HOST)
        serving = [
            own_program("indexlog.serving.ldindexd", "-c", cluster, "--listen", f"{HOST}:{p}") for p in self.ports
        ]
        all_jobs = ["--deal-every", "300ms", "--optimize-every", "1s", "--collect-every", "1s", "--grace", "5s"]
        self._commands = {
            "dealer 1": dealing,
            "dealer 2": dealing,
            "optimizer 1": merging,
            "optimizer 2": merging,
            "server 1": serving[0],
            "server 2": [*serving[1], *all_jobs],
        }
        self._directory = directory
        self._running: dict[str, Process] = {}
        self._stopping = False
        self.counts: Counter[str] = Counter()
        """How often what was done to a process, or what became of it."""

    @property
    def names(self) -> list[str]:
        """Of all processes."""
        return list(self._commands)

    async def keep(self, name: str) -> None:
        """Run a process, again and again."""
        while not self._stopping:
            with self._said(name).open("ab") as output:
                process = await asyncio.create_subprocess_exec(*self._commands[name], stdout=output, stderr=output)
            self._running[name] = process
            status = await process.wait()
            if status not in (0, -signal.SIGKILL) and not self._stopping:
                self.counts[f"{name} ended with {status}"] += 1
                await asyncio.sleep(0.2)

    def _said(self, name: str) -> Path:
        return self._directory / f"{name.replace(' ', '-')}.said"

    def send(self, name: str, number: signal.Signals) -> bool:
        """Send a signal; False: it has just ended."""
        process = self._running.get(name)
        if process is None or process.returncode is not None:
            return False
        process.send_signal(number)
        return True

    async def stop(self) -> None:
        """End all of them, as they are told to."""
        self._stopping = True
        for name in self.names:
            self.send(name, signal.SIGCONT)
            self.send(name, signal.SIGINT)
        await asyncio.gather(*(process.wait() for process in self._running.values()))

    def kill(self) -> None:
        """End all of them at once."""
        self._stopping = True
        for name in self.names:
            self.send(name, signal.SIGKILL)

    def tracebacks(self) -> str:
        """What they said of errors that nobody expects."""
        said = (self._said(name).read_text() for name in self.names)
        return "\n".join(text[-3000:] for text in said if "Traceback" in text)


class Follower:
    """Reads one index over HTTP, from whichever server answers, and merges what it gets."""

    def __init__(self, index: str, ports: list[int], session: aiohttp.ClientSession, secret: str | None) -> None:
        self.index = index
        self.found: dict[str, Modification] = {}
        self.pages = self.moved = self.expired = 0
        """Pages that it got, how often it asked another server, and how often it began again."""
        self.is_calm = False
        """No server stops any more: whoever is slow is waited for."""
        self._urls = [f"http://{HOST}:{port}/v1/indexes/{index}/pages" for port in ports]
        self._session = session
        self._headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        self._token: str | None = None

    async def follow(self) -> None:
        """Until the document `LAST` is there."""
        while LAST not in self.found:
            query = {"wait_ms": "500"} | ({} if self._token is None else {"token": self._token})
            limit = aiohttp.ClientTimeout(total=None if self.is_calm else ANSWER_SECONDS)
            url = self._urls[self.moved % len(self._urls)]
            try:
                async with self._session.get(url, params=query, headers=self._headers, timeout=limit) as answer:
                    page = await answer.json()
            except (aiohttp.ClientError, TimeoutError, OSError):
                await self._move()
                continue
            if answer.status == 410:
                self.expired += 1
                self._token, self.found = None, {}
            elif answer.status == 200:
                self._take(page)
            else:
                assert answer.status >= 500, page
                await self._move()

    async def _move(self) -> None:
        self.moved += 1
        await asyncio.sleep(0.05)

    def _take(self, page: dict[str, Any]) -> None:
        self.pages += 1
        for row in page["rows"]:
            variables = {int(number): worth for number, worth in row["variables"].items()}
            change = Modification(row["deleted"], row["fields"], variables, row["categories"], row["timestamp"])
            docid = row["docid"]
            self.found[docid] = merge(self.found[docid], change) if docid in self.found else change
        self._token = page["next_token"] or page["tail_token"]


async def trouble(processes: IndexLogProcesses, until: float, rng: random.Random) -> None:
    """Kill one of them, or stop one for a while, again and again."""
    while time.monotonic() < until:
        await asyncio.sleep(rng.uniform(0.3, 1.2))
        name = rng.choice(processes.names)
        kind = name.split()[0]
        if rng.random() < 0.5:
            processes.counts[f"{kind} killed"] += processes.send(name, signal.SIGKILL)
        elif processes.send(name, signal.SIGSTOP):
            processes.counts[f"{kind} stopped"] += 1
            await asyncio.sleep(rng.uniform(0.5, 4))
            processes.send(name, signal.SIGCONT)


async def write_until(documents: WrittenDocuments, writer: IndexWriter, until: float) -> None:
    """A few modifications at a time."""
    while time.monotonic() < until:
        await documents.write(writer, 10)
        await asyncio.sleep(0.05)


async def run_trouble(directory: Path, seconds: float, seed: int) -> dict[str, int]:
    """The whole; what was done, by name.

    Raises:
        AssertionError: readers, pages or files are not what they have to be.
    """
    home = directory / "cluster"
    home.mkdir()
    async with (
        process_cluster(home, nodes=3, replicate="node:2", racks=1, log_tree=True) as cluster,
        Client(cluster.file) as client,
        aiohttp.ClientSession() as session,
    ):
        await make_index_log(client, f"file://{directory}/store", raw_logs=2)
        processes = IndexLogProcesses(cluster.file, directory)
        documents = WrittenDocuments(seed=seed)
        secret = cluster.supervisor.admin_token
        followers = [Follower(index, processes.ports, session, secret) for index in documents.indexes]
        async with IndexLog(client) as log, log.writer() as writer:
            try:
                async with asyncio.TaskGroup() as group:
                    for name in processes.names:
                        group.create_task(processes.keep(name))
                    following = [group.create_task(each.follow()) for each in followers]
                    until = time.monotonic() + seconds
                    await asyncio.gather(
                        trouble(processes, until, random.Random(seed)), write_until(documents, writer, until)
                    )
                    for index in documents.indexes:
                        await writer.put(index, LAST, {})
                        documents.expected[index][LAST] = ({}, {}, {})
                    for each in followers:
                        each.is_calm = True
                    async with asyncio.timeout(CALM_SECONDS):
                        await asyncio.gather(*following)
                    await processes.stop()
            finally:
                processes.kill()
            for each in followers:
                expected: dict[str, Contents] = documents.expected[each.index]
                assert contents_of(each.found) == expected, f"a reader of {each.index}"
            await log.manifest.current()
            await documents.check(log)
            left = len(log.state.jobs)
            await check_no_file_is_left(log)
            await documents.check(log)
            assert (said := processes.tracebacks()) == "", said
            return {
                **processes.counts,
                "modifications": documents.written,
                "commits": log.state.serial,
                "jobs left by the killed": left,
                "pages": sum(each.pages for each in followers),
                "readers moved": sum(each.moved for each in followers),
                "readers began again": sum(each.expired for each in followers),
            }


def main() -> int:
    """The program."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=300)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ld-index-trouble-") as name:
        counts = asyncio.run(run_trouble(Path(name), given.seconds, given.seed))
    for what, count in sorted(counts.items()):
        print(f"{what}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
