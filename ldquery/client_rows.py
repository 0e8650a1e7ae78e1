"""Rows of tables that clients of this process have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as LateError
from typing import TYPE_CHECKING, Any, Final

from client.sync import SyncClient
from client.tables import client_read_streams_rows, client_shard_delays_rows, reader_waits_rows
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.tables.constraints import Constraints

if TYPE_CHECKING:
    from client.client import Client
    from client.session import ClientSession


_FILL: Final[dict[str, Callable[[ClientSession, str, Constraints, Micros], Iterator[Any]]]] = {
    "client_read_streams": lambda session, name, constraints, now: client_read_streams_rows(session, name, constraints),
    "client_shard_delays": client_shard_delays_rows,
    "waits": lambda session, name, constraints, now: reader_waits_rows(session, name, constraints),
}
TABLES_OF_CLIENTS: Final = frozenset(_FILL)


class ClientRows:
    """Asks one client, on the loop to which it belongs."""

    def __init__(self, client: Client | SyncClient) -> None:
        self._client = client.asynchronous if isinstance(client, SyncClient) else client

    def rows(self, table: str, constraints: Constraints, seconds: float) -> list[Any]:
        """Rows of one of the `TABLES_OF_CLIENTS`.

        Raises:
            LogDeviceError: SHUTDOWN: the client is not open; TIMEDOUT: its loop does something else all the time.
        """
        client, fill = self._client, _FILL[table]
        if not client.is_open:
            raise LogDeviceError(Status.SHUTDOWN, f"client {client.name!r} is not open", retriable=False)

        def rows() -> list[Any]:
            return list(fill(client.session, client.name, constraints, client.now()))

        if client.running_loop() is client.loop:
            return rows()

        async def ask() -> list[Any]:
            return rows()

        future = asyncio.run_coroutine_threadsafe(ask(), client.loop)
        try:
            return future.result(seconds)
        except LateError:
            future.cancel()
            text = f"the event loop of client {client.name!r} did not come to answer within {seconds:.1f} s"
            raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=False) from None
