"""Which snapshot of the event log a node believes, and which it trims."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from client.read.items import DataLoss, Gap, GapKind, Record
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import EVENT_LOG_DELTAS, EVENT_LOG_SNAPSHOTS, Generation, LogId, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import LSN, LSN_MAX, Lsn
from logdevice_py.core.machine import Outbox, TimerWheel
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.event_log.events import RebuildMode, ShardNeedsRebuild, encode_event
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingMetrics, RebuildingSettings
from server.event_log.replica import EventLogReplica, ReplicaState
from tests.simulation.cluster_plan import ClusterPlan, NodePlan

NOW = Micros(1)
SHARDS = [shard_id(NodeId(node)) for node in range(3)]
CONFIG = load_cluster(
    ClusterPlan(
        replicate="node:2",
        racks=1,
        attributes={},
        nodes={node: NodePlan(["sequencer", "storage"], 0) for node in range(3)},
        settings=["[settings.rebuilding]", "enabled = true"],
    ).render()
)


def state(version: int) -> RebuildingSet:
    made = RebuildingSet()
    made.apply(
        ShardNeedsRebuild(SHARDS[2], Generation(1), RebuildMode.RESTORE, ((SHARDS[2], Generation(1)),), True, ""),
        Lsn(version),
    )
    return made


class Bench:
    """A replica, of which the session's calls are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trims: list[tuple[LogId, int]] = []
        self.tails = self.asked_for_events = self.changes = 0
        self.appended: Callable[[Any], None]
        self.replica = EventLogReplica(
            CONFIG,
            RebuildingSettings(snapshot_events=1),
            RebuildingMetrics(),
            Outbox(),
            TimerWheel(),
            random.Random(1),
            itertools.count(1),
            self._on_change,
        )
        session = self.replica.session
        monkeypatch.setattr(type(session), "trim", lambda _, log, lsn, *rest: self.trims.append((log, int(lsn))))
        monkeypatch.setattr(type(session), "append", lambda _, *arguments: self._append(*arguments))
        monkeypatch.setattr(type(session), "tail_lsn", lambda _, *arguments: self._tail_lsn(*arguments))

    def _append(self, log: LogId, payload: bytes, promise: Any) -> None:
        self.appended = promise.set_result

    def _tail_lsn(self, log: LogId, promise: Any, now: Micros) -> None:
        if log == EVENT_LOG_SNAPSHOTS:
            self.tails += 1
        else:
            self.asked_for_events += 1

    def _on_change(self, now: Micros) -> None:
        self.changes += 1

    def write(self, version: int, at: int) -> None:
        """A snapshot of a version, which gets an LSN."""
        self.replica.set, self.replica.state = state(version), ReplicaState.TAILING
        self.replica._events_since_snapshot = 1
        self.replica.write_snapshot_if_due(NOW)
        self.appended(type("Receipt", (), {"lsn": LSN(at)})())
        handle, outcome = self.replica.outcomes.pop()
        handle(outcome, NOW)

    def read(self, *snapshots: tuple[int, bytes], trimmed: int = 0, tail: int = 200) -> None:
        """Those that are in the log: (LSN, bytes).

        Args:
            trimmed: as far as the replica knows that the event log is trimmed.
            tail: of the event log.
        """
        replica = self.replica
        if trimmed:
            replica.state = ReplicaState.TAILING
            assert replica._take(Gap(GapKind.TRIM, LSN(1), LSN(trimmed), None))
        replica.state = ReplicaState.LOOKING
        replica._on_snapshot_tail(LSN(snapshots[-1][0]), NOW)
        for lsn, payload in snapshots:
            replica._take(Record(EVENT_LOG_SNAPSHOTS, LSN(lsn), 0, Timestamp(0), payload))
        replica._end_of_snapshots(NOW)
        replica._on_tail_of_events(LSN(tail), NOW)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_snapshot_that_was_late_does_not_count_when_it_says_less_than_is_trimmed(bench: Bench) -> None:
    bench.read((11, state(50).encode()), (12, state(90).encode()), (13, state(60).encode()), (14, b"?"), trimmed=90)
    assert bench.replica.set.version == 90


def test_no_snapshot_counts_where_the_log_has_all_events(bench: Bench) -> None:
    bench.read((11, state(50).encode()))
    assert (bench.replica.set.version, bench.replica.state) == (0, ReplicaState.TAILING)


def test_of_two_that_suffice_the_one_counts_of_which_the_log_has_more_to_say(bench: Bench) -> None:
    lie = RebuildingSet()
    lie.version = Lsn(90)
    bench.read((11, state(90).encode()), (12, state(120).encode()), (13, lie.encode()), trimmed=90)
    assert (bench.replica.set.version, len(bench.replica.set.shards)) == (90, 1)
    assert bench.changes == 1


@pytest.mark.parametrize("version", [201, LSN_MAX - 1, LSN_MAX])
def test_a_snapshot_that_goes_further_than_the_log_counts_for_nothing(bench: Bench, version: int) -> None:
    lie = RebuildingSet()
    lie.version = Lsn(version)
    bench.read((12, lie.encode()), trimmed=90)
    assert (bench.replica.set.version, bench.changes) == (0, 0)
    bench.read((11, state(90).encode()), (12, lie.encode()))
    assert bench.replica.set.version == 90
    bench.write(100, at=13)
    bench.read((11, state(90).encode()), (12, lie.encode()), (13, state(100).encode()))
    assert bench.trims[-1] == (EVENT_LOG_SNAPSHOTS, 12), "it is trimmed with the others"


def test_whoever_needs_one_that_is_not_there_looks_again_in_a_second_and_not_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie = RebuildingSet()
    lie.version = LSN_MAX
    events = Events()
    reading = SimpleNamespace(stream=events, stop=lambda: None)
    monkeypatch.setattr(bench.replica, "_open", lambda *_: setattr(bench.replica, "_reading", reading))
    replica, timers = bench.replica, bench.replica._timers
    replica._tail(NOW)
    events.items = [Gap(GapKind.TRIM, LSN(1), LSN(90), None)]
    replica._drain(NOW)
    assert (bench.tails, replica.state) == (1, ReplicaState.LOOKING), "at once, for the first time"
    for look in range(1, 5):
        now = Micros(NOW + look * SECOND)
        bench.read((12, lie.encode()))
        assert replica.state is ReplicaState.TAILING
        events.items = [Gap(GapKind.TRIM, LSN(1), LSN(90), None)]
        replica._reading = reading
        replica._drain(Micros(now - SECOND))
        timers.advance(Micros(now - 1))
        assert bench.tails == look
        timers.advance(now)
        assert (bench.tails, replica.state) == (look + 1, ReplicaState.LOOKING)


def test_lost_events_are_looked_for_among_the_snapshots_once(bench: Bench) -> None:
    replica = bench.replica
    replica.set, replica.state = state(50), ReplicaState.TAILING
    gap = Gap(GapKind.DATALOSS, LSN(51), LSN(60), DataLoss(True, ()))
    assert replica._take(gap)
    bench.read((11, state(70).encode()), (12, state(40).encode()))
    assert replica.set.version == 70

    replica.set, replica.state = state(50), ReplicaState.TAILING
    assert not replica._take(gap), "nobody knows what they were"
    assert replica._metrics.event_log_losses == 1


def test_a_flood_of_events_leaves_turns_for_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    events = Events()
    reading = SimpleNamespace(stream=events, stop=lambda: None)
    monkeypatch.setattr(bench.replica, "_open", lambda *_: setattr(bench.replica, "_reading", reading))
    replica = bench.replica
    replica._tail(NOW)
    shards = [ShardId(number) for number in range(1, 3000)]
    events.items = [
        Record(EVENT_LOG_DELTAS, LSN(number), 0, Timestamp(0), encode_event(_invented(shard)))
        for number, shard in enumerate(shards, 51)
    ]
    turns = 0
    now = NOW
    while events.ready:
        before = replica.set.version
        replica.on_turn_end(now)
        assert replica.set.version - before <= 1000
        assert before < 2051 or replica.set.version - before <= 150, "each takes longer, the more there is"
        turns += 1
        now = Micros(now + 1000)
        replica._timers.advance(now)
    assert turns > len(shards) * 50 // 1000, "the more there is to tell, the longer it rests"
    assert len(replica.set.shards) == len(shards)


def _invented(shard: ShardId) -> ShardNeedsRebuild:
    return ShardNeedsRebuild(shard, Generation(1), RebuildMode.RESTORE, ((shard, Generation(1)),))


def test_what_the_log_does_not_take_stops_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise LogDeviceError(Status.TOOBIG)

    monkeypatch.setattr(bench, "_append", refuse)
    replica = bench.replica
    replica.set, replica.state, replica._events_since_snapshot = state(50), ReplicaState.TAILING, 1
    replica.write_snapshot_if_due(NOW)
    replica.append(_invented(SHARDS[0]), NOW)
    assert replica._metrics.events_written == 0
    replica._events_since_snapshot = 1
    monkeypatch.undo()
    bench.appended = lambda _: None
    monkeypatch.setattr(type(replica.session), "append", lambda _, *arguments: bench._append(*arguments))
    replica.write_snapshot_if_due(NOW)
    assert replica._snapshot_under_way, "the next one may fit"


def test_what_is_no_event_and_what_is_lost_leaves_the_state_as_it_is(bench: Bench) -> None:
    replica = bench.replica
    replica.set, replica.state = state(50), ReplicaState.TAILING
    before = dict(replica.set.shards)
    assert not replica._take(Record(EVENT_LOG_DELTAS, LSN(51), 0, Timestamp(0), b"?"))
    replica._take(Gap(GapKind.DATALOSS, LSN(52), LSN(53), DataLoss(True, ())))
    assert replica.set.shards == before
    assert replica.set.version == 51
    assert replica._metrics.event_log_losses == 1


def test_a_stream_that_stands_still_is_opened_anew_from_the_snapshots_on(bench: Bench) -> None:
    replica = bench.replica
    replica.set, replica.caught_up = state(50), True
    replica._tail(NOW)
    replica._on_tail(LSN(60), NOW)
    assert bench.tails == 0, "it may be on its way"
    replica._on_tail(LSN(60), NOW)
    assert (bench.tails, replica.state) == (1, ReplicaState.LOOKING)


def test_who_was_late_to_write_one_does_not_trim_the_newest(bench: Bench) -> None:
    bench.write(60, at=13)
    assert bench.trims == [(EVENT_LOG_DELTAS, 60)]
    assert bench.tails == 1, "it looks what else is there"
    bench.read((11, state(50).encode()), (12, state(90).encode()), (13, state(60).encode()))
    assert bench.trims[1:] == [(EVENT_LOG_SNAPSHOTS, 11)]


def test_the_snapshots_before_the_newest_are_trimmed_by_who_wrote_it_and_by_nobody_else(bench: Bench) -> None:
    bench.read((11, state(50).encode()), (12, state(90).encode()))
    assert bench.trims == []
    bench.write(100, at=13)
    bench.read((11, state(50).encode()), (12, state(90).encode()), (13, state(100).encode()))
    assert bench.trims == [(EVENT_LOG_DELTAS, 100), (EVENT_LOG_SNAPSHOTS, 12)]


class Events:
    """A stream of events, as far as it has delivered them."""

    finished = False

    def __init__(self) -> None:
        self.next_lsn, self.items = Lsn(51), list[Any]()

    @property
    def ready(self) -> bool:
        return bool(self.items)

    def take(self, records_max: int, now: Micros) -> list[Any]:
        taken, self.items = self.items[:records_max], self.items[records_max:]
        return taken

    def stop(self) -> None:
        pass


class TestCatchingUp:
    @pytest.fixture
    def events(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Events:
        """Of a replica that knows what a snapshot says and has just begun to read what follows."""
        events = Events()
        reading = SimpleNamespace(stream=events, stop=lambda: None)
        monkeypatch.setattr(bench.replica, "_open", lambda *_: setattr(bench.replica, "_reading", reading))
        bench.replica.set = state(50)
        bench.replica._tail(NOW)
        return events

    def test_the_tail_is_asked_for_at_once(self, bench: Bench, events: Events) -> None:
        assert bench.asked_for_events == 1

    def test_it_is_caught_up_as_soon_as_what_the_tail_was_is_applied(self, bench: Bench, events: Events) -> None:
        replica = bench.replica
        replica._on_tail(LSN(52), NOW)
        events.items, events.next_lsn = [Gap(GapKind.BRIDGE, LSN(51), LSN(51))], Lsn(52)
        replica._drain(NOW)
        assert (replica.caught_up, bench.changes) == (False, 0)
        events.items, events.next_lsn = [Gap(GapKind.BRIDGE, LSN(52), LSN(52))], Lsn(53)
        replica._drain(NOW)
        assert (replica.caught_up, bench.changes) == (True, 1)

    def test_so_it_is_when_the_tail_is_told_later(self, bench: Bench, events: Events) -> None:
        bench.replica._on_tail(LSN(50), NOW)
        assert (bench.replica.caught_up, bench.changes) == (True, 1)

    def test_events_that_do_not_come_are_read_anew(self, bench: Bench, events: Events) -> None:
        replica = bench.replica
        replica._on_tail(LSN(52), NOW)
        for second in range(20):
            replica._check_tail(Micros(NOW + second * SECOND))
        events.next_lsn = Lsn(52)
        for second in range(20, 40):
            replica._check_tail(Micros(NOW + second * SECOND))
        assert bench.tails == 0, "it has got further meanwhile"
        replica._check_tail(Micros(NOW + 40 * SECOND))
        assert (bench.tails, replica.state) == (1, ReplicaState.LOOKING)

    def test_snapshots_that_do_not_come_are_read_anew(self, bench: Bench, events: Events) -> None:
        replica = bench.replica
        replica._look(NOW)
        replica._on_snapshot_tail(LSN(60), NOW)
        replica._check_tail(NOW)
        replica._check_tail(Micros(NOW + 19 * SECOND))
        assert (bench.tails, replica.state) == (1, ReplicaState.SNAPSHOT)
        replica._check_tail(Micros(NOW + 20 * SECOND))
        assert (bench.tails, replica.state) == (2, ReplicaState.LOOKING)
        assert replica._stream is None, "what it may still bring is no event"

    def test_a_tail_that_nobody_tells_is_asked_for_again(self, bench: Bench, events: Events) -> None:
        bench.replica._on_tail(LogDeviceError(Status.TIMEDOUT), NOW)
        bench.replica._check_tail(NOW)
        assert (bench.replica.caught_up, bench.asked_for_events) == (False, 2)
