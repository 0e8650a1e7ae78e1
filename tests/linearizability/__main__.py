"""``make linearizability``: histories of real processes under SIGKILL, SIGSTOP and cuts, judged by Porcupine.

Each round is a cluster of its own with two logs: of plain appends, and of appends half of which expect what was last. Rounds are run with `strict_order`, which must be
linearizable, and with ``--plain`` without it, which need not be while nodes are cut off from each other: what was found is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
from itertools import count
from multiprocessing import get_context
from pathlib import Path

from client.client import Client
from logdevice_py.core.status import LogDeviceError
from tests.linearizability.clients import HistoryClient, records_of
from tests.linearizability.cluster import broken_cluster
from tests.linearizability.history import History

PLAIN, CHAIN = 1, 2
CLIENTS = 5
_CHECKER = Path(__file__).parent / "checker"


async def play(directory: Path, seed: int, seconds: float, *, strict: bool) -> dict[int, History]:
    """The histories of both logs of a cluster that is broken for so long."""
    rng = random.Random(seed)
    histories = {PLAIN: History(), CHAIN: History()}
    async with broken_cluster(directory, rng, logs=2, strict=strict) as cluster:
        clients = [Client(cluster.file) for _ in range(CLIENTS)]
        stop = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                for number, client in enumerate(clients):
                    await client.start()
                    for log, history in histories.items():
                        own = random.Random(rng.random())
                        chained = log == CHAIN
                        group.create_task(HistoryClient(number, client, log, history, own, guarded=chained).run(stop))
                await cluster.break_for(seconds)
                stop.set()
            for log, history in histories.items():
                history.end(await _everything(clients[0], log))
        finally:
            for client in clients:
                await client.close()
        print(f"seed {seed}: {', '.join(f'{times} {name}' for name, times in sorted(cluster.caused.items()))}")
    return histories


def _round(directory: Path, seed: int, seconds: float, strict: bool, written: list[Path]) -> None:
    histories = asyncio.run(play(directory, seed, seconds, strict=strict))
    for path, history in zip(written, histories.values(), strict=True):
        history.write(path)


async def _everything(client: Client, log: int) -> dict[bytes, object]:
    """All records, once nothing is broken any more. An append that nobody was told of may come until its sequencer is shut out: another epoch does that."""
    async with asyncio.timeout(120):
        for number in count():
            try:
                await client.append(log, f"end {number}".encode(), timeout=10)
                return dict(await records_of(client, log, await client.tail_lsn(log), 60))
            except LogDeviceError as error:
                if not error.retriable and not error.maybe_applied:
                    raise
                await asyncio.sleep(0.5)
    raise AssertionError("unreachable")


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 when every history that must be linearizable is."""
    options = argparse.ArgumentParser(prog="python -m tests.linearizability")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=30)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--plain", action="store_true", help="without strict_order; the status tells nothing")
    options.add_argument("--keep", type=Path, help="a directory for the histories")
    chosen = options.parse_args(arguments)
    go = shutil.which("go") or "/usr/local/go/bin/go"
    with tempfile.TemporaryDirectory(prefix="ld-linearizability-") as name:
        directory, files = Path(name), []
        checker = directory / "checker"
        subprocess.run([go, "build", "-o", checker, "."], cwd=_CHECKER, check=True)
        for seed in range(chosen.seed, chosen.seed + chosen.rounds):
            name = f"{'any' if chosen.plain else 'strict'}-{seed}"
            written = [(chosen.keep or directory) / f"{kind}-{name}.json" for kind in ("plain", "chain")]
            # a process each: the kernel takes its time to forget the networks of one
            play_round = get_context("spawn").Process(
                target=_round, args=(directory / f"cluster{seed}", seed, chosen.seconds, not chosen.plain, written)
            )
            play_round.start()
            play_round.join()
            if play_round.exitcode:
                return 2
            files += written
        status = subprocess.run([checker, *files], check=False).returncode
    return 0 if chosen.plain else status


if __name__ == "__main__":
    sys.exit(main())
