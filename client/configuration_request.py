"""Asks a node for the configuration that it uses."""

from __future__ import annotations

from typing import Final

from client.known_cluster import KnownCluster
from client.links import Links
from client.promise import Promise, break_, keep
from logdevice_py.config.packed import unpack_configuration
from logdevice_py.core.ids import NodeId, PeerId
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.protocol.messages import ConfigurationText, GetConfiguration
from logdevice_py.protocol.requests import Requests

_TIMEOUT_US: Final = 3 * SECOND


class ConfigurationRequests:
    """Those of one client."""

    __slots__ = ("_links", "_requests", "_view")

    def __init__(self, links: Links, requests: Requests, view: KnownCluster) -> None:
        self._links = links
        self._requests = requests
        self._view = view

    def ask(self, promise: Promise, now: Micros) -> None:
        """Ask the connected node that uses the latest version; the promise gets the `ClusterConfig`.

        It is broken with CONNFAILED: no node is connected; PEER_CLOSED, TIMEDOUT; INVALID_CONFIG: what was sent cannot be read.
        """
        peers = [PeerId(node) for node in self._links.connected()]
        if not peers:
            break_(promise, LogDeviceError(Status.CONNFAILED, "no node is connected"))
            return
        peer = max(peers, key=lambda peer: (self._view.config_version_of(peer), -peer))

        def answered(answer: ConfigurationText, at: Micros) -> None:
            try:
                config = unpack_configuration(answer.text)
            except CorruptEntryError as error:
                break_(promise, LogDeviceError(Status.INVALID_CONFIG, f"N{NodeId(peer)} sent {error}"))
            else:
                keep(promise, config)

        def failed(status: Status, at: Micros) -> None:
            break_(promise, LogDeviceError(status, f"N{NodeId(peer)} did not send its configuration"))

        request_id = self._requests.ask(peer, ConfigurationText, answered, failed=failed, deadline=now + _TIMEOUT_US)
        self._links.send(peer, GetConfiguration(request_id=request_id))
