"""What regions cost that are far from each other, on real processes: each node has a network namespace, and each region a ZooKeeper server.

``python -m benchmarks.regions appends --rtt 80ms`` appends one record after the other from the region of the sequencer, then larger ones, and counts what passed
between regions. ``reads`` reads where each region has a copy, and from afar. ``losses --kills N`` takes the sequencer's region away again and again, in turn by
SIGKILL and by cutting it off, without and with the leader of ZooKeeper, while somebody in another region appends and reads. ``two-of-five --kills N`` takes two of
five regions away at once, the sequencer's among them, where three are promised. It takes root.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.percentiles import percentile
from client.client import Client
from client.read.items import Record
from ldquery.session import LDQuery
from logdevice_py.config.location import Areas
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.region_cluster import PlayedRegions, RegionSupervisor, zookeeper_url
from server.dev.region_network import Distances
from server.dev.supervisor import write_cluster_file

REGIONS: Final = ("us", "eu", "ap")
NODES: Final = 9
FIVE: Final = ("us", "eu", "ap", "sa", "af")
"""Of two nodes each."""
EVERYWHERE: Final = LogId(4)
"""A log with a copy in each region; logs 1 to 3 have their sequencer in one region each."""
_BODY: Final = 100
_KILLED: Final = "killed"
_CUT_OFF: Final = "cut off"


def tell(figure: str, **values: object) -> None:
    """A line of the output."""
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"figure": figure, **rounded}), flush=True)


@asynccontextmanager
async def region_cluster(
    distances: Distances,
    here: str,
    regions: tuple[str, ...] = REGIONS,
    nodes: int = NODES,
    replicate: str = "region:2,node:3",
) -> AsyncIterator[RegionSupervisor]:
    """Regions of as many nodes each, writable: a log is sequenced in each of them."""
    with tempfile.TemporaryDirectory(prefix="ld-regions-") as path:
        directory = Path(path)
        url = zookeeper_url(directory, regions)
        config = make_config(
            directory,
            nodes=nodes,
            logs=1,
            replicate=replicate,
            racks=3,
            epoch_store=url,
            rebuilding=True,
            regions=regions,
        )
        groups: list[tuple[str, int, int, dict[str, Any]]] = [
            (f"/{region}", number, number, {"sequencer_affinity": Areas.parse(f"{region}....")})
            for number, region in enumerate(regions, 1)
        ]
        if regions == REGIONS:
            everywhere = ReplicationProperty.parse("region:3,node:3")
            groups.append(("/everywhere", EVERYWHERE, EVERYWHERE, {"replication": everywhere}))
        config = dataclasses.replace(config, logs=LogTree.build(defaults=config.logs.defaults, groups=groups))
        supervisor = RegionSupervisor(directory, config, PlayedRegions(distances, regions), here=here)
        write_cluster_file(directory, config)
        await supervisor.listen()
        try:
            await supervisor.start_all()
            await _until_well(supervisor)
            yield supervisor
        finally:
            await supervisor.stop_all()


async def _until_well(supervisor: RegionSupervisor) -> None:
    await supervisor.until_servers_serve()
    access = supervisor.admin_access
    await wait_until_acquainted(supervisor.config, supervisor.running, timeout=120, access=access)
    await wait_until_writable(layout.cluster_file(supervisor.directory), timeout=120)


# Appends


async def appends(distances: Distances, count: int, bandwidth_mb: int) -> None:
    """From the region of the sequencer."""
    async with (
        region_cluster(distances, REGIONS[0]) as supervisor,
        Client(layout.cluster_file(supervisor.directory), location=f"{REGIONS[0]}....") as client,
    ):
        log = LogId(1)
        for _ in range(20):
            await client.append(log, bytes(_BODY))
        spent = []
        for _ in range(count):
            began = time.perf_counter()
            await client.append(log, bytes(_BODY))
            spent.append((time.perf_counter() - began) * 1e3)
        tell("appends", rtt=str(distances), count=count, **_points(spent))
        await asyncio.sleep(2)
        idle = await _passed(supervisor, 5)
        began = time.monotonic()
        before = await client.tail_lsn(log)
        body = 10_000
        await _append_many(client, log, body, bandwidth_mb * 1_000_000 // body)
        seconds = time.monotonic() - began
        await asyncio.sleep(2)
        passed = await asyncio.to_thread(supervisor.network.bytes_sent)
        total = sum(passed.values()) - idle / 5 * (seconds + 2)
        remote = await asyncio.to_thread(_remote_copies, supervisor, log, before + 1)
        tell(
            "between regions",
            bodies_mb=bandwidth_mb,
            sent_mb=total / 1e6,
            remote_copies_mb=remote / 1e6,
            ratio=total / remote,
        )


async def _append_many(client: Client, log: LogId, size: int, count: int) -> None:
    under_way: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        await client.append(log, number.to_bytes(8) * (size // 8))

    for number in range(count):
        task = asyncio.create_task(one(number))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        if len(under_way) >= 50:
            await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*under_way)


async def _passed(supervisor: RegionSupervisor, seconds: float) -> int:
    """Bytes that pass between regions meanwhile."""
    await asyncio.to_thread(supervisor.network.bytes_sent)
    await asyncio.sleep(seconds)
    return sum((await asyncio.to_thread(supervisor.network.bytes_sent)).values())


def _remote_copies(supervisor: RegionSupervisor, log: LogId, first: int) -> int:
    """Bytes of bodies that shards of other regions than the sequencer's have, by what all shards tell."""
    with LDQuery(str(layout.cluster_file(supervisor.directory)), deadline=60) as session:
        rows = session.query(
            "SELECT node_id, sum(body_bytes) AS size FROM copyset_distribution "
            f"WHERE log_id = {log} AND lsn >= {first} AND lsn <= {first + 1_000_000} GROUP BY node_id"
        )
        regions = {int(node): member.location.region for node, member in supervisor.config.nodes.items()}
        return sum(row["size"] for row in rows.to_dicts() if regions[row["node_id"]] != REGIONS[0])


def _points(spent: Sequence[float]) -> dict[str, float]:
    return {
        "least_ms": min(spent),
        "p50_ms": percentile(spent, 0.5),
        "p99_ms": percentile(spent, 0.99),
        "most_ms": max(spent),
    }


# Reads


async def reads(distances: Distances, megabytes: int) -> None:
    """Of a log with a copy in each region, by somebody who says where he stands, and of one whose copies are elsewhere."""
    here = REGIONS[1]
    async with (
        region_cluster(distances, here) as supervisor,
        Client(layout.cluster_file(supervisor.directory), location=f"{here}....") as client,
    ):
        body = 64_000
        for log, name, near in ((EVERYWHERE, "near", True), (LogId(1), "far", False)):
            await _append_many(client, log, body, megabytes * 1_000_000 // body)
            await asyncio.sleep(3)
            idle = await _passed(supervisor, 5)
            began, size = time.monotonic(), 0
            async with client.reader(log, until="tail", near=near) as reader:
                async for item in reader:
                    size += len(item.payload) if isinstance(item, Record) else 0
            seconds = time.monotonic() - began
            passed = await asyncio.to_thread(supervisor.network.bytes_sent)
            to_here = sum(passed.values()) - idle / 5 * seconds
            tell(
                f"reads, {name}",
                mb=size / 1e6,
                mb_per_s=size / 1e6 / seconds,
                from_other_regions_mb=to_here / 1e6,
                local_share=1 - to_here / size,
                bandwidth=distances.bandwidth_text,
            )


# Losses


@dataclasses.dataclass(slots=True)
class FarHistory:
    """What somebody in another region appended, and what he read."""

    acknowledged: list[tuple[float, int, bytes]] = dataclasses.field(default_factory=list)
    """When, as what LSN, and what."""
    began: float = 0.0
    """When the last one that was acknowledged began."""
    read: dict[bytes, float] = dataclasses.field(default_factory=dict)
    """When each record came."""
    errors: int = 0

    async def append(self, client: Client, log: LogId) -> None:
        """One after the other, until it is cancelled."""
        number = 0
        while True:
            number += 1
            payload = b"%d" % number
            began = time.monotonic()
            try:
                receipt = await client.append(log, payload, timeout=60)
            except LogDeviceError:
                self.errors += 1
                continue
            self.acknowledged.append((time.monotonic(), receipt.lsn, payload))
            self.began = began

    async def follow(self, client: Client, log: LogId) -> None:
        """Read as records come, until it is cancelled."""
        async with client.reader(log) as reader:
            async for item in reader:
                if isinstance(item, Record):
                    self.read.setdefault(item.payload, time.monotonic())


async def losses(distances: Distances, kills: int) -> None:
    """Take the region of a sequencer away, and bring it back."""
    here = REGIONS[1]
    async with (
        region_cluster(distances, here) as supervisor,
        Client(layout.cluster_file(supervisor.directory), location=f"{here}....") as client,
    ):
        histories: dict[LogId, FarHistory] = {}
        tasks = []
        for log in (LogId(1), LogId(3)):
            history = histories[log] = FarHistory()
            tasks += [
                asyncio.create_task(history.append(client, log)),
                asyncio.create_task(history.follow(client, log)),
            ]
        spent: dict[str, list[tuple[float, float]]] = {}
        for kill in range(kills):
            await asyncio.sleep(2)
            # in turn with and without ZooKeeper's leader, as long as it is not where the client is
            region = {0: "us", 1: "ap"}[kill // 2 % 2]
            how = _KILLED if kill % 2 == 0 else _CUT_OFF
            log = LogId(REGIONS.index(region) + 1)
            history = histories[log]
            await _bring_home(supervisor, client, log, region)
            leader = await _leader_elsewhere(supervisor, here)
            kind = f"{how}{', with the leader of ZooKeeper' if region == leader else ''}"
            loss = await _lose(supervisor, history, [region], how)
            spent.setdefault(kind, []).append(loss)
            tell("loss", number=kill + 1, region=region, how=kind, appending_s=loss[0], readable_s=loss[1])
            await _bring_back(supervisor, [region], how)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for log, history in histories.items():
            await _check(client, log, history)
        _tell_all(spent)


async def two_of_five(distances: Distances, kills: int) -> None:
    """Take the region of a sequencer and another one away at once, of five where each record is in three."""
    here, log, history = FIVE[2], LogId(1), FarHistory()
    async with (
        region_cluster(distances, here, FIVE, 2 * len(FIVE), "region:3,node:3") as supervisor,
        Client(layout.cluster_file(supervisor.directory), location=f"{here}....") as client,
    ):
        tasks = [asyncio.create_task(history.append(client, log)), asyncio.create_task(history.follow(client, log))]
        spent: dict[str, list[tuple[float, float]]] = {}
        for kill in range(kills):
            await asyncio.sleep(2)
            how = _KILLED if kill % 2 == 0 else _CUT_OFF
            lost = [FIVE[0], FIVE[(1, 3, 4)[kill // 2 % 3]]]
            await _bring_home(supervisor, client, log, FIVE[0])
            await _leader_elsewhere(supervisor, here)
            loss = await _lose(supervisor, history, lost, how)
            spent.setdefault(how, []).append(loss)
            tell("loss", number=kill + 1, regions=lost, how=how, appending_s=loss[0], readable_s=loss[1])
            await _bring_back(supervisor, lost, how)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _check(client, log, history)
        _tell_all(spent)


async def _lose(
    supervisor: RegionSupervisor, history: FarHistory, regions: Sequence[str], how: str
) -> tuple[float, float]:
    """Take regions away; how long after the beginning an append is acknowledged that began when they were gone, and how long after that it is read."""
    began = time.monotonic()
    for region in regions:
        await (supervisor.in_region("kill", region) if how == _KILLED else supervisor.cut_off(region))
    gone = time.monotonic()
    while history.began < gone:  # what was on its way by then may arrive
        await asyncio.sleep(0.02)
        assert time.monotonic() < gone + 120, f"nothing for two minutes after {', '.join(regions)} was {how}"
    acknowledged, _, payload = history.acknowledged[-1]
    while payload not in history.read:
        await asyncio.sleep(0.02)
        assert time.monotonic() < acknowledged + 120, f"{payload!r} cannot be read"
    return acknowledged - began, history.read[payload] - acknowledged


async def _bring_back(supervisor: RegionSupervisor, regions: Sequence[str], how: str) -> None:
    await asyncio.sleep(1)
    for region in regions:
        await (supervisor.in_region("start", region) if how == _KILLED else supervisor.reconnect(region))
    await _until_well(supervisor)


def _tell_all(spent: dict[str, list[tuple[float, float]]]) -> None:
    for kind, each in sorted(spent.items()):
        appending, readable = [first for first, _ in each], [second for _, second in each]
        tell(
            kind,
            times=len(each),
            appending_median_s=percentile(appending, 0.5),
            appending_most_s=max(appending),
            readable_most_s=max(readable),
        )


async def _bring_home(supervisor: RegionSupervisor, client: Client, log: LogId, region: str) -> None:
    """Have a log sequenced in its region. A node that another one preempted while it was cut off leaves the log there for a while; one that starts takes it back."""
    while True:
        node = (await client.sequencer(log)).node
        if supervisor.config.nodes[node].location.region == region:
            return
        await supervisor.in_region("kill", region)
        await supervisor.in_region("start", region)
        await _until_well(supervisor)


async def _leader_elsewhere(supervisor: RegionSupervisor, here: str) -> str | None:
    """The region of ZooKeeper's leader, once that is not where the client is."""
    while (leader := await asyncio.to_thread(_leader, supervisor)) == here:
        await supervisor.restart_server(here)
    return leader


async def _check(client: Client, log: LogId, history: FarHistory) -> None:
    """Each acknowledged record is where its receipt says, none is there twice, and they are in the order in which they were appended."""
    found: dict[bytes, list[int]] = {}
    async with client.reader(log, LSN.OLDEST, until="tail") as reader:
        async for item in reader:
            if isinstance(item, Record):
                found.setdefault(item.payload, []).append(item.lsn)
    lost = [payload for _, lsn, payload in history.acknowledged if found.get(payload) != [lsn]]
    twice = [payload for payload, lsns in found.items() if len(lsns) > 1]
    lsns = [lsn for _, lsn, _ in history.acknowledged]
    tell(
        "history",
        log=log,
        acknowledged=len(lsns),
        lost_or_moved=len(lost),
        doubled=len(twice),
        out_of_order=sum(one >= two for one, two in pairwise(lsns)),
        errors=history.errors,
    )


def _leader(supervisor: RegionSupervisor) -> str | None:
    """The region of ZooKeeper's leader."""
    for region, address in supervisor.server_addresses().items():
        try:
            with socket.create_connection(address, timeout=2) as connection:
                connection.sendall(b"srvr")
                if b"Mode: leader" in connection.recv(4096):
                    return region
        except OSError:
            continue
    return None


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["appends", "reads", "losses", "two-of-five"])
    parser.add_argument("--rtt", default="80ms", help="as of ld-dev-cluster up")
    parser.add_argument("--bandwidth", help="as of ld-dev-cluster up")
    parser.add_argument("--count", type=int, default=300, help="appends, one after the other")
    parser.add_argument("--megabytes", type=int, default=100, help="that are written to count bytes, or to be read")
    parser.add_argument("--kills", type=int, default=20)
    given = parser.parse_args()
    distances = Distances.parse(given.rtt, given.bandwidth)
    match given.what:
        case "appends":
            asyncio.run(appends(distances, given.count, given.megabytes))
        case "reads":
            asyncio.run(reads(distances, given.megabytes))
        case "losses":
            asyncio.run(losses(distances, given.kills))
        case _:
            asyncio.run(two_of_five(distances, given.kills))


if __name__ == "__main__":
    main()
