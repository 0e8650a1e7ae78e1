"""Which snapshot of the event log a node believes, and which it trims."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from client.append.sequencer_questions import SequencerQuestions
from client.read.items import DataLoss, Gap, GapKind, Record
from client.read.read_set import ReadRequest
from client.replica import log_replica
from client.replica.log_replica import ReplicaStage
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import EVENT_LOG_DELTAS, EVENT_LOG_SNAPSHOTS, Generation, LogId, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import LSN, LSN_MAX, Lsn
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.event_log.events import RebuildMode, ShardNeedsRebuild, decode_event, encode_event
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingMetrics, RebuildingSettings
from logdevice_py.protocol.requests import Requests
from server.event_log.replica import EventLogReplica
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


def event_of(version: int) -> Record:
    """The event of that LSN: a shard lost its data."""
    event = ShardNeedsRebuild(SHARDS[2], Generation(1), RebuildMode.RESTORE, ((SHARDS[2], Generation(1)),), True, "")
    return Record(EVENT_LOG_DELTAS, LSN(version), 0, Timestamp(0), encode_event(event))


def state(version: int) -> RebuildingSet:
    made = RebuildingSet()
    made.apply(decode_event(event_of(version).payload), Lsn(version))
    return made


class FakeStream:
    """A stream of a log, as far as it has delivered it."""

    finished = False

    def __init__(self, log: LogId, first: Lsn) -> None:
        self.log, self.next_lsn, self.items = log, first, list[Any]()
        self.stopped = False

    @property
    def stream(self) -> FakeStream:
        return self

    @property
    def ready(self) -> bool:
        return bool(self.items)

    def take(self, records_max: int, now: Micros) -> list[Any]:
        taken, self.items = self.items[:records_max], self.items[records_max:]
        return taken

    def start(self, now: Micros) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True


class Bench:
    """A replica on a session whose calls are noted, and answered when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOW
        self.trims: list[tuple[LogId, int]] = []
        self.appended: list[tuple[LogId, Any]] = []
        """Logs, and promises of receipts."""
        self.refuses = False
        """Appends raise an error."""
        self.asked: dict[LogId, list[Any]] = {EVENT_LOG_DELTAS: [], EVENT_LOG_SNAPSHOTS: []}
        """Promises of tails."""
        self.tails = self.asked_for_events = self.changes = 0
        self.streams: list[FakeStream] = []
        self.timers, self.metrics = TimerQueue(), RebuildingMetrics()
        self.replica = EventLogReplica(
            CONFIG,
            RebuildingSettings(snapshot_events=1),
            self.metrics,
            Outbox(),
            self.timers,
            random.Random(1),
            Requests(itertools.count(1), self.timers),
            self._on_change,
        )
        session = type(self.replica.session)
        monkeypatch.setattr(session, "trim", lambda _, log, lsn, *rest: self.trims.append((log, int(lsn))))
        monkeypatch.setattr(session, "append", lambda _, *arguments: self._append(*arguments))
        monkeypatch.setattr(SequencerQuestions, "tail_lsn", lambda _, *arguments: self._tail_lsn(*arguments))
        monkeypatch.setattr(log_replica, "SessionStream", self._open)

    def _append(self, log: LogId, payload: bytes, promise: Any, timeout_us: int | None = None) -> None:
        if self.refuses:
            raise LogDeviceError(Status.TOOBIG)
        self.appended.append((log, promise))

    def _tail_lsn(self, log: LogId, promise: Any, now: Micros) -> None:
        self.asked[log].append(promise)
        if log == EVENT_LOG_SNAPSHOTS:
            self.tails += 1
        else:
            self.asked_for_events += 1

    def _open(self, session: Any, request: ReadRequest, *, on_ready: Callable[[], None], **_: Any) -> FakeStream:
        self.streams.append(FakeStream(request.log, request.first))
        self.announce = on_ready
        return self.streams[-1]

    def _on_change(self, now: Micros) -> None:
        self.changes += 1

    @property
    def stage(self) -> ReplicaStage:
        return self.replica.stage

    def start(self, version: int = 0) -> None:
        """Begin, with a state of that version unless it is 0."""
        self.replica.start(self.now)
        if version:
            self.deliver(event_of(version), next_lsn=version + 1)
            self.changes = 0

    def turn(self) -> None:
        self.replica.session.on_turn_end(self.now)

    def pass_time(self, micros: int) -> None:
        self.now = Micros(self.now + micros)
        self.timers.advance(self.now)
        self.turn()

    def deliver(self, *items: Any, next_lsn: int = 0, finished: bool = False) -> None:
        """The stream that is open brings this."""
        stream = self.streams[-1]
        stream.items += items
        stream.next_lsn = Lsn(next_lsn or stream.next_lsn)
        stream.finished = finished
        if stream.ready:
            self.announce()
        self.turn()

    def tell(self, log: LogId, tail: int) -> None:
        """Answer the last question for a tail."""
        self.asked[log].pop().set_result(LSN(tail))
        self.turn()

    def write(self, version: int, at: int) -> None:
        """A snapshot of a version, which gets an LSN."""
        if self.stage is ReplicaStage.STOPPED:
            self.start()
        self.deliver(event_of(version), next_lsn=version + 1)
        self.replica.write_snapshot_if_due(self.now)
        log, promise = self.appended.pop()
        assert log == EVENT_LOG_SNAPSHOTS
        promise.set_result(type("Receipt", (), {"lsn": LSN(at)})())
        self.turn()

    def read(self, *snapshots: tuple[int, bytes], trimmed: int = 0, tail: int = 200) -> None:
        """Those that are in the log: (LSN, bytes).

        Args:
            trimmed: as far as the replica knows that the event log is trimmed.
            tail: of the event log.
        """
        if self.stage is ReplicaStage.STOPPED:
            self.start()
        if trimmed:
            self.deliver(Gap(GapKind.TRIM, LSN(1), LSN(trimmed), None))
        elif self.stage is ReplicaStage.TAILING:
            # the end of its stream is why it looks for a snapshot again
            self.deliver(Gap(GapKind.BRIDGE, LSN(1), LSN(1)), finished=True)
            self.pass_time(SECOND)
        self.answer(*snapshots, tail=tail)

    def answer(self, *snapshots: tuple[int, bytes], tail: int = 200) -> None:
        """The rest of `read`, when it looks for snapshots."""
        assert self.stage is ReplicaStage.LOOKING
        self.tell(EVENT_LOG_SNAPSHOTS, snapshots[-1][0])
        assert (self.stage, self.streams[-1].log) == (ReplicaStage.SNAPSHOT, EVENT_LOG_SNAPSHOTS)
        records = [Record(EVENT_LOG_SNAPSHOTS, LSN(lsn), 0, Timestamp(0), payload) for lsn, payload in snapshots]
        self.deliver(*records, finished=True)
        assert self.stage is ReplicaStage.WEIGHING
        self.tell(EVENT_LOG_DELTAS, tail)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_snapshot_that_was_late_does_not_count_when_it_says_less_than_is_trimmed(bench: Bench) -> None:
    bench.read((11, state(50).encode()), (12, state(90).encode()), (13, state(60).encode()), (14, b"?"), trimmed=90)
    assert bench.replica.set.version == 90


def test_no_snapshot_counts_where_the_log_has_all_events(bench: Bench) -> None:
    bench.read((11, state(50).encode()))
    assert (bench.replica.set.version, bench.replica.stage) == (0, ReplicaStage.TAILING)


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


def test_whoever_needs_one_that_is_not_there_looks_again_in_a_second_and_not_before(bench: Bench) -> None:
    lie = RebuildingSet()
    lie.version = LSN_MAX
    trimmed = Gap(GapKind.TRIM, LSN(1), LSN(90), None)
    bench.start()
    bench.deliver(trimmed)
    assert (bench.tails, bench.stage) == (1, ReplicaStage.LOOKING), "at once, for the first time"
    for look in range(1, 5):
        bench.answer((12, lie.encode()))
        assert bench.stage is ReplicaStage.TAILING
        bench.deliver(trimmed)
        bench.pass_time(SECOND - 1)
        assert bench.tails == look
        bench.pass_time(1)
        assert (bench.tails, bench.stage) == (look + 1, ReplicaStage.LOOKING)


@pytest.mark.parametrize(("version", "found"), [(70, 70), (45, 50)])
def test_lost_events_are_looked_for_among_the_snapshots_once(bench: Bench, version: int, found: int) -> None:
    lost = Gap(GapKind.DATALOSS, LSN(51), LSN(60), DataLoss(True, ()))
    bench.start(50)
    bench.deliver(lost)
    bench.answer((11, state(version).encode()), (12, state(40).encode()))
    assert (bench.replica.set.version, bench.stage) == (found, ReplicaStage.TAILING)
    bench.deliver(lost)
    assert bench.stage is ReplicaStage.TAILING, "nobody knows what they were"
    assert (bench.metrics.event_log_losses, bench.tails) == (1, 1)


def test_a_flood_of_events_leaves_turns_for_others(bench: Bench) -> None:
    bench.start()
    replica, events = bench.replica, bench.streams[-1]
    shards = [ShardId(number) for number in range(1, 3000)]
    events.items = [
        Record(EVENT_LOG_DELTAS, LSN(number), 0, Timestamp(0), encode_event(_invented(shard)))
        for number, shard in enumerate(shards, 51)
    ]
    bench.announce()
    turns = 0
    now = NOW
    while events.ready:
        before = replica.set.version
        replica.session.on_turn_end(now)
        assert replica.set.version - before <= 1000
        assert before < 2051 or replica.set.version - before <= 150, "each takes longer, the more there is"
        turns += 1
        now = Micros(now + 1000)
        bench.timers.advance(now)
    assert turns > len(shards) * 50 // 1000, "the more there is to tell, the longer it rests"
    assert len(replica.set.shards) == len(shards)


def _invented(shard: ShardId) -> ShardNeedsRebuild:
    return ShardNeedsRebuild(shard, Generation(1), RebuildMode.RESTORE, ((shard, Generation(1)),))


def test_what_the_log_does_not_take_stops_nobody(bench: Bench) -> None:
    bench.start(50)
    bench.refuses = True
    bench.replica.write_snapshot_if_due(bench.now)
    bench.replica.append_event(_invented(SHARDS[0]), bench.now)
    assert (bench.metrics.events_written, bench.appended) == (0, [])
    bench.refuses = False
    bench.deliver(event_of(51), next_lsn=52)
    bench.replica.write_snapshot_if_due(bench.now)
    assert [log for log, _ in bench.appended] == [EVENT_LOG_SNAPSHOTS], "the next one may fit"


def test_one_snapshot_is_written_at_a_time_and_after_one_that_failed_another(bench: Bench) -> None:
    bench.start(50)
    for version in (51, 52):
        bench.replica.write_snapshot_if_due(bench.now)
        bench.deliver(event_of(version), next_lsn=version + 1)
    [(_, promise)] = bench.appended
    promise.set_exception(LogDeviceError(Status.TIMEDOUT))
    bench.turn()
    assert (bench.trims, bench.stage) == ([], ReplicaStage.TAILING)
    bench.replica.write_snapshot_if_due(bench.now)
    assert len(bench.appended) == 2


def test_what_is_no_event_and_what_is_lost_leaves_the_state_as_it_is(bench: Bench) -> None:
    bench.start(50)
    before = dict(bench.replica.set.shards)
    bench.deliver(
        Record(EVENT_LOG_DELTAS, LSN(51), 0, Timestamp(0), b"?"),
        Gap(GapKind.DATALOSS, LSN(52), LSN(53), DataLoss(True, ())),
    )
    assert bench.replica.set.shards == before
    assert bench.replica.set.version == 51
    assert bench.metrics.event_log_losses == 1


def test_a_stream_that_stalls_is_opened_anew_from_the_snapshots_on(bench: Bench) -> None:
    bench.start(50)
    bench.tell(EVENT_LOG_DELTAS, 50)
    assert bench.replica.caught_up
    bench.pass_time(10 * SECOND)
    bench.tell(EVENT_LOG_DELTAS, 60)
    assert bench.tails == 0, "it may be on its way"
    bench.pass_time(10 * SECOND)
    bench.tell(EVENT_LOG_DELTAS, 60)
    assert (bench.tails, bench.stage) == (1, ReplicaStage.LOOKING)


def test_who_was_late_to_write_one_does_not_trim_the_newest(bench: Bench) -> None:
    bench.write(60, at=13)
    assert bench.trims == [(EVENT_LOG_DELTAS, 60)]
    assert bench.tails == 1, "it looks what else is there"
    bench.answer((11, state(50).encode()), (12, state(90).encode()), (13, state(60).encode()))
    assert bench.trims[1:] == [(EVENT_LOG_SNAPSHOTS, 11)]


def test_the_snapshots_before_the_newest_are_trimmed_by_who_wrote_it_and_by_nobody_else(bench: Bench) -> None:
    bench.read((11, state(50).encode()), (12, state(90).encode()))
    assert bench.trims == []
    bench.write(100, at=13)
    bench.read((11, state(50).encode()), (12, state(90).encode()), (13, state(100).encode()))
    assert bench.trims == [(EVENT_LOG_DELTAS, 100), (EVENT_LOG_SNAPSHOTS, 12)]


class TestCatchingUp:
    @pytest.fixture(autouse=True)
    def started(self, bench: Bench) -> None:
        """It knows what a snapshot says and has just begun to read what follows."""
        bench.start(50)

    def test_the_tail_is_asked_for_at_once(self, bench: Bench) -> None:
        assert bench.asked_for_events == 1

    def test_it_is_caught_up_as_soon_as_what_the_tail_was_is_applied(self, bench: Bench) -> None:
        bench.tell(EVENT_LOG_DELTAS, 52)
        bench.deliver(Gap(GapKind.BRIDGE, LSN(51), LSN(51)), next_lsn=52)
        assert (bench.replica.caught_up, bench.changes) == (False, 0)
        bench.deliver(Gap(GapKind.BRIDGE, LSN(52), LSN(52)), next_lsn=53)
        assert (bench.replica.caught_up, bench.changes) == (True, 1)

    def test_so_it_is_when_the_tail_is_told_later(self, bench: Bench) -> None:
        bench.tell(EVENT_LOG_DELTAS, 50)
        assert (bench.replica.caught_up, bench.changes) == (True, 1)

    def test_events_that_do_not_come_are_read_anew(self, bench: Bench) -> None:
        bench.tell(EVENT_LOG_DELTAS, 52)
        for _ in range(20):
            bench.pass_time(SECOND)
        bench.streams[-1].next_lsn = Lsn(52)
        for _ in range(20):
            bench.pass_time(SECOND)
        assert bench.tails == 0, "it has got further meanwhile"
        bench.pass_time(SECOND)
        assert (bench.tails, bench.stage) == (1, ReplicaStage.LOOKING)

    def test_snapshots_that_do_not_come_are_read_anew(self, bench: Bench) -> None:
        bench.deliver(Gap(GapKind.TRIM, LSN(1), LSN(60), None))
        bench.tell(EVENT_LOG_SNAPSHOTS, 60)
        for _ in range(20):
            bench.pass_time(SECOND)
        assert (bench.tails, bench.stage) == (1, ReplicaStage.SNAPSHOT)
        bench.pass_time(SECOND)
        assert (bench.tails, bench.stage) == (2, ReplicaStage.LOOKING)
        assert bench.streams[-1].stopped, "what it may still bring is no event"

    def test_a_tail_that_nobody_tells_is_asked_for_again(self, bench: Bench) -> None:
        bench.asked[EVENT_LOG_DELTAS].pop().set_exception(LogDeviceError(Status.TIMEDOUT))
        bench.turn()
        bench.pass_time(SECOND)
        assert (bench.replica.caught_up, bench.asked_for_events) == (False, 2)
