"""Tables of clients."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _FLAG = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.FLAG
_LOG, _LSN = ColumnKind.LOG, ColumnKind.LSN


@table("client_read_streams", TableSource.EVERY_NODE)
@dataclass(slots=True)
class ClientReadStreamsRow:
    """A log that somebody reads, as the reader sees it. Nodes have rows for what they read themselves, which is the event log where rebuilding is
    enabled. Applications serve nothing: the rows of a client come with ``LDQuery(config, clients=[client])`` in its own process, with NULL
    for node_id."""

    client: str = column(_TEXT, "Name of the client; event log: the node reads for itself.")
    log_id: int = column(_LOG, "The log.")
    stream: int = column(_INTEGER, "Its number at the client, but for the highest bit; table `readers` has it too.")
    state: str = column(_TEXT, "LOOKING_UP, READING, FINISHED or STOPPED.")
    next_lsn: int = column(_LSN, "The first LSN that was not delivered.")
    until_lsn: int = column(_LSN, "Where it ends.")
    window_high: int = column(_LSN, "The last LSN that shards may send.")
    last_released: int = column(_LSN, "What may be read, as far as any shard said.")
    bytes_ready: int = column(_INTEGER, "Bytes of entries that the application has not taken.")
    entries_early: int = column(_INTEGER, "Entries that came before their turn.")
    single_copy: int = column(_FLAG, "Each entry comes from one shard.")
    shards: str = column(
        _TEXT,
        "The shards that it reads from: how it stands with each, up to where it has spoken, and whether it counts as down, slow or lost.",
    )
    reading_order: str = column(
        _TEXT, "Shards that it wants to send, first to last: N1:S0, N2:S0 | N3:S0; empty: as in the copysets."
    )
    hedges: str = column(_TEXT, "Who is asked in place of shards that are late; empty: nobody.")
    waits_for: str = column(_TEXT, "Why nothing is delivered at this moment.")


@table("client_shard_delays", TableSource.EVERY_NODE)
@dataclass(slots=True)
class ClientShardDelaysRow:
    """How long a shard lets the hedged readers of a client wait. Nodes have none; the rows of a client come as those of `client_read_streams` do."""

    client: str = column(_TEXT, "Name of the client.")
    asked_shard: str = column(_TEXT, "The shard, of any node.")
    answers: int = column(_INTEGER, "How many of its last answers are remembered, a hundred at most.")
    usual_delay_us: int = column(
        _INTEGER, "Of 20 answers 19 came no later, in microseconds after a reader had come to what the shard owed."
    )
    round_trip_us: int = column(_INTEGER, "From a question to its answer; 0: not known.")
    hedge_delay_us: int = column(_INTEGER, "After so long others are asked in its place.")
    overtaken: int = column(
        _INTEGER,
        "How many of its last hundred answers came later than those to hedges.",
    )
    last_for_us: int = column(
        _INTEGER, "For how long it still sends only what no other shard can; 0: it has its place."
    )
