"""Which logs the tables of the epoch store tell of, while the log tree is not read, and afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from client.log_tree.commands import MakeLogGroup
from client.log_tree.view import LogTreeView
from epoch_store.interface import Operation, Result
from logdevice_py.core.ids import TREE_LOG_ID_MIN, LogId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from server.admin.tables import NodeTables
from tests.unit.client.log_tree.trees import Commands
from tests.unit.storage_node.fakes import make_config

TABLES = ("historical_metadata", "epoch_store")
OF_FILE = list(make_config().log_ids())
FIRST = LogId(TREE_LOG_ID_MIN)


class AskedNode:
    """A node with an epoch store in which nothing is kept, and a log tree with one log."""

    def __init__(self, *, has_replica: bool = True) -> None:
        self.view = LogTreeView()
        tree = Commands()
        tree.make(MakeLogGroup("/a"))
        self._state = tree.state
        settings = {"log_tree": {"enabled": True}}
        config = replace(make_config(), settings=settings)
        if has_replica:
            config = replace(config, run_time_logs=self.view)
        node = SimpleNamespace(log_tree=object() if has_replica else None)
        host: Any = SimpleNamespace(config=config, node=node, ask_epoch_store=self._ask)
        self._tables = NodeTables(host)

    def read_tree(self) -> None:
        self.view.take(self._state, is_known=True)

    def _ask(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        done([Result(Status.EMPTY) for _ in operations])

    async def logs(self, table: str, constraints: Constraints = EVERYTHING) -> list[LogId]:
        rows: Any = self._tables.rows(table, constraints)
        return [row.log_id async for row in rows]


@pytest.mark.parametrize("table", TABLES)
async def test_a_node_that_has_not_read_the_log_tree_does_not_pass_off_a_part_of_the_logs_as_all(table: str) -> None:
    asked = AskedNode()
    with pytest.raises(LogDeviceError, match="has not read the log tree") as refused:
        await asked.logs(table)
    assert refused.value.status is Status.AGAIN
    asked.read_tree()
    assert await asked.logs(table) == [*OF_FILE, FIRST]


@pytest.mark.parametrize("table", TABLES)
async def test_a_log_that_is_named_is_looked_up_unless_it_is_known_to_be_absent(table: str) -> None:
    asked = AskedNode()
    assert await asked.logs(table, Constraints(log_id=FIRST)) == [FIRST]
    assert await asked.logs(table, Constraints(log_id=OF_FILE[0])) == [OF_FILE[0]]
    assert await asked.logs(table, Constraints(log_id=LogId(TREE_LOG_ID_MIN - 1))) == []


@pytest.mark.parametrize("table", TABLES)
async def test_a_node_that_was_not_started_again_since_the_tree_was_enabled_tells_what_it_knows(table: str) -> None:
    """Before all nodes are started again, nobody else may be there to ask whether one of them may go."""
    assert await AskedNode(has_replica=False).logs(table) == OF_FILE
