"""The client with which ldquery reads logs."""

from __future__ import annotations

from client.client import Client
from logdevice_py.config.cluster import ClusterConfig


class OwnClient:
    """One for a session, opened when it is asked for first. Everything on one event loop."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._client: Client | None = None

    async def opened(self) -> Client:
        """The client."""
        if self._client is None:
            client = Client(self._config, name="ldquery")
            await client.__aenter__()
            self._client = client
        return self._client

    async def close(self) -> None:
        """Give it back."""
        if self._client is not None:
            await self._client.close()
