"""Streams that are copied, trimmed, truncated and given back, by janitors that die, are paused and take over from each other, under faults.

1. What is trimmed of a stream with a cold store is in a committed copy that reads back with the proof that the log has, or was truncated for as long as
   `truncated_retention`, and not taken back since. Without a store it was truncated so, or is older than `ttl`.
2. After a truncation is taken back, all that was acknowledged from where the stream then begins is read, with its position, until it is truncated again.
3. In the end everything is read that was acknowledged and was not trimmed by the first rule without a copy.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from logdevice_py import LSN, Client, LogDeviceError, Position, SimCluster
from streams.attributes import Roll
from streams.cold.cold_reader import ColdReader
from streams.cold.store import ColdStore, forget_memory_store
from streams.namespace import Namespace
from streams.state import StreamEntry
from streams.stream import Stream
from streams.upkeep.janitor import Janitor
from tests.simulation.stream_owners import created, persist

JANITORS: Final = 2
WRITES: Final = 40
CUTS: Final = 8
RETENTION: Final = 4.0
TTL: Final = 6.0
SLACK: Final = 1.0
"""Clocks of machines differ by less in runs without faults of clocks."""
STREAMS: Final = ("cold", "plain")


@dataclass
class Kept:
    """What is known of one stream."""

    acknowledged: dict[bytes, Position] = field(default_factory=dict)
    times: dict[bytes, float] = field(default_factory=dict)
    """When it was asked to write."""
    truncations: list[tuple[Position, float]] = field(default_factory=list)
    """Since the last was taken back, and when it was asked for."""
    gone: set[bytes] = field(default_factory=set)
    """Trimmed, without a copy."""
    copied: set[bytes] = field(default_factory=set)
    trims: int = 0
    taken_back: int = 0

    def may_go(self, payload: bytes, now: float, *, cold: bool, clocks: bool) -> bool:
        """Whether a record may be trimmed that no copy has. `clocks`: those of all machines were right all the time."""
        position = self.acknowledged[payload]
        if any(position < cut and (now - at >= RETENTION - SLACK or not clocks) for cut, at in self.truncations):
            return True
        return not cold and (now - self.times[payload] >= TTL - SLACK or not clocks)


class Watched:
    """A client of a janitor: before it trims, what it trims is looked at."""

    def __init__(self, cluster: SimCluster, kept: dict[str, Kept], url: str) -> None:
        self.cluster = cluster
        self.kept = kept
        self.url = url

    @property
    def clocks_are_right(self) -> bool:
        """No fault of clocks has happened: with one, what is old is told by a clock that is wrong."""
        return not any("clock" in name and count for name, count in self.cluster.faults.items())

    def watch(self, client: Client, namespace: Namespace) -> None:
        """Look at each trim, and pause now and then between a decision and its command."""
        trim, propose = client.trim, namespace.propose

        async def checked_trim(log: Any, lsn: int, **options: Any) -> None:
            entry = next(each for each in namespace.state.streams.values() if each.log == log)
            await self.check(client, entry, lsn)
            await trim(log, lsn, **options)

        async def delayed_propose(command: Any, timeout: float | None = None) -> Any:
            if type(command).__name__ == "BeginTrim":
                await asyncio.sleep(self.cluster.rng.choice((0, 0, 0.3, 2)))
            return await propose(command, timeout)

        client.trim = checked_trim  # type: ignore[method-assign]
        namespace.propose = delayed_propose  # type: ignore[method-assign]

    async def check(self, client: Client, entry: StreamEntry, lsn: int) -> None:
        """Rule 1, of everything up to there."""
        kept, cold = self.kept[entry.name], entry.name == "cold"
        kept.trims += 1
        now = asyncio.get_running_loop().time()
        trimmed = {payload for payload, position in kept.acknowledged.items() if position.lsn <= lsn}
        copied: dict[bytes, Position] = {}
        if cold:
            copied = await self.copied(client, entry)
        for payload in sorted(trimmed - set(copied) - kept.gone):
            where = f"{entry.name}: {payload!r} at {kept.acknowledged[payload]} is trimmed with {LSN(lsn)}"
            may_go = kept.may_go(payload, now, cold=cold, clocks=self.clocks_are_right)
            assert may_go, f"rule 1: {where} and in no copy"
            kept.gone.add(payload)
        wrong = {each for each in trimmed & set(copied) if copied[each] != kept.acknowledged[each]}
        assert not wrong, f"rule 1: copies have {wrong} elsewhere"
        kept.copied |= set(copied)

    async def copied(self, client: Client, entry: StreamEntry) -> dict[bytes, Position]:
        """What committed copies hold, each compared with what the log still has of it."""
        found: dict[bytes, Position] = {}
        copies = [each.copy for each in entry.upkeep.copies]
        for copy in copies:
            async with ColdReader(ColdStore(self.url), [copy], copy.first, copy.last) as reader:
                while batch := await reader.read():
                    for record in batch.records():
                        found[record.payload] = Position(record.lsn, record.batch_offset)
                assert reader.proof().checksum == copy.checksum, f"rule 1: {copy} reads back with another proof"
        for copy in copies[-2:]:
            async with client.reader(entry.log, copy.first, copy.last) as live:
                gaps = []
                while batch := await live.read(timeout=60):
                    gaps += [gap for gap in batch.gaps if gap.kind.name == "TRIM"]
                same = live.proof().checksum == copy.checksum
            assert same or gaps, f"rule 1: the log has another proof than {copy}"
        return found


class StrictJanitor(Janitor):
    """A janitor that ends with what others pass over: a rule that is broken, a bug."""

    def _failure(self, unexpected: Exception) -> LogDeviceError:
        raise unexpected


async def _write(cluster: SimCluster, name: str, kept: Kept, number: int) -> None:
    loop = asyncio.get_running_loop()
    async with cluster.client() as client:
        namespace = Namespace(client)
        await persist(namespace.start)
        stream = await persist(lambda: namespace.open(name))
        writer = stream.writer()
        await writer.__aenter__()
        for count in range(WRITES):
            payload, at = b"%d %d" % (number, count), loop.time()
            with suppress(LogDeviceError):
                position = (await writer.write(payload)).position
                kept.times[payload], kept.acknowledged[payload] = at, position
            await asyncio.sleep(cluster.rng.uniform(0, 0.5))
        writer.abandon()
        await namespace.close()


async def _cut(cluster: SimCluster, name: str, kept: Kept) -> None:
    rng, loop = cluster.rng, asyncio.get_running_loop()
    async with cluster.client() as client:
        namespace = Namespace(client)
        await persist(namespace.start)
        stream = await persist(lambda: namespace.open(name))
        for _ in range(CUTS):
            await asyncio.sleep(rng.uniform(0, 3))
            try:
                if kept.truncations and rng.random() < 0.5:
                    await _take_back(stream, kept)
                elif kept.acknowledged:
                    position = rng.choice(sorted(kept.acknowledged.values()))
                    kept.truncations.append((position, loop.time()))
                    await stream.truncate(position, timeout=20)
            except LogDeviceError:
                pass
        await namespace.close()


async def _take_back(stream: Stream, kept: Kept) -> None:
    gone = set(kept.gone)
    await stream.untruncate(timeout=60)
    kept.truncations.clear()
    kept.taken_back += 1
    begins = stream.min_active
    given_back = sorted(payload for payload in gone if kept.acknowledged[payload] >= begins)
    assert not given_back, f"rule 2: {stream.name} begins at {begins}, and {given_back[:3]} behind it are trimmed"
    known = {payload: at for payload, at in kept.acknowledged.items() if at >= begins}
    read = await _read(stream)
    # of a stream whose records expire some may be gone by now
    missing = {payload for payload, at in known.items() if read.get(payload) != at} - kept.gone
    if stream.attributes.cold is not None:
        missing |= {payload for payload in known if payload not in read}
    assert not missing, f"rule 2: {stream.name} begins at {begins}, and {sorted(missing)[:3]} are not read"


async def _read(stream: Stream) -> dict[bytes | None, Position]:
    found: dict[bytes | None, Position] = {}
    async with stream.reader(until="tail") as reader:
        while batch := await reader.read(timeout=120):
            assert not batch.losses, f"rule 3: {batch.losses} of {stream.name} are told to be lost"
            found.update((record.payload, record.position) for record in batch)
    return found


async def _keep(cluster: SimCluster, watched: Watched, number: int, stop: asyncio.Event) -> None:
    """One janitor after the other, each for a while; some are killed, some end in order."""
    while not stop.is_set():
        async with cluster.client() as client:
            namespace = Namespace(client)
            await persist(namespace.start)
            watched.watch(client, namespace)
            janitor = StrictJanitor(namespace, owner=f"janitor {number}", lease="2s", every="500ms")
            working = asyncio.create_task(janitor.run())
            dying = asyncio.create_task(asyncio.sleep(cluster.rng.uniform(2, 15)))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({working, dying, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (dying, stopping, working):
                task.cancel()
            results = await asyncio.gather(working, dying, stopping, return_exceptions=True)
            if isinstance(results[0], Exception) and not isinstance(results[0], LogDeviceError):
                raise results[0]
            await namespace.close()


async def kept_streams(cluster: SimCluster) -> dict[str, Kept]:
    """All of it, and the rules."""
    store = f"simulation{cluster.rng.getrandbits(60)}"
    url = f"memory://{store}"
    kept = {name: Kept() for name in STREAMS}
    watched, stop = Watched(cluster, kept, url), asyncio.Event()
    try:
        async with cluster.client() as client:
            namespace = Namespace(client)
            await persist(namespace.start)
            streams = {}
            for name in STREAMS:
                options: dict[str, Any] = {"cold": url} if name == "cold" else {}
                streams[name] = await created(
                    namespace,
                    name,
                    roll=Roll(every="1s"),
                    ttl=f"{TTL}s",
                    truncated_retention=f"{RETENTION}s",
                    timeout=30,
                    **options,
                )
            keeping = [asyncio.create_task(_keep(cluster, watched, number, stop)) for number in range(JANITORS)]
            async with asyncio.TaskGroup() as group:
                for name in STREAMS:
                    group.create_task(_cut(cluster, name, kept[name]))
                    for number in range(2):
                        group.create_task(_write(cluster, name, kept[name], number))
            await cluster.calm()
            await asyncio.sleep(30)
            stop.set()
            await asyncio.gather(*keeping)
            for name, stream in streams.items():
                with suppress(LogDeviceError):  # when nothing is left to give back
                    await _take_back(stream, kept[name])
                read = await _read(stream)
                lost = {each for each, at in kept[name].acknowledged.items() if read.get(each) != at} - kept[name].gone
                assert not lost, f"rule 3: {sorted(lost)[:3]} of {name} are acknowledged, not trimmed, and not read"
            await namespace.close()
    finally:
        forget_memory_store(store)
    return kept
