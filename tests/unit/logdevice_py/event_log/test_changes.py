"""What operators are told of lost and drained shards."""

from __future__ import annotations

from dataclasses import replace

from logdevice_py.core.ids import Generation
from logdevice_py.core.lsn import Lsn
from logdevice_py.event_log.changes import ShardNews, ToldShards, changes, standing, summary
from logdevice_py.event_log.events import (
    DonorFlags,
    Event,
    RebuildMode,
    ShardAbortRebuild,
    ShardIsRebuilt,
    ShardTookRecords,
    ShardUnrecoverable,
)
from tests.unit.logdevice_py.event_log.test_rebuilding_set import FIRST, SHARDS, Log, back, drained, lost

SECOND = Generation(2)


class Told:
    """Of a log, what each step of it has an operator told."""

    def __init__(self) -> None:
        self.log = Log()

    def apply(self, *events: Event) -> list[ShardNews]:
        told = ToldShards.of(self.log.state)
        return changes(told, self.log.apply(*events))

    def finish(self, *nodes: int, flags: DonorFlags = DonorFlags.NONE) -> list[ShardNews]:
        round_ = self.log.state.round
        return self.apply(*(ShardIsRebuilt(SHARDS[node], FIRST, round_, flags) for node in nodes))


def test_a_lost_node_is_rebuilt_and_does_not_come_back() -> None:
    told = Told()
    assert told.apply(replace(lost(4), source="N4 was dead for 20 s")) == [
        ShardNews("N4:S0 is taken for lost in generation 1 (N4 was dead for 20 s)", alarm=True),
        ShardNews("rebuilding of N4:S0 begins: N0:S0, N1:S0, N2:S0, N3:S0 look through what they hold"),
    ]
    assert told.apply(lost(4)) == told.finish(0, 1, 2) == []
    assert told.finish(3) == [
        ShardNews(
            "N4:S0 is rebuilt: what it held is re-replicated by others; its silence counts as AUTHORITATIVE_EMPTY"
        )
    ]
    assert told.apply(ShardUnrecoverable(SHARDS[4], FIRST)) == [
        ShardNews("what N4:S0 held in generation 1 does not come back; it was re-replicated")
    ]


def test_a_node_comes_back_while_it_is_rebuilt() -> None:
    told = Told()
    told.apply(lost(4))
    assert told.apply(back(4)) == [ShardNews("N4:S0 is used again: it is back with its data")]


def test_a_new_generation_keeps_that_the_earlier_one_is_rebuilt_when_the_shard_is_lost_and_comes_back() -> None:
    told = Told()
    assert told.apply(lost(4, recoverable=False))[0] == ShardNews(
        "N4:S0 is taken for lost in generation 1; its data does not come back", alarm=True
    )
    told.finish(0, 1, 2, 3)
    assert told.apply(lost(4, 2))[0].text == "N4:S0 is taken for lost in generation 2"
    assert told.apply(ShardAbortRebuild(SHARDS[4], SECOND, RebuildMode.RESTORE)) == [
        ShardNews("N4:S0 is used again: it is back with its data")
    ]


def test_a_drain_and_its_end() -> None:
    told = Told()
    assert told.apply(replace(drained(4), source="ldctl"))[0] == ShardNews("N4:S0 begins to be drained (ldctl)")
    assert told.finish(0, 1, 2, 3, 4) == [
        ShardNews(
            "N4:S0 is drained: others hold what it holds, and it can be taken out of the cluster file; its silence counts as AUTHORITATIVE_EMPTY"
        )
    ]
    assert told.apply(ShardAbortRebuild(SHARDS[4], FIRST, RebuildMode.RELOCATE)) == [
        ShardNews("N4:S0 is used again: it is not drained any more")
    ]


def test_a_drained_shard_that_took_records() -> None:
    told = Told()
    told.apply(drained(4))
    told.finish(0, 1, 2, 3, 4)
    took = ShardTookRecords(SHARDS[4], FIRST, told.log.state.shards[SHARDS[4]].since)
    assert told.apply(took)[0] == ShardNews("N4:S0 is drained once more (it took records after it was drained)")


def test_a_shard_that_is_lost_while_it_is_drained() -> None:
    told = Told()
    told.apply(drained(4))
    assert told.apply(lost(4))[0] == ShardNews(
        "N4:S0 is taken for lost in generation 1; it is to be drained when it is back", alarm=True
    )
    assert told.apply(back(4))[0] == ShardNews("N4:S0 is back with its data, and goes on to be drained")
    assert told.apply(drained(4, 2))[0] == ShardNews(
        "N4:S0 lost what it held up to generation 1, and begins to be drained", alarm=True
    )


def test_a_lost_shard_is_to_be_drained() -> None:
    told = Told()
    told.apply(lost(4))
    assert told.apply(drained(4)) == [ShardNews("N4:S0 is to be drained when it is back")]


def test_a_bad_end_is_an_alarm_and_can_be_tried_once_more() -> None:
    told = Told()
    told.apply(lost(4))
    assert told.finish(0, 1, 2, 3, flags=DonorFlags.UNPLACED) == [
        ShardNews(
            "N4:S0 is lost, and rebuilding it ended unplaced: some records have copies less; its silence counts as FULLY_AUTHORITATIVE",
            alarm=True,
        )
    ]
    again = told.apply(replace(lost(4), source="ldctl"))
    assert again[0] == ShardNews("N4:S0 is rebuilt once more (ldctl)")
    assert again[1].text.startswith("rebuilding of N4:S0 begins: ")
    (ended,) = told.finish(0, 1, 2, 3, flags=DonorFlags.UNCERTAIN)
    assert ended.alarm
    assert "ended uncertain: some records may be gone" in ended.text
    (unrecoverable,) = told.apply(ShardUnrecoverable(SHARDS[4], FIRST))
    assert unrecoverable.alarm
    assert unrecoverable.text.startswith("N4:S0 is declared unrecoverable: ")


def test_a_further_loss_begins_another_round_for_both() -> None:
    told = Told()
    told.apply(lost(4))
    assert told.apply(lost(3)) == [
        ShardNews("N3:S0 is taken for lost in generation 1", alarm=True),
        ShardNews("rebuilding of N3:S0, N4:S0 begins: N0:S0, N1:S0, N2:S0 look through what they hold"),
    ]


def test_a_loss_that_is_rebuilt_at_once_is_told_whole() -> None:
    told = Told()
    begun = lost(4)
    round_ = Lsn(1)
    lines = told.apply(begun, *(ShardIsRebuilt(SHARDS[node], FIRST, round_) for node in range(4)))
    assert ["taken for lost" in lines[0].text, "is rebuilt" in lines[1].text, len(lines)] == [True, True, 2]


def test_a_source_takes_one_line() -> None:
    (begun, _) = Told().apply(replace(lost(4), source="a\nb\x1b"))
    assert begun.text == "N4:S0 is taken for lost in generation 1 (a?b?)"


def test_a_node_that_starts_tells_what_is_not_done_or_not_as_it_should_be() -> None:
    told = Told()
    assert summary(told.log.state) is None
    told.apply(drained(2))
    assert summary(told.log.state) == ShardNews("N2:S0 is being drained")
    told.apply(lost(4))
    assert summary(told.log.state) == ShardNews("N2:S0 is being drained; N4:S0 is lost and being rebuilt", alarm=True)
    told.finish(0, 1, 2, 3)
    assert summary(told.log.state) is None


def test_there_are_words_for_every_state() -> None:
    for mode in RebuildMode:
        for status in ("rebuilding", "rebuilt", "unplaced", "uncertain"):
            assert standing(mode, status)
