"""What the console asks nodes when somebody opens a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from client.node_tables import NodeAsker, NodeFailure
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import Status
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.declare import TableDeclaration
from server.console.questions import describe_log
from tests.unit.ldquery.ctl.test_health import CONFIG


class Hanging:
    """Nodes that have nothing to tell, and one that never answers."""

    def __init__(self, node: NodeId) -> None:
        self.node = node
        self.waited_for: Counter[str] = Counter()

    async def ask_each(
        self,
        table: TableDeclaration,
        nodes: Sequence[NodeId],
        constraints: Constraints,
        limit: int | None,
        seconds: float,
    ) -> tuple[list[Any], list[NodeFailure]]:
        if self.node not in nodes:
            return [], []
        self.waited_for[table.name] += 1
        return [], [NodeFailure(self.node, table.name, Status.TIMEDOUT, "no answer")]

    async def ask_any(
        self,
        table: TableDeclaration,
        nodes: Sequence[NodeId],
        constraints: Constraints,
        limit: int | None,
        seconds: float,
    ) -> tuple[list[Any], list[NodeFailure]]:
        return (await self.ask_each(table, nodes, constraints, limit, seconds)) if nodes[0] == self.node else ([], [])


async def test_a_node_that_hangs_is_waited_for_once() -> None:
    asker = Hanging(NodeId(1))
    found = await describe_log(CONFIG, cast(NodeAsker, asker), {"log": "7"})
    assert sum(asker.waited_for.values()) == 1, asker.waited_for
    assert found["silent"] == {"N1": "TIMEDOUT: no answer"}
