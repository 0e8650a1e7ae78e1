"""Spans of appends and of batches, on a simulated cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from client.tracing import TracedClient
from logdevice_py.core.status import LogDeviceError
from server.simulation.cluster import SimClientNetwork, SimCluster, simulate

Spans = tuple[ReadableSpan, ...]


def traced(application: Callable[[TracedClient, Any], Awaitable[None]]) -> Spans:
    """What an application leaves; its tracer is the second argument."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))

    async def run(cluster: SimCluster) -> None:
        machines = cluster.machines
        client = TracedClient(
            machines.config,
            location="",
            seed=1,
            network=lambda own: SimClientNetwork(machines, own, -5000),
            tracer_provider=provider,
        )
        async with client:
            await application(client, provider.get_tracer("application"))

    simulate(run, seed=3, nodes=3)
    return kept.get_finished_spans()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_an_append_is_a_child_of_the_callers_span_and_says_where_the_record_is() -> None:
    receipts = []

    async def application(client: TracedClient, tracer: Any) -> None:
        with tracer.start_as_current_span("request"):
            receipts.append(await client.append(1, b"seven"))
            await client.append_many(1, [b"a", b"bc"])

    one, many, request = traced(application)
    found = attributes(one)
    assert (one.kind, one.name) == (SpanKind.PRODUCER, f"send {found['messaging.destination.name']}")
    assert (found["messaging.message.body.size"], found["messaging.batch.message_count"]) == (5, 1)
    assert found["logdevice.lsn"] == str(receipts[0].lsn)
    assert found["logdevice.shards"] == receipts[0].shards
    assert attributes(many)["messaging.batch.message_count"] == 2
    assert request.context is not None
    assert [each.parent and each.parent.span_id for each in (one, many)] == [request.context.span_id] * 2


def test_a_batch_has_one_span_that_links_to_those_in_which_its_records_were_appended() -> None:
    async def application(client: TracedClient, tracer: Any) -> None:
        async with client.buffered_writer(time_trigger="1s") as writer:
            for name in ("first", "second"):
                with tracer.start_as_current_span(name):
                    writer.append(1, name.encode())
                    writer.append_many(1, [b"x", b"y"])
            writer.append(1, b"nobody's")

    first, second, batch = traced(application)
    found = attributes(batch)
    assert batch.parent is None
    assert (found["messaging.batch.message_count"], found["messaging.message.body.size"]) == (7, 23)
    assert found["logdevice.lsn"].startswith("e")
    assert len(found["logdevice.shards"]) >= 1
    assert found["logdevice.sent_us"] > 0
    assert [link.context for link in batch.links] == [first.context, second.context]
    assert batch.start_time is not None
    assert batch.end_time is not None
    assert batch.end_time > batch.start_time


def test_what_fails_says_how() -> None:
    async def application(client: TracedClient, tracer: Any) -> None:
        with pytest.raises(LogDeviceError):
            await client.append(999, b"x")
        with pytest.raises(LogDeviceError):
            client.append(1, b"x" * (64 << 20))
        writer = client.buffered_writer()
        writer.append(1, b"x")
        writer.abandon()

    spans = traced(application)
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR] * len(spans)
    told = [(attributes(span)["error.type"], attributes(span)["logdevice.maybe_applied"]) for span in spans]
    assert told == [("NOTFOUND", False), ("TOOBIG", False), ("SHUTDOWN", False)]
