"""How the recoveries of a log's epochs ended, packed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.core.epoch_summary import EpochSummary, SummaryFlags
from logdevice_py.core.lsn import Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from storage_node.epochs.recovered_epochs import RecoveredEpochs
from storage_node.stored_metadata import RecoveredEpoch


def ended(lng: int) -> RecoveredEpoch:
    """Every third is counted."""
    counted = EpochSummary(int(SummaryFlags.COUNTED), Epoch(9), last=Esn(lng), records=7).encode()
    return RecoveredEpoch(Epoch(9), Esn(lng), Esn(lng + 1), Lsn(0), Timestamp(0), True, b"" if lng % 3 else counted)


@given(
    st.lists(st.tuples(st.sampled_from(["put", "forget"]), st.integers(1, 12) | st.just(2**32 - 2), st.integers(0, 99)))
)
def test_it_says_what_a_dictionary_would(steps: list[tuple[str, int, int]]) -> None:
    packed, model = RecoveredEpochs(), dict[int, RecoveredEpoch]()
    for step, epoch, lng in steps:
        if step == "put":
            packed.put(epoch, ended(lng).encode())
            model[epoch] = ended(lng)
        else:
            before = sorted(known for known in model if known < epoch)
            assert packed.forget_before(epoch) == before
            for known in before:
                del model[known]
        assert list(packed) == sorted(model)
        assert len(packed) == len(model)
        for known in (*range(14), 2**32 - 2):
            assert packed.get(known) == model.get(known)
            assert (known in packed) == (known in model)
        assert dict(packed.between(2, 9)) == {epoch: model[epoch] for epoch in sorted(model) if 2 <= epoch <= 9}
        told = {epoch: EpochSummary.decode(summary) for epoch, summary in packed.summaries(2, 9)}
        assert list(told) == sorted(epoch for epoch in model if 2 <= epoch <= 9)
        for epoch, summary in told.items():
            assert summary.counted == bool(model[epoch].summary)


def test_of_an_epoch_that_is_not_counted_it_is_known_where_it_ends() -> None:
    packed = RecoveredEpochs()
    packed.put(3, RecoveredEpoch(Epoch(4), Esn(5), Esn(8), compose_lsn(3, 7), Timestamp(66), True).encode())
    packed.put(4, RecoveredEpoch(Epoch(4), Esn(0), Esn(1), compose_lsn(3, 7), Timestamp(66), False).encode())
    (_, full), (_, empty) = packed.summaries(1, 9)
    assert EpochSummary.decode(full) == EpochSummary(
        int(SummaryFlags.AUTHORITATIVE), Epoch(4), last=Esn(7), last_timestamp=Timestamp(66)
    )
    assert (EpochSummary.decode(empty).last, EpochSummary.decode(empty).authoritative) == (0, False)


def test_damage_is_not_taken_in() -> None:
    packed = RecoveredEpochs()
    with pytest.raises(CorruptEntryError):
        packed.put(1, b"short")
    assert not len(packed)
