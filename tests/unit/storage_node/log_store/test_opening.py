"""The steps in which a shard's store is opened and the shard registered."""

from __future__ import annotations

from typing import Any

import pytest

from logdevice_py.core.ids import Generation, ShardId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.storage import QuarantineReason
from storage_node.log_store.identity import NO_GENERATION, Judgement, ShardMarker
from storage_node.log_store.opening import Adopt, LoadContents, Look, Note, Quarantine, Register, Step, open_shard

CLUSTER = b"c" * 16
SHARD = ShardId(3 << 8)
FIRST, SECOND = Generation(1), Generation(2)


class Disk:
    """Carries out steps and notes them."""

    def __init__(self, marker: ShardMarker | None, *, empty: bool, generation: Generation, refusal: str = "") -> None:
        self.steps: list[Step] = []
        self.said: list[str] = []
        self._refusal = refusal
        steps = open_shard(SHARD, CLUSTER, admit=self.admit, new_birth=lambda: b"new", report=self.said.append)
        outcome: Any = None
        try:
            while True:
                step = steps.send(outcome)
                self.steps.append(step)
                outcome = (marker, empty) if isinstance(step, Look) else generation
        except StopIteration:
            pass

    def admit(self, judgement: Judgement) -> None:
        assert [type(step) for step in self.steps] == [Look], "nothing is changed before"
        if self._refusal:
            raise LogDeviceError(Status.FAILED, self._refusal)

    @property
    def shown(self) -> list[Any]:
        """Steps without those that are the same each time."""
        assert isinstance(self.steps[0], Look)
        assert [type(step) for step in self.steps[-2:]] == [LoadContents, Note]
        return [step.reason if isinstance(step, Quarantine) else step for step in self.steps[1:-2]]


def marker(generation: Generation, cluster: bytes = CLUSTER, **fields: Any) -> ShardMarker:
    return ShardMarker(cluster, SHARD, generation, **fields)


def test_a_store_of_the_shard_is_kept() -> None:
    disk = Disk(marker(SECOND, incarnation=7), empty=False, generation=SECOND)
    assert disk.shown == [Register(SECOND, 7, b""), Adopt(marker(SECOND))]
    assert disk.said == []


def test_an_empty_store_gets_a_name_before_it_is_registered() -> None:
    disk = Disk(None, empty=True, generation=FIRST)
    named = Adopt(marker(NO_GENERATION, birth=b"new"))
    assert disk.shown == [named, Register(None, 0, b"new"), Adopt(marker(FIRST))]
    assert disk.said == []


def test_one_that_was_about_to_be_registered_keeps_its_name() -> None:
    disk = Disk(marker(NO_GENERATION, birth=b"old"), empty=False, generation=FIRST)
    assert disk.shown == [Register(None, 0, b"old"), Adopt(marker(FIRST))]


def test_an_empty_store_of_a_shard_that_had_data_is_told() -> None:
    disk = Disk(None, empty=True, generation=SECOND)
    assert ["was not before: it begins as generation 2" in text for text in disk.said] == [True]


@pytest.mark.parametrize("found", [None, marker(FIRST, b"d" * 16)])
def test_a_store_of_somebody_else_is_quarantined(found: ShardMarker | None) -> None:
    disk = Disk(found, empty=False, generation=FIRST)
    named = Adopt(marker(NO_GENERATION, birth=b"new"))
    assert disk.shown == [QuarantineReason.FOREIGN, named, Register(None, 0, b"new"), Adopt(marker(FIRST))]


def test_a_store_of_a_generation_that_has_ended_is_quarantined_when_that_is_known() -> None:
    disk = Disk(marker(FIRST, incarnation=3), empty=False, generation=SECOND)
    assert disk.shown == [Register(FIRST, 3, b""), QuarantineReason.REPLACED, Adopt(marker(SECOND))]


def test_nothing_is_changed_of_a_store_that_is_refused() -> None:
    with pytest.raises(LogDeviceError, match="not this one"):
        Disk(marker(FIRST, b"d" * 16), empty=False, generation=FIRST, refusal="not this one")
