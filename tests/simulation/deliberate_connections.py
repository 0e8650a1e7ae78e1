"""Deliberate faults of introductions: who is at the other end of a connection, and when it may be spoken to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdevice_py.core.ids import PeerId
from logdevice_py.core.status import Status
from logdevice_py.protocol.framing import encode_frame
from logdevice_py.protocol.messages import Hello
from logdevice_py.shell.admission import Admission
from logdevice_py.shell.introduction import Introduction
from logdevice_py.simulation.transport import SimTransport
from server.audit.audit_log import AuditLog
from server.node import Node
from tests.simulation.deliberate_fault import deliberate

Change = Callable[..., Any]


@deliberate("all clients of a node have the same number", (Introduction, "_number_client"))
def clients_share_a_number(original: Change) -> Change:
    return lambda self: PeerId(-1)


@deliberate("what waits for a node is sent with HELLO, not behind its answer", (SimTransport, "_put"))
def introduction_not_awaited(original: Change) -> Change:
    def put(self: SimTransport, end: Any, message: Any) -> None:
        if type(message) is not Hello:
            original(self, end, message)
            return
        waiting = self._route(PeerId(message.destination)).take()
        end.send(b"".join(piece for frame in (encode_frame(message), *waiting) for piece in frame))

    return put


@deliberate("connections that are lost keep their places", (Admission, "gone"))
def places_never_free(original: Change) -> Change:
    return lambda self, connection: None


@deliberate("what clients ask for is done without looking at permissions", (Node, "_refusal"))
def permissions_not_looked_at(original: Change) -> Change:
    return lambda self, peer, message: Status.OK


@deliberate("who says that he is a node is believed", (Introduction, "_judge_proof"))
def nodes_believed(original: Change) -> Change:
    return lambda self, hello, proof: (Status.OK, "")


@deliberate("read streams go on when the permission is gone", (Node, "_end_refused_streams"))
def refused_streams_go_on(original: Change) -> Change:
    return lambda self: None


@deliberate("who may only read has a log moved to later epochs", (Node, "_limited"))
def readers_begin_epochs(original: Change) -> Change:
    return lambda self, route: route


@deliberate("trims are done before their lines are in the audit log", (AuditLog, "allowed"))
def trims_before_their_lines(original: Change) -> Change:
    def allowed(self: AuditLog, peer: PeerId, message: Any, config: Any, done: Any, now: Any) -> bool:
        written = bool(original(self, peer, message, config, None, now))
        if written and done is not None:
            done(True, now)
        return written

    return allowed
