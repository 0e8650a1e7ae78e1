"""Random faults against the model: what a write stream promises holds in every run."""

from __future__ import annotations

import pytest

from client.encryption import EncryptionKeys
from client.receipt import Receipts
from tests.slow import quick
from tests.unit.client.fakes import FakePromise
from tests.unit.client.write.model import Model

SEEDS = 1_800
BLOCKS = 18


def receipts_of(promise: FakePromise) -> list[tuple[int, int]]:
    result = promise.result
    rows = list(result) if isinstance(result, Receipts) else [result]
    return [(receipt.lsn, receipt.batch_offset) for receipt in rows]


@pytest.mark.parametrize("block", quick(range(BLOCKS), 1))
def test_every_record_is_stored_once_in_order_at_the_position_of_its_receipt(block: int) -> None:
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        model = Model(seed)
        model.run()
        content = model.content()
        assert [record for record, _, _ in content] == list(range(model.records)), seed
        places = {record: (lsn, offset) for record, lsn, offset in content}
        assert model.promises, seed
        for first, count, promise in model.promises:
            assert receipts_of(promise) == [places[first + index] for index in range(count)], seed
        assert model.writer.unacknowledged_bytes == 0


@pytest.mark.parametrize("block", quick(range(3), 1))
def test_with_lost_or_expired_frames_nothing_is_stored_twice_or_out_of_order_and_the_answers_are_true(
    block: int,
) -> None:
    stored = failed = 0
    for seed in range(200 * block, 200 * block + 200):
        model = Model(seed, timeout_us=400_000 if seed % 2 else 0)
        model.uncertain = seed % 3 != 0
        model.run()
        content = model.content()
        records = [record for record, _, _ in content]
        assert records == sorted(set(records)), seed
        places = {record: (lsn, offset) for record, lsn, offset in content}
        for first, count, promise in model.promises:
            if promise.error is None:
                stored += 1
                assert receipts_of(promise) == [places[first + index] for index in range(count)], seed
            elif not promise.failure.maybe_applied:
                failed += 1
                assert not any(record in places for record in range(first, first + count)), seed
        assert model.writer.unacknowledged_bytes == 0
    assert stored > 200
    assert failed > 10


@pytest.mark.parametrize("block", quick(range(3), 1))
def test_nothing_that_is_encrypted_is_refused_whatever_went_wrong(block: int) -> None:
    keys = EncryptionKeys({"k": bytes(32)}, write_with="k")
    read = 0
    for seed in range(200 * block, 200 * block + 200):
        model = Model(seed, timeout_us=400_000 if seed % 2 else 0, encryption=keys)
        model.uncertain, model.forges = seed % 3 == 0, seed % 5 == 0
        model.run()
        content = model.content()
        records = [record for record, _, _ in content]
        assert records == sorted(set(records)), seed
        read += len(records)
    assert read > 1000
