"""Rows of tables that clients of this process have."""

from __future__ import annotations

import asyncio
from concurrent.futures import TimeoutError as LateError
from typing import TYPE_CHECKING

from client.sync import SyncClient
from client.tables import client_read_streams_rows
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.clients import ClientReadStreamsRow
from logdevice_py.tables.constraints import Constraints

if TYPE_CHECKING:
    from client.client import Client


class ClientRows:
    """Asks one client, on the loop to which it belongs."""

    def __init__(self, client: Client | SyncClient) -> None:
        self._client = client.asynchronous if isinstance(client, SyncClient) else client

    def read_streams(self, constraints: Constraints, seconds: float) -> list[ClientReadStreamsRow]:
        """Rows of table `client_read_streams`.

        Raises:
            LogDeviceError: SHUTDOWN: the client is not open; TIMEDOUT: its loop does something else all the time.
        """
        client = self._client
        if not client.is_open:
            raise LogDeviceError(Status.SHUTDOWN, f"client {client.name!r} is not open", retriable=False)

        def rows() -> list[ClientReadStreamsRow]:
            return list(client_read_streams_rows(client.session, client.name, constraints))

        if client.running_loop() is client.loop:
            return rows()

        async def ask() -> list[ClientReadStreamsRow]:
            return rows()

        future = asyncio.run_coroutine_threadsafe(ask(), client.loop)
        try:
            return future.result(seconds)
        except LateError:
            future.cancel()
            text = f"the event loop of client {client.name!r} did not come to answer within {seconds:.1f} s"
            raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=False) from None
