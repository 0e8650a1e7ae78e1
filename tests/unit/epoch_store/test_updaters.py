"""What each updater makes of what is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epoch_store.interface import UpdateMetadata
from epoch_store.updaters import Retire, SetDisabled, ToNextEpoch, ToWritten
from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId
from logdevice_py.core.lsn import EPOCH_MAX, Epoch
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import HISTORY_MAX, JOINED_MAX, EpochMetaData
from logdevice_py.metadata.widening import Widening
from tests.epoch_stores import LOG, interval

STORED = EpochMetaData(Epoch(5), (interval(0, 1, since=1), interval(1, 2, since=3)), True, False, NodeId(2))


def apart(shard: ShardId) -> Location:
    return Location.parse(f"rack{shard}")


def together(shard: ShardId) -> Location:
    return Location.parse("rack")


class TestToNextEpoch:
    def test_the_first_epoch_of_a_log_is_one_and_begins_its_history(self) -> None:
        taken = ToNextEpoch(interval(2, 0), Epoch(1), provision=True, timestamp=Timestamp(99))(None)
        assert isinstance(taken, EpochMetaData)
        assert (taken.given_epoch, taken.history) == (1, (interval(0, 2, since=1),))
        assert (taken.written, taken.replication_changed_at, taken.epoch_given_at) == (False, 99, 99)

    def test_a_log_without_metadata_is_not_provisioned_unasked(self) -> None:
        assert ToNextEpoch(interval(0))(None) is Status.EMPTY

    @pytest.mark.parametrize("acceptable", [1, 4, 6])
    def test_another_epoch_than_the_acceptable_one_is_aborted(self, acceptable: int) -> None:
        assert ToNextEpoch(acceptable_epoch=Epoch(acceptable))(STORED) is Status.ABORTED

    def test_a_wiped_store_does_not_give_epoch_one_for_a_later_one(self) -> None:
        assert ToNextEpoch(interval(0), Epoch(5), provision=True)(None) is Status.ABORTED

    def test_the_same_placement_in_another_order_keeps_the_interval(self) -> None:
        taken = ToNextEpoch(interval(2, 1))(STORED)
        assert taken == replace(STORED, epoch=Epoch(6))

    @pytest.mark.parametrize(
        "wanted", [interval(1), interval(1, 2, generation=2), interval(1, 2, replication="node:1")]
    )
    def test_a_change_of_nodeset_generation_or_replication_begins_an_interval(self, wanted: object) -> None:
        taken = ToNextEpoch(wanted)(STORED)  # type: ignore[arg-type]
        assert isinstance(taken, EpochMetaData)
        assert taken.history[:-1] == STORED.history
        assert (taken.current.since, taken.written) == (5, False)

    def test_a_nodeset_from_an_older_cluster_file_does_not_replace_one_from_a_later(self) -> None:
        later = replace(STORED, history=(interval(0, 1, since=1), replace(interval(1, 2, since=3), config_version=4)))
        assert ToNextEpoch(replace(interval(0, 1), config_version=3))(later) == replace(later, epoch=Epoch(6))
        taken = ToNextEpoch(replace(interval(0, 1), config_version=4))(later)
        assert isinstance(taken, EpochMetaData)
        assert (taken.current.since, taken.current.config_version) == (5, 4)

    def test_before_the_current_interval_is_written_it_stays(self) -> None:
        unwritten = replace(STORED, written=False)
        assert ToNextEpoch(interval(7))(unwritten) == replace(unwritten, epoch=Epoch(6))

    def test_a_full_history_keeps_its_interval_and_still_gives_epochs(self) -> None:
        history = tuple(interval(n % 2, since=n + 1) for n in range(HISTORY_MAX))
        full = EpochMetaData(Epoch(HISTORY_MAX + 1), history, True, False, NodeId(0))
        taken = ToNextEpoch(interval(7))(full)
        assert isinstance(taken, EpochMetaData)
        assert (taken.given_epoch, taken.history) == (HISTORY_MAX + 1, history)

    def test_what_is_trimmed_is_left_out_when_an_interval_is_added_and_only_then(self) -> None:
        kept = ToNextEpoch(interval(1, 2), trimmed_before=Epoch(3))(STORED)
        assert kept == replace(STORED, epoch=Epoch(6)), "no interval is added"
        taken = ToNextEpoch(interval(7), trimmed_before=Epoch(3))(STORED)
        assert isinstance(taken, EpochMetaData)
        assert [each.since for each in taken.history] == [3, 5]
        not_all = ToNextEpoch(interval(7), trimmed_before=Epoch(2))(STORED)
        assert isinstance(not_all, EpochMetaData)
        assert [each.since for each in not_all.history] == [1, 3, 5]
        everything = ToNextEpoch(interval(7), trimmed_before=Epoch(99))(STORED)
        assert isinstance(everything, EpochMetaData)
        assert [each.since for each in everything.history] == [3, 5], "the last one stays"
        assert EpochMetaData.decode(everything.encode()) == everything

    def test_a_full_history_takes_an_interval_when_one_of_it_is_trimmed(self) -> None:
        history = tuple(interval(n % 2, since=n + 1) for n in range(HISTORY_MAX))
        full = EpochMetaData(Epoch(HISTORY_MAX + 1), history, True, False, NodeId(0))
        taken = ToNextEpoch(interval(7), trimmed_before=Epoch(2))(full)
        assert isinstance(taken, EpochMetaData)
        assert len(taken.history) == HISTORY_MAX
        assert (taken.history[0].since, taken.current.shards) == (2, interval(7).shards)

    def test_intervals_without_labels_get_them_and_are_written_again(self) -> None:
        history = tuple(replace(each, replication=ReplicationProperty.parse("rack:2")) for each in STORED.history)
        old = replace(STORED, history=history)
        labelled = tuple(each.labelled(apart) for each in history)
        assert ToNextEpoch(location=apart)(old) == replace(old, epoch=Epoch(6), history=labelled, written=False)
        # by the way it does not become another interval
        taken = ToNextEpoch(labelled[1], location=apart)(old)
        assert taken == replace(old, epoch=Epoch(6), history=labelled, written=False)
        assert isinstance(taken, EpochMetaData)
        assert ToNextEpoch(labelled[1], location=together)(taken) == replace(taken, epoch=Epoch(7))

    def test_other_failure_domains_begin_an_interval(self) -> None:
        kept = tuple(replace(each, replication=ReplicationProperty.parse("rack:2")) for each in STORED.history)
        stored = replace(STORED, history=tuple(each.labelled(apart) for each in kept))
        taken = ToNextEpoch(kept[1].labelled(together), location=together)(stored)
        assert isinstance(taken, EpochMetaData)
        assert taken.history[:-1] == stored.history
        assert (taken.current.labels, taken.current.since, taken.written) == (((0, 0),), 5, False)

    def test_labels_and_another_nodeset_come_at_once(self) -> None:
        taken = ToNextEpoch(interval(0, 3).labelled(apart), location=apart)(STORED)
        assert isinstance(taken, EpochMetaData)
        assert [each.labels for each in taken.history] == [(), (), ()]
        assert taken.current.since == 5

    def test_the_last_epoch_is_never_given(self) -> None:
        last = ToNextEpoch()(replace(STORED, epoch=Epoch(EPOCH_MAX - 1)))
        assert isinstance(last, EpochMetaData)
        assert ToNextEpoch()(last) is Status.TOOBIG

    def test_a_disabled_log_is_refused_even_when_provisioning(self) -> None:
        assert ToNextEpoch(interval(0), provision=True)(replace(STORED, disabled=True)) is Status.DISABLED


class TestWidening:
    WIDE = replace(interval(0, 1, 7, since=1), joined=(ShardId(7 << 8),))
    WIDENING = Widening(STORED.history[0], WIDE)

    def test_an_earlier_nodeset_becomes_wider_with_the_epoch_that_is_taken_and_is_written_again(self) -> None:
        taken = ToNextEpoch(widenings=(self.WIDENING,))(STORED)
        history = (replace(self.WIDE, widened=Epoch(5)), STORED.history[1])
        assert taken == replace(STORED, epoch=Epoch(6), history=history, written=False)

    def test_another_nodeset_may_come_at_once(self) -> None:
        taken = ToNextEpoch(interval(3), widenings=(self.WIDENING,))(STORED)
        assert isinstance(taken, EpochMetaData)
        assert [each.shards for each in taken.history] == [self.WIDE.shards, STORED.current.shards, (3 << 8,)]

    @pytest.mark.parametrize(
        "stored",
        [
            replace(STORED, written=False),
            replace(STORED, history=(interval(0, 2, since=1), STORED.history[1])),
            replace(
                STORED,
                history=(replace(STORED.history[0], joined=(ShardId(256),), widened=Epoch(4)), STORED.history[1]),
            ),
            replace(STORED, history=STORED.history[:1]),
        ],
        ids=[
            "the present history is not written yet",
            "it is another one",
            "it was widened by another node",
            "it is current",
        ],
    )
    def test_it_stays_where_it_is_not_what_it_was(self, stored: EpochMetaData) -> None:
        assert ToNextEpoch(widenings=(self.WIDENING,))(stored) == replace(stored, epoch=Epoch(6))

    def test_a_history_does_not_grow_without_end(self) -> None:
        many = tuple(ShardId((10 + node) << 8) for node in range(100))
        wide = replace(interval(0, 1, *range(10, 110)), joined=many, widened=Epoch(3))
        history = tuple(replace(wide, since=Epoch(1 + each)) for each in range(JOINED_MAX // 100))
        narrow = interval(0, 1, since=50)
        full = EpochMetaData(Epoch(70), (*history, narrow, interval(3, since=60)), True, False, NodeId(2))
        widening = Widening(narrow, replace(self.WIDE, since=Epoch(50)))
        assert ToNextEpoch(widenings=(widening,))(full) == replace(full, epoch=Epoch(71))

    def test_who_notes_late_that_the_narrower_history_is_written_does_not_say_it_of_the_wider(self) -> None:
        taken = ToNextEpoch(widenings=(self.WIDENING,))(STORED)
        assert isinstance(taken, EpochMetaData)
        assert ToWritten(STORED.history)(taken) is Status.STALE
        assert ToWritten(taken.history)(taken) == replace(taken, written=True)


class TestToWritten:
    def test_it_marks_only_the_interval_that_was_written(self) -> None:
        unwritten = replace(STORED, written=False)
        assert ToWritten(STORED.history)(unwritten) == STORED
        assert ToWritten(STORED.history[:1])(unwritten) is Status.STALE
        assert ToWritten(STORED.history)(None) is Status.EMPTY

    def test_marking_again_changes_nothing(self) -> None:
        assert ToWritten(STORED.history)(STORED) is STORED


def test_only_who_takes_an_epoch_becomes_the_writer() -> None:
    taken = UpdateMetadata(LOG, ToNextEpoch(), NodeId(9)).apply(STORED)
    disabled = UpdateMetadata(LOG, SetDisabled(), NodeId(9)).apply(STORED)
    assert isinstance(taken, EpochMetaData)
    assert isinstance(disabled, EpochMetaData)
    assert (taken.writer, disabled.writer, disabled.disabled) == (9, 2, True)
    assert UpdateMetadata(LOG, SetDisabled(), NodeId(9)).apply(None) is Status.EMPTY


class TestRetire:
    def test_only_the_last_epoch_disables_a_log_for_good(self) -> None:
        assert Retire(Epoch(3))(STORED) is Status.ABORTED
        disabled = Retire(Epoch(4))(STORED)
        assert disabled == replace(STORED, disabled=True)
        assert Retire(Epoch(3))(disabled) is disabled
        assert Retire(Epoch(1))(None) is Status.EMPTY
