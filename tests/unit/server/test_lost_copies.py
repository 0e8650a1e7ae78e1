"""Which epochs of a log are short of copies, as the epoch metadata says."""

from __future__ import annotations

from collections.abc import Mapping

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import ESN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.event_log.rebuilding_set import RebuildingSet, RebuildingShard
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from server.lost_copies import LossyEpochs, ShardsPresent, lossy_epochs, restored_by

N0, N1, N2, N3 = SHARDS = [shard_id(NodeId(node)) for node in range(4)]
TWO = ReplicationProperty.parse("node:2")


def interval(since: int, *generations: int, replication: ReplicationProperty = TWO) -> EpochInterval:
    """The generations of N0, N1, ...; 0: it is not in the nodeset."""
    nodeset = tuple((shard, Generation(each)) for shard, each in zip(SHARDS, generations, strict=False) if each)
    return EpochInterval(Epoch(since), nodeset, replication)


def metadata(*history: EpochInterval, given: int) -> EpochMetaData:
    return EpochMetaData(Epoch(given + 1), history, True, False, NodeId(0))


def present(*generations: int, restored: Mapping[ShardId, int] | None = None) -> ShardsPresent:
    """-1: the shard is not in the cluster file."""
    return ShardsPresent(
        tuple((shard, Generation(each)) for shard, each in zip(SHARDS, generations, strict=False) if each >= 0),
        tuple((shard, Generation(each)) for shard, each in (restored or {}).items()),
    )


def judged(log: EpochMetaData, shards: ShardsPresent) -> list[LossyEpochs]:
    return lossy_epochs(log, shards, lambda shard: Location.parse(f"r.d.c.w.k{shard >> 8}"))


def test_a_cluster_that_never_lost_a_disk_is_short_of_nothing() -> None:
    assert judged(metadata(interval(1, 1, 1, 1), interval(4, 1, 1, 0, 1), given=9), present(1, 1, 1, 1)) == []


def test_the_epochs_that_list_an_earlier_generation_are_short_and_no_others() -> None:
    log = metadata(interval(1, 1, 1, 1), interval(3, 1, 0, 1, 1), interval(5, 1, 1, 1), interval(8, 1, 2, 1), given=9)
    first, second = judged(log, present(1, 2, 1, 1))
    assert (first.since, first.until, first.lost, first.intact) == (1, 2, ((N1, 1),), (N0, N2))
    assert (second.since, second.until) == (5, 7)
    assert (first.first, first.last) == (compose_lsn(Epoch(1), 1), compose_lsn(Epoch(2), ESN_MAX))
    assert not first.may_be_gone
    assert first.describe_lost() == "N1:S0=1"


def test_the_present_nodeset_ends_with_the_epoch_that_was_given_last() -> None:
    [only] = judged(metadata(interval(2, 1, 1, 1), given=6), present(1, 2, 1))
    assert (only.since, only.until) == (2, 6)


def test_a_shard_of_which_nobody_has_heard_is_not_lost() -> None:
    assert judged(metadata(interval(1, 1, 1, 1), given=1), present(1, 0, 1)) == []


def test_a_shard_that_left_the_cluster_file_is_lost() -> None:
    [only] = judged(metadata(interval(1, 1, 1, 1), given=1), present(1, -1, 1))
    assert only.lost == ((N1, 1),)


def test_what_was_stored_again_elsewhere_is_not_missing() -> None:
    log = metadata(interval(1, 1, 1, 1), interval(3, 1, 2, 1), given=4)
    assert judged(log, present(1, 3, 1, restored={N1: 2})) == []
    [only] = judged(log, present(1, 3, 1, restored={N1: 1}))
    assert (only.since, only.lost) == (3, ((N1, 2),))


def test_records_may_be_gone_once_the_lost_shards_suffice_for_a_copyset() -> None:
    log = metadata(interval(1, 1, 1, 1), given=1)
    [one] = judged(log, present(1, 2, 1))
    [two] = judged(log, present(1, 2, 2))
    [all_of_them] = judged(log, present(2, 2, 2))
    assert [each.may_be_gone for each in (one, two, all_of_them)] == [False, True, True]
    assert two.tellers == {N0}, "it knows how far the log is trimmed"
    assert all_of_them.tellers == {N0, N1, N2}, "there is nobody else"
    [single] = judged(
        metadata(interval(1, 1, 1, replication=ReplicationProperty.parse("node:1")), given=1), present(1, 2)
    )
    assert single.may_be_gone


def test_the_event_log_says_what_was_stored_again() -> None:
    state = RebuildingSet()
    for shard, rebuilt in ((N1, True), (N2, False)):
        state.shards[shard] = RebuildingShard(
            shard, Generation(2), RebuildMode.RESTORE, Lsn(5), recoverable=False, rebuilt=rebuilt
        )
    assert restored_by(state) == ((N1, 2),)
