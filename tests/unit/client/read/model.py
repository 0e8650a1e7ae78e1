"""A tiny model of shards that serve read streams, and of the network between them and one reader."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from client.read.hedge_budget import BYTES_PER_HEDGE, HedgeBudget
from client.read.hedging import HedgeContext, HedgeMessages
from client.read.items import Gap, GapKind, Item, Record
from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.read.read_stream import ReadStream
from client.read.settings import ReadSettings
from client.read.shard_delays import KnownDelays
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.core.ids import PeerId
from logdevice_py.core.lsn import EPOCH_MAX, ESN_MAX, Lsn, epoch_of, esn_of
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import GapReason, Records, ShardGap, Start, Started, StartFlags, Stop, Window
from tests.unit.client.read.fakes import (
    BRIDGE,
    HEDGES,
    HOLE,
    LOG,
    damaged,
    lsn,
    make_config,
    make_image,
    make_interval,
    shard,
)

MILLISECOND = 1000


@dataclass
class StoredEntry:
    image: bytes
    copyset: tuple[int, ...]
    is_hole: bool
    corrupt_on_disk: bool = False
    damaged: bool = False


class ModelStream:
    """What a shard keeps of one stream."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.version = start.filter_version
        self.position: int = start.first
        self.high: int = start.window_high
        self.credit = start.bytes_credit
        self.sent = 0
        self.told_started = False


class ModelShard:
    """Copies of one shard, and the streams that it serves."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.generation = 1
        self.forgetful = False
        """It lost some of what it had not synced, and says so."""
        self.stored: dict[int, StoredEntry] = {}
        self.released = 0
        self.trim_point = 0
        self.knows_order = True
        """False: it runs a version that goes by the places in the header."""
        self.streams: dict[int, ModelStream] = {}

    def on_start(self, start: Start) -> list[Any]:
        if start.generation != self.generation:
            return [self._started(start, Status.REBUILDING)]
        stream = self.streams.get(start.stream)
        if stream is None or start.filter_version > stream.version:
            self.streams[start.stream] = ModelStream(start)
        return [self._started(start, Status.OK)]

    def _started(self, start: Start, status: Status) -> Started:
        return Started(
            log=LOG,
            stream=start.stream,
            shard=shard(self.node),
            status=status,
            filter_version=start.filter_version,
            last_released=Lsn(self.released if status is Status.OK else 0),
            ordered=self.knows_order and bool(start.order),
        )

    def on_window(self, window: Window) -> None:
        stream = self.streams.get(window.stream)
        if stream is not None and window.filter_version == stream.version:
            assert window.high >= stream.high
            assert window.bytes_credit >= stream.credit
            stream.high = window.high
            stream.credit = window.bytes_credit

    def serve(self, rng: random.Random) -> list[Any]:
        """Send a piece of what may be sent, in each stream."""
        return [answer for stream in self.streams.values() for answer in self._serve(stream, rng)]

    def _serve(self, stream: ModelStream, rng: random.Random) -> list[Any]:
        if stream.position <= self.trim_point:
            return [self._gap(stream, self.trim_point, GapReason.TRIM)]
        through = min(stream.start.until, stream.high, self.released)
        if stream.position > through:
            return []
        if rng.random() < 0.3:
            through = rng.randint(stream.position, min(through, stream.position + 3))
        out: list[Any] = []
        entries: list[tuple[int, int]] = []
        images: list[bytes] = []

        def flush() -> None:
            if entries:
                out.append(
                    Records(
                        log=LOG,
                        stream=stream.start.stream,
                        shard=shard(self.node),
                        filter_version=stream.version,
                        entries=list(entries),
                        images=b"".join(images),
                    )
                )
                entries.clear()
                images.clear()

        for at in sorted(self.stored):
            copy = self.stored[at]
            if not stream.position <= at <= through:
                continue
            if stream.sent >= stream.credit:
                through = at - 1
                break
            if copy.corrupt_on_disk:
                flush()
                if at > stream.position:
                    out.append(self._gap(stream, at - 1, GapReason.NO_RECORDS))
                out.append(self._gap(stream, at, GapReason.CHECKSUM_FAIL))
                continue
            if stream.start.flags & StartFlags.SINGLE_COPY and not copy.is_hole and not self._ships(stream, copy):
                continue
            if self.forgetful and at > stream.position:
                # what it may have forgotten is not told by silence
                flush()
                out.append(self._gap(stream, at - 1, GapReason.NO_RECORDS))
            entries.append((at, len(copy.image)))
            images.append(copy.image)
            stream.sent += len(copy.image)
            stream.position = at + 1
            if rng.random() < 0.5:
                flush()
        flush()
        if stream.position <= through:
            out.append(self._gap(stream, through, GapReason.NO_RECORDS))
        return out

    def _ships(self, stream: ModelStream, copy: StoredEntry) -> bool:
        tiers = dict(stream.start.order) if self.knows_order else {}
        for member in sorted(copy.copyset, key=lambda each: tiers.get(each, 256)):
            if member == shard(self.node):
                return True
            if member not in stream.start.known_down:
                return False
        return False

    def _gap(self, stream: ModelStream, last: int, reason: GapReason) -> ShardGap:
        first, stream.position = stream.position, last + 1
        if self.forgetful and reason is GapReason.NO_RECORDS:
            reason = GapReason.UNDER_REPLICATED
        return ShardGap(
            log=LOG,
            stream=stream.start.stream,
            shard=shard(self.node),
            filter_version=stream.version,
            first=Lsn(first),
            last=Lsn(last),
            reason=int(reason),
        )


@dataclass
class Truth:
    """What the log holds."""

    intervals: tuple[EpochInterval, ...]
    order: list[int] = field(default_factory=list)
    """Every LSN that holds an entry, ascending."""
    payloads: dict[int, list[bytes]] = field(default_factory=dict)
    images: dict[int, bytes] = field(default_factory=dict)
    bridges: set[int] = field(default_factory=set)
    holes: set[int] = field(default_factory=set)


class World:
    """A cluster of model shards, one reader, and what goes wrong between them."""

    def __init__(self, seed: int, *, hedged: bool = False, liars: bool = False) -> None:
        """
        Args:
            hedged: the reader stands somewhere, and hedges.
            liars: shards answer hedges with whatever comes to their minds, except entries that nobody wrote.
        """
        self.liars = liars
        self.hedges: HedgeMessages | None = None
        self.rng = rng = random.Random(seed)
        self.now = Micros(0)
        self.node_count = rng.randint(3, 7)
        self.copies = rng.randint(1, 3)
        self.shards = [ModelShard(node) for node in range(self.node_count)]
        self.truth = self._make_log()
        self.released = 0
        self.release_to = 0
        self.up = [True] * self.node_count
        self.connected = [False] * self.node_count
        self.to_shard: list[deque[Any]] = [deque() for _ in self.shards]
        self.to_reader: list[deque[Any]] = [deque() for _ in self.shards]
        self.history_due: list[int] = []
        self.trim_point = 0
        self.wiped: set[int] = set()
        self.gone: set[int] = set()
        self.out = Outbox()
        self.timers = TimerQueue()
        self.metrics = ReadMetrics()
        self.first = rng.choice([1, lsn(1, 1), self.truth.order[rng.randrange(len(self.truth.order))]])
        behind = sorted(self.truth.bridges)
        if behind and rng.random() < 0.3:
            self.first = rng.choice(behind) + rng.choice([1, 2, 100, 5000])
        self.until = self.truth.order[-1]
        self.settings = ReadSettings(
            buffer_bytes=rng.choice([1500, 10_000, 1 << 20]),
            shard_buffer_bytes_min=1,
            far_buffer_bytes=random.Random(f"far {seed}").choice([1, 10_000, 1 << 20]),
            window_lsns=rng.choice([4, 16, 1000]),
            gap_grace_period_us=rng.choice([100_000, 1_000_000]),
            slow_shard_factor=rng.choice([0, 2, 5]),
            slow_shard_window_us=rng.choice([50_000, 1_000_000]),
            slow_shard_penalty_us=rng.choice([100_000, 10_000_000]),
        )
        request = ReadRequest(
            log=LOG, stream=1, first=Lsn(self.first), until=Lsn(self.until), single_copy=rng.random() < 0.75
        )
        if hedged:
            request = replace(request, hedged=True, single_copy=True)
            self.settings = replace(
                self.settings,
                hedge_delay_us_min=rng.choice([100, 5000]),
                hedge_delay_us_initial=rng.choice([100, 5000]),
                hedge_budget_percent=rng.choice([5, 100]),
                hedge_penalty_us=rng.choice([50_000, 10_000_000]),
            )
            for member in self.shards:
                member.knows_order = rng.random() < 0.9
        delays = KnownDelays(self.settings)
        if hedged:
            for node in range(self.node_count):
                for _ in range(100):
                    delays.of(shard(node)).note_answer(rng.choice([0, 0, 0, 1000]))
                for number in range(rng.randint(0, 2)):
                    delays.of(shard(node)).note_lost(Micros(1 + number), 0)
        self.stream = ReadStream(
            request,
            config=self._config(),
            settings=self.settings,
            outbox=self.out,
            timers=self.timers,
            rng=random.Random(seed + 1),
            metrics=self.metrics,
            request_history=self._on_history_request,
            on_ready=lambda: None,
            request_turn_end=lambda: None,
            at=Location.parse("r0.d.c.r.p") if hedged and rng.random() < 0.7 else None,
            hedges=HedgeContext(
                delays=delays,
                budget=HedgeBudget(self.settings.hedge_budget_percent),
                open=self._on_open,
                close=lambda stream: self._on_open(None),
            ),
        )
        self.items: list[Item] = []
        self.stream.start(self.now)
        self._turn()

    def _make_log(self) -> Truth:
        rng = self.rng
        intervals = []
        since = 1 if rng.random() < 0.8 else rng.randint(2, 3)
        first = since
        for _ in range(rng.randint(1, 3)):
            size = rng.randint(self.copies, self.node_count)
            intervals.append(make_interval(since, sorted(rng.sample(range(self.node_count), size)), self.copies))
            since += rng.randint(1, 3)
        truth = Truth(tuple(intervals))
        for epoch in range(first, since):
            interval = next(item for item in reversed(intervals) if item.since <= epoch)
            last_epoch = epoch == since - 1
            count = rng.randint(1 if last_epoch else 0, 12)
            for esn in range(1, count + 1):
                at = lsn(epoch, esn)
                copyset = tuple(rng.sample(interval.shards, self.copies))
                if rng.random() < 0.1 and not (last_epoch and esn == count):
                    truth.holes.add(at)
                    image, is_hole = make_image(at, flags=HOLE, wave=epoch, copyset=copyset), True
                else:
                    payloads = [b"%d.%d.%d" % (epoch, esn, i) * rng.randint(1, 30) for i in range(rng.randint(1, 3))]
                    truth.payloads[at] = payloads
                    image, is_hole = make_image(at, payloads, copyset=copyset), False
                self._store(truth, at, image, copyset, is_hole)
            if not last_epoch:
                at = lsn(epoch, count + 1)
                copyset = tuple(rng.sample(interval.shards, self.copies))
                truth.bridges.add(at)
                self._store(truth, at, make_image(at, flags=BRIDGE, wave=epoch, copyset=copyset), copyset, True)
        return truth

    def _store(self, truth: Truth, at: int, image: bytes, copyset: tuple[int, ...], is_hole: bool) -> None:
        truth.order.append(at)
        truth.images[at] = image
        for member in copyset:
            self.shards[member >> 8].stored[at] = StoredEntry(image, copyset, is_hole)

    def _config(self, version: int = 1) -> ClusterConfig:
        """Nodes stand in two regions in turn."""
        config = make_config(self.node_count, version)
        nodes = {
            node: replace(each, location=Location.parse(f"r{node % 2}.d.c.r.p{node % 3}"))
            for node, each in config.nodes.items()
        }
        return replace(config, nodes=nodes)

    # The reader's side

    def _on_open(self, hedges: HedgeMessages | None) -> int:
        self.hedges = hedges
        return HEDGES

    def _on_history_request(self, now: Micros) -> None:
        self.history_due.append(epoch_of(self.released))

    def _turn(self) -> None:
        self.stream.on_turn_end(self.now)
        self.stream.check()
        for effect in self.out.take():
            node = effect.to
            if "down" in self.to_reader[node]:
                continue  # the reader does not know yet that its connection is gone
            if not self.connected[node]:
                if not self.up[node]:
                    self.to_reader[node].append("down")
                    continue
                self.connected[node] = True
            self.to_shard[node].append(effect.message)
        held = sum(sender.held for sender in self.stream._read_set.senders.values())
        largest = max((len(copy.image) for item in self.shards for copy in item.stored.values()), default=0)
        bound = max(self.settings.buffer_bytes, self.settings.far_buffer_bytes) + self.node_count * largest
        if self.stream.request.hedged:
            bound += 4 * BYTES_PER_HEDGE
        assert held <= bound, (held, bound)
        assert self.stream._queue.bytes <= 2 * bound

    def step(self) -> None:
        rng = self.rng
        choice = rng.random()
        node = rng.randrange(self.node_count)
        if choice < 0.35:
            self._pump(node)
        elif choice < 0.65:
            self._deliver(node)
        elif choice < 0.75:
            self.items += list(self.stream.take(rng.choice([1, 2, 100]), self.now))
            self._turn()
        elif choice < 0.85:
            self._answer_history()
        else:
            self._advance(rng.choice([100, 10 * MILLISECOND, 200 * MILLISECOND]))

    def _answer_history(self) -> None:
        if self.history_due:
            self.history_due.pop(0)
            epoch = epoch_of(self.released)
            known = tuple(item for item in self.truth.intervals if item.since <= epoch + self.rng.randint(0, 1))
            self.stream.on_history(known, self.now, EPOCH_MAX)
            self._turn()

    def _pump(self, node: int) -> None:
        """A shard handles its messages and serves its stream."""
        if not self.up[node] or not self.connected[node]:
            return
        member = self.shards[node]
        answers = self.to_reader[node]
        while self.to_shard[node]:
            message = self.to_shard[node].popleft()
            if type(message) is Start:
                answers.extend(member.on_start(message))
            elif type(message) is Window:
                member.on_window(message)
            elif type(message) is Stop:
                member.streams.pop(message.stream, None)
        served = member.serve(self.rng)
        if self.liars:
            served = [self._lie(each) if each.stream == HEDGES else each for each in served]
        answers.extend(served)

    def _lie(self, answer: Any) -> Any:
        """Something else in place of an answer to a hedge, of the same attempt."""
        rng = self.rng
        common = {
            "log": LOG,
            "stream": HEDGES,
            "shard": answer.shard,
            "filter_version": answer.filter_version,
        }
        first = rng.choice(self.truth.order) + rng.randint(-2, 2)
        choice = rng.random()
        if choice < 0.3:
            return answer
        if choice < 0.6:
            last, reason = max(0, first + rng.choice([0, 1, 64, 2**33])), int(rng.choice(list(GapReason)))
            return ShardGap(**common, first=Lsn(max(0, first)), last=Lsn(last), reason=reason, last_released=Lsn(last))
        if choice < 0.7:
            status = rng.choice([Status.OK, Status.REBUILDING, Status.AGAIN, Status.NOTFOUND])
            return Started(**common, status=status, last_released=Lsn(max(0, first)), ordered=rng.random() < 0.5)
        entries = sorted(rng.sample(self.truth.order, rng.randint(1, min(3, len(self.truth.order)))))
        entries = [at for at in entries if at <= self.released]
        images = [self.truth.images[at] for at in entries]
        if rng.random() < 0.2:
            images = [damaged(image) for image in images]
        return Records(
            **common,
            entries=[(at, len(image)) for at, image in zip(entries, images, strict=True)],
            images=b"".join(images),
        )

    def _deliver(self, node: int) -> None:
        for _ in range(self.rng.randint(1, 4)):
            if not self.to_reader[node]:
                return
            message = self.to_reader[node].popleft()
            if message == "down":
                self.stream.on_peer_down(PeerId(node), self.now)
            elif message.stream == HEDGES:
                self._deliver_hedge(message)
            elif type(message) is Started:
                self.stream.answers.on_started(message, self.now)
            elif type(message) is Records:
                self.stream.answers.on_records(message, self.now)
            elif type(message) is ShardGap:
                self.stream.answers.on_gap(message, self.now)
        self._turn()

    def _deliver_hedge(self, message: Any) -> None:
        if self.hedges is None:
            return
        if type(message) is Started:
            self.hedges.on_started(message, self.now)
        elif type(message) is Records:
            self.hedges.on_records(message, self.now)
        elif type(message) is ShardGap:
            self.hedges.on_gap(message, self.now)

    def _advance(self, micros: int) -> None:
        end = self.now + micros
        while (deadline := self.timers.next_deadline()) is not None and deadline <= end:
            self.now = Micros(max(self.now, deadline))
            self.timers.advance(self.now)
            self._turn()
        self.now = Micros(end)

    # What happens to the cluster

    def release(self) -> None:
        """The release pointer moves, and shards hear of it."""
        if self.release_to < len(self.truth.order):
            self.release_to = min(len(self.truth.order), self.release_to + self.rng.randint(1, 8))
            self.released = self.truth.order[self.release_to - 1]
        for member in self.shards:
            if self.rng.random() < 0.7:
                member.released = max(member.released, self.released)

    def crash(self, node: int) -> None:
        """Connections break, messages under way are lost."""
        self.shards[node].streams.clear()
        if self.connected[node]:
            self.connected[node] = False
            keep = self.rng.randint(0, len(self.to_reader[node]))
            while len(self.to_reader[node]) > keep:
                self.to_reader[node].pop()
            self.to_reader[node].append("down")
        self.to_shard[node].clear()
        self.up[node] = False

    def restart(self, node: int) -> None:
        self.up[node] = True
        if self.rng.random() < 0.5:
            self.connected[node] = True
            while self.to_reader[node]:
                self._deliver(node)
            self.stream.on_peer_up(PeerId(node), self.now)
            self._turn()

    def wipe(self, node: int) -> None:
        """The shard's disk is replaced. One shard of the last nodeset is spared: nobody else knows how far the log goes."""
        last = {member >> 8 for member in self.truth.intervals[-1].shards}
        if last <= self.wiped | {node}:
            return
        self.crash(node)
        self.shards[node].stored.clear()
        self.shards[node].generation += 1
        self.wiped.add(node)
        self.restart(node)

    def forget(self, node: int) -> None:
        """The shard restarts without some of its copies, and knows that it may lack some."""
        self.crash(node)
        member = self.shards[node]
        for at in sorted(member.stored):
            if self.rng.random() < 0.2:
                del member.stored[at]
        member.forgetful = True
        self.restart(node)

    def remove(self, node: int) -> None:
        """The node leaves the cluster file, as long as somebody knows how far the log goes."""
        last = {member >> 8 for member in self.truth.intervals[-1].shards}
        if last <= self.wiped | {node}:
            return
        self.crash(node)
        self.wiped.add(node)
        self.gone.add(node)
        config = self._config(2 + len(self.gone))
        nodes = {number: found for number, found in config.nodes.items() if number not in self.gone}
        self.stream.on_config(replace(config, nodes=nodes), self.now)
        self._turn()

    def corrupt(self) -> None:
        """One copy is damaged, noticed by the shard or not."""
        member = self.rng.choice(self.shards)
        if member.stored:
            copy = member.stored[self.rng.choice(sorted(member.stored))]
            if self.rng.random() < 0.5:
                copy.corrupt_on_disk = True
            elif not copy.damaged:
                copy.damaged = True
                copy.image = damaged(copy.image)

    def trim(self) -> None:
        at = self.rng.choice(self.truth.order)
        if at in self.truth.bridges or at > self.released:
            return
        self.trim_point = max(self.trim_point, at)
        for member in self.shards:
            if self.rng.random() < 0.8:
                member.trim_point = self.trim_point

    def end_faults(self) -> None:
        """Everybody is up, and everything is released and heard of."""
        for node in range(self.node_count):
            if not self.up[node] and node not in self.gone:
                self.restart(node)
        self.released = self.truth.order[-1]
        self.release_to = len(self.truth.order)
        for member in self.shards:
            member.released = self.released
            member.trim_point = self.trim_point

    def finish(self) -> None:
        """Run until the reader has everything."""
        for _ in range(5000):
            for node in range(self.node_count):
                self._pump(node)
                while self.to_reader[node]:
                    self._deliver(node)
            self._answer_history()
            self.items += list(self.stream.take(100, self.now))
            self._turn()
            if self.stream.finished:
                return
            deadline = self.timers.next_deadline()
            if deadline is not None and not any(self.to_shard) and not self.history_due:
                self._advance(max(0, deadline - self.now))
        raise AssertionError(f"never finished: waits for {self.stream.waiting_for()}")

    # What must hold

    def readable(self, at: int) -> bool:
        """A good copy is on a shard that may serve the epoch."""
        interval = next(item for item in reversed(self.truth.intervals) if item.since <= epoch_of(at))
        for member in interval.shards:
            holder = self.shards[member >> 8]
            copy = holder.stored.get(at)
            if (
                copy is None
                or holder.node in self.gone
                or copy.corrupt_on_disk
                or copy.damaged
                or holder.generation != interval.generation(member)
            ):
                continue
            return True
        return False

    def check_items(self, *, certain: bool) -> None:
        """Every LSN is accounted for once, in order, and rightly.

        Args:
            certain: no copy vanished while the stream ran, so that what is lost is known exactly.
        """
        kinds: dict[int, GapKind] = {}
        position = self.first
        records: dict[int, list[bytes]] = {}
        for item in self.items:
            if type(item) is Gap:
                assert item.lo == position, (item, position)
                position = item.hi + 1
                kinds[item.lo] = item.kind
            else:
                assert type(item) is Record, item
                if item.lsn not in records:
                    assert item.lsn == position, (item, position)
                    records[item.lsn] = []
                    position = item.lsn + 1
                assert item.batch_offset == len(records[item.lsn])
                records[item.lsn].append(item.payload)
        assert position == self.until + 1, (position, self.until)
        gaps = [item for item in self.items if type(item) is Gap]
        for at in self.truth.order:
            if not self.first <= at <= self.until:
                continue
            gap = next((item.kind for item in gaps if item.lo <= at <= item.hi), None)
            if gap is GapKind.TRIM:
                assert at <= self.trim_point
            elif gap is GapKind.DATALOSS:
                assert not self.readable(at), f"{at:x} was reported lost and is there"
            elif certain:
                assert self.readable(at)
            if gap is None:
                assert records[at] == self.truth.payloads[at]
            elif gap in (GapKind.HOLE, GapKind.BRIDGE):
                assert at in (self.truth.holes if gap is GapKind.HOLE else self.truth.bridges), (hex(at), gap)
        for item in gaps:
            if item.kind is GapKind.HOLE:
                assert all(at in self.truth.holes for at in range(item.lo, item.hi + 1))
            if item.kind is GapKind.BRIDGE:
                self._check_bridge(item)

    def _check_bridge(self, gap: Gap) -> None:
        at = int(gap.lo)
        while at <= gap.hi:
            if esn_of(at) == 0 or epoch_of(at) < self.truth.intervals[0].since:
                at = at + 1 if esn_of(at) == 0 else min(gap.hi, at | ESN_MAX) + 1
                continue
            ends = [bridge for bridge in self.truth.bridges if epoch_of(bridge) == epoch_of(at) and bridge <= at]
            assert ends, f"no bridge entry explains {gap}"
            at = (at | ESN_MAX) + 1
