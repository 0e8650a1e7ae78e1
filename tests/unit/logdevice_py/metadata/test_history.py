"""Reading a metadata log from shards that answer in parts, late, wrongly or not at all."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace
from typing import cast

from google_crc32c import value as crc32c

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.entry import Constituent, EntryFlags, EntryHeader, encode_body, encode_entry
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, metadata_log_of, node_peer, shard_id
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from logdevice_py.metadata.history import MetadataHistoryReader, ReaderState
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import Digest, Digested, DigestedRange, LogEntry
from logdevice_py.protocol.requests import Requests

LOG = LogId(7)
META = metadata_log_of(LOG)
NODE_3 = ReplicationProperty.parse("node:3")
SHARDS = tuple(shard_id(NodeId(node)) for node in range(5))


def metadata(*sinces: int) -> EpochMetaData:
    nodeset = ((SHARDS[0], Generation(1)),)
    history = tuple(EpochInterval(Epoch(since), nodeset, NODE_3, labels=()) for since in sinces)
    return EpochMetaData(Epoch(sinces[-1] + 1), history, False, False, NodeId(0))


def image(record: EpochMetaData, *, flags: int = EntryFlags.METADATA) -> tuple[Lsn, bytes]:
    payload = record.encode()
    body = encode_body([Constituent(payload, 1, crc32c(payload))])
    lsn = compose_lsn(record.given_epoch, 1)
    header = EntryHeader(META, lsn, Timestamp(1), 1, SHARDS[:3], Esn(0), 1, flags, len(body), crc32c(body))
    return lsn, encode_entry(header, body)


class Reading:
    """A reader and the metadata nodeset that it asks: five shards, three copies, so any three are an f-majority."""

    def __init__(self) -> None:
        def no_location(shard: ShardId) -> None:
            return None

        config = self.config = SimpleNamespace(
            metadata_log=SimpleNamespace(nodeset=SHARDS, replication=NODE_3), location=no_location
        )
        self.outbox = Outbox()
        self.timers = TimerQueue()
        self.requests = Requests(itertools.count(1), self.timers)
        self.now = Micros(0)
        self.finished: list[Micros] = []
        self.reader = MetadataHistoryReader(
            LOG,
            cast(ClusterConfig, config),
            self.outbox,
            self.timers,
            random.Random(1),
            self.requests,
            lambda reader, now: self.finished.append(now),
        )
        self.asked: dict[ShardId, list[Digest]] = {shard: [] for shard in SHARDS}
        self.reader.start(self.now)
        self.collect()

    def collect(self) -> list[Digest]:
        """The requests since the last call."""
        sent = [effect.message for effect in self.outbox.take()]
        for digest in sent:
            self.asked[digest.shard].append(digest)
        self.reader.check()
        return sent

    def advance(self, micros: int) -> list[Digest]:
        self.now = Micros(self.now + micros)
        self.timers.advance(self.now)
        return self.collect()

    def answer(
        self,
        node: int,
        *images: tuple[Lsn, bytes],
        status: Status = Status.OK,
        until: Lsn = LSN_MAX,
        request: int = -1,
    ) -> list[Digest]:
        shard = SHARDS[node]
        entries = [LogEntry(META, lsn, len(content)) for lsn, content in images]
        message = Digested(
            request_id=self.asked[shard][request].request_id,
            shard=shard,
            ranges=[DigestedRange(META, status, until)],
            entries=entries,
            images=b"".join(content for _, content in images),
        )
        self.requests.on_answer(node_peer(shard), message, self.now)
        return self.collect()


def test_every_shard_is_asked_for_everything_of_any_generation() -> None:
    reading = Reading()
    assert [digest.ranges for asked in reading.asked.values() for digest in asked] == [
        [(META, LSN_OLDEST, LSN_MAX, 0)]
    ] * 5


def test_the_history_is_that_of_the_latest_record() -> None:
    reading = Reading()
    reading.answer(0, image(metadata(1)))
    reading.answer(1, image(metadata(1)), image(metadata(1, 5)), image(metadata(1, 5, 9)))
    for node in (2, 3, 4):
        reading.answer(node, image(metadata(1, 5)))
    assert reading.reader.state is ReaderState.DONE
    assert reading.reader.history == metadata(1, 5, 9).history
    assert reading.reader.authoritative
    assert reading.finished == [0]


def test_an_empty_metadata_log_has_no_history() -> None:
    reading = Reading()
    for node in range(5):
        reading.answer(node)
    assert (reading.reader.history, reading.reader.authoritative) == ((), True)


def test_fewer_than_an_f_majority_are_not_enough() -> None:
    reading = Reading()
    reading.answer(0, image(metadata(1)))
    reading.answer(1)
    reading.advance(60 * SECOND)
    assert reading.reader.state is ReaderState.READING


def test_after_an_f_majority_the_others_get_a_moment_more() -> None:
    reading = Reading()
    for node in range(3):
        reading.answer(node)
    assert reading.reader.state is ReaderState.GRACE
    reading.advance(99 * MILLISECOND)
    reading.answer(3, image(metadata(1)))
    assert not reading.finished
    reading.advance(1 * MILLISECOND)
    assert reading.finished == [100 * MILLISECOND]
    assert reading.reader.history == metadata(1).history


def test_a_partial_answer_is_continued_where_it_ended() -> None:
    reading = Reading()
    lsn, _ = image(metadata(1))
    (more,) = reading.answer(0, image(metadata(1)), until=lsn)
    assert more.ranges == [(META, lsn + 1, LSN_MAX, 0)]
    reading.answer(0, image(metadata(1, 5)))
    reading.answer(1)
    reading.answer(2)
    reading.advance(SECOND)
    assert reading.reader.history == metadata(1, 5).history


def test_shards_that_fail_or_are_silent_are_asked_again_with_growing_pauses() -> None:
    reading = Reading()
    reading.answer(0, status=Status.OVERLOADED)
    reading.answer(1)
    times = []
    for _ in range(300):
        if reading.advance(100 * MILLISECOND):
            times.append(reading.now)
    assert len(reading.asked[SHARDS[1]]) == 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert 5 <= len(times) <= 15
    assert pauses[0] < pauses[-1]
    for node in (0, 2, 3, 4):
        reading.answer(node, image(metadata(1)))
    assert reading.reader.history == metadata(1).history


def test_a_slow_answer_to_an_earlier_request_counts() -> None:
    reading = Reading()
    reading.advance(300 * MILLISECOND)
    for node in range(5):
        reading.answer(node, image(metadata(1)), request=0)
    assert reading.reader.state is ReaderState.DONE


def test_answers_from_before_a_broken_connection_are_ignored() -> None:
    reading = Reading()
    reading.requests.on_peer_down(PeerId(0), reading.now)
    reading.answer(0, image(metadata(1)))
    assert reading.reader.metadata is None
    reading.advance(300 * MILLISECOND)
    reading.answer(0, image(metadata(1)))
    assert reading.reader.metadata == metadata(1)


def test_a_corrupt_copy_is_counted_and_another_is_taken() -> None:
    reading = Reading()
    lsn, content = image(metadata(1))
    reading.answer(0, (lsn, content[:-1] + b"\xff"))
    for node in range(1, 5):
        reading.answer(node, (lsn, content))
    assert reading.reader.corrupt_copies == 1
    assert (reading.reader.history, reading.reader.authoritative) == (metadata(1).history, True)


def test_a_later_record_without_a_good_copy_makes_the_history_non_authoritative() -> None:
    reading = Reading()
    lsn, content = image(metadata(1, 5))
    reading.answer(0, image(metadata(1)), (lsn, content[:-1] + b"\xff"))
    for node in range(1, 5):
        reading.answer(node, image(metadata(1)))
    assert (reading.reader.history, reading.reader.authoritative) == (metadata(1).history, False)


def test_entries_that_are_no_metadata_and_cut_images_are_corrupt() -> None:
    reading = Reading()
    lsn, content = image(metadata(1))
    reading.answer(0, image(metadata(1), flags=0))
    reading.answer(1, (Lsn(lsn + 1), content))
    reading.answer(2, (lsn, content[:20]))
    assert (reading.reader.corrupt_copies, reading.reader.metadata) == (3, None)


def test_a_shard_that_lost_its_data_does_not_count() -> None:
    reading = Reading()
    for node in range(2):
        reading.answer(node)
    reading.answer(2, image(metadata(1)), status=Status.REBUILDING)
    reading.advance(150 * MILLISECOND)
    assert not reading.finished
    assert reading.reader.metadata == metadata(1)
    for node in (3, 4):
        reading.answer(node)
    reading.advance(100 * MILLISECOND)
    assert reading.finished
    assert reading.reader.authoritative


def test_when_too_many_lost_their_data_the_history_is_non_authoritative_as_soon_as_all_have_spoken() -> None:
    reading = Reading()
    for node in range(3):
        reading.answer(node, status=Status.REBUILDING)
    reading.answer(3, image(metadata(1)))
    assert not reading.finished
    reading.answer(4, image(metadata(1)))
    assert reading.finished == [0]
    assert (reading.reader.history, reading.reader.authoritative) == (metadata(1).history, False)


def test_a_silent_shard_that_lost_its_data_is_waited_for_longer() -> None:
    reading = Reading()
    reading.reader.set_authority(SHARDS[0], Authority.UNDERREPLICATION, reading.now)
    for node in (1, 2):
        reading.answer(node, status=Status.REBUILDING)
    for node in (3, 4):
        reading.answer(node, image(metadata(1)))
    reading.advance(SECOND)
    assert not reading.finished
    reading.advance(SECOND)
    assert reading.finished


def test_beside_two_of_five_in_new_generations_a_further_one_that_is_away_is_waited_for_until_it_leaves_the_file() -> (
    None
):
    """As docs/decisions/0005-rebuilding.md says, with three copies."""
    reading = Reading()
    for node in (0, 1):
        reading.answer(node, status=Status.REBUILDING)
    for node in (2, 3):
        reading.answer(node, image(metadata(1)))
    reading.advance(60 * SECOND)
    assert not reading.finished
    fewer = SimpleNamespace(
        metadata_log=SimpleNamespace(nodeset=SHARDS[:4], replication=NODE_3), location=lambda shard: None
    )
    reading.reader.on_config(cast(ClusterConfig, fewer), reading.now)
    assert reading.finished
    assert (reading.reader.history, reading.reader.authoritative) == (metadata(1).history, True)


def test_what_a_shard_that_lost_data_still_has_is_read_to_its_end() -> None:
    reading = Reading()
    lsn, _ = image(metadata(1))
    for node in range(3):
        reading.answer(node, status=Status.REBUILDING, until=lsn)
    for node in (3, 4):
        reading.answer(node)
    assert not reading.finished
    reading.answer(0, image(metadata(1, 5)), status=Status.REBUILDING)
    for node in (1, 2):
        reading.answer(node, status=Status.REBUILDING)
    assert reading.finished
    assert reading.reader.history == metadata(1, 5).history


def damaged(*sinces: int) -> tuple[Lsn, bytes]:
    """What a shard shows of a record that it cannot read."""
    return image(metadata(*sinces))[0], b""


def test_damage_below_a_record_that_is_read_hides_nothing() -> None:
    reading = Reading()
    for node in range(3):
        reading.answer(node, damaged(1), image(metadata(1, 5)))
    for node in (3, 4):
        reading.answer(node)
    assert reading.finished == [0]
    assert (reading.reader.history, reading.reader.authoritative) == (metadata(1, 5).history, True)


def test_a_shard_that_cannot_read_the_latest_record_does_not_count_until_another_one_shows_it() -> None:
    reading = Reading()
    reading.answer(0, damaged(1))
    for node in (3, 4):
        reading.answer(node)
    reading.advance(150 * MILLISECOND)
    assert not reading.finished  # the two with the record may be 1 and 2, which are silent
    reading.answer(1, image(metadata(1)))
    reading.advance(100 * MILLISECOND)
    assert reading.finished
    assert (reading.reader.history, reading.reader.authoritative) == (metadata(1).history, True)


def test_when_nobody_can_read_a_record_it_is_told_from_where_on_the_history_is_not_known() -> None:
    reading = Reading()
    for node in range(3):
        reading.answer(node, image(metadata(1)), damaged(1, 5), damaged(1, 5, 9))
    for node in (3, 4):
        reading.answer(node)
    assert reading.finished == [0]
    assert (reading.reader.history, reading.reader.authoritative) == (metadata(1).history, False)
    assert reading.reader.unreadable_from == 5


def test_a_shard_whose_record_could_not_be_read_is_asked_again_for_all_it_has() -> None:
    reading = Reading()
    reading.answer(0, damaged(1))
    reading.answer(1)
    asked = [digest for digest in reading.advance(300 * MILLISECOND) if digest.shard == SHARDS[0]]
    assert [digest.ranges for digest in asked] == [[(META, LSN_OLDEST, LSN_MAX, 0)]]
    reading.answer(0, image(metadata(1)))
    reading.answer(2)
    reading.advance(100 * MILLISECOND)
    assert (reading.reader.history, reading.reader.authoritative) == (metadata(1).history, True)


def test_what_the_cluster_says_of_a_shard_is_heard() -> None:
    reading = Reading()
    for node in range(2):
        reading.answer(node)
    for node in range(2, 5):
        reading.reader.set_authority(SHARDS[node], Authority.AUTHORITATIVE_EMPTY, reading.now)
    reading.advance(100 * MILLISECOND)
    assert reading.finished


def test_when_other_shards_keep_the_metadata_log_those_that_answered_and_still_do_count() -> None:
    reading = Reading()
    reading.answer(0, image(metadata(1)))
    reading.answer(1)
    fewer = SimpleNamespace(
        metadata_log=SimpleNamespace(nodeset=SHARDS[:4], replication=ReplicationProperty.parse("node:2")),
        location=lambda shard: None,
    )
    reading.reader.on_config(cast(ClusterConfig, fewer), reading.now)
    assert [digest.shard for digest in reading.collect()] == [SHARDS[2], SHARDS[3]]
    reading.answer(2)
    reading.advance(100 * MILLISECOND)
    assert reading.reader.state is ReaderState.DONE
    assert reading.reader.history == metadata(1).history


def test_a_cluster_file_that_says_the_same_of_the_metadata_log_changes_nothing() -> None:
    reading = Reading()
    for node in range(3):
        reading.answer(node)
    reading.reader.on_config(cast(ClusterConfig, reading.config), reading.now)
    assert not reading.collect()
    assert reading.reader.state is ReaderState.GRACE


def test_a_cancelled_reader_asks_nothing_more() -> None:
    reading = Reading()
    reading.reader.cancel()
    assert reading.advance(60 * SECOND) == []
    for node in range(5):
        reading.answer(node)
    assert not reading.finished


def test_intervals_of_an_older_version_have_the_racks_of_the_time_at_which_they_were_read() -> None:
    reading = Reading()
    rack_2 = ReplicationProperty.parse("rack:2")
    nodeset = tuple((shard, Generation(1)) for shard in SHARDS[:2])
    old = EpochMetaData(Epoch(2), (EpochInterval(Epoch(1), nodeset, rack_2),), True, False, NodeId(0))
    for node in range(5):
        reading.answer(node, image(old))
    assert reading.reader.state is ReaderState.DONE
    assert [interval.labels for interval in reading.reader.history] == [((0, 1),)]
