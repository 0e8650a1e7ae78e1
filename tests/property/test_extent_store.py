"""The store in extents against a dictionary: any sequence of batches, reads, work in the background, reopenings, kills and power cuts."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from logdevice_py.core.ids import LogId, metadata_log_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.extents.simulated_disk import PowerCutError, SimulatedDisk, by_chance
from storage_node.log_store.interface import Contents
from tests.property.test_log_stores import MARKER, SETTINGS, LogStoreMachine, StoreModel
from tests.unit.storage_node.log_store.extent_stores import open_extents
from tests.unit.storage_node.log_store.images import LAST, LOG, read_all

EXTENTS = replace(SETTINGS, extent_bytes=64 << 10, extent_rows_max=16, checkpoint_bytes=8_000)
EVERY_LOG = (LOG, LogId(8), metadata_log_of(LOG))


def held_by(store: Any, contents: Contents) -> tuple[Any, ...]:
    """All that the store says that it holds."""
    reads = [read_all(store, log) for log in EVERY_LOG]
    assert not any(each.corrupt for each in reads)
    return (
        [(each.entries, each.bodiless) for each in reads],
        sorted(contents.log_metadata),
        sorted(contents.epoch_metadata),
        sorted(contents.highest),
    )


def held_by_model(model: StoreModel) -> tuple[Any, ...]:
    """The same of the model."""
    reads = []
    for log in EVERY_LOG:
        found = {lsn: model.entry(log, lsn) for lsn in model.lsns(log, Lsn(0), LAST)}
        entries = [(lsn, each[1]) for lsn, each in found.items() if each is not None]
        reads.append((entries, [lsn for lsn, each in found.items() if each is None]))
    highest: dict[LogId, Lsn] = {}
    for log, lsn in model.copies:
        highest[log] = max(highest.get(log, Lsn(0)), lsn)
    return (
        reads,
        sorted((log, kind, value) for (log, kind), value in model.log_metadata.items()),
        sorted((log, epoch, kind, value) for (log, epoch, kind), value in model.epoch_metadata.items()),
        sorted(highest.items()),
    )


class ExtentStoreMachine(LogStoreMachine):
    """On the simulated disk."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.boots = 1

    def boot(self) -> str:
        return f"boot {self.boots}"

    def make(self) -> Any:
        return open_extents(self.disk, EXTENTS, boot=self.boot())

    @rule()
    def process_dies(self) -> None:
        self.store.abandon()
        self.open()

    @rule(count=st.integers(1, 4))
    def work_in_the_background(self, count: int) -> None:
        for _ in range(count):
            chore = self.store.next_chore()
            if chore is None:
                break
            chore()

    @rule()
    def an_index_is_read_from_blocks_again(self) -> None:
        self.store._extents.suspects.extend(self.store._extents.indexes)
        self.store._extents.make_indexes_anew()

    @rule(seed=st.integers(0, 1 << 16), share=st.sampled_from([0.0, 0.5, 0.95, 1.0]), step=st.integers(0, 40))
    def power_cut(self, seed: int, share: float, step: int) -> None:
        """Twice in a row: the second time while the store is opened."""
        self.store.abandon()
        self.disk.power_cut(by_chance(random.Random(seed), share))
        allowed = self.states
        for dies_at in (self.disk.steps + step, None):
            self.boots += 1
            self.disk.dies_at = dies_at
            try:
                self.store = self.make()
                assert self.store.adopt(MARKER, boot=self.boot(), now=Timestamp(self.now)) is Status.OK
                found = held_by(self.store, self.store.load())
            except PowerCutError:
                pass
            else:
                allowed = [model for model in allowed if held_by_model(model) == found]
                assert allowed, "what is there was never written, or lacks what was durable"
            if dies_at is not None:
                self.disk.power_cut(by_chance(random.Random(seed + 1), share))
        self.states = allowed[-1:]


TestExtentStore = ExtentStoreMachine.TestCase
TestExtentStore.settings = settings(max_examples=40, stateful_step_count=40)
