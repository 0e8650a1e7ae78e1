"""Whether a client may do what it asks for: what its message needs, against the attribute `permit` of the logs that it names.

1. A message of which the declaration says that only nodes send it is dropped, whatever is permitted.
2. Where permissions are off, nothing else is asked.
3. Internal logs take messages of administrators only: principals with ``admin`` in ``[defaults]``. The log tree may be read by everybody, whose
   client finds logs there.
4. What metadata logs hold (nodesets) may be read by everybody; nothing else is done to them from outside.
5. Of other logs a grant of the log counts. What is granted to `anonymous` is granted to everybody.
6. Of a log that is not known, nothing is done for anybody but administrators.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.permits import NO_PERMITS, Permits
from logdevice_py.core.ids import (
    LOG_TREE_DELTAS,
    LOG_TREE_SNAPSHOTS,
    USER_LOG_ID_MAX,
    LogId,
    is_metadata_log,
)
from logdevice_py.core.principal import Permission, Principal
from logdevice_py.core.status import Status
from logdevice_py.protocol.declare import CODEC_OF, CODECS, Needs
from logdevice_py.protocol.messages import MessageType

_LOG_TREE: Final = frozenset({LOG_TREE_DELTAS, LOG_TREE_SNAPSHOTS})
_READING: Final = frozenset({Needs.READ, Needs.ANY})
FROM_CLIENTS: Final = frozenset(CODECS[number].cls for number in MessageType if CODECS[number].needs is not Needs.NODE)
"""What a client may send; anything else from one is dropped and counted."""


class StreamOwners:
    """Which principal each write stream belongs to: the first whose frame came to this node. When there are too many, the principal that has most of them
    loses what it used longest ago: whoever makes up writers gets rid of no stream of somebody else."""

    __slots__ = ("_most", "_names", "_streams")

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._names: dict[bytes, str] = {}
        self._streams: dict[str, OrderedDict[bytes, None]] = {}
        """Of each principal, in the order of their last use."""

    def is_owner(self, principal: Principal, writer: bytes) -> bool:
        """Whether a write stream is the principal's; one that is nobody's becomes his."""
        name = principal.name
        owner = self._names.setdefault(writer, name)
        if owner != name:
            return False
        streams = self._streams.setdefault(name, OrderedDict())
        streams[writer] = None
        streams.move_to_end(writer)
        if len(self._names) > self._most:
            self._forget_one(name)
        return True

    def _forget_one(self, newest: str) -> None:
        streams = self._streams
        has_most = (
            newest if 2 * len(streams[newest]) > self._most else max(streams, key=lambda name: len(streams[name]))
        )
        writer, _ = streams[has_most].popitem(last=False)
        del self._names[writer]
        if not streams[has_most]:
            del streams[has_most]


def refusal(principal: Principal, message: Any, config: ClusterConfig) -> Status:
    """OK, or with which status a client's message is refused: ACCESS, or what is said of logs that are not known."""
    codec = CODEC_OF[type(message)]
    needs = codec.needs
    if needs is Needs.NOTHING:
        return Status.OK
    return _first_refusal(principal, needs, codec.logs_of(message), config)


def _first_refusal(principal: Principal, needs: Needs, logs: Iterable[LogId], config: ClusterConfig) -> Status:
    for log in logs:
        if not may(principal, needs, log, config):
            return _told_of(log, config)
    return Status.OK


def may(principal: Principal, needs: Needs, log: LogId, config: ClusterConfig) -> bool:
    """Whether a principal may do something with a log."""
    if needs is Needs.NODE:
        return False
    if needs in _READING and (is_metadata_log(log) or log in _LOG_TREE):
        return True
    if is_administrator(principal, config):
        return True
    if log > USER_LOG_ID_MAX:
        return False
    attributes = config.log(log)
    if attributes is None:
        return False
    if needs is Needs.ANY:
        return attributes.permit.allow_anything(principal)
    return isinstance(needs.value, Permission) and attributes.permit.allow(principal, needs.value)


def is_administrator(principal: Principal, config: ClusterConfig) -> bool:
    """Whether a principal may do everything: ``admin`` was granted in ``[defaults]`` of the cluster file. The log tree makes no administrators."""
    permits: Permits = config.logs.defaults.get("permit", NO_PERMITS)
    return permits.allow(principal, Permission.ADMIN)


def _told_of(log: LogId, config: ClusterConfig) -> Status:
    if log > USER_LOG_ID_MAX or config.log(log) is not None:
        return Status.ACCESS
    # a log that was made a moment ago may be somebody's
    return Status.NOTFOUND if config.is_absent(log) else Status.AGAIN
