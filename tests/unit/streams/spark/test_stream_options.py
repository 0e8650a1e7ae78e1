"""Options of reading streams: what is wrong with them is said before anything is read."""

from __future__ import annotations

from typing import Any

import pytest

from client.read.batch import RecordBatch
from client.read.items import RecordRun
from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import TransactionIds
from streams.records import txids_of
from streams.spark.options import StreamOptions, is_stream

ORDERS = {"cluster": "c.toml", "path": "stream:/streams/orders"}


def test_a_stream_is_told_from_logs() -> None:
    assert is_stream(ORDERS)
    assert is_stream({"LOGS": " stream:/streams/orders"})
    assert not is_stream({"path": "/streams/orders"})


def test_bounds_are_transaction_ids_or_those_of_logs() -> None:
    options = StreamOptions.of({**ORDERS, "startingTxid": "7", "endingtxid": str(2**63 - 1)})
    assert (options.path, options.first_txid, options.last_txid) == ("/streams/orders", 7, 2**63 - 1)
    options = StreamOptions.of({**ORDERS, "startingLsn": "e2n1", "endingTxid": "9"})
    assert (options.first_txid, options.last_txid, str(options.source.logs)) == (None, 9, "stream:/streams/orders")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"startingTxid": "0"}, "startingTxid is '0'; it must be a transaction id, from 1 to 9223372036854775807"),
        ({"endingTxid": str(2**63)}, "endingTxid is '9223372036854775808'; it must be"),
        ({"startingTxid": "9", "endingTxid": "8"}, "endingTxid 8 is before startingTxid 9"),
        ({"startingTxid": "9", "startingLsn": "oldest"}, "startingTxid and startingLsn are both given"),
        ({"endingTxid": "9", "endingTimestamp": "1"}, "endingTxid and endingTimestamp are both given"),
        ({"startingLsn": '{"7": "tail"}'}, "a stream has one position at each end"),
        ({"includeProof": "true"}, "includeProof and pushdown are for logs"),
        ({"logs": "7"}, "logs is given twice"),
        ({"startingTx": "7"}, "no option 'startingtx'"),
        ({"path": "stream:orders"}, "'stream:orders' names no stream; write one, like stream:/streams/orders"),
        ({"path": "stream:/orders"}, "names no stream"),
        ({"path": "stream:/streams/orders,stream:/streams/more"}, "names no stream"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], text: str) -> None:
    with pytest.raises(LogDeviceError, match=text.replace("{", r"\{")) as raised:
        StreamOptions.of({**ORDERS, **given})
    assert raised.value.status is Status.INVALID_PARAM


def test_transaction_ids_are_keys_or_times() -> None:
    batch = RecordBatch(1)
    batch.add_records([b"a", b"b"], RecordRun(5, 1000, 0, 2, [(7).to_bytes(8, "big"), (2**63).to_bytes(8, "big")]))
    batch.add_records([None, b"d"], RecordRun(6, 2000, 0, 2, [(7).to_bytes(8, "big"), b"short"]))
    batch.add_records([b"e"], RecordRun(7, 3000, 0, 1, None))
    assert txids_of(TransactionIds.WRITER, batch) == [7, None, None, None, None]
    assert txids_of(TransactionIds.TIME, batch) == [1000, 1000, 2000, 2000, 3000]
