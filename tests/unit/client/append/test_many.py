"""Many records by one call: atomic batches, and records that are appended by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from client.append.many import ManyRecords, check_atomic
from client.guards import Guards, Position
from logdevice_py.core.batch import BYTES_PER_RECORD, decode_batch
from logdevice_py.core.entry import RECORDS_PER_ENTRY_MAX
from logdevice_py.core.lsn import LSN, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.messages import AppendedFlags, AppendFlags, GuardedAppend, GuardFlags, SplitRun
from tests.unit.client.fakes import LOG, Bench, FakePromise, appended

ATOMIC = int(AppendFlags.ATOMIC)
BATCH = int(AppendFlags.BATCH)
RECORDS = [b"a", b"", b"ccc"]


def append(
    bench: Bench,
    payloads: list[bytes],
    keys: list[bytes | None] | None = None,
    guards: Guards | None = None,
    *,
    atomic: bool = True,
) -> FakePromise:
    promise = FakePromise()
    ManyRecords(payloads, keys, guards, atomic=atomic).append(bench.session, LOG, promise, None, synced=False)
    return promise


def one_by_one(bench: Bench, payload: bytes) -> FakePromise:
    promise = FakePromise()
    bench.session.append(LOG, payload, promise)
    return promise


class TestAtomic:
    def test_one_frame_holds_the_batch_and_nothing_else(self) -> None:
        bench = Bench()
        before = one_by_one(bench, b"before")
        promise = append(bench, RECORDS, [b"k", None, None])
        after = one_by_one(bench, b"after")
        frames = bench.taken()
        assert [message.records for _, message in frames] == [1, 3, 1]
        node, message = frames[1]
        assert message.flags == BATCH | ATOMIC | AppendFlags.KEYS
        bench.answer(node, appended(message, lsn=compose_lsn(3, 9), offset=2))
        assert promise.result.lsns() == [compose_lsn(3, 9)] * 3
        assert promise.result.batch_offsets() == [2, 3, 4]
        assert not before.done()
        assert not after.done()

    def test_records_that_would_have_frames_of_their_own_share_one(self) -> None:
        bench = Bench()
        large = [bytes(200_000)] * 4
        append(bench, large)
        _, message = bench.one()
        assert decode_batch(message.payload, 4) == large

    def test_a_batch_has_one_guard_and_is_repeated_when_that_expects_something(self) -> None:
        bench = Bench()
        guards = Guards([5, 5, 9], 3, Position(LSN(compose_lsn(1, 2)), 4), 99)
        promise = append(bench, RECORDS, None, guards)
        node, message = bench.one(GuardedAppend)
        assert message.guards == GuardFlags.TRANSACTION | GuardFlags.EXPECT | GuardFlags.FENCE
        assert (message.first_transaction, message.last_transaction, message.token, message.append_id) == (5, 9, 3, 99)
        assert (message.expected_lsn, message.expected_offset) == (compose_lsn(1, 2), 4)
        bench.down(node)
        bench.pass_time(1_000_000)
        node, again = bench.taken(GuardedAppend)[-1]
        assert (again.append_id, again.payload) == (99, message.payload)
        bench.answer(node, appended(again, lsn=compose_lsn(3, 9)))
        assert len(promise.result) == 3

    def test_what_an_entry_cannot_hold_is_refused_with_the_limit(self) -> None:
        bench = Bench()
        longest = bench.session.routes.config.log(LOG).max_payload_bytes  # type: ignore[union-attr]
        with pytest.raises(
            LogDeviceError, match=f"the log takes {longest:,} .max_payload_bytes.*never split"
        ) as refused:
            append(bench, [bytes(longest // 2), bytes(longest // 2)])
        assert refused.value.status is Status.TOOBIG
        assert not bench.taken()
        with pytest.raises(LogDeviceError, match=f"65,537 records: one entry holds {RECORDS_PER_ENTRY_MAX:,} at most"):
            append(bench, [b""] * (RECORDS_PER_ENTRY_MAX + 1))

    def test_the_largest_batch_is_taken_by_the_sequencer(self) -> None:
        bench = Bench()
        longest = bench.session.routes.config.log(LOG).max_payload_bytes  # type: ignore[union-attr]
        record = b"x" * (longest // 10 - BYTES_PER_RECORD - 10)
        keys: list[bytes | None] = [b"key"] * 10
        check_atomic([record] * 10, keys, longest)
        append(bench, [record] * 10, keys)
        _, message = bench.one()
        assert len(message.payload) <= longest

    def test_a_node_that_split_the_batch_is_not_believed(self) -> None:
        bench = Bench()
        promise = append(bench, RECORDS)
        node, message = bench.one()
        split = [SplitRun(3, Timestamp(1), 0, [])]
        bench.answer(node, appended(message, lsn=compose_lsn(3, 9), split=split))
        assert (promise.failure.status, promise.failure.maybe_applied) == (Status.PROTO, True)
        assert "knows no atomic batches" in promise.failure.detail

    def test_no_records_are_stored_at_once(self) -> None:
        bench = Bench()
        assert len(append(bench, []).result) == 0
        assert not bench.taken()


class TestEach:
    def test_receipts_come_in_the_order_of_the_records_whatever_comes_first(self) -> None:
        bench = Bench()
        promise = append(bench, [b"a" * 100_000, b"b" * 100_000], atomic=False)
        (node, one), (_, two) = bench.taken()
        bench.answer(node, appended(two, lsn=compose_lsn(3, 2)))
        assert not promise.done()
        bench.answer(node, appended(one, lsn=compose_lsn(3, 1)))
        assert promise.result.lsns() == [compose_lsn(3, 1), compose_lsn(3, 2)]

    def test_some_may_fail_without_the_others(self) -> None:
        bench = Bench()
        longest = bench.session.routes.config.log(LOG).max_payload_bytes  # type: ignore[union-attr]
        promise = append(bench, [b"a", bytes(longest + 1)], atomic=False)
        node, message = bench.one()
        bench.answer(node, appended(message, lsn=compose_lsn(3, 1)))
        assert promise.failure.status is Status.TOOBIG
        assert promise.failure.detail.startswith("1 of 2 records: ")
        assert promise.failure.maybe_applied

    def test_an_unknown_outcome_is_told_before_a_certain_one(self) -> None:
        bench = Bench()
        longest = bench.session.routes.config.log(LOG).max_payload_bytes  # type: ignore[union-attr]
        promise = append(bench, [bytes(longest + 1), b"a"], atomic=False)
        node, message = bench.one()
        bench.answer(node, appended(message, Status.ABORTED, lsn=0, flags=int(AppendedFlags.NONE)))
        assert promise.failure.status is Status.ABORTED
        assert promise.failure.detail.startswith("2 of 2 records")

    def test_each_has_its_own_guard(self) -> None:
        bench = Bench()
        append(bench, [b"a", b"b"], None, Guards([5, 7], 0), atomic=False)
        taken: list[Any] = [message for _, message in bench.taken(GuardedAppend)]
        assert [(message.first_transaction, message.last_transaction) for message in taken] == [(5, 5), (7, 7)]
