"""What the cluster says of lost shards, in parts as it may come."""

from __future__ import annotations

from client.read.sender_state import Sender, SenderStatus
from client.read.shard_statuses import ShardStatuses
from logdevice_py.core.ids import Generation, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import ShardStatus, ShardStatusRow

A, B, C = (shard_id(NodeId(node)) for node in range(3))
ONE, OTHER = PeerId(1), PeerId(2)
EMPTY, LOST = Authority.AUTHORITATIVE_EMPTY, Authority.UNDERREPLICATION


def status(*shards: ShardId, version: int = 1, part: int = 0, parts: int = 1, says: Authority = EMPTY) -> ShardStatus:
    rows = [ShardStatusRow(int(shard), 2, says.value) for shard in shards]
    return ShardStatus(version=Lsn(version), shards=rows, part=part, parts=parts)


def sender(shard: ShardId, generation: int = 2) -> Sender:
    made = Sender(shard, Generation(generation))
    made.status = SenderStatus.WAITING
    return made


def empty(statuses: ShardStatuses) -> list[ShardId]:
    return [shard for shard in (A, B, C) if statuses.is_empty(sender(shard))]


def test_what_is_said_counts_until_something_newer_is() -> None:
    statuses = ShardStatuses()
    assert statuses.take(ONE, status(A, version=5))
    assert not statuses.take(ONE, status(A, version=5)), "it says nothing else"
    assert not statuses.take(OTHER, status(B, version=4))
    assert empty(statuses) == [A]
    assert statuses.take(OTHER, status(B, version=6))
    assert empty(statuses) == [B]


def test_parts_count_when_all_are_there() -> None:
    statuses = ShardStatuses()
    assert not statuses.take(ONE, status(A, part=0, parts=3))
    assert not statuses.take(OTHER, status(C, part=1, parts=3)), "those of another node are not these"
    assert not statuses.take(ONE, status(B, part=1, parts=3))
    assert empty(statuses) == []
    assert statuses.take(ONE, status(C, part=2, parts=3))
    assert empty(statuses) == [A, B, C]


def test_a_part_that_does_not_follow_ends_what_was_begun() -> None:
    statuses = ShardStatuses()
    for wrong in (status(B, part=2, parts=3), status(B, part=1, parts=4), status(B, version=2, part=1, parts=3)):
        statuses.take(ONE, status(A, part=0, parts=3))
        assert not statuses.take(ONE, wrong)
        assert not statuses.take(ONE, status(C, part=2, parts=3))
    assert empty(statuses) == []
    assert not statuses.take(ONE, status(A, part=0, parts=2))
    assert not statuses.take(ONE, status(B, part=0, parts=2)), "it begins anew"
    assert statuses.take(ONE, status(C, part=1, parts=2))
    assert empty(statuses) == [B, C]


def test_after_a_broken_connection_the_rest_is_not_waited_for() -> None:
    statuses = ShardStatuses()
    statuses.take(ONE, status(A, part=0, parts=2))
    statuses.forget_begun(ONE)
    assert not statuses.take(ONE, status(B, part=1, parts=2))
    assert empty(statuses) == []


def test_one_of_too_many_parts_is_not_heeded() -> None:
    statuses = ShardStatuses()
    assert not any(statuses.take(ONE, status(A, part=part, parts=17)) for part in range(17))
    assert [statuses.take(ONE, status(A, part=part, parts=16)) for part in range(16)] == [False] * 15 + [True]


def test_only_who_cannot_be_reached_and_is_said_to_be_lost_is_written_off() -> None:
    statuses = ShardStatuses()
    statuses.take(ONE, status(A, B, says=LOST))
    lost, connected, later, other = sender(A), sender(B), sender(A, 3), sender(C)
    connected.status = SenderStatus.READING
    everybody = [lost, connected, later, other]
    statuses.write_off(everybody)
    assert [each.lost for each in everybody] == [True, False, False, False]
    assert [each.written_off for each in everybody] == [True, False, False, False]
    assert not statuses.is_empty(lost)
    statuses.take(ONE, status(version=2))
    statuses.write_off(everybody)
    assert (lost.lost, lost.written_off) == (False, False)


def test_a_shard_that_itself_said_that_it_lost_its_data_stays_lost() -> None:
    statuses = ShardStatuses()
    own = sender(A)
    own.lost = True
    statuses.take(ONE, status(A))
    statuses.write_off([own])
    statuses.take(ONE, status(version=2))
    statuses.write_off([own])
    assert (own.lost, own.written_off) == (True, False)


def test_other_statuses_say_nothing_of_a_shard() -> None:
    statuses = ShardStatuses()
    assert not statuses.take(ONE, status(A, says=Authority.FULLY_AUTHORITATIVE))
    assert empty(statuses) == []
