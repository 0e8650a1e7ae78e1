"""Asks nodes for the configuration that they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from client.known_cluster import KnownCluster
from client.links import Links
from client.promise import Promise, break_, keep
from logdevice_py.config.packed import unpack_configuration
from logdevice_py.core.ids import NodeId, PeerId
from logdevice_py.core.machine import Rng, Timer, TimerQueue
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.protocol.messages import ConfigurationText, GetConfiguration
from logdevice_py.protocol.requests import Requests

_TIMEOUT_US: Final = 3 * SECOND
ASKED_AT_ONCE: Final = 3
"""Nodes that are tried at a time by who wants one answer."""
HEDGE_US: Final = 100 * MILLISECOND
"""After so long without an answer further nodes are tried."""
_Failed = Callable[[LogDeviceError, Micros], None]


class ConfigurationRequests:
    """A client's requests for the configuration: asks the connected node that uses the latest version for its text, or searches among several."""

    __slots__ = ("_requests", "_rng", "_searches", "_view", "links", "timers")

    def __init__(self, links: Links, requests: Requests, view: KnownCluster, timers: TimerQueue, rng: Rng) -> None:
        self.links = links
        self._requests = requests
        self._view = view
        self.timers = timers
        self._rng = rng
        self._searches: dict[ConfigurationSearch, None] = {}

    def ask(self, promise: Promise, now: Micros) -> None:
        """Ask the connected node that uses the latest version; the promise gets the `ClusterConfig`.

        It is broken with CONNFAILED: no node is connected; PEER_CLOSED, TIMEDOUT; INVALID_CONFIG: what was sent cannot be read.
        """
        peers = [PeerId(node) for node in self.links.connected()]
        if not peers:
            break_(promise, LogDeviceError(Status.CONNFAILED, "no node is connected"))
            return
        peer = max(peers, key=lambda peer: (self._view.config_version_of(peer), -peer))
        self.ask_node(peer, promise, lambda error, at: break_(promise, error), now + _TIMEOUT_US)

    def ask_node(self, peer: PeerId, promise: Promise, failed: _Failed, deadline: int) -> None:
        """Ask a node that is connected."""

        def answered(answer: ConfigurationText, at: Micros) -> None:
            try:
                config = unpack_configuration(answer.text)
            except CorruptEntryError as error:
                failed(LogDeviceError(Status.INVALID_CONFIG, f"N{NodeId(peer)} sent {error}"), at)
            else:
                keep(promise, config)

        def is_silent(status: Status, at: Micros) -> None:
            failed(LogDeviceError(status, f"N{NodeId(peer)} did not send its configuration"), at)

        request_id = self._requests.ask(peer, ConfigurationText, answered, failed=is_silent, deadline=deadline)
        self.links.send(peer, GetConfiguration(request_id=request_id))

    def search(self, nodes: Sequence[NodeId], promise: Promise, now: Micros, deadline: int) -> None:
        """Ask a few nodes, and others while none of them answers; the promise gets the first `ClusterConfig` that comes.

        It is broken with the error of the last node when none has one, or TIMEDOUT.
        """
        connected = [node for node in nodes if self.links.is_up(PeerId(node))]
        others = [node for node in nodes if not self.links.is_up(PeerId(node))]
        self._rng.shuffle(connected)
        self._rng.shuffle(others)
        search = ConfigurationSearch(self, [*others, *connected], promise, deadline)
        self._searches[search] = None
        search.try_more(now)

    def forget(self, search: ConfigurationSearch) -> None:
        """It is over."""
        self._searches.pop(search, None)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A connection is established."""
        for search in list(self._searches):
            search.on_peer_up(peer)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """A connection broke, or could not be made."""
        for search in list(self._searches):
            search.on_peer_down(peer, now)


class ConfigurationSearch:
    """One that wants one answer, whoever gives it."""

    __slots__ = ("_deadline", "_owner", "_promise", "_timer", "_tried", "_waiting")

    def __init__(self, owner: ConfigurationRequests, nodes: list[NodeId], promise: Promise, deadline: int) -> None:
        self._owner = owner
        self._waiting = nodes
        """Nodes that were not tried, the next one last."""
        self._tried: dict[PeerId, bool] = {}
        """Nodes that have not failed: whether they were asked, or are being dialled."""
        self._promise = promise
        self._deadline = deadline
        self._timer: Timer | None = None

    def try_more(self, now: Micros) -> None:
        """Try some of those that were not."""
        if self._is_over():
            return
        for _ in range(min(ASKED_AT_ONCE, len(self._waiting))):
            peer = PeerId(self._waiting.pop())
            self._tried[peer] = False
            if self._owner.links.is_up(peer):
                self.on_peer_up(peer)
            else:
                self._owner.links.connect(NodeId(peer))
        if self._timer is not None:
            self._timer.cancel()
        until = now + HEDGE_US if self._waiting else self._deadline
        self._timer = self._owner.timers.at(min(until, self._deadline), self._wait_no_longer)

    def _wait_no_longer(self, now: Micros) -> None:
        if now >= self._deadline:
            self._end(LogDeviceError(Status.TIMEDOUT, "no node sent its configuration"))
        else:
            self.try_more(now)

    def on_peer_up(self, peer: PeerId) -> None:
        """A node can be asked."""
        if self._tried.get(peer) is False and not self._is_over():
            self._tried[peer] = True
            self._owner.ask_node(peer, self._promise, partial(self._failed, peer), self._deadline)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """It cannot be reached."""
        if self._tried.get(peer) is False:
            self._failed(peer, LogDeviceError(Status.CONNFAILED, f"N{NodeId(peer)} cannot be reached"), now)

    def _failed(self, peer: PeerId, error: LogDeviceError, now: Micros) -> None:
        self._tried.pop(peer, None)
        if not self._tried and not self._is_over():
            if self._waiting:
                self.try_more(now)
            else:
                self._end(error)

    def _is_over(self) -> bool:
        if self._promise.done():
            self._end(None)
        return self._promise.done()

    def _end(self, error: LogDeviceError | None) -> None:
        if error is not None:
            break_(self._promise, error)
        if self._timer is not None:
            self._timer.cancel()
        self._owner.forget(self)
