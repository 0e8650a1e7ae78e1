"""The session reads nodesets of logs for others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.read.settings import ReadSettings
from client.session_stream import SessionStream
from client.tables import reader_waits_rows
from ldquery.client_rows import ClientRows
from logdevice_py.config.cluster import MetadataLogConfig
from logdevice_py.core.ids import LogId, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import LSN_MAX, Lsn
from logdevice_py.core.status import Status
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import Digest, Digested, DigestedRange, GetSeqState, SeqStateFlags
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from logdevice_py.tables.waits import WaitsRow
from tests.unit.client.fakes import LOG, Bench, cluster, seq_state


def digested(request: Digest) -> Digested:
    """Nothing is there, to the end."""
    (asked,) = request.ranges
    return Digested(
        request_id=request.request_id,
        shard=request.shard,
        ranges=[DigestedRange(asked.log, Status.OK, LSN_MAX)],
        entries=[],
        images=b"",
    )


class Asking:
    """A session that was asked for the nodesets of a log while nodes 0 to 2 keep the metadata logs."""

    def __init__(self) -> None:
        self.bench = Bench(6)
        self.bench.session.set_config(self.config(2, [0, 1, 2]), self.bench.now)
        self.answers: list[tuple[EpochInterval, ...]] = []
        self.request = self.bench.session.histories.read(
            LOG, self.bench.now, lambda history, now, certain: self.answers.append(history)
        )

    def config(self, version: int, nodes: list[int]):  # type: ignore[no-untyped-def]
        config = cluster(6, version)
        nodeset = tuple(shard_id(NodeId(node)) for node in nodes)
        return replace(config, metadata_log=MetadataLogConfig(nodeset, config.metadata_log.replication))

    def asked(self) -> list[int]:
        return [node for node, _ in self.bench.taken(Digest)]


def test_metadata_logs_that_move_while_they_are_read_are_read_where_they_are() -> None:
    asking = Asking()
    assert asking.asked() == [0, 1, 2]
    asking.bench.session.set_config(asking.config(3, [3, 4, 5]), asking.bench.now)
    requests = asking.bench.taken(Digest)
    assert [node for node, _ in requests] == [3, 4, 5]
    for node, request in requests:
        asking.bench.answer(node, digested(request))
    assert asking.answers == [()]
    asking.bench.pass_time(60_000_000)
    assert asking.asked() == []


def read_from_shards_that_lost_data(bench: Bench) -> list[GetSeqState]:
    """Answer all DIGESTs; what is asked of sequencers in consequence."""
    for node, request in bench.taken(Digest):
        answer = digested(request)
        answer.ranges = [each._replace(status=Status.REBUILDING) for each in answer.ranges]
        bench.answer(node, answer)
    return [message for _, message in bench.sent if type(message) is GetSeqState]


def test_when_it_cannot_be_read_for_certain_the_sequencer_is_asked_to_store_it_again_now_and_then() -> None:
    asking = Asking()
    bench = asking.bench
    [question] = read_from_shards_that_lost_data(bench)
    assert (question.log, question.flags) == (LOG, SeqStateFlags.STORE_METADATA)
    bench.answer(NodeId(bench.sent[-1][0]), seq_state(question))
    bench.session.histories.read(LOG, bench.now, lambda history, now, certain: None)
    assert read_from_shards_that_lost_data(bench) == []
    bench.pass_time(10_000_000)
    bench.session.histories.read(LOG, bench.now, lambda history, now, certain: None)
    assert len(read_from_shards_that_lost_data(bench)) == 1


def test_an_empty_metadata_log_that_is_read_to_its_end_is_not_reported() -> None:
    asking = Asking()
    for node, request in asking.bench.taken(Digest):
        asking.bench.answer(node, digested(request))
    assert asking.answers == [()]
    assert asking.bench.taken(GetSeqState) == []


def test_a_request_that_was_answered_is_not_read_anew() -> None:
    asking = Asking()
    for node, request in asking.bench.taken(Digest):
        asking.bench.answer(node, digested(request))
    asking.bench.session.set_config(asking.config(3, [3, 4, 5]), asking.bench.now)
    assert asking.asked() == []
    assert asking.answers == [()]


def test_a_request_that_was_cancelled_is_not_read_anew() -> None:
    asking = Asking()
    asking.request.cancel()
    asking.bench.taken()
    asking.bench.session.set_config(asking.config(3, [3, 4, 5]), asking.bench.now)
    asking.bench.pass_time(60_000_000)
    assert asking.asked() == []
    assert asking.answers == []


def test_a_reader_without_a_nodeset_names_the_shards_that_it_waits_for() -> None:
    asking = Asking()
    bench = asking.bench
    reading = SessionStream(
        bench.session,
        ReadRequest(log=LOG, stream=7, first=Lsn(1), until=LSN_MAX, single_copy=True),
        settings=ReadSettings(),
        metrics=ReadMetrics(),
        on_ready=lambda: None,
    )
    reading.start(bench.now)
    requests = bench.taken(Digest)[1::2]
    assert reading.stream.waiting_for() == (
        "N0:S0, N1:S0, N2:S0 to answer, which keep the metadata log: no nodeset of the log is known yet"
    )
    node, request = requests[0]
    bench.answer(node, digested(request))
    assert f"N{node}:S0" not in reading.stream.waiting_for()

    def waits() -> list[WaitsRow]:
        client: Any = SimpleNamespace(
            is_open=True,
            running_loop=lambda: None,
            loop=None,
            session=bench.session,
            name="mine",
            now=lambda: bench.now,
        )
        return ClientRows(client).rows("waits", Constraints(log_id=LOG), 1.0)

    asking.request.cancel()
    (row,) = waits()
    assert (row.kind, row.cause, row.log_id, row.lsn, row.waiting) == ("READ", "METADATA_LOG", LOG, 1, 1)
    assert row.shards == ", ".join(f"N{each}:S0" for each, _ in requests[1:])
    assert row.detail.startswith("mine: ")
    assert list(reader_waits_rows(bench.session, "mine", Constraints(log_id=LogId(LOG + 1)))) == []
    for node, request in requests[1:]:
        bench.answer(node, digested(request))
    (row,) = waits()
    assert (row.cause, row.shards) == ("TAIL", "")
    reading.stop()
    assert waits() == []


def test_how_long_shards_let_a_client_wait_is_told() -> None:
    bench = Bench()
    delays = bench.session.hedges.delays
    delays.of(ShardId(256)).note_answer(7_000)
    delays.of(ShardId(256)).note_round_trip(300)
    delays.leave_to_the_end(ShardId(512), bench.now)
    client: Any = SimpleNamespace(
        is_open=True, running_loop=lambda: None, loop=None, session=bench.session, name="mine", now=lambda: bench.now
    )
    usual, slow = ClientRows(client).rows("client_shard_delays", EVERYTHING, 1.0)
    assert (usual.client, usual.asked_shard, usual.answers, usual.round_trip_us) == ("mine", "N1:S0", 1, 300)
    assert (usual.usual_delay_us, usual.last_for_us, usual.overtaken) == (7_000, 0, 0)
    assert (slow.asked_shard, slow.answers, slow.last_for_us) == ("N2:S0", 0, delays.settings.hedge_penalty_us)
