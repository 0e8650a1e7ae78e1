"""A leader that was replaced and does not know it answers reads, and what others wrote meanwhile is missing from the answers.

There: in etcd 0.4.1 and Consul 0.3.1 a leader answered reads by itself, without asking whether it still led.
https://aphyr.com/posts/316-jepsen-etcd-and-consul

Here: a sequencer answers for the tail only after it was made sure that nobody had taken the log over when the question came, by the epoch
store or by the shards.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.units import Micros
from server.simulation.machines import SimClient, SimPromise
from tests.history.stage import LOG, Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation


def _ask_tail(stage: Stage, client: SimClient) -> int | None:
    """The tail, or None if the client gets no answer."""
    answers: list[SimPromise] = []

    def ask(now: Micros) -> None:
        client.session.sequencers.tail_lsn(LOG, SimPromise(answers.append), now)

    client.event(ask)
    stage.run_until("an answer, or none in time", lambda: bool(answers))
    return None if answers[0].error is not None else int(answers[0].result)


def play() -> None:
    stage = Stage(nodes=3, replicate="node:2")
    asker = stage.client()
    first = stage.acknowledged(stage.client())
    assert first.position is not None
    assert _ask_tail(stage, asker) == first.position[0]
    old = stage.sequencer
    writer = stage.client()
    # the old node hears the others, who take it for dead; the asker reaches only the old one, and the writer only the others
    for other in stage.others(old):
        stage.block(old, other)
        for source, target in ((asker, other), (other, asker), (writer, old), (old, writer)):
            stage.block(source, target)
    last = stage.acknowledged(writer)
    assert last.position is not None
    assert stage.sequencer is not old
    tail = _ask_tail(stage, asker)
    if tail is not None:
        stage.history.check_tail(tail, last.position)
    stage.finish()


def test_a_sequencer_that_was_replaced_does_not_tell_an_old_tail() -> None:
    play()


def test_the_schedule_notices_a_tail_that_nobody_verified() -> None:
    with FAULTS["tail_not_verified"].planted(), pytest.raises(Violation, match="the tail is"):
        play()
