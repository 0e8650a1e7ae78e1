from __future__ import annotations

from client.read.epochs import EpochHistory
from logdevice_py.core.lsn import LSN_MAX
from tests.unit.client.read.fakes import lsn, make_interval


def history_of(*since: int, certain: int = 0) -> EpochHistory:
    history = EpochHistory()
    history.update(tuple(make_interval(epoch, [0, 1, 2], 2) for epoch in since), certain=certain)
    return history


def test_an_interval_ends_where_the_next_begins() -> None:
    history = history_of(1, 4)
    assert history.index_of(lsn(3, 9)) == 0
    assert history.index_of(lsn(4, 0)) == 1
    assert history.end_of(0) == lsn(4, 0) - 1
    assert history.end_of(1) == LSN_MAX


def test_the_last_interval_is_certain_up_to_what_was_released_before_it_was_read() -> None:
    assert history_of(1, 4).certain_end_of(1) == lsn(5, 0) - 1
    assert history_of(1, 4, certain=7).certain_end_of(1) == lsn(8, 0) - 1
    assert history_of(1, 4, certain=7).certain_end_of(0) == lsn(4, 0) - 1


def test_an_older_history_that_comes_late_is_not_taken() -> None:
    history = history_of(1, 4)
    history.update((make_interval(1, [0], 1),), certain=2)
    assert history.index_of(lsn(5, 1)) == 1
    assert history.certain == 4
