"""Which entries have too few copies, from what the nodes say of theirs."""

from __future__ import annotations

from typing import Any

from ldquery.comparison import compare_copies
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import Epoch, Esn, compose_lsn
from logdevice_py.tables.storage import UnderReplicatedRow

LOG = LogId(1)
SIX = ", ".join(f"N{node}:S0=1" for node in range(6))
METADATA = [
    {"since": 1, "replication": "rack:2, node:3", "storage_set": SIX, "failure_domains": None},
    {"since": 4, "replication": "node:2", "storage_set": SIX, "failure_domains": ""},
    {
        "since": 9,
        "replication": "rack:2",
        "storage_set": SIX,
        "failure_domains": "rack=N0:S0 N1:S0|N2:S0 N3:S0 N4:S0|N5:S0",
    },
]


def cluster() -> ClusterConfig:
    nodes = "".join(
        f'[nodes.N{node}]\nhost = "127.0.0.{node + 1}"\nport = 7000\nlocation = "rack{node % 2}"\n' for node in range(5)
    )
    return load_cluster(
        'name = "test"\nversion = 1\nuuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"\nepoch_store = "memory:"\n'
        '[metadata_log]\nreplicate = "node:2"\n[logs."/all"]\nids = "1..10"\nreplicate = "rack:2,node:3"\n' + nodes
    )


CONFIG = cluster()


def copy(node: int, lsn: int, copyset: str = "N0:S0, N1:S0, N2:S0", **changes: Any) -> dict[str, Any]:
    row = {"node_id": node, "shard": 0, "lsn": lsn, "status": "OK", "is_current": 1, "wave": 1, "recovery_epoch": None}
    return {**row, "copyset": copyset, **changes}


def compare(*copies: dict[str, Any], trimmed: int = 0, silent: tuple[int, ...] = ()) -> list[UnderReplicatedRow]:
    return compare_copies(
        CONFIG, LOG, copies, METADATA, [{"trim_point": 0}, {"trim_point": trimmed}], {NodeId(node) for node in silent}
    )


def at(esn: int, epoch: int = 1) -> int:
    return compose_lsn(Epoch(epoch), Esn(esn))


def test_a_full_copyset_is_no_row() -> None:
    assert compare(*(copy(node, at(1)) for node in (0, 1, 2))) == []


def test_a_copy_that_is_not_there_is_told_with_who_should_have_it() -> None:
    (row,) = compare(copy(0, at(1)), copy(1, at(1)), *(copy(node, at(2)) for node in (0, 1, 2)))
    assert (row.lsn, row.copies, row.replication) == (at(1), 2, "rack:2,node:3")
    assert (row.stored_on, row.missing_on, row.damaged_on, row.unknown_on) == ("N0:S0, N1:S0", "N2:S0", "", "")


def test_nobody_says_that_a_node_lacks_what_it_was_not_asked_for() -> None:
    (row,) = compare(copy(0, at(1)), copy(1, at(1)), silent=(2,))
    assert (row.missing_on, row.unknown_on) == ("", "N2:S0")


def test_enough_copies_in_one_rack_are_too_few() -> None:
    copyset = "N0:S0, N2:S0, N4:S0"
    (row,) = compare(*(copy(node, at(1), copyset) for node in (0, 2, 4)))
    assert row.copies == 3


def test_what_is_one_rack_was_decided_with_the_epoch() -> None:
    assert compare(copy(0, at(1, 9)), copy(2, at(1, 9))) == []
    (row,) = compare(copy(0, at(1, 9)), copy(1, at(1, 9)))
    assert row.copies == 2


def test_damage_is_no_copy() -> None:
    damaged = copy(2, at(1), status="CORRUPT", copyset=None, wave=None)
    (row,) = compare(copy(0, at(1)), copy(1, at(1)), damaged)
    assert (row.damaged_on, row.missing_on) == ("N2:S0", "")


def test_copies_of_several_waves_are_copies_of_the_same() -> None:
    other = "N0:S0, N1:S0, N4:S0"
    assert compare(copy(2, at(1)), copy(0, at(1), other, wave=2), copy(1, at(1), other, wave=2)) == []


def test_what_recovery_stored_replaces_what_the_sequencer_did() -> None:
    recovered = {"wave": None, "recovery_epoch": 3}
    (row,) = compare(copy(0, at(1)), copy(1, at(1)), copy(2, at(1), **recovered), copy(0, at(1), is_current=0))
    assert (row.copies, row.stored_on, row.missing_on) == (1, "N2:S0", "N0:S0, N1:S0")


def test_each_epoch_is_measured_by_its_own_replication() -> None:
    assert compare(*(copy(node, at(1, 4), "N0:S0, N1:S0") for node in (0, 1))) == []
    assert len(compare(*(copy(node, at(1, 3)) for node in (0, 1)))) == 1


def test_what_is_trimmed_is_left_out() -> None:
    assert compare(copy(0, at(1)), trimmed=at(1)) == []
