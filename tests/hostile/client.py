"""The hostile client as a process of its own: ``python -m tests.hostile.client --cluster FILE --attacks 100 --frames 1000000``.

It prints a line of JSON for each attack, and for the frames every few seconds. Nothing of it imports the code of the cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.attacks import ATTACKS, Stage
from tests.hostile.mutants import FrameMutator
from tests.hostile.wire import LAYOUTS, Cluster, Connection, encode, shard

_BATCH = 500
"""Valid frames on a connection before the damaged one that ends it."""
_CONNECTIONS = 10
_PIECE = 20
"""Frames that are sent at once when a rate is asked for."""
_ECHO = 987_654
"""A log that does not exist: a question about it is answered at once."""
_FIRST = 2**63 + 1
"""Numbers of questions that no other request has."""
_NEVER = frozenset({"Hello", "Ack", "Shutdown"})


@dataclass
class Frames:
    """How far the mutated frames came."""

    sent: int = 0
    """Frames written to connections."""
    decoded: int = 0
    """Valid frames of which an answer to a later question shows that they were decoded and handled."""
    refused: int = 0
    """Damaged frames behind them, which a decoder got and for which it closed the connection."""
    endured: int = 0
    """Damaged frames behind which the connection was still served: the damage made another valid frame, or an incomplete one."""
    inferred: int = 0
    """Frames of connections that claim to be a node, which gets no answers: the last one ended the connection, as it should."""
    unknown: int = 0
    """Frames of connections that ended before the answer came, or whose answer did not come in time."""
    connections: int = 0

    @property
    def reached(self) -> int:
        """Frames that certainly reached a decoder."""
        return self.decoded + self.refused + self.inferred


def _say(**content: Any) -> None:
    print(json.dumps(content), flush=True)


async def run_attacks(stage: Stage, count: int, names: list[str]) -> None:
    """Each attack so many times."""
    for name in names:
        outcomes: Counter[str] = Counter()
        began = time.monotonic()
        for _ in range(count):
            try:
                async with asyncio.timeout(120):
                    outcomes[await ATTACKS[name](stage)] += 1
            except (ConnectionError, TimeoutError, RuntimeError) as error:
                outcomes[f"{type(error).__name__} {error}"] += 1
        _say(attack=name, outcomes=outcomes, seconds=round(time.monotonic() - began, 1))


class _Pace:
    """Lets so many frames go in a second, of all connections together."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._next = time.monotonic()

    async def say(self, peer: Connection, *frames: bytes) -> None:
        """Send them when it is time, a few at once: what comes in bursts is no rate."""
        piece = _PIECE if self._rate else len(frames)
        for at in range(0, len(frames), piece):
            if self._rate:
                now = time.monotonic()
                self._next = max(self._next, now) + piece / self._rate
                await asyncio.sleep(self._next - now)
            if not await peer.say(*frames[at : at + piece], seconds=60):
                return


async def _batch(
    cluster: Cluster, node: int, mutator: FrameMutator, count: int, totals: Frames, pace: _Pace, *, as_node: bool
) -> None:
    """Valid frames, a question, and a damaged frame, over one connection."""
    frames = [mutator.valid() for _ in range(count - 1)]
    echo = encode("GetSeqState", request_id=_FIRST, log=_ECHO)
    totals.connections += 1
    try:
        async with Connection(cluster, node) as peer:
            hello = {"node": (node + 1) % len(cluster.nodes)} if as_node else {}
            if await peer.greet(**hello) is None:
                totals.unknown += count
                return
            totals.sent += count
            if as_node:
                # answers go to the real node: that the last frame, which is damaged, ends the connection shows that it was read, and all before it
                await pace.say(peer, *frames, mutator.damaged(certainly=True))
                if await peer.hear_the_end(30):
                    totals.inferred += count
                else:
                    totals.unknown += count
                return
            sending = asyncio.ensure_future(pace.say(peer, *frames, echo))
            answered = await _echoed(peer, _FIRST, 60)
            await sending
            if not answered:
                totals.unknown += count
                return
            totals.decoded += count - 1
            await peer.say(mutator.damaged(), encode("GetSeqState", request_id=_FIRST + 1, log=_ECHO))
            if await _echoed(peer, _FIRST + 1, 0.5) or not peer.closed:
                totals.endured += 1
            else:
                totals.refused += 1
    except ConnectionError:
        totals.unknown += count


async def _echoed(peer: Connection, number: int, seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end and not peer.closed:
        for answer in await peer.answers(end - loop.time()):
            if answer.name == "SeqState" and answer.fields["request_id"] == number:
                return True
    return False


async def run_frames(stage: Stage, count: int, seed: int, *, rate: float = 0) -> Frames:
    """Mutated frames over several connections at a time, to all nodes in turn."""
    cluster = stage.cluster
    rng = random.Random(seed)
    logs = [stage.abused, 0, 12_345, 12_345 | 1 << 62, 2**63 - 1, stage.abused]
    totals = Frames()
    names = [name for name in LAYOUTS if name not in _NEVER]
    mutators = {
        (node, as_node): FrameMutator(
            rng.getrandbits(32),
            logs=logs,
            shards=[shard(node), shard(node), 0, 2**23 - 1],
            names=[name for name in names if not as_node or name != "Gossip"],
        )
        for node in cluster.nodes
        for as_node in (False, True)
    }
    given = 0
    began = said = time.monotonic()
    pace = _Pace(rate)

    async def work(worker: int) -> None:
        nonlocal given, said
        while given < count:
            size = min(_BATCH, count - given)
            given += size
            node = (worker + given // _BATCH) % len(cluster.nodes)
            as_node = rng.random() < 0.2
            await _batch(cluster, node, mutators[node, as_node], size, totals, pace, as_node=as_node)
            now = time.monotonic()
            if now - said > 10:
                said = now
                _say(frames=vars(totals), seconds=round(now - began, 1))

    await asyncio.gather(*(work(worker) for worker in range(_CONNECTIONS)))
    _say(frames=vars(totals), reached=totals.reached, seconds=round(time.monotonic() - began, 1), done=True)
    return totals


async def _run(arguments: argparse.Namespace) -> None:
    stage = Stage(
        Cluster.read(arguments.cluster),
        victims=arguments.victims,
        streams=arguments.streams,
        abused=arguments.abused,
        large=arguments.large,
        scale=arguments.scale,
    )
    if arguments.attacks:
        await run_attacks(stage, arguments.attacks, arguments.only or list(ATTACKS))
    if arguments.frames:
        await run_frames(stage, arguments.frames, arguments.seed, rate=arguments.rate)


def main() -> int:
    """0: it went to its end."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.client", description=__doc__)
    parser.add_argument("--cluster", type=Path, required=True, help="the cluster file")
    parser.add_argument("--attacks", type=int, default=0, help="how often each attack is made")
    parser.add_argument("--only", action="append", choices=ATTACKS, help="only this attack; may be repeated")
    parser.add_argument("--frames", type=int, default=0, help="mutated frames")
    parser.add_argument(
        "--rate", type=float, default=0, help="mutated frames a second at most; 0: as fast as nodes take them"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the size of each attack")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--victims", type=int, nargs="+", default=[1], help="logs of honest users")
    parser.add_argument(
        "--streams", type=int, nargs="+", default=[4], help="logs into which honest BufferedWriters write"
    )
    parser.add_argument("--abused", type=int, default=3, help="a log that takes what is appended")
    parser.add_argument("--large", type=int, default=2, help="a log that holds much")
    asyncio.run(_run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
