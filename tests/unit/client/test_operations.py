"""Trimming, receipts, and the routing of the session."""

from __future__ import annotations

from client.receipt import ReceiptRun, Receipts
from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.messages import Durability, Trim, Trimmed
from tests.unit.client.fakes import LOG, Bench, FakePromise

SHARDS = [ShardId(0), ShardId(256), ShardId(512)]


def trimmed(request: Trim, status: Status = Status.OK) -> Trimmed:
    return Trimmed(request_id=request.request_id, log=request.log, shard=request.shard, status=status)


class TestTrim:
    def test_it_is_done_when_every_shard_has_made_it_durable(self) -> None:
        bench, promise = Bench(), FakePromise()
        bench.session.trim(LOG, 99, SHARDS, promise, bench.now)
        requests = bench.taken(Trim)
        assert [(node, message.shard, message.lsn) for node, message in requests] == [
            (0, 0, 99),
            (1, 256, 99),
            (2, 512, 99),
        ]
        for node, message in requests:
            assert not promise.done()
            bench.answer(node, trimmed(message))
        assert promise.done()
        assert promise.error is None

    def test_a_silent_shard_is_told_again_and_then_named(self) -> None:
        bench, promise = Bench(), FakePromise()
        bench.session.trim(LOG, 99, SHARDS, promise, bench.now, 2_000_000)
        for node, message in bench.taken(Trim)[:2]:
            bench.answer(node, trimmed(message))
        bench.pass_time(500_000)
        assert [message.shard for _, message in bench.taken(Trim)] == [512]
        bench.pass_time(2_000_000)
        assert promise.failure.status is Status.PARTIAL
        assert "N2:S0" in str(promise.failure)

    def test_an_answer_to_a_lower_trim_does_not_count(self) -> None:
        bench, low, high = Bench(), FakePromise(), FakePromise()
        bench.session.trim(LOG, 10, SHARDS[:1], low, bench.now)
        node, message = bench.one(Trim)
        bench.session.trim(LOG, 20, SHARDS[:1], high, bench.now)
        bench.answer(node, trimmed(message))
        assert low.done()
        assert not high.done()

    def test_a_shard_whose_disk_failed_ends_the_wait(self) -> None:
        bench, promise = Bench(), FakePromise()
        bench.session.trim(LOG, 10, SHARDS[:1], promise, bench.now)
        node, message = bench.one(Trim)
        bench.answer(node, trimmed(message, Status.FAILED))
        assert promise.failure.status is Status.FAILED


def test_receipts_are_columns_that_build_a_receipt_on_demand() -> None:
    def run(count: int, lsn: str, offset: int) -> ReceiptRun:
        return ReceiptRun(count, LSN.parse(lsn), offset, Timestamp(1), (0,), Durability.SYNC)

    receipts = Receipts([run(2, "e1n1", 5), run(3, "e1n2", 0)])
    rows = [(str(receipt.lsn), receipt.batch_offset) for receipt in receipts]
    assert rows == [("e1n1", 5), ("e1n1", 6), ("e1n2", 0), ("e1n2", 1), ("e1n2", 2)]
    assert [(str(receipts[index].lsn), receipts[index].batch_offset) for index in range(5)] == rows
    assert receipts[-1].batch_offset == 2
    assert list(zip(receipts.lsns(), receipts.batch_offsets(), strict=True)) == [
        (int(LSN.parse(a)), b) for a, b in rows
    ]


def test_a_waiting_message_of_a_failed_dial_is_never_sent_later() -> None:
    bench, promise = Bench(connect=False), FakePromise()
    bench.session.append(LOG, b"x", promise, 100_000)
    bench.turn()
    (node,) = bench.dialled
    bench.pass_time(200_000)
    assert not promise.failure.maybe_applied
    bench.session.on_peer_up(node, bench.now)  # type: ignore[arg-type]
    assert bench.taken() == []
