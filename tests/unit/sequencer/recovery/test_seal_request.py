"""Sealing one shard: what is asked, how often, and what its answer says; and when an attempt counts as stuck."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId, node_peer, shard_id
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.protocol.messages import EPOCHS_PER_SEALED, EpochState, Seal, Sealed, SealedLog
from logdevice_py.protocol.requests import Requests
from sequencer.recovery.coalescing import RequestCoalescer
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.metrics import RecoveryMetrics
from sequencer.recovery.phase_watch import PhaseWatch
from sequencer.recovery.seal_request import SealRequest, SealState
from sequencer.recovery.settings import RecoverySettings
from tests.unit.sequencer.recovery.bench import Bench as NodeBench

LOG, SHARD = LogId(7), shard_id(NodeId(2))
GENERATIONS = [(Epoch(1), Generation(1)), (Epoch(4), Generation(2)), (Epoch(9), Generation(3))]
FIRST_US, LONGEST_US = 500_000, 5_000_000


def state(epoch: int, status: Status = Status.OK) -> EpochState:
    return EpochState(epoch, status, 3, 5, 77, (epoch << 32) + 3, 66)


class Bench:
    """A request of a log at a shard."""

    def __init__(self) -> None:
        outbox = Outbox()
        self.open = Requests(itertools.count(1), TimerQueue())
        self.context = RecoveryContext(
            NodeId(9),
            outbox,
            TimerQueue(),
            random.Random(1),
            RecoverySettings(),
            RecoveryMetrics(),
            NodeBench(),
            RequestCoalescer(NodeId(9), outbox, self.open),
            lambda: Timestamp(5),
            lambda: 1,
        )
        self.clean = Epoch(0)
        self.now = Micros(1_000_000)
        self.answers: list[bool] = []
        self.request = SealRequest(LOG, SHARD, Epoch(12), GENERATIONS, self.context, self, lambda: self.clean)

    def on_sealed(self, shard: ShardId, generation: Generation, row: SealedLog, now: Micros) -> None:
        self.answers.append(self.request.on_sealed(generation, row, now))

    def on_digested(self, *_: Any) -> None:
        raise AssertionError

    def on_cleaned(self, *_: Any) -> None:
        raise AssertionError

    def sent(self) -> list[Seal]:
        self.context.requests.on_turn_end()
        return [effect.message for effect in self.context.outbox.take() if isinstance(effect, Send)]

    def answer(self, *states: EpochState, status: Status = Status.OK) -> bool:
        seal = self.sent()[-1]
        row = SealedLog(LOG, status, Epoch(12), NodeId(2), Lsn(0), list(states))
        message = Sealed(request_id=seal.request_id, shard=SHARD, logs=[row], generation=Generation(4))
        self.open.on_answer(node_peer(SHARD), message, self.now)
        return self.answers.pop()

    def pauses(self, count: int) -> list[int]:
        """How long it waits before it asks again, so many times."""
        found = []
        for _ in range(count):
            deadline = self.context.timers.next_deadline()
            assert deadline is not None
            found.append(deadline - self.now)
            self.now = Micros(deadline)
            self.context.timers.advance(self.now)
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestAsking:
    @pytest.mark.parametrize(
        ("clean", "generations"),
        [
            (0, [(1, 1), (4, 2), (9, 3)]),
            (2, [(1, 1), (4, 2), (9, 3)]),
            (3, [(4, 2), (9, 3)]),
            (8, [(9, 3)]),
            (20, [(9, 3)]),
        ],
    )
    def test_generations_of_clean_epochs_are_left_out(
        self, bench: Bench, clean: int, generations: list[tuple[int, int]]
    ) -> None:
        bench.clean = Epoch(clean)
        bench.request.send(bench.now)
        [seal] = bench.sent()
        assert seal.logs == [(LOG, 12, clean, generations)]

    def test_it_is_repeated_after_longer_and_longer(self, bench: Bench) -> None:
        bench.request.send(bench.now)
        assert bench.pauses(6) == [FIRST_US, 2 * FIRST_US, 4 * FIRST_US, 8 * FIRST_US, LONGEST_US, LONGEST_US]
        bench.request.send_at_once(bench.now)
        assert bench.pauses(2) == [FIRST_US, 2 * FIRST_US]

    def test_what_no_longer_counts_is_asked_again_later(self, bench: Bench) -> None:
        bench.request.send(bench.now)
        bench.answer(state(1))
        bench.request.send_later(bench.now)
        assert (bench.request.state, bench.request.epochs, bench.sent()) == (SealState.UNSEALED, {}, [])
        assert bench.pauses(1) == [FIRST_US]
        assert len(bench.sent()) == 1

    def test_a_cancelled_request_asks_no_more(self, bench: Bench) -> None:
        bench.request.send(bench.now)
        bench.request.cancel()
        assert bench.context.timers.next_deadline() is None


class TestAnswers:
    def test_a_good_one_ends_it_and_tells_of_each_epoch(self, bench: Bench) -> None:
        bench.request.send(bench.now)
        assert bench.answer(state(1), state(4))
        assert bench.request.state is SealState.SEALED
        assert bench.context.timers.next_deadline() is None
        told = bench.request.sealed_epoch(Epoch(4))
        assert told is not None
        assert (told.epoch, told.status, told.lng, told.last, told.last_timestamp) == (4, Status.OK, 3, 5, 77)
        assert (told.tail_lsn, told.tail_timestamp, told.generation) == (Lsn((4 << 32) + 3), 66, 4)
        silent = bench.request.sealed_epoch(Epoch(5))
        assert silent is not None
        assert (silent.epoch, silent.status, silent.lng, silent.last, silent.generation) == (5, Status.OK, 0, 0, 4)

    def test_while_some_epoch_may_be_incomplete_it_is_asked_now_and_then(self, bench: Bench) -> None:
        bench.request.send(bench.now)
        assert bench.answer(state(1), state(4, Status.REBUILDING))
        assert bench.request.state is SealState.SEALED
        assert bench.pauses(1) == [LONGEST_US]

    def test_a_shard_that_lost_its_data_proves_nothing_and_is_asked_on(self, bench: Bench) -> None:
        bench.request.send(bench.now)
        assert bench.answer(status=Status.REBUILDING)
        assert bench.request.state is SealState.REBUILDING
        told = bench.request.sealed_epoch(Epoch(4))
        assert told is not None
        assert (told.status, told.generation) == (Status.REBUILDING, 0)
        assert bench.pauses(1) == [FIRST_US]

    def test_a_refusal_says_nothing(self, bench: Bench) -> None:
        bench.request.send(bench.now)
        assert not bench.answer(state(1), status=Status.OVERLOADED)
        assert (bench.request.state, bench.request.sealed_epoch(Epoch(1))) == (SealState.UNSEALED, None)
        assert bench.pauses(1) == [FIRST_US]

    def test_a_list_that_is_full_says_nothing_of_later_epochs(self, bench: Bench) -> None:
        bench.request.send(bench.now)
        last = 2 * EPOCHS_PER_SEALED
        assert bench.answer(*(state(epoch) for epoch in range(2, last + 1, 2)))
        epochs = [bench.request.sealed_epoch(Epoch(epoch)) for epoch in (last - 1, last, last + 1)]
        assert [told is not None and told.last for told in epochs] == [0, 5, False]


class TestPhaseWatch:
    def test_without_progress_an_attempt_is_stuck_and_the_next_has_longer(self, bench: Bench) -> None:
        stuck: list[int] = []
        watch = PhaseWatch(bench.context, lambda now: stuck.append(now // SECOND))
        expected = [10, 30, 70, 150, 270, 390]
        for at in expected:
            watch.begin(Micros(stuck[-1] * SECOND if stuck else 0))
            before = list(stuck)
            bench.context.timers.advance(Micros(at * SECOND - 1))
            assert stuck == before
            bench.context.timers.advance(Micros(at * SECOND))
        assert stuck == expected

    def test_progress_gives_it_as_long_again(self, bench: Bench) -> None:
        stuck: list[int] = []
        watch = PhaseWatch(bench.context, lambda now: stuck.append(now // SECOND))
        watch.begin(Micros(0))
        watch.progress(Micros(7 * SECOND))
        bench.context.timers.advance(Micros(17 * SECOND - 1))
        assert stuck == []
        bench.context.timers.advance(Micros(17 * SECOND))
        assert stuck == [17]

    def test_what_is_over_does_not_get_stuck(self, bench: Bench) -> None:
        watch = PhaseWatch(bench.context, lambda now: pytest.fail("it was stopped"))
        watch.stop()
        watch.begin(Micros(0))
        watch.stop()
        bench.context.timers.advance(Micros(100 * SECOND))
