"""Members of a group as processes that are killed, paused and added: ``python -m tests.integration.group_trouble [--seconds 300]``."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from logdevice_py import Client, LocalCluster, LogDeviceError
from streams.subscriptions.group import Group
from streams.subscriptions.subscriptions import Subscriptions
from tests.integration.group_worker import COMMANDS, GROUP, SNAPSHOTS

ROOT = Path(__file__).resolve().parents[2]
STREAMS = {f"s{log:02}": log for log in range(3, 15)}
MEMBERS = 10
"""At first, by default."""
WRITE_SECONDS = 0.25
"""Between two records of a stream."""
PAUSE_SECONDS = 3.0


@dataclass
class TroubledGroup:
    """What was done to members, and when."""

    directory: Path
    seconds: float
    rng: random.Random
    workers: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    written: dict[str, list[int]] = field(default_factory=dict)
    expelled: dict[str, list[float]] = field(default_factory=lambda: {"killed": [], "left": []})
    """Seconds until this process knew that a member which was killed, or told to leave, was out of the group."""
    lost: list[tuple[float, str, str]] = field(default_factory=list)
    """When a member was killed or paused, how, and each stream that it had."""
    added: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("killed", "paused", "left", "added"), 0))

    async def add(self, file: str) -> None:
        """Another member."""
        self.added += 1
        name = f"m{self.added}"
        self.workers[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.group_worker", file, name, str(self.directory)), cwd=ROOT
        )

    async def write(self, client: Client, stream: str, until: float) -> None:
        """Numbers, one behind the other."""
        number = 0
        while time.monotonic() < until:
            number += 1
            await client.append(STREAMS[stream], str(number).encode(), timeout=30)
            self.written.setdefault(stream, []).append(number)
            await asyncio.sleep(WRITE_SECONDS)

    def note(self, name: str, how: str, subscriptions: Subscriptions) -> None:
        """The streams of a member that others are to get."""
        found = subscriptions.state_of(GROUP)
        assert found is not None
        now = time.monotonic()
        self.counts[how] += 1
        self.lost += [(now, how, stream) for stream, shared in found.streams.items() if shared.owner == name]

    async def trouble(self, file: str, subscriptions: Subscriptions, until: float) -> None:
        """Kill, pause and replace members, one at a time."""
        while time.monotonic() < until:
            await asyncio.sleep(self.rng.uniform(2.5, 4))
            found = subscriptions.state_of(GROUP)
            joined = [name for name in self.workers if found is not None and name in found.members]
            if not joined:
                continue
            name = self.rng.choice(joined)
            worker = self.workers[name]
            how = self.rng.choice(["killed", "killed", "paused", "left"])
            if how == "paused":
                worker.send_signal(signal.SIGSTOP)
                self.note(name, how, subscriptions)
                await asyncio.sleep(PAUSE_SECONDS)
                worker.send_signal(signal.SIGCONT)
                continue
            worker.send_signal(signal.SIGKILL if how == "killed" else signal.SIGINT)
            self.note(name, how, subscriptions)
            told = time.monotonic()
            await worker.wait()
            del self.workers[name]
            await self.gone(name, subscriptions)
            self.expelled[how].append(time.monotonic() - told)
            await self.add(file)
            self.counts["added"] += 1

    async def gone(self, name: str, subscriptions: Subscriptions) -> None:
        """Wait until a member is out of the group."""
        changed = asyncio.Event()
        subscriptions.watch(changed.set)
        try:
            async with asyncio.timeout(60):
                while (found := subscriptions.state_of(GROUP)) is not None and name in found.members:
                    changed.clear()
                    await changed.wait()
        finally:
            subscriptions.unwatch(changed.set)

    async def stop(self) -> None:
        """No worker is left."""
        for worker in self.workers.values():
            if worker.returncode is None:
                worker.kill()
        await asyncio.gather(*(worker.wait() for worker in self.workers.values()))

    def lines(self, stream: str) -> list[dict]:  # type: ignore[type-arg]
        """What was made of a stream."""
        path = self.directory / stream
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def missing(self) -> dict[str, list[int]]:
        """Records that were acknowledged, and nobody handled."""
        found = {}
        for stream, numbers in self.written.items():
            handled = {number for line in self.lines(stream) if not line["late"] for number in line["numbers"]}
            if left := sorted(set(numbers) - handled):
                found[stream] = left
        return found

    def check(self) -> TroubleReport:
        """What must hold, and how long streams waited for another member."""
        again = late = 0
        for stream, numbers in self.written.items():
            began: dict[int, float] = {}
            handled: list[int] = []
            by_token: dict[int, list[int]] = {}
            members: dict[int, int] = {}
            for line in self.lines(stream):
                if line["late"]:
                    late += 1
                    continue
                token = line["token"]
                assert members.setdefault(token, line["pid"]) == line["pid"], f"{stream}: two members with {token}"
                began.setdefault(token, line["began"])
                later = [other for at, other in began.items() if at > token]
                assert all(line["began"] < other for other in later), f"{stream}: handled behind the fence"
                by_token.setdefault(token, []).extend(line["numbers"])
                handled += line["numbers"]
            for token, each in by_token.items():
                assert each == list(range(each[0], each[-1] + 1)), f"{stream}: {each} in order, with token {token}"
            assert set(numbers) <= set(handled), f"{stream}: {sorted(set(numbers) - set(handled))} are not handled"
            again += len(handled) - len(set(handled))
        waits: dict[str, list[float]] = {"killed": [], "paused": [], "left": []}
        for at, how, stream in self.lost:
            after = [line["began"] for line in self.lines(stream) if line["began"] > at and not line["late"]]
            waits[how].append(min(after, default=at) - at)
        return TroubleReport(sum(map(len, self.written.values())), again, late, waits, self.counts, self.expelled)


@dataclass
class TroubleReport:
    """What came of it."""

    records: int
    again: int
    """Records that were handled more than once, as a member died before it committed."""
    late: int
    """Batches that the sink refused for their token."""
    waits: dict[str, list[float]]
    """Seconds until a stream's next record was handled, by what happened to its member."""
    counts: dict[str, int]
    expelled: dict[str, list[float]]
    """Seconds until a member was out of the group."""

    def __str__(self) -> str:
        lines = [
            f"{self.records} records handled, {self.again} of them again, {self.late} batches fenced; {self.counts}"
        ]
        for how, waits in self.waits.items():
            if waits:
                median = statistics.median(waits)
                lines.append(f"{how}: {len(waits)} streams handed over, median {median:.2f} s, max {max(waits):.2f} s")
        for how, waits in self.expelled.items():
            if waits:
                median = statistics.median(waits)
                lines.append(f"{how}: out of the group after {median:.2f} s in the median, {max(waits):.2f} s at most")
        return "\n".join(lines)


async def troubled(seconds: float, seed: int, directory: Path, members: int = MEMBERS) -> TroubleReport:
    """So many members for so long."""
    group = TroubledGroup(directory, seconds, random.Random(seed))
    async with (
        LocalCluster(nodes=3, logs=14) as cluster,
        cluster.client() as client,
        Subscriptions(client, COMMANDS, SNAPSHOTS) as subscriptions,
    ):
        try:
            await Group(subscriptions, GROUP).add_streams(STREAMS)
            for _ in range(members):
                await group.add(cluster.config_file)
            async with asyncio.timeout(90):
                while len(await Group(subscriptions, GROUP).members()) < members:  # noqa: ASYNC110 - of processes
                    await asyncio.sleep(0.2)
            until = time.monotonic() + seconds
            writers = [group.write(client, stream, until) for stream in STREAMS]
            await asyncio.gather(group.trouble(cluster.config_file, subscriptions, until), *writers)
            ended = time.monotonic() + 60
            while await asyncio.to_thread(group.missing) and time.monotonic() < ended:  # noqa: ASYNC110 - of processes
                await asyncio.sleep(0.2)
            return group.check()
        except LogDeviceError:
            print(f"waits for {subscriptions.waiting_for()}", file=sys.stderr)
            raise
        finally:
            await group.stop()


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--members", type=int, default=MEMBERS)
    parser.add_argument("--wait-max", type=float, default=2.0, help="seconds that a dead member's stream may wait")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = asyncio.run(troubled(arguments.seconds, arguments.seed, Path(directory), arguments.members))
    print(report)
    if max(report.waits["killed"], default=0) > arguments.wait_max:
        sys.exit(f"a stream waited longer than {arguments.wait_max} s for another member")


if __name__ == "__main__":
    main()
