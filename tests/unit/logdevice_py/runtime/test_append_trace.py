"""The trace of appends in one process: what it keeps, and that nothing of it is left when it ends."""

from __future__ import annotations

import dataclasses
from typing import Any

from logdevice_py.core.ids import PeerId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Append, Appended, Release, Shutdown, Store
from logdevice_py.runtime.append_trace import AppendTrace, TracedEvents, TracedSink, TraceEvent, uninstall

CLIENT, NODE = PeerId(-7), PeerId(1)
SHARD = ShardId(1 << 8)


def example_of(kind: type[Any], **given: Any) -> Any:
    """A message of which only some fields matter."""
    return kind(**{field.name: 0 for field in dataclasses.fields(kind)} | given)


class Steps:
    """A clock that goes on by 10 with each look, and what happened around it."""

    def __init__(self) -> None:
        self.now = 0
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self) -> int:
        self.now += 10
        return self.now

    def send(self, to: PeerId, message: Any) -> None:
        self.calls.append(("send", to, message))

    def flush(self) -> None:
        self.calls.append(("flush", self.now))

    def on_message(self, peer: PeerId, message: Any) -> None:
        self.calls.append(("message", peer, message))

    def on_peer_up(self, peer: PeerId) -> None: ...

    def on_peer_down(self, peer: PeerId, *, refused: bool) -> None: ...

    def on_peer_congested(self, peer: PeerId, *, congested: bool) -> None: ...

    def on_config_version(self, version: int) -> None: ...


def test_messages_pass_in_order_and_are_noted_when_they_are_written() -> None:
    steps = Steps()
    trace = AppendTrace(100, steps)
    sink = TracedSink(steps, trace)
    store = example_of(Store, log=3, lsn=Lsn(17), shard=SHARD, wave=2, released=Lsn(16))
    other = example_of(Shutdown)
    sink.send(NODE, store)
    sink.send(NODE, other)
    assert not trace.instants, "it has not left"
    sink.flush()
    assert [call[0] for call in steps.calls] == ["send", "send", "flush"]
    assert [(each.event, each.log, each.lsn, each.shard, each.peer) for each in trace.instants] == [
        (TraceEvent.STORE_SENT, 3, 17, SHARD, NODE),
        (TraceEvent.RELEASE_SENT, 3, 16, SHARD, NODE),
    ]
    assert steps.calls[-1] == ("flush", 10), "the instant is before the write"
    sink.flush()
    assert len(trace.instants) == 2


def test_messages_that_arrive_are_noted_before_they_are_handled() -> None:
    steps = Steps()
    trace = AppendTrace(100, steps)
    events = TracedEvents(steps, trace)
    append = example_of(Append, log=3, request_id=9)
    release = example_of(Release, shard=SHARD, logs=[(3, 5), (4, 6)])
    events.on_message(CLIENT, append)
    events.on_message(NODE, release)
    assert steps.calls == [("message", CLIENT, append), ("message", NODE, release)]
    assert [(each.event.name, each.log, each.lsn, each.request_id) for each in trace.instants] == [
        ("APPEND_RECEIVED", 3, None, 9),
        ("RELEASE_RECEIVED", 3, 5, None),
        ("RELEASE_RECEIVED", 4, 6, None),
    ]


def test_a_copy_is_followed_from_its_write_to_its_outcome() -> None:
    trace = AppendTrace(100, Steps())
    trace.written(SHARD, 1, [(3, 17, False, 1, b"")], 5)
    trace.written(SHARD, 2, [(3, 18, False, 1, b"")], 5)
    trace.written(SHARD, 3, [], 5)  # metadata alone
    trace.synced(SHARD, 25, 4)
    trace.durable(SHARD, 2, Status.FAILED)
    trace.durable(SHARD, 1, Status.OK)
    trace.durable(SHARD, 1, Status.OK)  # nobody awaits it
    trace.durable(SHARD, 3, Status.OK)
    assert [(each.event.name, each.lsn, each.took_ns) for each in trace.instants] == [
        ("WRITTEN", 17, 5),
        ("WRITTEN", 18, 5),
        ("SYNCED", None, 4),
        ("DURABLE", 17, None),
    ]
    assert not trace._pending


def test_the_oldest_instants_are_displaced() -> None:
    trace = AppendTrace(2, Steps())
    for request in range(5):
        trace.message(CLIENT, example_of(Appended, request_id=request), sent=True)
    assert [each.request_id for each in trace.instants] == [3, 4]


def test_nothing_is_left_of_a_trace_that_ended() -> None:
    class Connections(Steps):
        events: Any = None

    class Loop(Steps):
        sink: Any = None

        def attach(self, sink: Any) -> None:
            self.sink = sink

    transport, driver = Connections(), Loop()
    trace = AppendTrace(2, Steps())
    trace.install(driver, transport)  # type: ignore[arg-type]
    assert isinstance(transport.events, TracedEvents)
    assert isinstance(driver.sink, TracedSink)
    uninstall(driver, transport)  # type: ignore[arg-type]
    assert transport.events is driver
    assert driver.sink is transport
