"""One run of chaos: for so many seconds things break while applications go on, then it is calm and everything is compared."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from storage_node.log_store.settings import STORE_KINDS
from tests.chaos.applications import ChaosApplications
from tests.chaos.cluster import ChaosCluster, chaos_cluster
from tests.chaos.machines import off_loop
from tests.chaos.nemesis import ChaosNemesis
from tests.chaos.regions import RegionNemesis, region_chaos_cluster

CALM_BOUND = 120.0
"""Seconds within which a cluster without faults must answer everything; two cores run five nodes and the checkers."""


@dataclass(slots=True)
class ChaosOutcome:
    """What was counted."""

    acknowledged: int
    epochs: int
    longest_silence: float
    caused: Counter[str]
    absent: list[str]
    """Kinds of faults that this machine does not allow."""
    killed: int
    """How often a node got SIGKILL."""
    gone_on: float
    """Seconds without faults until every log took records from everywhere."""
    silent: str
    """Which log's writers the longest silence was of, and when it ended."""
    story: list[str]
    """What was done and when, a line each."""

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.caused.items()))
        absent = f"; not possible here: {', '.join(self.absent)}" if self.absent else ""
        return (
            f"{self.acknowledged} records acknowledged in {self.epochs} epochs, nothing lost, duplicated or out of order; "
            f"longest silence {self.longest_silence:.1f} s ({self.silent}); all went on {self.gone_on:.1f} s after the last repair; faults: {faults} ({self.killed} nodes killed){absent}"
        )


async def run_chaos(
    directory: Path,
    *,
    seed: int,
    seconds: float,
    interval: float,
    logs: int = 3,
    records: int = 0,
    store: str = STORE_KINDS[0],
    kills: int = 0,
    regions: Sequence[str] = (),
) -> ChaosOutcome:
    """Run chaos and judge it.

    Args:
        directory: where the cluster lives.
        seed: of the faults.
        seconds: for how long things break.
        interval: seconds between two faults, on average.
        logs: how many there are.
        records: so many are to be acknowledged meanwhile: on a slow machine it goes on for that, three times as long at most.
        store: what shards are stored in.
        kills: nothing happens but that nodes are killed, until there were so many kills.
        regions: nodes stand in these, and more happens to regions than to nodes; none: all are in one place.

    Raises:
        Violation: something that must never happen.
        AssertionError: a node ended by itself or printed a traceback.
        TimeoutError: the cluster did not come to rest.
    """
    rng = random.Random(seed)
    async with AsyncExitStack() as stack:
        cluster: ChaosCluster
        nemesis: ChaosNemesis
        if regions:
            cluster = apart = await stack.enter_async_context(
                region_chaos_cluster(directory, regions, logs=logs, store=store)
            )
            nemesis = RegionNemesis(apart, rng, interval=interval, kills_only=kills > 0)
        else:
            cluster = await stack.enter_async_context(chaos_cluster(directory, logs=logs, store=store))
            nemesis = ChaosNemesis(cluster, rng, interval=interval, kills_only=kills > 0)
        applications = ChaosApplications(cluster.file, range(1, logs + 1), rng, cluster.places)
        try:
            await applications.start()
            causing = asyncio.create_task(nemesis.run())
            try:
                clock = asyncio.get_running_loop().time
                end = clock() + seconds
                while (
                    (clock() < end and not kills)
                    or (applications.acknowledged < records and clock() < end + 2 * seconds)
                    or nemesis.killed < kills
                ):
                    await asyncio.sleep(0.1)
                    applications.check()
                    if causing.done():
                        causing.result()
            finally:
                causing.cancel()
                await asyncio.gather(causing, return_exceptions=True)
            await nemesis.calm()
            gone_on = await applications.until_all_go_on(timeout=CALM_BOUND)
            await applications.finish(timeout=CALM_BOUND)
        except BaseException as error:
            seen = await off_loop(cluster.look) if isinstance(error, TimeoutError) else []
            error.add_note("\n".join([f"seed {seed}", *nemesis.story, *cluster.exits(), *seen]))
            raise
        finally:
            await applications.close()
        assert not cluster.exits(), "\n".join([*cluster.exits(), *nemesis.story])
        for node in cluster.nodes:
            printed = cluster.printed(node)
            assert "Traceback" not in printed, printed[-6000:]
        epochs = {position[0] >> 32 for history in applications.histories.values() for position in history.at}
        absent = [
            *([] if regions or cluster.network is not None else ["partitions"]),
            *([] if cluster.disks else ["full disks"]),
        ]
        return ChaosOutcome(
            applications.acknowledged,
            len(epochs),
            applications.longest_silence,
            nemesis.caused,
            absent,
            nemesis.killed,
            gone_on,
            applications.silent,
            nemesis.story,
        )
