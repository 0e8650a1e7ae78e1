"""How kazoo connects: not for longer than it is told, and not at once again to the server that it has just left."""

from __future__ import annotations

import errno
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from logdevice_py.core.units import SECOND, Micros


class SocketHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Threads and sockets of one client. By itself kazoo waits a whole session timeout for a server whose packets vanish, and takes the next one by chance."""

    def __init__(self, connect_timeout: Micros, last: Any = None) -> None:
        """
        Args:
            last: `last` of the handler whose client this one replaces.
        """
        super().__init__()
        self._connect_seconds = connect_timeout / SECOND
        self.last = last
        """The address of the server that was connected last: passed over once, as others may answer. None: there is none."""

    def create_connection(self, address: Any, *args: Any, timeout: float = float("inf"), **kwargs: Any) -> Any:
        """A connection to a server, TLS included where kazoo asks for it.

        Raises:
            OSError: there is none within the time, or the server was connected last.
        """
        if address == self.last:
            self.last = None
            # kazoo logs this text alone
            raise ConnectionAbortedError(errno.ECONNABORTED, "another server is tried first")
        found = super().create_connection(address, *args, timeout=min(timeout, self._connect_seconds), **kwargs)
        self.last = address
        return found
