"""Quotas of readers at one node: which meters count what a reader is sent, and who waits for them.

1. A quota of a log counts what this node sends of that log to clients, from all of its shards; one of a principal what it sends to that principal.
2. A stream that is over a quota waits in the line of that meter, behind those that came before it, and gets a piece when it is first: those who
   share a quota get equal shares of it.
3. At most one entry is sent beyond what there is; it is owed.
4. Look-ups count by themselves. One that is over the quota of its principal is not begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.entry import records_of
from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId, PeerId, is_client
from logdevice_py.core.token_bucket import Meter, metered
from logdevice_py.core.units import Micros
from logdevice_py.shell.principal_quotas import PrincipalQuotas

PIECE_BYTES: Final = 64 << 10
"""A stream that waits gets its turn when there is so much, or a full bucket, so that it is not served byte by byte."""
_NONE: Final = ()


class ReadAllowance:
    """What a stream may be sent now, by the meters that count it. What it is sent is charged as it goes."""

    __slots__ = ("_bytes", "_meters", "_records")

    def __init__(self, meters: tuple[Meter, ...], now: Micros) -> None:
        self._meters = meters
        self._bytes = min((left for each in meters if (left := each.bytes_available(now)) is not None), default=1 << 62)
        self._records = min(
            (left for each in meters if (left := each.records_available(now)) is not None), default=1 << 62
        )

    @property
    def is_used_up(self) -> bool:
        """Nothing more may be sent."""
        return self._bytes <= 0 or self._records <= 0

    @property
    def bytes_left(self) -> int:
        """How many may be sent."""
        return max(0, self._bytes)

    @property
    def records_left(self) -> int:
        """How many may be sent."""
        return max(0, self._records)

    def take(self, image: bytes) -> None:
        """An entry is sent."""
        size, records = len(image), records_of(image)
        self._bytes -= size
        self._records -= records
        for meter in self._meters:
            meter.spend(size, records)


class ReadQuotas:
    """The meters of one node's readers."""

    __slots__ = ("_by_log", "_config", "_known", "_principals")

    def __init__(self, config: ClusterConfig, principals: PrincipalQuotas | None = None) -> None:
        self._config = config
        self._principals = PrincipalQuotas(config) if principals is None else principals
        self._by_log: dict[LogId, Meter] = {}
        self._known: dict[LogId, Meter | None] = {}
        """Of logs that were asked for since they last changed; None: no limit."""

    def on_config(self, config: ClusterConfig) -> None:
        """There is another version of the cluster file."""
        self._config = config
        self._known.clear()

    def on_logs_changed(self) -> None:
        """The log tree is another one."""
        self._known.clear()

    def of(self, peer: PeerId, log: LogId, now: Micros) -> tuple[Meter, ...]:
        """The meters that count what a peer is sent of a log."""
        try:
            of_log = self._known[log]
        except KeyError:
            of_log = self._look_up(log, now)
        if of_log is None and not self._principals.limits_reads:
            return _NONE
        if not is_client(peer):
            return _NONE
        of_peer = self._principals.reads(peer)
        if of_log is None:
            return _NONE if of_peer is None else (of_peer,)
        return (of_log,) if of_peer is None else (of_log, of_peer)

    def _look_up(self, log: LogId, now: Micros) -> Meter | None:
        attributes = None if log > USER_LOG_ID_MAX else self._config.log(log)
        before = self._by_log.pop(log, None)
        meter = None
        if attributes is not None:
            meter = metered(before, attributes.reads, now)
        if meter is not None:
            self._by_log[log] = meter
        self._known[log] = meter
        return meter

    def admits_look_up(self, peer: PeerId, now: Micros) -> bool:
        """Charge a peer for a look-up that is about to begin. False: its principal is over its quota, and nothing is charged."""
        meter = self._principals.look_ups(peer)
        if meter is None:
            return True
        if meter.wait(0, 1, now):
            meter.throttled += 1
            return False
        meter.spend(0, 1)
        return True

    def meters(self) -> Iterator[tuple[LogId, Meter]]:
        """Those of logs, to look at."""
        yield from list(self._by_log.items())
