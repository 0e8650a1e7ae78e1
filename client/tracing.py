"""Traces of appends, for OpenTelemetry: `TracedClient` has a span for each append and for each batch of its writers. Needs ``logdevice-py[otel]``.

A span is the client's part: from the call, or from when a batch was cut, until it is acknowledged or failed. What nodes did in between `TracedClient.trace_nodes` adds
for direct appends, where nodes note it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

from client.admin_access import AdminAccess
from client.buffered_writer import BufferedWriter
from client.client import Client
from client.node_parts import NodePart, node_parts
from client.receipt import Receipt, Receipts
from client.write.frame import Share, StreamFrame
from logdevice_py.core.ids import LogId, ShardId, format_shard
from logdevice_py.core.lsn import format_lsn
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.status import Status as Outcome
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Durability
from logdevice_py.runtime.clock import wall_us
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING

LINKS_MAX: Final = 100
"""Spans in which records of a batch were appended that its span is linked to."""
RECENT_MAX: Final = 1000
"""Direct appends of which nodes can be asked afterwards."""
_SEND: Final = "send"


class TracedClient(Client):
    """A client that traces what it appends; in all else it is one.

    The span of an append is a child of the span that is current when it is called. That of a batch has no parent, since records of many callers share it,
    and links to the spans in which its records were appended.
    """

    def __init__(self, *arguments: Any, tracer_provider: TracerProvider | None = None, **options: Any) -> None:
        """
        Args:
            arguments, options: those of `Client`.
            tracer_provider: who gets the spans; None: OpenTelemetry's global one.
        """
        super().__init__(*arguments, **options)
        self._tracer = get_tracer("logdevice_py", tracer_provider=tracer_provider)
        self._recent: deque[_Traced] = deque(maxlen=RECENT_MAX)
        """Direct appends that are traced, of which nodes were not asked yet."""

    def append(self, log: int | str, payload: bytes | bytearray | memoryview, **options: Any) -> Awaitable[Receipt]:
        """As `Client.append`."""
        size = len(payload) if hasattr(payload, "__len__") else 0
        future: Awaitable[Receipt] = self._traced(log, 1, size, partial(super().append, log, payload, **options))
        return future

    def append_many(self, log: int | str, payloads: Any, **options: Any) -> Awaitable[Receipts]:
        """As `Client.append_many`."""
        records = list(payloads)
        size = sum(map(len, records))
        begin = partial(super().append_many, log, records, **options)
        future: Awaitable[Receipts] = self._traced(log, len(records), size, begin)
        return future

    def buffered_writer(self, **options: Any) -> BufferedWriter:
        """As `Client.buffered_writer`."""
        streams = super().buffered_writer(**options)._streams
        return TracedWriter(self, streams, BatchSpans(self._tracer, self.log_name, self.now))

    def log_name(self, log: LogId) -> str:
        """How people call a log."""
        return self.config.log_name(log)

    async def trace_nodes(self, *, seconds: float = 5.0) -> int:
        """Ask nodes what they noted of the direct appends since the last call, the last thousand at most, and make spans of it: children of the spans of these
        appends. How many spans that were. Call it every second or so; nodes note instants while `trace_instants` in `[settings.runtime]` asks for it, and
        do nothing for this else.

        Args:
            seconds: for the answers. Nodes that do not answer have no spans.

        Raises:
            LogDeviceError: INVALID_CONFIG: the admin API cannot be used.
        """
        from client.node_tables import NodeAsker, as_dicts

        wanted = [self._recent.popleft() for _ in range(len(self._recent))]
        if not wanted:
            return 0
        if self._path is None:
            raise LogDeviceError(
                Outcome.INVALID_CONFIG,
                "the nodes' admin API is asked as the files beside a cluster file say: open the client with one",
            )
        asker = NodeAsker(self.config, AdminAccess.of_program(self._path))
        table = TABLES["append_trace"]
        try:
            rows, _ = await asker.ask_each(table, list(self.config.nodes), EVERYTHING, None, seconds)
        finally:
            await asker.close()
        by_log: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for row in as_dicts(table, rows):
            by_log[row["log_id"]].append(row)
        made = 0
        for each in wanted:
            for part in node_parts(by_log[each.log], each.log, each.lsn, each.batch_offset, each.begin_ns, each.end_ns):
                _make_node_span(self._tracer, each, part)
                made += 1
        return made

    def _traced(self, log: int | str, records: int, size: int, begin: Callable[[], Any]) -> Any:
        name = log if isinstance(log, str) else self.log_name(LogId(log))
        span = self._tracer.start_span(
            f"{_SEND} {name}", kind=SpanKind.PRODUCER, attributes=_attributes(name, records, size)
        )
        try:
            future = begin()
        except LogDeviceError as error:
            _end(span, error, None)
            raise
        future.add_done_callback(partial(_appended, span))
        if span.get_span_context().trace_flags.sampled:
            future.add_done_callback(partial(self._remember, span.get_span_context(), log, wall_us() * 1000))
        return future

    def _remember(self, context: SpanContext, log: int | str, begin_ns: int, future: Any) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        result = future.result()
        first = result if isinstance(result, Receipt) else result[0] if len(result) else None
        if first is not None:
            end_ns = wall_us() * 1000
            self._recent.append(_Traced(context, self.log_id(log), first.lsn, first.batch_offset, begin_ns, end_ns))


@dataclass(frozen=True, slots=True)
class _Traced:
    """A direct append that has a span."""

    context: SpanContext
    log: int
    lsn: int
    batch_offset: int
    begin_ns: int
    end_ns: int


def _make_node_span(tracer: Tracer, of: _Traced, part: NodePart) -> None:
    attributes: dict[str, Any] = {"messaging.system": "logdevice", "logdevice.node": f"N{part.node}"}
    if part.shard is not None:
        attributes["logdevice.shard"] = part.shard
    attributes |= {f"logdevice.{name}_us": took // 1000 for name, took in (part.took_ns or {}).items()}
    parent = set_span_in_context(NonRecordingSpan(of.context))
    span = tracer.start_span(
        part.what, parent, kind=SpanKind.SERVER, attributes=attributes, start_time=max(part.begin_ns, of.begin_ns)
    )
    span.end(min(part.end_ns, of.end_ns))


class TracedWriter(BufferedWriter):
    """A writer whose batches have spans."""

    __slots__ = ("_spans",)

    def __init__(self, shell: Any, streams: Any, spans: BatchSpans) -> None:
        super().__init__(shell, streams)
        self._spans = spans
        self.observe(spans)

    def append(self, log: int | str, payload: bytes | bytearray | memoryview, **options: Any) -> Awaitable[Receipt]:
        """As `BufferedWriter.append`."""
        future = super().append(log, payload, **options)
        self._spans.note(future)
        return future

    def append_many(self, log: int | str, payloads: Any, **options: Any) -> Awaitable[Receipts]:
        """As `BufferedWriter.append_many`."""
        future = super().append_many(log, payloads, **options)
        self._spans.note(future)
        return future


class BatchSpans:
    """Makes a span of each batch that has its outcome."""

    def __init__(self, tracer: Tracer, name_of: Callable[[LogId], str], now: Callable[[], Micros]) -> None:
        """
        Args:
            name_of: how people call a log.
            now: the monotonic clock of frames.
        """
        self._tracer = tracer
        self._name_of = name_of
        self._now = now
        self._contexts: dict[Any, SpanContext] = {}
        """In which span the records of a promise were appended, until they have their outcome."""

    def note(self, promise: Any) -> None:
        """Somebody appended within the current span."""
        context = get_current_span().get_span_context()
        if context.is_valid and context.trace_flags.sampled:
            self._contexts[promise] = context
            promise.add_done_callback(self._contexts.pop)

    def has_outcome(self, log: LogId, frame: StreamFrame, error: LogDeviceError | None) -> None:
        """As `FrameObserver`."""
        name, now, wall = self._name_of(log), self._now(), wall_us()
        span = self._tracer.start_span(
            f"{_SEND} {name}",
            kind=SpanKind.PRODUCER,
            attributes={**_attributes(name, frame.records, frame.size), "logdevice.log_id": int(log)},
            links=self._links(frame),
            start_time=(wall - (now - frame.cut_at)) * 1000,
        )
        if not span.is_recording():
            return
        if frame.sent_at:
            span.set_attribute("logdevice.waited_us", max(0, frame.sent_at - frame.cut_at))
            span.set_attribute("logdevice.sent_us", now - frame.sent_at)
        found = frame.position
        place = (
            None
            if error is not None or found is None
            else (found.lsn, found.batch_offset, found.copyset, found.durability)
        )
        _end(span, error, place, wall * 1000)

    def _links(self, frame: StreamFrame) -> list[Link]:
        if not self._contexts:
            return []
        found: dict[tuple[int, int], SpanContext] = {}
        for each in frame.spans:
            context = self._contexts.get(each.promise if isinstance(each, Share) else each)
            if context is not None:
                found[context.trace_id, context.span_id] = context
        return [Link(context) for context in list(found.values())[:LINKS_MAX]]


def _attributes(name: str, records: int, size: int) -> dict[str, Any]:
    """By OpenTelemetry's conventions for messaging, where there is one."""
    return {
        "messaging.system": "logdevice",
        "messaging.operation.name": _SEND,
        "messaging.operation.type": _SEND,
        "messaging.destination.name": name,
        "messaging.batch.message_count": records,
        "messaging.message.body.size": size,
    }


def _appended(span: Span, future: Any) -> None:
    if future.cancelled():
        span.set_status(Status(StatusCode.ERROR, "cancelled"))
        span.end()
        return
    error = future.exception()
    if error is not None:
        _end(span, error, None)
        return
    result = future.result()
    if isinstance(result, Receipts):
        result = result[-1] if len(result) else None
    _end(span, None, None if result is None else (result.lsn, result.batch_offset, result.copyset, result.durability))


def _end(
    span: Span,
    error: BaseException | None,
    place: tuple[int, int, tuple[int, ...], Durability] | None,
    at: int | None = None,
) -> None:
    """
    Args:
        place: LSN, offset in its entry, shards and durability of the last record.
        at: when, in nanoseconds; None: now.
    """
    if place is not None:
        lsn, offset, copyset, durability = place
        span.set_attribute("logdevice.lsn", format_lsn(lsn))
        span.set_attribute("logdevice.batch_offset", offset)
        span.set_attribute("logdevice.shards", [format_shard(ShardId(shard)) for shard in copyset])
        span.set_attribute("logdevice.durability", durability.name.lower())
    if isinstance(error, LogDeviceError):
        span.set_attribute("error.type", error.status.name)
        span.set_attribute("logdevice.maybe_applied", bool(error.maybe_applied))
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end(at)
