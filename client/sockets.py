"""A client's machines on asyncio and TCP."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from client.effects import Connect
from client.identity import client_contexts, default_identity
from client.network import ClientMachines
from logdevice_py.config.security import parse_security
from logdevice_py.core.declare import settings_from
from logdevice_py.core.ids import InstanceId, NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.runtime.driver import Driver
from logdevice_py.runtime.transport import Transport
from logdevice_py.shell.introduction import Identity
from logdevice_py.shell.settings import RuntimeSettings

log = logging.getLogger("logdevice.client")


class SocketNetwork:
    """The `ClientNetwork` of production."""

    def __init__(self, machines: ClientMachines) -> None:
        """
        Raises:
            LogDeviceError: INVALID_CONFIG.
        """
        self._machines = machines
        try:
            self._settings = settings_from(RuntimeSettings, machines.config.settings.get("runtime", {}))
        except ValueError as error:
            raise LogDeviceError(Status.INVALID_CONFIG, f"settings.runtime: {error}") from None
        self._client_identity = machines.identity or default_identity(machines.cluster_file)
        self._contexts = client_contexts(machines.config, machines.cluster_file, self._client_identity)
        self._first_token = self._client_identity.newest_token()
        self._driver: Driver | None = None
        self._transport: Transport | None = None

    def now(self) -> Micros:
        return monotonic_us()

    def start(self) -> None:
        machines = self._machines
        self._driver = Driver(
            machines.session,
            machines.links,
            machines.timers,
            effects={Connect: self._run_connects},
            on_crash=machines.on_crash,
            on_config_version=machines.on_config_version,
        )
        identity = Identity(
            cluster_name=machines.config.name,
            cluster_uuid=machines.config.uuid,
            node=NodeId(-1),
            instance=InstanceId(time.time_ns() // 1000),
            config_version=machines.config.version,
            name=machines.name,
            token=self._first_token,
        )
        self._transport = Transport(
            identity,
            self._driver,
            self._address_of,
            settings=self._settings,
            rng=machines.rng,
            security=parse_security(machines.config.settings),
            principals=machines.session.routes.principals,
            tls=self._contexts,
            newest_token=self._newest_token,
            is_alive=machines.session.view.is_alive,
        )
        self._driver.attach(self._transport)
        self._driver.start()

    def _address_of(self, node: NodeId) -> tuple[str, int] | None:
        found = self._machines.session.config.nodes.get(node)
        return None if found is None else (found.host, found.port)

    def _newest_token(self) -> str | None:
        try:
            return self._client_identity.newest_token()
        except LogDeviceError as error:
            log.error("%s; what was read before stays in use", error.detail)
            return None

    def _run_connects(self, effects: list[Any]) -> None:
        assert self._transport is not None
        for effect in effects:
            self._transport.connect(effect.node)

    def event(self, handler: Callable[[Micros], None]) -> None:
        if self._driver is not None:
            self._driver.event(handler)

    def set_config_version(self, version: int) -> None:
        if self._transport is None:
            return
        self._transport.identity.config_version = version
        self._follow_security(self._transport)

    def _follow_security(self, transport: Transport) -> None:
        """A cluster changes to TLS, or back, while its clients run: connections from here on are as the newest file says."""
        config = self._machines.session.config
        try:
            settings = parse_security(config.settings)
            if settings != transport.introduction.security:
                contexts = client_contexts(config, self._machines.cluster_file, self._client_identity)
                transport.introduction.security = settings
                transport.use_tls(contexts)
        except LogDeviceError as error:
            log.error("the client stays with its connections as they are: %s", error.detail)

    def troubles(self) -> Mapping[NodeId, LogDeviceError]:
        if self._transport is None:
            return {}
        return {NodeId(peer): trouble for peer, trouble in self._transport.troubles().items()}

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.stop()

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
