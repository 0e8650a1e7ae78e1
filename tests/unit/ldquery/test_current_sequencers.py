from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from client.node_tables import NodeFailure, Row
from ldquery.session import LDQuery
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import Status
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.declare import TableDeclaration

CLUSTER = Path(__file__).resolve().parents[3] / "conf" / "cluster.toml"
LIVE: dict[int, list[tuple[int, str, int | None]]] = {
    0: [(1, "ACTIVE", 3), (2, "ACTIVE", 1)],
    1: [(1, "ACTIVE", 4), (3, "PREEMPTED", 7), (4, "UNAVAILABLE", None)],
    2: [(1, "PREEMPTED", 2), (3, "ACTIVE", 5)],
}
"""Log, state and epoch at each node that answers."""


class Nodes:
    """Answers for the nodes of a cluster."""

    def __init__(self) -> None:
        self.requests = 0
        self.newest = None
        self.asked: list[list[int]] = []
        self.silent: set[int] = set()

    async def ask_each(
        self, table: TableDeclaration, nodes: Sequence[NodeId], constraints: Constraints, *_: Any
    ) -> tuple[list[Row], list[NodeFailure]]:
        self.asked.append(list(nodes))
        names = [column.name for column in table.columns]
        rows: list[Row] = []
        for node in nodes:
            for log, state, epoch in () if node in self.silent else LIVE.get(node, ()):
                if constraints.log_id in (None, log):
                    known: dict[str, Any] = {
                        "node_id": node,
                        "log_id": log,
                        "state": state,
                        "epoch": epoch,
                        "is_tail_lost": 0,
                    }
                    rows.append([known.get(name) for name in names])
        return rows, [NodeFailure(node, table.name, Status.TIMEDOUT, "") for node in nodes if node in self.silent]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def session(nodes: Nodes) -> Iterator[LDQuery]:
    with LDQuery(CLUSTER) as opened:
        opened._asker = nodes  # type: ignore[assignment]
        yield opened


def test_the_sequencer_of_the_latest_epoch_is_the_current_one_and_what_was_taken_over_is_not(session: LDQuery) -> None:
    assert session.query("SELECT node_id, log_id FROM sequencers WHERE is_current ORDER BY log_id").rows == [
        (1, 1),
        (0, 2),
    ]
    one = session.query("SELECT count(*) FROM sequencers WHERE log_id = :log AND is_current", {"log": 1})
    assert one.rows == [(1,)]


def test_a_log_without_an_active_sequencer_of_its_latest_epoch_has_no_current_one(session: LDQuery) -> None:
    """Of log 3 a node knows epoch 7, in which it was preempted: what goes on in epoch 5 is behind that."""
    sql = "SELECT node_id, is_current, is_tail_lost FROM sequencers WHERE log_id IN (3, 4) ORDER BY log_id, node_id"
    assert session.query(sql).rows == [(1, 0, 0), (2, 0, 0), (1, 0, 0)]


def test_one_node_alone_is_compared_with_all(session: LDQuery, nodes: Nodes) -> None:
    """N0 believes that it sequences log 1 still."""
    rows = session.query("SELECT epoch, is_current FROM sequencers WHERE node_id = 0 AND log_id = 1").rows
    assert rows == [(3, 0)]
    assert len(nodes.asked[0]) > 1


def test_one_node_alone_is_asked_when_nothing_is_compared(session: LDQuery, nodes: Nodes) -> None:
    assert session.query("SELECT epoch FROM sequencers WHERE node_id = 0 AND log_id = 1").rows == [(3,)]
    assert nodes.asked == [[0]]


def test_what_does_not_answer_does_not_count(session: LDQuery, nodes: Nodes) -> None:
    nodes.silent = {1}
    result = session.query("SELECT node_id FROM sequencers WHERE log_id = 1 AND is_current")
    assert (result.rows, [failure.node for failure in result.failures]) == ([(0,)], [1])
