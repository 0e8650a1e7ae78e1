"""What becomes of the rows that nodes have of a log."""

from __future__ import annotations

from typing import Any

import pytest

from ldquery.ctl.log_table import LOGS_MAX, chosen_logs
from ldquery.log_status import ASKED, lacks_records, logs_rows
from logdevice_py.config.logs import LogTree
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.cluster import LogsRow
from tests.simulation.cluster_plan import ClusterPlan, NodePlan

ROLES = ["sequencer", "storage"]
CONFIG = load_cluster(ClusterPlan("node:2", 3, {}, {node: NodePlan(ROLES, node) for node in range(3)}).render())


class Tables:
    """What three nodes say of log 1."""

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, Any]]] = {name: [] for name in ASKED}
        self.silent: list[int] = []
        for node in range(3):
            self.add("info", node_id=node, copies_reviewed=1)

    def add(self, table: str, **cells: Any) -> None:
        self.found.setdefault(table, []).append(cells)

    def sequenced(
        self, node: int, epoch: int, *, state: str = "ACTIVE", released: int = 0, time: int | None = 5
    ) -> None:
        self.add("sequencers", node_id=node, log_id=1, state=state, epoch=epoch, last_released=released, tail_time=time)

    def stored(self, node: int, *, trimmed: int = 0, released: int = 0, first: int = 7, size: int = 100) -> None:
        self.add("log_storage_state", node_id=node, log_id=1, trim_point=trimmed, last_released=released)
        self.add("logsdb_directory", node_id=node, log_id=1, first_lsn=first, approximate_size_bytes=size)

    def row(self) -> LogsRow:
        [row] = logs_rows(CONFIG, [1], self.found, self.silent)
        return row


def test_the_sequencer_of_the_latest_epoch_counts_and_its_rate() -> None:
    tables = Tables()
    tables.sequenced(0, 3, released=20, time=50)
    tables.sequenced(1, 4, released=30, time=60)
    tables.sequenced(2, 5, state="PREEMPTED", released=99, time=70)
    tables.add("append_throughput", node_id=0, log_id=1, entries_1min=7.0, bytes_1min=70.0)
    tables.add("append_throughput", node_id=1, log_id=1, entries_1min=2.0, bytes_1min=20.0)
    row = tables.row()
    assert (row.sequencer_node_id, row.epoch, row.tail, row.newest_time) == (1, 4, 30, 60)
    assert (row.entries_1min, row.bytes_1min) == (2.0, 20.0)
    assert not lacks_records([1], tables.found["sequencers"])


def test_where_nobody_sequences_the_epoch_store_and_the_shards_know() -> None:
    tables = Tables()
    tables.stored(0, trimmed=9, released=12, first=7, size=100)
    tables.stored(1, trimmed=4, released=15, first=8, size=50)
    assert lacks_records([1], tables.found["sequencers"])
    tables.add("epoch_store", log_id=1, epoch=4, tail_lsn=14, tail_time=44)
    row = tables.row()
    assert (row.sequencer_node_id, row.epoch, row.tail, row.newest_time) == (None, 3, 15, 44)
    assert (row.head, row.stored_bytes, row.entries_1min) == (10, 150, None)


def test_a_sequencer_that_has_no_record_yet_does_not_hide_the_last_one_before_it() -> None:
    tables = Tables()
    tables.sequenced(0, 3, released=20, time=None)
    assert lacks_records([1], tables.found["sequencers"])
    tables.add("epoch_store", log_id=1, epoch=4, tail_lsn=14, tail_time=44)
    assert (tables.row().epoch, tables.row().newest_time, tables.row().entries_1min) == (3, 44, 0.0)


def test_a_log_that_was_never_used() -> None:
    tables = Tables()
    tables.add("epoch_store", log_id=1, epoch=None, tail_lsn=None, tail_time=None)
    row = tables.row()
    assert (row.epoch, row.head, row.tail, row.newest_time, row.stored_bytes) == (None, None, None, None, 0)
    assert (row.path, row.copies) == (CONFIG.logs.name(1), "OK")


@pytest.mark.parametrize(
    ("states", "silent", "copies"),
    [
        (["SHORT"], [], "SHORT"),
        (["SHORT", "GONE"], [2], "GONE"),
        ([], [2], "UNKNOWN"),
        (["SHORT"], [2], "SHORT"),
    ],
)
def test_what_is_known_of_copies(states: list[str], silent: list[int], copies: str) -> None:
    tables = Tables()
    tables.silent = silent
    for state in states:
        tables.add("under_replicated_logs", node_id=0, log_id=1, state=state)
    assert tables.row().copies == copies


def test_copies_are_not_known_before_a_node_has_looked() -> None:
    tables = Tables()
    tables.found["info"][1]["copies_reviewed"] = 0
    assert tables.row().copies == "UNKNOWN"


TREE = LogTree.build(
    defaults={"replication": ReplicationProperty.parse("node:1")},
    groups=[("/team/clicks", 1, 3, {}), ("/team/audit", 10, 10, {}), ("/other", 20, 20, {})],
)


@pytest.mark.parametrize(
    ("names", "logs"),
    [
        ([], [1, 2, 3, 10, 20]),
        (["/"], [1, 2, 3, 10, 20]),
        (["/team"], [1, 2, 3, 10]),
        (["/team/clicks/", "2"], [1, 2, 3]),
        (["20", "/team/clicks/3"], [3, 20]),
        (["/*/audit"], [10]),
    ],
)
def test_logs_are_named_by_themselves_or_by_what_they_are_in(names: list[str], logs: list[int]) -> None:
    assert chosen_logs(TREE.groups, TREE.matching, names) == logs


def test_what_means_no_log_or_too_many_is_refused() -> None:
    with pytest.raises(LogDeviceError, match="there is no log group /tea") as refused:
        chosen_logs(TREE.groups, TREE.matching, ["/tea"])
    assert refused.value.status is Status.NOTFOUND
    great = LogTree.build(defaults=TREE.defaults, groups=[("/all", 1, LOGS_MAX + 1, {})])
    with pytest.raises(LogDeviceError, match="name some of them"):
        chosen_logs(great.groups, great.matching, [])
