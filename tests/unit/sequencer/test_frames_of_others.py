"""Frames that somebody else sends under the writer id of a write stream: ids stand in records, where anybody can read them."""

from __future__ import annotations

from typing import Any

import pytest

from logdevice_py.core.batch import encode_batch
from logdevice_py.core.ids import PeerId, WriterId
from logdevice_py.core.lsn import Epoch, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Append, Appended, AppendedFlags, AppendFlags
from sequencer.frames import Frame, frame_of
from sequencer.settings import SequencerSettings
from sequencer.write_streams import KnownWriters
from tests.unit.sequencer.fakes import LOG, World, active, make_config

VICTIM, FORGER = PeerId(-71), PeerId(-72)
REFUSED = int(AppendedFlags.NOT_REPLICATED | AppendedFlags.NUMBER_TAKEN)
WRITER = WriterId(b"w" * 16)
BATCH, STREAM = int(AppendFlags.BATCH), int(AppendFlags.WRITE_STREAM)
SAME = encode_batch([b"a"])


def known(world: World) -> KnownWriters:
    """What the epoch remembers of its writers."""
    current = world.sequencer.current
    assert current is not None
    assert current.streams is not None
    return current.streams


def stored(world: World) -> list[tuple[int, bytes]]:
    """Number and payload of each frame that is in the log, in order."""
    return [(part.sequence, part.payload) for _, (_, parts) in sorted(world.entries().items()) for part in parts]


def refused(answer: Appended) -> bool:
    """It says that the number is taken, and that the frame is stored nowhere."""
    return answer.status is Status.WRITE_STREAM_BROKEN and answer.flags == REFUSED


def overtaken(world: World) -> None:
    """The victim has sent number 1 and somebody else number 2."""
    world.stream_append(1, resume=True, payload=b"honest 1", peer=VICTIM)
    world.run()
    world.stream_append(2, payload=b"forged 2", peer=FORGER)
    world.run()


def test_whoever_is_late_with_a_number_is_not_told_that_its_own_content_is_stored() -> None:
    world = active()
    overtaken(world)
    victim = world.stream_append(2, payload=b"honest 2", peer=VICTIM)
    world.run()
    answer = world.answer_to(victim)
    assert refused(answer)
    assert answer.lsn == compose_lsn(1, 3)  # where the other content is
    assert stored(world) == [(1, b"honest 1"), (2, b"forged 2")]
    assert world.node.context.metrics.stream_numbers_taken == 1


@pytest.mark.parametrize(
    ("taken", "repeated"),
    [
        ({"payload": b"honest"}, {"payload": b"forged"}),
        ({"payload": b"short"}, {"payload": b"longer"}),
        ({"payload": SAME, "more_flags": BATCH}, {"payload": SAME}),
        ({"payload": SAME, "more_flags": BATCH}, {"payload": SAME, "more_flags": BATCH, "records": 2}),
        ({"payload": SAME}, {"payload": SAME, "more_flags": int(AppendFlags.KEYS)}),
    ],
    ids=["checksum", "length", "one record or a batch", "number of records", "keys"],
)
def test_a_repetition_must_agree_in_everything_that_makes_its_records(
    taken: dict[str, Any], repeated: dict[str, Any]
) -> None:
    world = active()
    first = world.stream_append(1, resume=True, **taken)
    world.run()
    same, other = world.stream_append(1, **taken), world.stream_append(1, **repeated)
    world.run()
    assert world.answer_to(same).lsn == world.answer_to(first).lsn
    assert world.answer_to(same).status is Status.OK
    assert refused(world.answer_to(other))


def test_length_and_count_are_compared_although_checksums_agree() -> None:
    """Whoever knows a payload can make another one with its checksum."""

    def frame(payload: bytes, records: int = 1) -> Frame:
        message = Append(
            request_id=1,
            log=LOG,
            flags=STREAM,
            records=records,
            crc=77,
            seen_epoch=Epoch(0),
            previous_lsn=Lsn(0),
            writer=WRITER,
            sequence=1,
            stream_epoch=Epoch(1),
            payload=payload,
        )
        made = frame_of(VICTIM, message)
        made.payload = b""  # as once its entry is on its way
        return made

    assert frame(b"honest").repeats_as_stored(frame(b"forged"))
    assert not frame(b"honest").repeats_as_stored(frame(b"longer!"))
    assert not frame(b"honest").repeats_as_stored(frame(b"forged", records=2))


def test_in_flight_too() -> None:
    world = active()
    world.answer = lambda store: None
    first = world.stream_append(1, resume=True, payload=b"forged", peer=FORGER)
    world.run()
    other = world.stream_append(1, resume=True, payload=b"honest", peer=VICTIM)
    world.run()
    assert refused(world.answer_to(other))
    world.reply_to_held()
    assert world.answer_to(first).status is Status.OK


def test_in_one_batch_it_is_not_known_where_the_other_content_will_be() -> None:
    world = active()
    world.stream_append(1, resume=True, payload=b"forged", peer=FORGER)
    other = world.stream_append(1, resume=True, payload=b"honest", peer=VICTIM)
    world.run()
    assert refused(world.answer_to(other))
    assert world.answer_to(other).lsn == compose_lsn(1, 0)


def test_frames_under_way_behind_the_refused_one_are_not_stored_without_it() -> None:
    world = active()
    overtaken(world)
    behind = [world.stream_append(number, payload=b"honest %d" % number, peer=VICTIM) for number in (2, 3, 4)]
    world.run()
    assert all(refused(world.answer_to(request)) for request in behind)
    assert stored(world) == [(1, b"honest 1"), (2, b"forged 2")]


def test_a_wrong_repetition_from_elsewhere_does_not_end_the_stream() -> None:
    world = active()
    world.stream_append(1, resume=True, payload=b"honest 1", peer=VICTIM)
    world.run()
    forged = [world.stream_append(1, payload=b"forged", peer=PeerId(-100 - n)) for n in range(8)]
    late = world.stream_append(2, payload=b"forged", peer=PeerId(-100))
    goes_on = world.stream_append(2, payload=b"honest 2", peer=VICTIM)
    world.run()
    assert all(refused(world.answer_to(request)) for request in (*forged, late))
    assert world.answer_to(goes_on).status is Status.OK


def test_with_more_refused_connections_than_are_remembered_the_stream_takes_nothing() -> None:
    world = active()
    world.stream_append(1, resume=True, payload=b"honest 1", peer=VICTIM)
    world.run()
    for number in range(20):
        world.stream_append(1, payload=b"forged", peer=PeerId(-100 - number))
    victim = world.stream_append(2, payload=b"honest 2", peer=VICTIM)
    repeated = world.stream_append(1, payload=b"honest 1", peer=VICTIM)
    world.run()
    assert refused(world.answer_to(victim))
    assert world.answer_to(repeated).status is Status.OK
    refused_peers = known(world)._streams[WRITER].refused
    assert refused_peers is not None
    assert len(refused_peers) == 9


def test_another_epoch_judges_anew() -> None:
    world = active()
    overtaken(world)
    world.stream_append(2, payload=b"honest 2", peer=VICTIM)
    world.run()
    world.ask_state(min_epoch=2)
    world.run()
    again = world.stream_append(2, epoch=2, resume=True, payload=b"honest 2", peer=VICTIM)
    world.run()
    assert world.answer_to(again).status is Status.OK


def test_a_number_that_was_given_back_may_have_other_content() -> None:
    world = active(config=make_config(max_writes_in_flight=2))
    world.answer = lambda store: None
    for _ in range(2):
        world.append()
        world.run()
    first = world.stream_append(1, resume=True, payload=b"first")
    world.run()
    assert world.answer_to(first).status is Status.SEQNOBUFS
    world.answer = lambda store: Status.OK
    world.reply_to_held()
    other = world.stream_append(1, resume=True, payload=b"other")
    world.run()
    assert world.answer_to(other).status is Status.OK


@pytest.mark.parametrize("positions", [1, 2, 16, 128])
def test_as_many_positions_are_remembered_as_the_setting_says_and_few_more(positions: int) -> None:
    world = active(settings=SequencerSettings(write_stream_positions=positions))
    for number in range(1, 401):
        world.stream_append(number, resume=number == 1, payload=b"%d" % number)
        world.run()
    stream = known(world)._streams[WRITER]
    remembered = [number for number in range(1, 401) if stream.taken(number) is not None]
    assert remembered == list(range(401 - len(remembered), 401))
    assert positions <= len(remembered) <= positions * 9 // 8
    assert all(stream.taken(number).sequence == number for number in remembered)  # type: ignore[union-attr]
    assert stream.taken(401) is None
