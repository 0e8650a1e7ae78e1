"""How kazoo connects: no longer than it is told to. By itself it waits a whole session timeout for a server whose packets vanish, before it tries the next one."""

from __future__ import annotations

from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from logdevice_py.core.units import SECOND, Micros


class SocketHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Threads and sockets of one client."""

    def __init__(self, connect_timeout: Micros) -> None:
        super().__init__()
        self._connect_seconds = connect_timeout / SECOND

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """A connection to a server, TLS included where kazoo asks for it.

        Raises:
            OSError: there is none within the time.
        """
        kwargs["timeout"] = min(kwargs.get("timeout", self._connect_seconds), self._connect_seconds)
        return super().create_connection(*args, **kwargs)
