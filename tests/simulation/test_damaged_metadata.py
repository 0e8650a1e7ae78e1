"""Every copy of a log's metadata record is damaged or gone: the sequencer, to which the epoch store tells what the record says, stores it
again."""

from __future__ import annotations

import pytest

from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId, metadata_log_of
from logdevice_py.core.units import MILLISECOND, SECOND
from tests.history.stage import LOG, Stage, config_text
from tests.simulation.history import AttemptFate


def restart_with_damage(stage: Stage) -> int:
    """Stop all nodes, damage every record of the log's metadata log, start them; how many copies there were."""
    log, copies = metadata_log_of(LOG), 0
    for node in stage.cluster.nodes.values():
        node.crash(machine=False)
        for disk in node.disks.values():
            for lsn in [lsn for kept, lsn in list(disk.entries()) if kept == log]:
                disk.corrupt(log, lsn)
                copies += 1
    for node in stage.cluster.nodes.values():
        node.start()
    return copies


def test_a_writer_finds_out_what_became_of_its_frames() -> None:
    stage = Stage(nodes=3, replicate="node:2")
    client = stage.client()
    streams = stage.writer(client)
    first = stage.append_to(client, streams)
    stage.run_until("the first record", lambda: first.fate is AttemptFate.ACKNOWLEDGED)
    stage.block(stage.sequencer, client)
    unknown = [stage.append_to(client, streams) for _ in range(3)]
    stage.run(20 * MILLISECOND)
    assert all(attempt.fate is AttemptFate.PENDING for attempt in unknown)
    sequencer = stage.sequencer
    assert restart_with_damage(stage) >= 2
    stage.unblock(sequencer, client)
    stage.run_until(
        "the records of unknown outcome", lambda: all(attempt.fate is AttemptFate.ACKNOWLEDGED for attempt in unknown)
    )
    stage.finish()


def test_a_reader_that_comes_later_reads_everything() -> None:
    stage = Stage(nodes=3, replicate="node:2")
    last = stage.acknowledged(stage.client())
    assert last.position is not None
    assert restart_with_damage(stage) >= 2
    stage.run(SECOND)
    seen = stage.read(last.position[0])
    assert [payload for _, _, payload in seen.records] == [last.payload]


def holders(stage: Stage) -> set[NodeId]:
    """Nodes that hold a record of the log's metadata log."""
    log = metadata_log_of(LOG)
    return {
        node.id
        for node in stage.cluster.nodes.values()
        for disk in node.disks.values()
        if any(kept == log for kept, _ in disk.entries())
    }


def take_out(stage: Stage, gone: set[NodeId], nodes: int, extra: str) -> None:
    """Publish a cluster file without some nodes, and end them."""
    text = config_text(nodes, "node:2", extra).replace("version = 1", "version = 2")
    lines = text.split("\n")
    for node in gone:
        at = lines.index(f"[nodes.N{node}]")
        del lines[at : at + 3]
    config = stage.cluster.config = load_cluster("\n".join(lines))
    for node in sorted(gone):
        stage.cluster.retire(node).crash(machine=True)
    for sim_node in stage.cluster.nodes.values():
        root, process = sim_node.root, sim_node.process
        if root is not None and process is not None:
            process.event(lambda now, root=root: root.on_config(config, now))  # type: ignore[misc]


@pytest.mark.parametrize("restarted", [False, True])
def test_records_that_went_with_their_nodes_are_stored_again_on_the_others(restarted: bool) -> None:
    """Also when nobody sequences the log any more: a reader that finds no record asks for it."""
    nodes, extra = 6, "nodeset_size = 2"
    for seed in range(1, 100):
        stage = Stage(nodes=nodes, replicate="node:2", extra=extra, seed=seed)
        last = stage.acknowledged(stage.client())
        stage.run(SECOND)
        gone = holders(stage)
        if not gone & {stage.sequencer.id, *stage.copysets[last.payload]}:
            break
    assert last.position is not None
    if restarted:
        for node in stage.cluster.nodes.values():
            node.crash(machine=False)
    take_out(stage, gone, nodes, extra)
    assert not holders(stage)
    if restarted:
        for node in stage.cluster.nodes.values():
            node.start()
    stage.run(SECOND)
    assert bool(holders(stage)) != restarted
    seen = stage.read(last.position[0])
    assert [payload for _, _, payload in seen.records] == [last.payload]
    assert holders(stage)
