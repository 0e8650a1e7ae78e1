"""What nodes did of an append, put into the client's time from instants of clocks that have nothing in common."""

from __future__ import annotations

from typing import Any

from client.node_parts import NodePart, node_parts

LOG, LSN = 7, 90


def row(node: int, at: int, event: str, **more: Any) -> dict[str, Any]:
    none = {"lsn": None, "peer": None, "copy": None, "wave": None, "request_id": None, "batch_offset": None}
    return {"node_id": node, "at_ns": at, "event": event, "log_id": LOG, "took_ns": None, **none, **more}


def stored(node: int, copy: str, sent: int, got: int, back: int, answered: int) -> list[dict[str, Any]]:
    same = {"lsn": LSN, "copy": copy, "wave": 1}
    return [
        row(0, sent, "STORE_SENT", **same),
        row(node, got, "STORE_RECEIVED", **same),
        row(node, got + 2, "WRITTEN", lsn=LSN, copy=copy, took_ns=2),
        row(node, got + 5, "DURABLE", lsn=LSN, copy=copy),
        row(node, answered, "STORED_SENT", **same),
        row(0, back, "STORED_RECEIVED", **same),
    ]


ROWS = [
    row(0, 5_000, "APPEND_RECEIVED", peer="C1", request_id=3),
    row(0, 5_001, "APPEND_RECEIVED", peer="C2", request_id=3),
    *stored(0, "N0:S0", 5_010, 5_011, 5_030, 5_029),
    *stored(1, "N1:S0", 5_010, 77_000, 5_050, 77_020),
    row(0, 5_060, "APPENDED_SENT", lsn=LSN, peer="C2", request_id=3, batch_offset=0),
    row(0, 5_061, "APPENDED_SENT", lsn=LSN, peer="C1", request_id=3, batch_offset=1),
]


def test_each_part_lies_in_the_middle_of_the_time_of_who_asked() -> None:
    sequence, own, other = node_parts(ROWS, LOG, LSN, 1, 1_000, 1_081)
    assert sequence == NodePart("sequence", 0, 1_010, 1_071)
    assert (own.begin_ns, own.end_ns, own.shard, own.took_ns) == (1_021, 1_039, "N0:S0", {"write": 2, "durable": 5})
    assert (other.begin_ns, other.end_ns, other.node) == (1_030, 1_050, 1), "between 1,020 and 1,060 at the sequencer"


def test_what_was_not_noted_is_left_out() -> None:
    assert node_parts(ROWS, LOG, LSN, 2, 0, 1) == []
    assert node_parts(ROWS, LOG + 1, LSN, 1, 0, 1) == []
    assert node_parts([each for each in ROWS if each["event"] != "APPEND_RECEIVED"], LOG, LSN, 1, 0, 1) == []
    silent = [each for each in ROWS if each["node_id"] != 1]
    assert [each.node for each in node_parts(silent, LOG, LSN, 1, 1_000, 1_081)] == [0, 0]
