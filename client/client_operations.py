"""What every part of a client asks with."""

from __future__ import annotations

import asyncio
from typing import Any

from client.session import ClientSession
from client.settings import ClientSettings
from logdevice_py.core.units import Micros


class ClientOperations:
    """Operations of a client: each asks its session something, and awaits the answer."""

    session: ClientSession
    settings: ClientSettings

    def future(self) -> asyncio.Future[Any]:
        """A future of the client's loop."""
        raise NotImplementedError

    def now(self) -> Micros:
        """The monotonic clock."""
        raise NotImplementedError

    def wake(self) -> None:
        """Run the end of a turn soon."""
        raise NotImplementedError

    async def _outcome(self, future: asyncio.Future[Any]) -> Any:
        raise NotImplementedError

    async def _answer(self, future: asyncio.Future[Any]) -> Any:
        """Have what was asked leave, and wait for its outcome."""
        self.wake()
        return await self._outcome(future)
