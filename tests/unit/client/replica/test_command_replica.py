"""Replicas of a state machine: what comes of proposals, which snapshots count, and when something is trimmed."""

from __future__ import annotations

from typing import Any

import pytest

from client.replica import applied_state, command_replica
from client.replica.applied_state import AppliedState
from client.replica.chunked_snapshots import CHUNK_OVERHEAD, cut_snapshot
from client.replica.command_replica import PROPOSALS_MAX, CommandReplica
from client.replica.commands import COMMAND_BYTES_MAX, NOTHING, RequestId, StateVersion, encode_command
from client.replica.log_replica import ReplicaStage
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND
from tests.unit.client.replica.fakes import COMMANDS, SNAPSHOTS, MemoryLogs, MemoryReceipt
from tests.unit.client.replica.registers import REGISTERS, Registers, set_command


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> MemoryLogs:
    return MemoryLogs(monkeypatch)


def version(lsn: int, offset: int = 0) -> StateVersion:
    return StateVersion(Lsn(lsn), offset)


def request(number: int, base: StateVersion = NOTHING) -> RequestId:
    return RequestId(number.to_bytes(16, "big"), base)


def record(number: int, command: bytes, base: StateVersion = NOTHING) -> bytes:
    return encode_command("registers", request(number, base), command)


def snapshot(state: AppliedState[Registers], number: int, chunk: int = 300) -> list[bytes]:
    return cut_snapshot(state.encode(), number.to_bytes(16, "big"), chunk + CHUNK_OVERHEAD)


def equal(*replicas: CommandReplica[Registers]) -> bool:
    return len({replica.state.encode() for replica in replicas}) == 1


class TestPermission:
    def test_who_may_not_read_is_told_once_and_goes_on_when_it_may(self, logs: MemoryLogs) -> None:
        logs.set(logs.replica(), "a", "1")
        told = logs.changes
        logs.refused = LogDeviceError(Status.ACCESS, "principal mallory may not read log 1", retriable=False)
        replica = logs.replica()
        logs.run(5 * SECOND)
        assert replica.refused is logs.refused
        assert (replica.caught_up, logs.changes) == (False, told + 3), (
            "the command that it reads, and once by each that it may not"
        )
        logs.refused = LogDeviceError(Status.TIMEDOUT, "nobody answers")
        logs.run(2 * SECOND)
        assert replica.refused is None, "that is not known any more"
        logs.refused = None
        logs.run(2 * SECOND)
        assert replica.caught_up
        assert replica.state.value.values == {"a": "1"}


class TestProposals:
    def test_an_outcome_comes_with_the_state_that_shows_it(self, logs: MemoryLogs) -> None:
        one, other = logs.replica(), logs.replica()
        outcome = logs.set(one, "a", "1")
        assert (outcome.applied, outcome.result, outcome.version) == (True, b"1", version(1))
        assert one.state.value.values == {"a": "1"}
        assert equal(one, other)

    def test_a_precondition_is_judged_where_the_command_stands(self, logs: MemoryLogs) -> None:
        one, other = logs.replica(), logs.replica()
        answers = [logs.propose(each, set_command("a", name, "")) for each, name in ((one, "one"), (other, "other"))]
        logs.run()
        won, lost = (answer.outcome for answer in answers)
        assert (won.applied, lost.applied, lost.reason) == (True, False, "a is 'one', not ''")
        assert equal(one, other)

    def test_what_fails_is_appended_again_and_applied_once(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        logs.held = []
        answer = logs.propose(replica, set_command("a", "1"))
        logs.run()
        [(_, payload, promise)] = logs.held
        logs.commands.append(payload)
        logs.held = None
        replica._reading.is_held = True  # type: ignore[union-attr]
        promise.set_exception(LogDeviceError(Status.TIMEDOUT))
        logs.run(SECOND)
        assert logs.commands.tail == 2
        replica._reading.is_held = False  # type: ignore[union-attr]
        logs.run()
        assert answer.outcome.version == version(1)
        assert (replica.state.value.counts, replica.metrics.commands_repeated) == ({"a": 1}, 1)

    def test_time_that_is_up_leaves_it_open_and_the_same_request_tells_later(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        logs.held = []
        mine = replica.new_request()
        answer = logs.propose(replica, set_command("a", "1"), SECOND, mine)
        logs.run(2 * SECOND)
        assert answer.failed == (Status.TIMEDOUT, True)
        logs.commands.append(logs.held[0][1])
        logs.held = None
        logs.run()
        again = logs.propose(replica, set_command("a", "1"), SECOND, mine)
        logs.run()
        assert again.outcome.version == version(1)
        assert logs.commands.tail == 1

    def test_what_was_never_appended_is_not_maybe_applied(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        logs.held = []
        answer = logs.propose(replica, set_command("a", "1"), SECOND)
        for _ in range(20):
            logs.run(SECOND // 10)
            for _, _, promise in logs.held:
                promise.set_exception(LogDeviceError(Status.NOSEQUENCER))
            logs.held.clear()
        assert answer.failed == (Status.TIMEDOUT, False)

    def test_proposals_of_a_closed_replica_end(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        logs.held = []
        answer = logs.propose(replica, set_command("a", "1"))
        replica.stop()
        assert answer.failed[0] is Status.SHUTDOWN
        with pytest.raises(LogDeviceError, match="closed"):
            logs.propose(replica, set_command("a", "1"))
        logs.run(100 * SECOND)
        assert replica.stage is ReplicaStage.CLOSED

    def test_proposals_are_bounded(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        with pytest.raises(LogDeviceError, match="TOOBIG"):
            logs.propose(replica, bytes(COMMAND_BYTES_MAX + 1))
        logs.held = []
        for _ in range(PROPOSALS_MAX):
            logs.propose(replica, set_command("a", "1"))
        with pytest.raises(LogDeviceError, match="NOBUFS"):
            logs.propose(replica, set_command("a", "1"))

    def test_records_of_one_entry_are_applied_one_by_one(self, logs: MemoryLogs) -> None:
        logs.commands.append(record(1, set_command("a", "1")), record(2, set_command("a", "2")))
        replica = logs.replica()
        assert (replica.version, replica.state.value.counts) == (version(1, 1), {"a": 2})


class TestRequests:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(applied_state, "REQUESTS_MAX", 3)

    def test_a_copy_that_comes_after_it_was_forgotten_is_refused(self, logs: MemoryLogs) -> None:
        copy = record(1, set_command("a", "1"))
        logs.commands.append(copy)
        for number in range(2, 6):
            logs.commands.append(record(number, set_command("b", str(number)), version(number - 1)))
        logs.commands.append(copy)
        replica = logs.replica()
        assert replica.state.value.counts == {"a": 1, "b": 4}
        assert replica.metrics.commands_too_old == 1

    def test_a_base_that_lies_ahead_is_none(self, logs: MemoryLogs) -> None:
        logs.commands.append(record(1, set_command("a", "1"), version(1)))
        replica = logs.replica()
        assert (replica.state.value.counts, replica.metrics.records_of_other_kinds) == ({}, 1)

    def test_a_proposal_that_comes_too_late_is_made_anew(self, logs: MemoryLogs) -> None:
        one, other = logs.replica(), logs.replica()
        logs.held = []
        answer = logs.propose(one, set_command("late", "1"))
        logs.run()
        [(_, payload, _)] = logs.held
        logs.held = None
        for number in range(5):
            logs.set(other, "b", str(number))
        logs.commands.append(payload)
        logs.run()
        assert answer.outcome.version == version(7)
        assert (one.state.value.counts["late"], one.metrics.commands_too_old) == (1, 1)

    def test_a_request_of_an_application_is_not(self, logs: MemoryLogs) -> None:
        one, other = logs.replica(), logs.replica()
        mine = one.new_request()
        logs.held = []
        answer = logs.propose(one, set_command("late", "1"), request=mine)
        logs.run()
        [(_, payload, _)] = logs.held
        logs.held = None
        for number in range(5):
            logs.set(other, "b", str(number))
        logs.commands.append(payload)
        logs.run()
        assert answer.failed == (Status.STALE, False)
        again = logs.propose(one, set_command("late", "1"), request=mine)
        assert again.failed == (Status.STALE, True), "nobody can tell any more"

    def test_memory_and_horizon_are_part_of_snapshots(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        for number in range(5):
            logs.set(replica, "a", str(number))
        copy = AppliedState.decode(replica.state.encode(), REGISTERS)
        assert (copy.encode(), copy.horizon) == (replica.state.encode(), version(2))


class TestSnapshots:
    def write(self, logs: MemoryLogs, replica: CommandReplica[Registers], commands: int = 2) -> None:
        for number in range(commands):
            logs.set(replica, "a", str(number))
        assert replica.write_snapshot(logs.now)
        logs.run()

    def test_two_are_kept_and_commands_from_the_older_on(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        self.write(logs, replica)
        assert logs.trims == [], "there is only one"
        first = logs.snapshots.tail
        self.write(logs, replica)
        assert logs.trims == [(COMMANDS, 1)]
        self.write(logs, replica)
        assert logs.trims[1:] == [(COMMANDS, 3), (SNAPSHOTS, first)]

    def test_nothing_is_trimmed_when_it_is_not_read_back_whole(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        self.write(logs, replica)
        for number in range(2):
            logs.set(replica, "a", str(number))
        logs.held = []
        replica.write_snapshot(logs.now)
        logs.run()
        while logs.held:
            [(log, payload, promise)] = logs.held
            logs.held = []
            lsn = logs[log].append(payload)
            logs.snapshots.lost.add(lsn)
            promise.set_result(MemoryReceipt(lsn))
            logs.run()
        assert replica.metrics.snapshots_written == 2
        assert logs.trims == []

    def test_one_that_starts_reaches_the_same_state(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        whole = logs.replica()
        for _ in range(4):
            self.write(logs, replica)
        logs.set(replica, "b", "1")
        late = logs.replica()
        assert late.caught_up
        assert equal(late, replica, whole)
        assert late.metrics.commands_judged < whole.metrics.commands_judged

    def test_whoever_proposed_the_last_of_so_many_commands_writes_it(self, logs: MemoryLogs) -> None:
        one, other = logs.replica(snapshot_every=3), logs.replica(snapshot_every=3)
        logs.set(one, "a", "1")
        logs.set(one, "a", "2")
        logs.set(other, "a", "3")
        assert (one.metrics.snapshots_written, other.metrics.snapshots_written) == (0, 1)

    def test_a_lagging_writer_trims_nothing(self, logs: MemoryLogs) -> None:
        replica, lagging = logs.replica(), logs.replica()
        self.write(logs, replica)
        lagging._reading.is_held = True  # type: ignore[union-attr]
        logs.may_trim = False
        self.write(logs, replica)
        before = list(logs.trims)
        lagging.write_snapshot(logs.now)
        logs.run()
        assert lagging.metrics.snapshots_written == 1
        assert logs.trims == before

    def test_two_writers_at_the_same_time_do_not_mix(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        for number in range(40):
            logs.set(replica, f"r{number}", str(number))
        chunks = [snapshot(replica.state, number) for number in (1, 2)]
        assert len(chunks[0]) > 3
        for pair in zip(*chunks, strict=True):
            for each in pair:
                logs.snapshots.append(each)
        logs.commands.trimmed = replica.state.version
        late = logs.replica()
        assert equal(late, replica)

    def test_a_chunk_that_is_lost_leaves_the_other_snapshot(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        for _ in range(3):
            self.write(logs, replica)
        logs.snapshots.lost.add(logs.snapshots.tail - 1)
        assert equal(logs.replica(), replica)
        logs.snapshots.lost = set(range(logs.snapshots.trimmed + 1, logs.snapshots.tail - 1))
        late = logs.replica()
        assert equal(late, replica), "the later one tells all"

    def test_a_reader_that_trimming_overtakes_looks_again(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        self.write(logs, replica)
        self.write(logs, replica)
        late = logs.replica()
        late._reading.is_held = True  # type: ignore[union-attr]
        for _ in range(3):
            self.write(logs, replica)
        late._reading.is_held = False  # type: ignore[union-attr]
        logs.run(2 * SECOND)
        assert equal(late, replica)

    def test_a_proposal_that_a_snapshot_skips_gets_its_outcome(self, logs: MemoryLogs) -> None:
        one, other = logs.replica(), logs.replica()
        one._reading.is_held = True  # type: ignore[union-attr]
        answer = logs.propose(one, set_command("mine", "1"))
        logs.run()
        for _ in range(3):
            self.write(logs, other)
        assert not answer.done()
        one._reading.is_held = False  # type: ignore[union-attr]
        logs.run(SECOND)
        assert answer.outcome.version == version(1)

    def test_of_snapshots_without_end_only_a_few_are_put_together(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        for value in ("1", "2"):
            logs.set(replica, "a", value)
        logs.commands.trimmed = 1
        whole = snapshot(replica.state, 1, 10)
        for number in range(2, 9):
            logs.snapshots.append(snapshot(replica.state, number, 10)[0])
        for each in whole:
            logs.snapshots.append(each)
        assert equal(logs.replica(), replica)
        logs.snapshots.entries.clear()
        logs.snapshots.append(whole[0])
        for number in range(2, 10):
            logs.snapshots.append(snapshot(replica.state, number, 10)[0])
        for each in whole[1:]:
            logs.snapshots.append(each)
        assert logs.replica().version == NOTHING, "whoever writes more than eight at a time writes none"

    def test_a_state_that_is_too_large_has_none(self, logs: MemoryLogs, monkeypatch: pytest.MonkeyPatch) -> None:
        replica = logs.replica()
        logs.set(replica, "a", "1")
        monkeypatch.setattr(command_replica, "SNAPSHOT_BYTES_MAX", 10)
        replica.write_snapshot(logs.now)
        logs.run()
        assert (replica.metrics.snapshots_too_large, logs.snapshots.tail) == (1, 0)

    def test_a_snapshot_that_goes_further_than_the_log_counts_for_nothing(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        for value in ("1", "2", "3"):
            logs.set(replica, "a", value)
        lie = AppliedState(REGISTERS)
        lie.position = version(99)
        for each in snapshot(lie, 9):
            logs.snapshots.append(each)
        logs.commands.trimmed = 1
        late = logs.replica()
        assert late.version == NOTHING
        for each in snapshot(replica.state, 1):
            logs.snapshots.append(each)
        logs.run(2 * SECOND)
        assert equal(late, replica)


class TestLosses:
    def test_nothing_is_applied_behind_one(self, logs: MemoryLogs) -> None:
        writer = logs.replica()
        for number in range(3):
            logs.set(writer, "a", str(number))
        logs.commands.lost.add(2)
        late = logs.replica()
        assert (late.version, late.caught_up) == (version(1), False)
        assert "which are lost: no copy is left. registers stays at version e0n1+0" in late.waiting_for()
        with pytest.raises(LogDeviceError, match="which are lost") as refused:
            logs.propose(late, set_command("b", "1"))
        assert refused.value.status is Status.DATALOSS
        logs.run(40 * SECOND)
        assert late.version == version(1)

    def test_it_goes_on_when_copies_are_back(self, logs: MemoryLogs) -> None:
        writer = logs.replica()
        for number in range(3):
            logs.set(writer, "a", str(number))
        logs.commands.lost.add(2)
        late = logs.replica()
        logs.commands.lost.clear()
        logs.run(40 * SECOND)
        assert equal(late, writer)
        assert (late.loss, late.waiting_for()) == (None, "commands")

    def test_it_goes_on_when_a_snapshot_tells_what_they_did(self, logs: MemoryLogs) -> None:
        writer = logs.replica()
        for number in range(4):
            logs.set(writer, "a", str(number))
        logs.commands.lost.add(2)
        late = logs.replica()
        assert writer.write_snapshot(logs.now)
        logs.run(40 * SECOND)
        assert equal(late, writer)
        assert late.loss is None

    def test_proposals_under_way_fail(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        logs.commands.lost.add(1)
        answer = logs.propose(replica, set_command("a", "1"))
        logs.run()
        assert answer.failed == (Status.DATALOSS, True)


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "text": b"hello",
    "another kind": encode_command("other", request(1), b"a * 1"),
    "another format": b"\x96\x02" + record(1, b"a * 1")[2:],
    "cut": record(1, b"a * 1")[:-1],
    "too long a body": encode_command("registers", request(1), bytes(COMMAND_BYTES_MAX + 1)),
    "short id": encode_command("registers", RequestId(b"x", NOTHING), b"a * 1"),
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_command_is_skipped_by_all_and_counted(logs: MemoryLogs, payload: bytes) -> None:
    early = logs.replica()
    logs.commands.append(payload)
    logs.set(early, "a", "1")
    late = logs.replica()
    assert early.metrics.records_of_other_kinds == late.metrics.records_of_other_kinds == 1
    assert equal(early, late)


def test_a_command_that_the_state_does_not_understand_is_refused(logs: MemoryLogs) -> None:
    replica = logs.replica()
    answer = logs.propose(replica, b"\xff\xff")
    logs.run()
    assert (answer.outcome.applied, answer.outcome.reason) == (False, "three words expected")


@pytest.mark.parametrize(
    "change",
    [lambda data: b"", lambda data: data[:-1], lambda data: b"\x91\x07", lambda data: data[:40] + b"?" + data[41:]],
)
def test_what_is_no_chunk_or_a_damaged_one_leaves_the_snapshot_out(logs: MemoryLogs, change: Any) -> None:
    replica = logs.replica()
    for number in range(4):
        logs.set(replica, "a", str(number))
    whole = snapshot(replica.state, 1)
    state = logs.replica().state
    for number, each in enumerate(snapshot(state, 2)):
        logs.snapshots.append(change(each) if number == 0 else each)
    for each in whole:
        logs.snapshots.append(each)
    logs.commands.trimmed = replica.state.version
    assert equal(logs.replica(), replica)


class TestConfirmations:
    """Who asks for the end of the commands is told when all up to there are applied."""

    def test_it_is_told_when_that_is_so(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        told: list[BaseException | None] = []
        stream: Any = replica._reading
        stream.is_held = True
        logs.commands.append(record(1, set_command("a", "1")))
        asked = logs.now
        replica.confirm(lambda error, at: told.append(error), asked, SECOND)
        logs.run()
        assert told == []
        assert replica.confirmed_at < asked
        stream.is_held = False
        logs.run()
        assert told == [None]
        assert replica.confirmed_at == asked
        assert replica.state.value.values == {"a": "1"}

    def test_the_end_that_nobody_tells_is_an_error(self, logs: MemoryLogs, monkeypatch: pytest.MonkeyPatch) -> None:
        replica = logs.replica()
        failure = LogDeviceError(Status.NOSEQUENCER, "")
        monkeypatch.setattr(
            replica.session.sequencers, "tail_lsn", lambda log, promise, *rest: promise.set_exception(failure)
        )
        told: list[BaseException | None] = []
        replica.confirm(lambda error, at: told.append(error), logs.now, SECOND)
        logs.run()
        assert told == [failure]

    def test_it_is_confirmed_again_by_itself(self, logs: MemoryLogs) -> None:
        replica = logs.replica()
        before = replica.confirmed_at
        assert before >= 0
        logs.run(30 * SECOND)
        assert replica.confirmed_at > before


def test_a_copy_that_lies_at_a_silent_node_is_not_waited_for_until_the_end(
    logs: MemoryLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = logs.replica()
    timeouts: list[int | None] = []

    def append(log: Any, payload: bytes, promise: Any, timeout_us: int | None = None, *rest: Any) -> None:
        timeouts.append(timeout_us)
        promise.set_exception(LogDeviceError(Status.TIMEDOUT, ""))

    monkeypatch.setattr(replica.session, "append", append)
    logs.propose(replica, set_command("a", "1"), timeout_us=60 * SECOND)
    logs.run(SECOND)
    assert timeouts[:3] == [SECOND, 2 * SECOND, 4 * SECOND]
