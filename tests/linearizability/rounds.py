"""A round: a cluster that is broken while clients use two logs of it, and the histories of these."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from pathlib import Path

from client.client import Client
from logdevice_py.core.status import LogDeviceError
from tests.linearizability.clients import HistoryClient, records_of
from tests.linearizability.cluster import broken_cluster
from tests.linearizability.history import History

PLAIN, CHAIN = 1, 2
CLIENTS = 5


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


def play_round(directory: Path, seed: int, seconds: float, strict: bool, written: list[Path]) -> None:
    """Play a round and write the histories of both logs."""
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
