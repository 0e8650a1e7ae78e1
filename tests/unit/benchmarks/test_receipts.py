from __future__ import annotations

import pytest

from benchmarks.ldbench.engine import AppendError
from benchmarks.ldbench.receipts import ListReceipt


async def test_a_list_is_acknowledged_with_its_last_record() -> None:
    receipt = ListReceipt(3, timeout=60)
    receipt.acknowledge(2)
    assert not receipt.done.done()
    receipt.acknowledge(1)
    await receipt.done


async def test_an_empty_list_is_acknowledged_at_once() -> None:
    assert ListReceipt(0, timeout=60).done.done()


async def test_one_record_that_fails_fails_the_list_and_later_acknowledgements_change_nothing() -> None:
    receipt = ListReceipt(2, timeout=60)
    receipt.fail("too large")
    receipt.fail("another reason")
    receipt.finish()
    with pytest.raises(AppendError, match="too large"):
        await receipt.done


async def test_without_acknowledgement_it_fails_after_its_timeout_and_lets_go_of_what_waits() -> None:
    let_go: list[bool] = []
    receipt = ListReceipt(1, timeout=0.001, on_timeout=lambda: let_go.append(receipt.done.done()))
    with pytest.raises(AppendError, match=r"within 0\.001 s"):
        await receipt.done
    assert let_go == [True]
