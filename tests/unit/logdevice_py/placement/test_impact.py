from __future__ import annotations

from dataclasses import replace

from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.core.lsn import Epoch
from logdevice_py.placement.impact import Loss, PlacedEpochs, ShardsNow, impact

S = [shard_id(NodeId(node)) for node in range(5)]
OLD = PlacedEpochs(Epoch(1), Epoch(4), (S[0], S[1], S[2]), ReplicationProperty.parse("node:2"), ())
CURRENT = PlacedEpochs(Epoch(5), Epoch(5), (S[1], S[2], S[3]), ReplicationProperty.parse("node:2"), (), is_current=True)
LOG = (OLD, CURRENT)


def test_the_nodesets_of_all_epochs_count_and_only_the_current_one_for_appends() -> None:
    assert impact(LOG, [S[0]]) == []
    found = impact(LOG, [S[0], S[1]])
    assert [(each.loss, each.since) for each in found] == [
        (Loss.DATA, 1),
        (Loss.READS, 1),
        (Loss.REBUILDING, 1),
    ], "the old epochs may have copies on these two alone; the current one does without S1"
    assert [each.loss for each in impact([CURRENT], [S[1], S[2]])] == list(Loss)


def test_what_is_lost_before_anybody_goes_is_told_apart() -> None:
    away = ShardsNow(away=frozenset({S[2], S[3]}))
    log = [replace(each, now=away) for each in LOG]
    assert {each.is_new for each in impact(log, [])} == {False}
    found = impact(log, [S[1]])
    assert [(each.since, each.is_new) for each in found if each.loss is Loss.DATA] == [(1, True), (5, False)]
    assert found[0].shards == (S[1], S[2])


def test_copysets_that_are_known_say_more_than_what_is_allowed() -> None:
    here = frozenset({frozenset({S[1], S[2]})})
    known = PlacedEpochs(Epoch(5), Epoch(5), CURRENT.shards, CURRENT.replication, (), copysets=here)
    assert Loss.DATA not in [each.loss for each in impact([known], [S[2], S[3]])]
    assert Loss.DATA in [each.loss for each in impact([known], [S[1], S[2]])]


def test_one_after_the_other_is_safe_where_all_at_once_is_not() -> None:
    groups = [[S[1]], [S[2]], [S[3]]]
    assert [impact(LOG, group) for group in groups] == [[], [], []]
    assert impact(LOG, S[1:4]) != []
    short = [replace(each, now=ShardsNow(lost=frozenset({S[3]}))) for each in LOG]
    assert [bool(each) for each in [impact(short, group) for group in groups]] == [
        True,
        True,
        False,
    ], "who is missing already goes along with each; S3 itself changes nothing that is not lost before"
