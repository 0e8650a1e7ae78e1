"""What ldquery and ldctl say of where a log's copies are, from the tables of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ldquery.ctl.placement import PlacementReport, looked_at
from ldquery.placement_report import placement_rows
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.tables.storage import LogPlacementRow

LOG = LogId(1)
RANGE = (compose_lsn(1, 1), compose_lsn(5, 100))
NODES = "".join(
    f'[nodes.N{node}]\nhost = "h{node}"\nport = 1\nlocation = "{region}....r{node % 2}"\n'
    for node, region in enumerate(["us", "us", "eu", "eu", "ap", "ap"])
)
CONFIG = load_cluster(
    'name = "t"\nversion = 1\nuuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"\nepoch_store = "memory:"\n'
    '[metadata_log]\nreplicate = "region:2,node:3"\n[logs."/all"]\nids = "1..10"\nreplicate = "region:2,node:3"\n'
    + NODES
)
SIX = ", ".join(f"N{node}:S0=1" for node in range(6))
NOW = {
    "since": 3,
    "epoch": 5,
    "replication": "region:2,node:3",
    "storage_set": SIX,
    "failure_domains": "region=N0:S0 N1:S0|N2:S0 N3:S0|N4:S0 N5:S0",
}
BEFORE = {**NOW, "since": 1, "epoch": 2, "replication": "node:2", "failure_domains": ""}


def held(
    copyset: Sequence[int], entries: int = 10, *, epoch: int = 3, by: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    text = ", ".join(f"N{node}:S0" for node in copyset)
    return [
        {"node_id": node, "shard": 0, "lsn": compose_lsn(epoch, 1), "copyset": text, "entries": entries}
        for node in (copyset if by is None else by)
    ]


def rows(
    *copies: list[dict[str, Any]], metadata: Sequence[Any] = (NOW,), silent: Sequence[int] = ()
) -> list[LogPlacementRow]:
    told = [row for each in copies for row in each if row["node_id"] not in silent]
    return placement_rows(CONFIG, LOG, told, metadata, RANGE, {NodeId(node) for node in silent})


def at(found: Sequence[LogPlacementRow], scope: str) -> LogPlacementRow:
    (row,) = [row for row in found if row.scope == scope]
    return row


def test_copies_in_two_regions_survive_any_one_of_them_and_any_two_nodes() -> None:
    found = rows(held([0, 2, 3]), held([1, 4, 2]))
    region, node = at(found, "region"), at(found, "node")
    assert (region.spanned_min, region.spanned_max, region.data_survives, region.data_fatal) == (2, 3, 1, "eu, us")
    assert (node.data_survives, node.entries, node.copysets) == (2, 20, 2)
    assert (region.appends_survive, region.recovery_survives) == (1, 1)
    assert (region.asked, region.domains, region.entries_short) == (2, 3, 0)
    report = PlacementReport(CONFIG, found, ())
    assert report.sentences() == [
        "keeps every record that was looked at: without any one region, or any two nodes",
        "can be read from its beginning: without any one region, or any two nodes",
        "takes appends: without any one region, or any three nodes",
        "goes on after its sequencer dies: without any one region, or any two nodes",
    ]
    assert report.table()[0] == {
        "scope": "region",
        "domains": 3,
        "copies in": "2 to 3",
        "asked": 2,
        "keeps data": "without any 1, not eu and us",
        "takes appends": "without any 1, not ap and eu",
        "recovers": "without any 1, not ap and eu",
    }


def test_a_scope_that_says_no_more_than_another_is_no_row() -> None:
    assert [row.scope for row in rows(held([0, 2, 3]))] == ["region", "node"]
    assert rows(held([0, 2, 3]), metadata=[BEFORE, NOW])[0].lsn == compose_lsn(3, 0)
    one = load_cluster(
        'name = "t"\nversion = 1\nuuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"\nepoch_store = "memory:"\n'
        '[metadata_log]\nreplicate = "node:1"\n[logs."/all"]\nids = 1\nreplicate = "node:1"\n'
        '[nodes.N0]\nhost = "h"\nport = 1\n'
    )
    found = placement_rows(
        one, LOG, held([0]), [{**BEFORE, "replication": "node:1", "storage_set": "N0:S0=1"}], RANGE, ()
    )
    assert [row.scope for row in found] == ["node"]
    assert PlacementReport(one, found, ()).sentences()[0].endswith("as long as nothing else fails")


def test_what_was_stored_by_less_than_is_configured_now_is_told() -> None:
    found = rows(held([0, 1], 7, epoch=1), held([0, 2, 3]), metadata=[BEFORE, NOW])
    assert [(row.since_epoch, row.entries_short, row.asked) for row in found if row.scope == "region"] == [
        (1, 7, 2),
        (3, 0, 2),
    ]
    assert [row.appends_survive is None for row in found if row.scope == "node"] == [True, False]
    report = PlacementReport(CONFIG, found, ())
    assert report.short()[0] == ("7 entries of epochs 1 to 2 have copysets in 1 regions or more, 2 are asked for")
    assert report.data()["region"].any_of == 0
    assert (report.entries, report.copysets) == (17, 2)


def test_nodes_that_do_not_answer_count_as_lost() -> None:
    found = rows(held([0, 2, 3]), held([4, 1, 2]), silent=(2, 3))
    region, node = at(found, "region"), at(found, "node")
    assert (region.data_survives, region.data_fatal, node.data_survives) == (0, "us", 0)
    assert (region.appends_survive, node.appends_survive) == (0, 1)
    assert PlacementReport(CONFIG, found, (NodeId(2), NodeId(3))).reads()["region"].any_of == 0
    gone = rows(held([0, 2, 3]), silent=(0, 1, 2, 3))
    assert at(gone, "region").appends_survive == -1
    assert PlacementReport(CONFIG, gone, ()).table()[0]["takes appends"] == "no"


def test_a_wave_that_was_abandoned_is_no_copyset() -> None:
    found = rows(held([0, 1, 2], 3, by=[1]), held([0, 2, 3]))
    node = at(found, "node")
    assert (node.entries, node.copysets, node.entries_partial) == (10, 1, 3)


def test_a_log_without_entries_tells_what_appends_survive() -> None:
    found = rows()
    assert (at(found, "region").data_survives, at(found, "region").appends_survive) == (None, 1)
    assert [text.partition(":")[0] for text in PlacementReport(CONFIG, found, ()).sentences()] == [
        "takes appends",
        "goes on after its sequencer dies",
    ]


def test_the_newest_released_entries_of_an_epoch_are_looked_at_or_all_that_are_not_trimmed() -> None:
    states = [
        {"last_released": compose_lsn(4, 25_000), "trim_point": compose_lsn(2, 7)},
        {"last_released": compose_lsn(4, 24_990), "trim_point": 0},
    ]
    assert looked_at(states, everything=False) == (compose_lsn(4, 15_001), compose_lsn(4, 25_000))
    assert looked_at(states, everything=True) == (compose_lsn(2, 8), compose_lsn(4, 25_000))
    assert looked_at([], everything=False) == (1, 1)
