"""What is written into a node's audit log, and what waits for it.

1. A trim that a client may do is done once its line is on disk: so the line is durable before the answer. Where it cannot be written, the trim is
   refused with AGAIN, and nothing is trimmed.
2. What administrators ask of the admin API is written before it is done, and once more with what became of it.
3. Appends of clients to internal logs are written; they do not wait.
4. Refusals are written, so many of each principal in a second. What is left out is counted, and the counts are written every ten seconds.
5. What nodes do to each other's logs is not written.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.declare import counter
from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId, NodeId, PeerId
from logdevice_py.core.lsn import format_lsn
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.token_bucket import TokenBucket
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.declare import CODEC_OF
from logdevice_py.shell.proof import Principals

ALLOWED: Final = "ALLOWED"
"""Outcome of what the node lets somebody do: what becomes of it is told to him, and is not in the log."""
_BURST_US: Final = 5 * SECOND
_TELL_LEFT_OUT_US: Final = 10 * SECOND
_PRINCIPALS_MAX: Final = 1_000
"""Of whom refusals are counted apart."""
_WAITING_MAX: Final = 10_000
"""Trims that wait for their lines; more are refused."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Done = Callable[[bool, Micros], None]
"""Told whether the line is on disk."""


@dataclass(slots=True)
class WriteAuditLine:
    """Effect: append a line to the audit log. token: somebody waits until it is on disk, see `AuditLog.on_written`; 0: nobody does."""

    token: int
    line: str


@dataclass(slots=True)
class AuditMetrics:
    """What a node's audit log counts."""

    lines: int = counter("Lines given to the audit log.", unit="lines")
    left_out: int = counter("Refusals that were counted instead of written.", unit="refusals")
    failures: int = counter("Lines that could not be written.", unit="lines")


class _Refusals:
    """Of one principal."""

    __slots__ = ("bucket", "left_out")

    def __init__(self, rate: int) -> None:
        self.bucket = TokenBucket(rate, _BURST_US)
        self.bucket.give_back(rate * _BURST_US // SECOND)
        self.left_out = 0


class AuditLog:
    """The audit log of one node. Pure: lines leave as effects."""

    def __init__(
        self,
        node: NodeId,
        settings: SecuritySettings,
        outbox: Outbox,
        timers: TimerQueue,
        principals: Principals,
        wall: Callable[[], Timestamp],
    ) -> None:
        """
        Args:
            principals: who clients are, and where they come from.
            wall: the node's wall clock.
        """
        self.metrics = AuditMetrics()
        self._node = node
        self._rate = settings.audit_lines_per_s
        self._outbox = outbox
        self._timers = timers
        self._principals = principals
        self._wall = wall
        self._token = 0
        self._waiting: dict[int, Done] = {}
        self._refusals: OrderedDict[str, _Refusals] = OrderedDict()
        self._tells_left_out = False

    # What clients do

    def allowed(self, peer: PeerId, message: Any, config: ClusterConfig, done: Done | None, now: Micros) -> bool:
        """A client may do what it asks for. `done`: waits until the line is on disk. False: too much waits, and it must not be done."""
        if done is not None and len(self._waiting) >= _WAITING_MAX:
            hit("audit_log_behind")
            return False
        fields = {"who": self._principals.of(peer).name, "from": self._principals.origin(peer)}
        self._write({**fields, **_described(message, config), "outcome": ALLOWED}, done)
        return True

    def refused(self, peer: PeerId, message: Any, status: Status, config: ClusterConfig, now: Micros) -> None:
        """A client may not do what it asks for."""
        who = self._principals.of(peer).name
        if self._has_room(who, now):
            fields = {"who": who, "from": self._principals.origin(peer)}
            self._write({**fields, **_described(message, config), "outcome": status.name}, None)

    # What is asked of the admin API

    def request_refused(self, who: str, origin: str, what: str, now: Micros) -> None:
        """Somebody asked for what he may not have. who: empty when he proves nothing."""
        if self._has_room(who, now):
            self._write({"who": who, "from": origin, "what": what, "outcome": Status.ACCESS.name}, None)

    def administered(
        self, who: str, origin: str, what: str, given: Mapping[str, Any], outcome: str, done: Done
    ) -> None:
        """Somebody who may asks for something (ALLOWED), or this is what became of it."""
        fields = {"who": who, "from": origin, "what": what, "parameters": dict(given)}
        self._write({**fields, "outcome": outcome}, done)

    # Lines

    def _write(self, fields: dict[str, Any], done: Done | None) -> None:
        token = 0
        if done is not None:
            self._token += 1
            token = self._token
            self._waiting[token] = done
        self.metrics.lines += 1
        when = (_EPOCH + timedelta(microseconds=self._wall())).isoformat(timespec="microseconds")
        line = {"time": when.replace("+00:00", "Z"), "node": f"N{self._node}", **fields}
        self._outbox.emit(WriteAuditLine(token, json.dumps(line)))

    def on_written(self, tokens: list[int], ok: bool, now: Micros) -> None:
        """Lines are on disk, or could not be written. tokens: of those for which somebody waits."""
        for token in tokens:
            done = self._waiting.pop(token, None)
            if done is not None:
                done(ok, now)

    def _has_room(self, who: str, now: Micros) -> bool:
        refusals = self._refusals.get(who)
        if refusals is None:
            refusals = self._refusals[who] = _Refusals(self._rate)
            if len(self._refusals) > _PRINCIPALS_MAX:
                other, oldest = self._refusals.popitem(last=False)
                self._tell_left_out(other, oldest)
        else:
            self._refusals.move_to_end(who)
        if not refusals.bucket.wait(1, now):
            refusals.bucket.spend(1)
            return True
        hit("audit_lines_left_out")
        self.metrics.left_out += 1
        refusals.left_out += 1
        if not self._tells_left_out:
            self._tells_left_out = True
            self._timers.at(now + _TELL_LEFT_OUT_US, self._tell_all_left_out)
        return False

    def _tell_all_left_out(self, now: Micros) -> None:
        self._tells_left_out = False
        for who, refusals in self._refusals.items():
            self._tell_left_out(who, refusals)

    def _tell_left_out(self, who: str, refusals: _Refusals) -> None:
        if refusals.left_out:
            self._write({"who": who, "from": "", "what": "left out", "count": refusals.left_out}, None)
            refusals.left_out = 0


def _described(message: Any, config: ClusterConfig) -> dict[str, Any]:
    """What a message asks for, and of which log."""
    codec = CODEC_OF[type(message)]
    fields: dict[str, Any] = {"what": m.MessageType(codec.number).name}
    logs = list(codec.logs_of(message))
    if logs:
        fields["log"] = logs[0]
        fields["log_name"] = config.log_name(LogId(logs[0])) if logs[0] <= USER_LOG_ID_MAX else "internal"
    if len(logs) > 1:
        fields["further_logs"] = len(logs) - 1
    if isinstance(message, m.Trim):
        fields["through"] = format_lsn(message.lsn)
        fields["shard"] = message.shard & 0xFF
    return fields
