"""The answer to a write is lost, its node dies, and the writer sends it again.

There: Redpanda with idempotence switched on stored records twice when a leader was lost between a write and its answer, and showed two
values at one offset. https://jepsen.io/analyses/redpanda-21.10.1

Here: the frame of a write stream names the only epoch in which it may be stored. When its outcome is unknown the writer has the log leave
that epoch, waits for its recovery, reads what it holds of its own frames, and sends only those again that are not there.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.units import MILLISECOND, SECOND
from tests.history.stage import Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import AttemptFate, Violation


def play() -> None:
    stage = Stage(nodes=3, replicate="node:2")
    client = stage.client()
    streams = stage.writer(client)
    first = stage.append_to(client, streams)
    stage.run_until("the first record", lambda: first.fate is AttemptFate.ACKNOWLEDGED)
    sequencer = stage.sequencer
    stage.block(sequencer, client)
    unknown = [stage.append_to(client, streams) for _ in range(3)]
    stage.run(20 * MILLISECOND)
    assert all(attempt.fate is AttemptFate.PENDING for attempt in unknown)
    sequencer.crash(machine=True)
    stage.unblock(sequencer, client)
    stage.run(SECOND)
    sequencer.start()
    stage.run_until(
        "the records of unknown outcome", lambda: all(attempt.fate is AttemptFate.ACKNOWLEDGED for attempt in unknown)
    )
    whole = stage.finish()
    payloads = [payload for _, _, payload in whole.records]
    for attempt in (first, *unknown):
        if payloads.count(attempt.payload) != 1:
            raise Violation(f"{attempt.payload!r} is there {payloads.count(attempt.payload)} times")


def test_a_record_whose_answer_was_lost_is_there_once() -> None:
    play()


@pytest.mark.parametrize("fault", ["doubtful_frame_repeated", "doubt_forgotten"])
def test_the_schedule_notices_a_writer_that_does_not_look(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play()
