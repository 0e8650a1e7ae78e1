"""A member of a group whose output has each record once, whoever dies when: the position is stored with the output, in one transaction.

``python examples/exactly_once.py CLUSTER_FILE MEMBER DATABASE`` with a file name for SQLite, or ``postgresql://...``. Logs 1 and 2 of the cluster are
those of the subscriptions, log 3 is the stream. Start it as often as you like, with another name for each member.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from typing import Any

from logdevice_py import LSN, Client, Position
from streams.subscriptions.group import Group, GroupBatch
from streams.subscriptions.subscriptions import Subscriptions

TABLES = (
    "CREATE TABLE IF NOT EXISTS positions (stream TEXT PRIMARY KEY, token BIGINT, lsn BIGINT, batch_offset BIGINT)",
    "CREATE TABLE IF NOT EXISTS orders (stream TEXT, lsn BIGINT, batch_offset BIGINT, content TEXT)",
)


def connect(database: str) -> Any:
    """A connection to SQLite or PostgreSQL, which has the tables."""
    if database.startswith("postgresql:"):
        import psycopg

        connection: Any = psycopg.connect(database)
    else:
        connection = sqlite3.connect(database, timeout=30)
    for table in TABLES:
        connection.execute(table)
    connection.commit()
    return connection


class OrdersTable:
    """What is made of the stream, and how far."""

    def __init__(self, connection: Any, mark: str) -> None:
        self.connection = connection
        self.mark = mark
        """Stands for a value in a statement."""

    def execute(self, statement: str, *values: object) -> Any:
        """One statement of a transaction."""
        return self.connection.execute(statement.replace("?", self.mark), values)

    def take_over(self, stream: str, token: int) -> Position:
        """From here on nobody with a lower token changes anything of the stream. The last record that is in the table."""
        self.execute(
            "INSERT INTO positions VALUES (?, ?, 0, 0) ON CONFLICT (stream) DO UPDATE SET token = excluded.token WHERE positions.token < excluded.token",
            *(stream, token),
        )
        lsn, offset = self.execute("SELECT lsn, batch_offset FROM positions WHERE stream = ?", stream).fetchone()
        self.connection.commit()
        return Position(LSN(lsn), offset)

    def store(self, batch: GroupBatch) -> bool:
        """All records of the batch and its position, or nothing. False: another member has the stream by now."""
        moved = self.execute(
            "UPDATE positions SET lsn = ?, batch_offset = ? WHERE stream = ? AND token = ?",
            *(int(batch.last.lsn), batch.last.batch_offset, batch.stream, batch.token),
        )
        if moved.rowcount == 0:
            self.connection.rollback()
            return False
        for record in batch.records.records():
            row = (batch.stream, int(record.lsn), record.batch_offset, record.payload.decode())
            self.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", *row)
        self.connection.commit()
        return True


async def consume(file: str, name: str, table: OrdersTable, until: int | None = None) -> None:
    """Fill the table, until it has so many rows."""

    async def stored(stream: str, token: int) -> Position:
        return table.take_over(stream, token)

    async with Client(file) as client, Subscriptions(client, 1, 2) as subscriptions:
        group = Group(subscriptions, "orders to table")
        await group.add_streams({"orders": 3})
        async with group.member(name, stored=stored, max_records=2) as member:
            async for batch in member:
                if table.store(batch):
                    member.done(batch)
                if until is not None and table.execute("SELECT count(*) FROM orders").fetchone()[0] >= until:
                    return


if __name__ == "__main__":
    kind = "%s" if sys.argv[3].startswith("postgresql:") else "?"
    asyncio.run(consume(sys.argv[1], sys.argv[2], OrdersTable(connect(sys.argv[3]), kind)))
