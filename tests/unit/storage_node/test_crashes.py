"""What must hold whatever order messages, completions and power cuts come in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn, epoch_of
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Cleaned, Records, Sealed, ShardGap, Start, Stored, StoreFlags
from tests.unit.storage_node.fakes import (
    ASYNC_LOG,
    SEQUENCER,
    SYNC_LOG,
    ShardDriver,
    clean,
    lsn,
    release,
    seal,
    start,
    store,
)

_EPOCHS = st.integers(1, 4)
_ESNS = st.integers(1, 5)
_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), _EPOCHS, _ESNS),
        st.tuples(st.just("store"), _EPOCHS, _ESNS),
        st.tuples(st.just("drain"), _EPOCHS, _ESNS),
        st.tuples(st.just("seal"), _EPOCHS, _ESNS),
        st.tuples(st.just("clean"), _EPOCHS, _ESNS),
        st.tuples(st.just("release"), _EPOCHS, _ESNS),
        st.tuples(st.just("read"), _EPOCHS, _ESNS),
        st.tuples(st.just("complete"), _EPOCHS, _ESNS),
        st.tuples(st.just("complete"), _EPOCHS, _ESNS),
        st.tuples(st.just("let go"), _EPOCHS, _ESNS),
        st.tuples(st.just("overload"), _EPOCHS, _ESNS),
        st.tuples(st.just("power cut"), _EPOCHS, st.integers(0, 3)),
        st.tuples(st.just("restart"), _EPOCHS, _ESNS),
    ),
    max_size=40,
)


class Model:
    """Watches the answers of a shard about one log."""

    def __init__(self, log: LogId) -> None:
        self.driver = ShardDriver()
        self.driver.hold = True
        self.log = log
        self.wave = 0
        self.acknowledged: set[Lsn] = set()
        self.sealed = 0
        self.clean = 0
        self.sealed_when_sent: dict[int, int] = {}
        """By wave: the seal that had been answered when the STORE was sent."""
        self.version = 0
        self.released = Lsn(0)
        self.superfluous: set[int] = set()
        """Waves of entries that were released before they were sent, which therefore have all copies that they need."""

    def do(self, action: str, epoch: int, esn: int) -> None:
        """One step, and what must hold after it."""
        driver = self.driver
        driver.hold = True
        if action in ("store", "drain"):
            self.wave += 1
            self.sealed_when_sent[self.wave] = self.sealed
            if lsn(epoch, esn) <= self.released:
                self.superfluous.add(self.wave)
            flags = StoreFlags.DRAINING if action == "drain" else StoreFlags.NONE
            driver.turn((SEQUENCER, store(lsn(epoch, esn), log=self.log, wave=self.wave, flags=flags)))
        elif action == "seal":
            driver.turn(seal(epoch, log=self.log))
        elif action == "clean":
            driver.turn(clean(epoch, 4, log=self.log, lng=esn, last=esn))
        elif action == "release":
            # a sequencer releases what is replicated: what comes from it later of the same LSNs makes no difference
            self.released = max(self.released, lsn(epoch, esn))
            driver.turn(release(lsn(epoch, esn), log=self.log))
        elif action == "read":
            self.version += 1
            driver.turn(start(lsn(1, 1), log=self.log, version=self.version))
        elif action == "complete" and driver.held:
            driver.complete()
        elif action == "let go":
            driver.let_go()
        elif action == "overload":
            driver.disk.overloaded = not driver.disk.overloaded
        elif action == "power cut":
            self.look()
            driver.disk.overloaded = False
            driver.power_cut(esn)
            driver.let_go()
        elif action == "restart":
            driver.disk.overloaded = False
            driver.let_go()
            self.look()
            driver.restart()
            driver.let_go()
        self.look()

    def look(self) -> None:
        """Take in the answers, and compare the disk with them."""
        driver = self.driver
        for answer in driver.take(Stored):
            if answer.status is Status.OK:
                assert epoch_of(answer.lsn) > self.sealed_when_sent[answer.wave], (
                    "stored below a seal that was answered"
                )
                if self.log == SYNC_LOG or answer.wave not in self.superfluous:
                    self.acknowledged.add(answer.lsn)
        for sealed in driver.take(Sealed):
            [(_, status, _, _, _, epochs)] = sealed.logs
            if status == Status.OK:
                state = driver.log(self.log)
                assert state.seal_epoch >= max((epoch[0] for epoch in epochs), default=0)
                self.sealed = max(self.sealed, state.seal_epoch)
        for cleaned in driver.take(Cleaned):
            [(_, epoch, status, _, _)] = cleaned.logs
            if status == Status.OK:
                self.clean = max(self.clean, epoch)
        released = driver.machines.shard.logs[self.log].last_released if self.log in driver.machines.shard.logs else 0
        for gap in driver.take(ShardGap):
            assert gap.last <= released, "told of what is not released"
        for records in driver.take(Records):
            assert records.entries[-1][0] <= released, "sent what is not released"
        driver.take(Start)
        if self.log not in driver.machines.shard.logs:
            assert not self.acknowledged
            return
        state = driver.log(self.log)
        assert state.seal_epoch >= self.sealed, "a seal was forgotten"
        assert state.clean_epoch >= self.clean, "a clean epoch was forgotten"
        missing = self.acknowledged - set(driver.stored(self.log))
        if self.log == SYNC_LOG:
            assert not missing, "a synced entry is gone"
        assert all(state.is_dirty(at, at) for at in missing), "an entry is gone and nobody is told"


@settings(max_examples=300, deadline=None)
@given(_ACTIONS, st.sampled_from([SYNC_LOG, ASYNC_LOG]))
def test_answers_hold_through_crashes(actions: list[tuple[str, int, int]], log: LogId) -> None:
    model = Model(log)
    for action, epoch, esn in actions:
        model.do(action, epoch, esn)
