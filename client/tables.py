"""Rows of the tables of a client, from the state of its machines."""

from __future__ import annotations

from collections.abc import Iterator

from client.read.read_stream import ReadStream
from client.read.sender_state import Sender
from client.session import ClientSession
from logdevice_py.core.ids import format_shard
from logdevice_py.core.lsn import format_lsn
from logdevice_py.tables.clients import ClientReadStreamsRow
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.declare import STREAM_SHOWN


def client_read_streams_rows(
    session: ClientSession, name: str, constraints: Constraints
) -> Iterator[ClientReadStreamsRow]:
    """Table `client_read_streams`; `name` is how the client is called."""
    for stream in session.streams.read_streams():
        if constraints.log_id in (None, stream.log):
            yield _row(stream, name)


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
        waits_for=look.waiting_for,
    )


def _describe(sender: Sender) -> str:
    words = [format_shard(sender.shard), sender.status.name]
    if sender.next_lsn:
        words.append(f"to {format_lsn(sender.next_lsn)}")
    words += [word for word in ("down", "slow", "lost") if getattr(sender, word)]
    return " ".join(words)
