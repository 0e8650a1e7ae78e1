"""What waits in a simulated cluster, and whether the reason that is told is the fault that was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client.read.batch import RecordBatch
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId, NodeId, ShardId, format_shard
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST, Lsn, compose_lsn
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from logdevice_py.tables.waits import WaitsRow
from sequencer import waits as sequencing_waits
from sequencer.sequencer import Sequencer, SequencerPhase
from sequencer.store_availability import Reason
from server.simulation.machines import SimMachines, SimNode, SimNodeState, SimPromise, SimReader
from storage_node import waits as storing_waits

LOG = LogId(1)
STORING, SEQUENCING = (0, 1, 2), (3, 4, 5)
TEXT = """
name = "simulation"
version = 1
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "memory:"
[metadata_log]
replicate = "node:{metadata}"
[defaults]
replicate = "node:{copies}"
sticky_copysets = false
max_writes_in_flight = {window}
[logs."/all"]
ids = "1..{logs}"
[settings.recovery]
concurrent_log_recoveries = {recoveries}
[settings.rebuilding]
enabled = false
"""


class Cluster:
    """Three nodes that store, three that sequence, a client; every log has a copy of each entry on all three unless told otherwise."""

    def __init__(
        self,
        *,
        copies: int = 3,
        metadata: int | None = None,
        window: int = 1000,
        logs: int = 1,
        recoveries: int = 400,
        started: tuple[int, ...] = (*STORING, *SEQUENCING),
    ) -> None:
        text = TEXT.format(copies=copies, metadata=metadata or copies, window=window, logs=logs, recoveries=recoveries)
        for node in (*STORING, *SEQUENCING):
            role = "storage" if node in STORING else "sequencer"
            text += f'[nodes.N{node}]\nhost = "127.0.0.{node + 1}"\nport = 7000\nroles = ["{role}"]\n'
        self.machines = SimMachines(load_cluster(text), 1)
        for node in started:
            self[node].start()
        self.client = self.machines.client()
        self.lsns: list[Lsn] = []
        self.pass_time(2 * SECOND)

    def __getitem__(self, node: int) -> SimNode:
        return self.machines.nodes[NodeId(node)]

    def pass_time(self, micros: int = SECOND) -> None:
        scheduler = self.machines.scheduler
        scheduler.run_until(scheduler.now + micros)

    def append(self, log: LogId = LOG, *, wait: int = 0) -> None:
        """Begin an append."""

        def done(promise: SimPromise) -> None:
            if promise.error is None:
                self.lsns.append(promise.result.lsn)

        def event(now: Micros) -> None:
            self.client.session.append(log, b"record", SimPromise(done))

        self.client.event(event)
        self.pass_time(wait)

    def ready(self, *logs: int) -> Cluster:
        """With logs that are sequenced and released."""
        for log in logs or (LOG,):
            before = len(self.lsns)
            self.append(LogId(log))
            self.until(lambda before=before: len(self.lsns) > before)  # type: ignore[misc]
        self.until(lambda: not self.waits())
        return self

    def until(self, condition: Callable[[], Any], *, step: int = 50 * MILLISECOND, steps: int = 1200) -> None:
        for _ in range(steps):
            if condition():
                return
            self.pass_time(step)
        raise AssertionError(f"it did not come to that; {self.waits()}")

    def until_with_appends(self, condition: Callable[[], Any], *logs: int, step: int = 50 * MILLISECOND) -> None:
        """As `until`, with an append every second: those that are refused or lost are not repeated by themselves."""
        next_append = self.machines.scheduler.now
        for _ in range(120_000):
            if condition():
                return
            if self.machines.scheduler.now >= next_append:
                next_append += SECOND
                for log in logs or (LOG,):
                    self.append(LogId(log))
            self.pass_time(step)
        raise AssertionError(f"it did not come to that; {self.waits()}")

    def home(self, log: LogId = LOG) -> int:
        """Who sequences the log."""
        (node,) = [node for node in SEQUENCING if self.is_active(node, log)]
        return node

    def sequencer(self, node: int, log: LogId = LOG) -> Sequencer | None:
        root = self[node].root
        return None if root is None or root.sequencer is None else root.sequencer.sequencers.get(log)

    def is_active(self, node: int, log: LogId = LOG) -> bool:
        sequencer = self.sequencer(node, log)
        return sequencer is not None and sequencer.state is SequencerPhase.ACTIVE

    def waits(self, constraints: Constraints = EVERYTHING) -> list[WaitsRow]:
        """Of all nodes whose processes run."""
        rows: list[WaitsRow] = []
        for node in self.machines.nodes.values():
            root, process = node.root, node.process
            if root is None or process is None or node.state is not SimNodeState.RUNNING:
                continue
            if root.sequencer is not None:
                rows += sequencing_waits.waits_rows(root.sequencer, constraints, process.now())
            if root.storage is not None:
                rows += storing_waits.waits_rows(root.storage, constraints, process.now())
        return rows

    def find(self, kind: str, cause: str) -> WaitsRow | None:
        """The first wait of that kind for that."""
        return next((row for row in self.waits() if (row.kind, row.cause) == (kind, cause)), None)

    def waits_for(self, kind: str, cause: str, *nodes: int) -> WaitsRow:
        """Such a wait comes up, and names the shards of exactly these nodes."""
        self.until(lambda: self.find(kind, cause))
        row = self.find(kind, cause)
        assert row is not None
        assert row.shards == ", ".join(format_shard(ShardId(node << 8)) for node in nodes), row
        return row

    def nothing_else_is_wrong(self) -> None:
        """Once everything works again, nothing waits any more."""
        self.machines.calm()
        self.until(lambda: not self.waits(), step=SECOND)


def test_nothing_waits_when_nothing_is_wrong_and_nobody_wants_anything() -> None:
    cluster = Cluster(logs=5).ready(1, 2, 3)
    assert cluster.waits() == []


def test_an_append_names_the_node_that_does_not_answer() -> None:
    cluster = Cluster().ready()
    cluster[1].pause()
    cluster.append()
    row = cluster.waits_for("APPEND", "STORES_AGAIN", 1)
    assert (row.log_id, row.waiting, row.lsn) == (LOG, 1, compose_lsn(*_next(cluster)))
    assert row.waited_seconds is not None
    assert row.waited_seconds > 0
    cluster.nothing_else_is_wrong()


def _next(cluster: Cluster) -> tuple[Any, Any]:
    lsn = cluster.lsns[-1]
    return lsn >> 32, (lsn & 0xFFFFFFFF) + 1


def test_an_append_names_the_nodes_that_are_dead() -> None:
    cluster = Cluster(copies=2).ready()
    for node in (1, 2):
        cluster[node].pause()
    cluster.append(wait=SECOND // 2)
    for node in (1, 2):
        cluster[node].crash(machine=False)
    row = cluster.waits_for("APPEND", "NODE_DEAD", 1, 2)
    assert row.waiting == 1
    cluster.nothing_else_is_wrong()


def test_appends_that_would_be_refused_say_why() -> None:
    cluster = Cluster(copies=2).ready()
    cluster[0].crash(machine=False)
    cluster.pass_time(SECOND)
    assert cluster.find("APPEND", "NODE_DEAD") is None, "two shards are enough"
    cluster[2].crash(machine=False)
    assert cluster.waits_for("APPEND", "NODE_DEAD", 0, 2).waiting == 0
    cluster.nothing_else_is_wrong()


def test_the_graylist_is_no_reason_where_another_shard_is_dead() -> None:
    cluster = Cluster().ready()
    root = cluster[cluster.home()].root
    assert root is not None
    assert root.sequencer is not None
    cluster[1].crash(machine=False)
    cluster.waits_for("APPEND", "NODE_DEAD", 1)
    for node in (0, 2):
        root.sequencer.context.availability.block(ShardId(node << 8), Reason.SLOW, cluster.machines.scheduler.now)
    row = cluster.find("APPEND", "NODE_DEAD")
    assert row is not None
    assert row.detail == "N0:S0: GRAYLIST, N1:S0: NODE_DEAD, N2:S0: GRAYLIST"
    cluster.nothing_else_is_wrong()


def test_a_full_disk_is_the_reason() -> None:
    cluster = Cluster().ready()
    for disk in cluster[2].disks.values():
        disk.free = 0
    cluster.append()
    cluster.waits_for("APPEND", "NO_SPACE", 2)
    cluster.nothing_else_is_wrong()


def test_a_disk_that_does_not_keep_up_is_the_reason() -> None:
    cluster = Cluster().ready()
    for disk in cluster[0].disks.values():
        disk.overloaded = True
    cluster.append()
    cluster.until(lambda: cluster.find("APPEND", "OVERLOADED"), step=MILLISECOND)
    cluster.waits_for("APPEND", "OVERLOADED", 0)
    cluster.nothing_else_is_wrong()


def test_a_disk_that_failed_is_the_reason() -> None:
    cluster = Cluster().ready()
    for disk in cluster[1].disks.values():
        disk.fail_write = True
    cluster.append()
    cluster.waits_for("APPEND", "DISABLED", 1)
    cluster.nothing_else_is_wrong()


def test_a_shard_that_lost_its_data_is_the_reason_until_there_is_another_epoch() -> None:
    cluster = Cluster().ready()
    cluster.append(wait=SECOND)
    cluster[1].crash(machine=True)
    cluster[1].wipe()
    cluster[1].start()
    cluster.until(lambda: cluster[1].state is SimNodeState.RUNNING)
    cluster.machines.weather.refuse = 1.0
    for _ in range(5):
        cluster.append(wait=SECOND)
    cluster.waits_for("APPEND", "SHARD_LOST", 1)
    cluster.waits_for("ACTIVATION", "EPOCH_STORE")
    cluster.nothing_else_is_wrong()


def test_an_epoch_store_that_is_away_is_the_reason() -> None:
    cluster = Cluster()
    cluster.machines.weather.refuse = 1.0
    cluster.until_with_appends(lambda: cluster.find("APPEND", "EPOCH"))
    cluster.pass_time(SECOND // 2)
    row = cluster.waits_for("ACTIVATION", "EPOCH_STORE")
    assert row.waited_seconds is not None
    assert 0.4 < row.waited_seconds < 0.6
    assert cluster.waits_for("APPEND", "EPOCH").waiting == 1
    cluster.nothing_else_is_wrong()


def test_a_first_epoch_waits_for_the_nodes_of_which_nothing_was_heard() -> None:
    cluster = Cluster(started=(0, *SEQUENCING))
    cluster.until_with_appends(lambda: cluster.find("ACTIVATION", "NO_NODESET"))
    cluster.waits_for("ACTIVATION", "NO_NODESET", 1, 2)
    for node in (1, 2):
        cluster[node].start()
    cluster.nothing_else_is_wrong()


def test_an_epoch_store_that_lost_everything_needs_an_operator() -> None:
    cluster = Cluster().ready()
    cluster.machines.cells.cells.clear()
    cluster[cluster.home()].crash(machine=False)
    cluster.append(wait=SECOND)
    cluster.append()
    cluster.waits_for("ACTIVATION", "OPERATOR")


def test_a_log_that_nobody_knows_waits_for_those_who_keep_its_metadata_log() -> None:
    cluster = Cluster(copies=2)
    for node in (0, 1):
        cluster[node].pause()
    cluster.append()
    cluster.waits_for("ACTIVATION", "METADATA_LOG", 0, 1)
    cluster.nothing_else_is_wrong()


def test_a_release_names_the_metadata_log_and_that_the_node_that_does_not_store_it() -> None:
    cluster = Cluster(copies=2, metadata=3)
    cluster[2].pause()
    cluster.append()
    cluster.waits_for("METADATA", "STORES_AGAIN", 2)
    assert cluster.waits_for("RELEASE", "METADATA").log_id == LOG
    cluster.nothing_else_is_wrong()


def test_a_recovery_names_the_nodes_without_which_nothing_is_proven() -> None:
    cluster = Cluster(copies=2).ready()
    for node in (0, 2):
        cluster[node].crash(machine=False)
    cluster[cluster.home()].crash(machine=False)
    cluster.until_with_appends(lambda: cluster.find("RECOVERY", "F_MAJORITY"))
    row = cluster.waits_for("RECOVERY", "F_MAJORITY", 0, 2)
    assert "dead: N0:S0, N2:S0" in row.detail
    assert cluster.waits_for("RELEASE", "RECOVERY").lsn == compose_lsn(_next(cluster)[0] + 1, 0)  # type: ignore[arg-type]
    cluster.nothing_else_is_wrong()


def test_recoveries_beyond_the_limit_are_queued() -> None:
    logs = (1, 2, 3, 4, 5, 6, 7, 8)
    cluster = Cluster(copies=2, logs=len(logs), recoveries=1).ready(*logs)
    for node in (0, 2):
        cluster[node].crash(machine=False)
    cluster[SEQUENCING[0]].crash(machine=False)
    cluster.until_with_appends(lambda: cluster.find("RECOVERY", "TURN"), *logs)
    assert cluster.waits_for("RECOVERY", "TURN").detail == "1 recoveries are at work"
    cluster.nothing_else_is_wrong()


def test_a_recovery_that_cannot_tell_the_epoch_store_says_so() -> None:
    cluster = Cluster(copies=2).ready()
    cluster[cluster.home()].crash(machine=False)
    cluster.until_with_appends(lambda: cluster.find("RECOVERY", "F_MAJORITY"), step=MILLISECOND)
    cluster.machines.weather.refuse = 1.0
    cluster.pass_time(5 * SECOND)
    cluster.waits_for("RECOVERY", "EPOCH_STORE")
    cluster.nothing_else_is_wrong()


def test_a_recovery_names_the_node_that_does_not_store_what_was_decided() -> None:
    cluster = Cluster(copies=2).ready()
    cluster[cluster.home()].crash(machine=False)
    cluster.until_with_appends(lambda: cluster.find("RECOVERY", "RECOVERY_STORES"), step=200)
    for node in STORING:
        cluster[node].pause()
    cluster.pass_time(10 * MILLISECOND)
    row = cluster.find("RECOVERY", "RECOVERY_STORES")
    assert row is not None
    assert row.shards
    assert row.detail == "MUTATION"
    cluster.nothing_else_is_wrong()


def test_a_full_window_is_the_reason_that_further_appends_are_refused() -> None:
    cluster = Cluster(window=2).ready()
    cluster[0].pause()
    for _ in range(4):
        cluster.append(wait=10 * MILLISECOND)
    row = cluster.waits_for("APPEND", "WINDOW_FULL")
    assert (row.waiting, row.lsn) == (0, compose_lsn(*_next(cluster)))
    assert row.detail.startswith("2 of 2 entries")
    assert cluster.waits_for("APPEND", "STORES_AGAIN", 0).waiting == 2
    cluster.nothing_else_is_wrong()


def test_a_purge_names_those_who_may_know_how_the_epoch_ended() -> None:
    cluster = Cluster(copies=2).ready()
    for _ in range(20):
        cluster.append(wait=20 * MILLISECOND)
    cluster[2].crash(machine=False)
    cluster[cluster.home()].crash(machine=False)
    before = len(cluster.lsns)
    cluster.until(lambda: cluster.append(wait=SECOND) or len(cluster.lsns) > before)
    cluster[2].start()
    # a connection is tried again after a second at most
    cluster.until(
        lambda: cluster.find("PURGE", "METADATA_LOG") or cluster.find("PURGE", "PEERS"), step=100, steps=20_000
    )
    for node in (0, 1):
        cluster[node].pause()
    cluster.pass_time(200 * MILLISECOND)
    row = cluster.find("PURGE", "PEERS") or cluster.find("PURGE", "METADATA_LOG")
    assert row is not None
    assert row.shards == ("N0:S0, N1:S0" if row.cause == "PEERS" else "")
    assert row.shard == 0
    assert cluster.waits_for("RELEASE", "PURGE").shard == 0
    cluster.nothing_else_is_wrong()


def test_a_reader_that_has_everything_waits_for_records_and_one_that_takes_nothing_for_itself() -> None:
    cluster = Cluster().ready()
    client = cluster.machines.client()
    batches: list[RecordBatch] = []
    reader = SimReader(client, LOG, LSN_OLDEST, LSN_MAX - 1, batches.append, single_copy=False)
    client.event(reader.start)
    row = cluster.waits_for("READ", "TAIL")
    assert row.lsn == cluster.lsns[-1] + 1
    assert not cluster.waits(Constraints(log_id=LogId(2)))
    reader._taking = True  # it never takes what comes
    for _ in range(60):
        cluster.append(wait=5 * MILLISECOND)
    cluster.until(lambda: not cluster.find("APPEND", "STORES") and not cluster.find("READ", "RELEASE"))
    assert {(row.kind, row.cause) for row in cluster.waits()} <= {("READ", "TAIL"), ("READ", "READER_WINDOW")}
