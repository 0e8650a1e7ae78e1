"""What a node's log says of the event log."""

from __future__ import annotations

from logdevice_py.core.units import Micros
from logdevice_py.event_log.events import Event, RebuildMode, ShardAbortRebuild, ShardNeedsRebuild
from server.event_log.notices import EventLogNotice
from tests.unit.server.event_log.test_shard_status import ALL, FIRST, LOST, Bench

LOSS = ShardNeedsRebuild(LOST, FIRST, RebuildMode.RESTORE, ALL)


class Teller(Bench):
    """A node whose log is read."""

    def hears(self, *events: Event) -> list[tuple[bool, str]]:
        """What it says when these are applied in one turn."""
        self.apply(*events)
        assert self.node.rebuilding is not None
        self.node.rebuilding.on_state(Micros(0))
        notices = [each for each in self.outbox.take() if isinstance(each, EventLogNotice)]
        return [(each.alarm, each.text) for each in notices]

    def catches_up(self) -> list[tuple[bool, str]]:
        assert self.node.rebuilding is not None
        self.node.rebuilding.replica.caught_up = True
        return self.hears()


def test_every_change_is_told_once() -> None:
    node = Teller()
    assert node.catches_up() == []
    first, second = node.hears(LOSS)
    assert first == (True, "N4:S0 is taken for lost in generation 1")
    assert not second[0]
    assert node.hears() == node.hears(LOSS) == []
    assert node.hears(ShardAbortRebuild(LOST, FIRST, RebuildMode.RESTORE)) == [
        (False, "N4:S0 is used again: it is back with its data")
    ]


def test_what_was_before_the_start_is_summed_up() -> None:
    node = Teller()
    assert node.hears(LOSS) == []
    assert node.catches_up() == [(True, "N4:S0 is lost and being rebuilt")]
    assert node.hears() == []


def test_of_what_is_over_at_the_start_nothing_is_said() -> None:
    node = Teller()
    assert node.hears(LOSS) == node.hears(ShardAbortRebuild(LOST, FIRST, RebuildMode.RESTORE)) == []
    assert node.catches_up() == []
