"""The client with which ldquery reads logs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from client.client import Client
from client.identity import ClientIdentity
from logdevice_py.config.cluster import ClusterConfig


class OpensClient(Protocol):
    """Whose client those read with that keep states: see `NamespaceRows`."""

    async def opened(self) -> Client:
        """The client. It is closed by whoever gives it."""
        ...


class OwnClient:
    """One for a session, opened when it is asked for first. Everything on one event loop."""

    def __init__(self, config: ClusterConfig | Path, identity: ClientIdentity | None = None) -> None:
        """
        Args:
            config: the cluster file, or what it says.
            identity: who it is; None: as the environment says.
        """
        self._config = config
        self._identity = identity
        self._client: Client | None = None

    async def opened(self) -> Client:
        """The client."""
        if self._client is None:
            client = Client(self._config, name="ldquery", identity=self._identity)
            await client.__aenter__()
            self._client = client
        return self._client

    async def close(self) -> None:
        """Give it back."""
        if self._client is not None:
            await self._client.close()
