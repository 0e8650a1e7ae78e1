"""The check that what is written to metadata logs can be found fails where it cannot."""

from __future__ import annotations

import pytest

from epoch_store.cells import Cell, WriteId, encode_cell
from epoch_store.interface import WriterIdentity
from logdevice_py.core.ids import InstanceId, NodeId, metadata_log_of
from tests.history.stage import LOG, Stage
from tests.simulation.history import Violation
from tests.simulation.metadata_authorities import MetadataAuthorities


def forget_a_record(stage: Stage) -> None:
    """Two of three shards lose their copy, and do not know."""
    log = metadata_log_of(LOG)
    holders = [
        (disk, lsn)
        for node in stage.cluster.nodes.values()
        for disk in node.disks.values()
        for kept, lsn in list(disk.entries())
        if kept == log
    ]
    assert len(holders) == 3
    for disk, lsn in holders[:2]:
        disk.remove(log, lsn)


def test_an_f_majority_that_lacks_a_record_is_noticed() -> None:
    stage = Stage(nodes=5, replicate="node:3")
    authorities = MetadataAuthorities(stage.cluster, [LOG])
    authorities.check()
    stage.acknowledged(stage.client())
    stage.run(1_000_000)
    authorities.check()
    forget_a_record(stage)
    with pytest.raises(Violation, match="are authoritative for its metadata log without what was written of epoch 1"):
        authorities.check()


def test_while_other_shards_have_kept_records_too_nothing_is_said() -> None:
    """One that joined and left again takes copies along; sequencers store them again, which takes a while."""
    stage = Stage(nodes=5, replicate="node:3")
    authorities = MetadataAuthorities(stage.cluster, [LOG])
    stage.acknowledged(stage.client())
    forget_a_record(stage)
    stage.cluster.cells.put(
        "shards/N5:S0", Cell(1, encode_cell(WriteId(WriterIdentity(NodeId(5), InstanceId(1)), 1), b""))
    )
    authorities.check()
