"""Rows of the tables of a client, from the state of its machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from client.read.read_stream import ReadStream, ReadStreamState
from client.read.sender_state import Sender
from client.session import ClientSession
from logdevice_py.core.ids import LogId, format_shard
from logdevice_py.core.lsn import format_lsn
from logdevice_py.core.units import Micros
from logdevice_py.placement.reading_order import shown_order
from logdevice_py.tables.clients import ClientReadStreamsRow, ClientShardDelaysRow
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.declare import STREAM_SHOWN
from logdevice_py.tables.waits import WaitCause, WaitKind, WaitsRow


def client_read_streams_rows(
    session: ClientSession, name: str, constraints: Constraints
) -> Iterator[ClientReadStreamsRow]:
    """Table `client_read_streams`; `name` is how the client is called."""
    for stream in session.streams.read_streams():
        if constraints.log_id in (None, stream.log):
            yield _row(stream, name)


def reader_waits_rows(session: ClientSession, name: str, constraints: Constraints) -> Iterator[WaitsRow]:
    """Table `waits`, as far as the readers of a client are concerned that know no nodeset yet: no shard serves them."""
    by_log: dict[LogId, list[ReadStream]] = defaultdict(list)
    for stream in session.streams.read_streams():
        if stream.state is ReadStreamState.LOOKING_UP and constraints.log_id in (None, stream.log):
            by_log[stream.log].append(stream)
    for log, streams in by_log.items():
        unanswered = session.histories.unanswered(log)
        yield WaitsRow(
            kind=WaitKind.READ.name,
            log_id=log,
            cause=(WaitCause.METADATA_LOG if unanswered else WaitCause.TAIL).name,  # nobody wrote to the log yet
            shards=", ".join(map(format_shard, unanswered)),
            lsn=min(stream.next_lsn for stream in streams),
            waiting=len(streams),
            waited_seconds=None,
            shard=None,
            detail=f"{name}: {streams[0].waiting_for()}",
        )


def client_shard_delays_rows(
    session: ClientSession, name: str, constraints: Constraints, now: Micros
) -> Iterator[ClientShardDelaysRow]:
    """Table `client_shard_delays`, at a time of the client's clock."""
    delays = session.hedges.delays
    for shard, known in delays.shards():
        yield ClientShardDelaysRow(
            client=name,
            asked_shard=format_shard(shard),
            answers=known.samples,
            usual_delay_us=known.p95_us,
            round_trip_us=known.round_trip_us,
            hedge_delay_us=known.hedge_delay_us(delays.settings),
            overtaken=known.lost,
            last_for_us=max(0, known.slow_until - now),
        )


def _row(stream: ReadStream, name: str) -> ClientReadStreamsRow:
    look, request = stream.look(), stream.request
    return ClientReadStreamsRow(
        client=name,
        log_id=request.log,
        stream=request.stream & STREAM_SHOWN,
        state=stream.state.name,
        next_lsn=look.next,
        until_lsn=request.until,
        window_high=look.window_high,
        last_released=look.released,
        bytes_ready=look.ready_bytes,
        entries_early=look.waiting_entries,
        single_copy=int(look.single_copy),
        shards=", ".join(map(_describe, look.senders)),
        reading_order=shown_order(look.order),
        hedges=look.hedges,
        waits_for=look.waiting_for,
    )


def _describe(sender: Sender) -> str:
    words = [format_shard(sender.shard), sender.status.name]
    if sender.next_lsn:
        words.append(f"to {format_lsn(sender.next_lsn)}")
    words += [word for word in ("down", "slow", "lost") if getattr(sender, word)]
    return " ".join(words)
