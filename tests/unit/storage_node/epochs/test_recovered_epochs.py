"""How the recoveries of a log's epochs ended, packed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.core.lsn import Epoch, Esn, Lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from storage_node.epochs.recovered_epochs import RecoveredEpochs
from storage_node.stored_metadata import RecoveredEpoch


def ended(lng: int) -> RecoveredEpoch:
    return RecoveredEpoch(Epoch(9), Esn(lng), Esn(lng + 1), Lsn(0), Timestamp(0), True)


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


def test_damage_is_not_taken_in() -> None:
    packed = RecoveredEpochs()
    with pytest.raises(CorruptEntryError):
        packed.put(1, b"short")
    assert not len(packed)
