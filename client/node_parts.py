"""What nodes did of an append, from the instants that they noted (table `append_trace`): put into the time that the client saw.

Clocks of machines are not compared. An answer is taken to travel as long as its question, so what a node did lies in the middle of the time for which the one who
asked it waited: the sequencer's node within the client's, each copy within the sequencer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodePart:
    """What one node did of an append."""

    what: str
    """``sequence``, or ``store``."""
    node: int
    begin_ns: int
    """In the clock of the client that appended."""
    end_ns: int
    shard: str | None = None
    """Of a copy."""
    took_ns: Mapping[str, int] | None = None
    """Of a copy: how long the write took, and how long until it was durable."""


def node_parts(
    rows: Iterable[Row], log: int, lsn: int, batch_offset: int, begin_ns: int, end_ns: int
) -> list[NodePart]:
    """What nodes did of one append, the sequencer's part first; empty: nobody noted it, or not any more.

    Args:
        rows: of table `append_trace`, of all nodes.
        lsn, batch_offset: where the append's first record is.
        begin_ns, end_ns: between which the client waited.
    """
    of_log = [row for row in rows if row["log_id"] == log]
    answer = _find(of_log, "APPENDED_SENT", lsn=lsn, batch_offset=batch_offset)
    if answer is None:
        return []
    node = answer["node_id"]
    asked = _find(of_log, "APPEND_RECEIVED", node_id=node, peer=answer["peer"], request_id=answer["request_id"])
    if asked is None:
        return []
    shift = _middle(begin_ns, end_ns, asked["at_ns"], answer["at_ns"])
    found = [NodePart("sequence", node, asked["at_ns"] + shift, answer["at_ns"] + shift)]
    of_entry = [row for row in of_log if row["lsn"] == lsn]
    for sent in (row for row in of_entry if row["event"] == "STORE_SENT" and row["node_id"] == node):
        same = {"copy": sent["copy"], "wave": sent["wave"]}
        back = _find(of_entry, "STORED_RECEIVED", node_id=node, **same)
        got, answered = _find(of_entry, "STORE_RECEIVED", **same), _find(of_entry, "STORED_SENT", **same)
        if back is None or got is None or answered is None or got["node_id"] != answered["node_id"]:
            continue
        theirs = _middle(sent["at_ns"] + shift, back["at_ns"] + shift, got["at_ns"], answered["at_ns"])
        there = [row for row in of_entry if row["node_id"] == got["node_id"] and row["copy"] == sent["copy"]]
        took = {}
        if (written := _find(there, "WRITTEN")) is not None and written["took_ns"] is not None:
            took["write"] = written["took_ns"]
        if (durable := _find(there, "DURABLE")) is not None:
            took["durable"] = durable["at_ns"] - got["at_ns"]
        part = NodePart("store", got["node_id"], got["at_ns"] + theirs, answered["at_ns"] + theirs, sent["copy"], took)
        found.append(part)
    return found


def _find(rows: Iterable[Row], event: str, **wanted: Any) -> Row | None:
    for row in rows:
        if row["event"] == event and all(row[name] == value for name, value in wanted.items()):
            return row
    return None


def _middle(begin: int, end: int, first: int, last: int) -> int:
    """What is to be added to the clock of `first` and `last` so that they lie in the middle between `begin` and `end`."""
    return (begin + end - first - last) // 2
