"""What others made is unpacked at a cost that its bytes bound, whatever it declares."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import msgpack
import pytest

from logdevice_py.core.batch import decode_batch, encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.record_keys import split_keys
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.unpacking import check_complete, unpack_flat
from logdevice_py.event_log.events import unpack_bounded
from logdevice_py.metadata.epoch_metadata import EpochMetaData

_KINDS = frozenset({bytes, type(None)})
_FALSE_ARRAYS = b"\xdc\xff\xff" * 500
"""1,500 bytes: 500 arrays, one in the other, that declare 65,535 elements each."""


def test_what_is_there_is_complete() -> None:
    for value in (None, 7, b"x", "text", [], [[1, 2], [[], b"y"]], list(range(70_000))):
        check_complete(msgpack.packb(value))


@pytest.mark.parametrize("data", [b"", _FALSE_ARRAYS, b"\xc4\xff", b"\xdd\xff\xff\xff\xff", b"\x91" * 5000, b"\xc1"])
def test_what_is_not_all_there_is_not_complete(data: bytes) -> None:
    with pytest.raises((ValueError, msgpack.UnpackException)):
        check_complete(data)


@pytest.mark.parametrize(
    "value", [[[b"a"], [b"b"]], [b"a", []], [b"a"], [b"a", b"b", b"c"], [b"a", 7], [b"a", "b"], 7, b"ab"]
)
def test_a_flat_array_has_its_elements_and_no_others(value: object) -> None:
    with pytest.raises((ValueError, msgpack.UnpackException)):
        unpack_flat(msgpack.packb(value), 2, _KINDS, bin_size_max=10)
    assert unpack_flat(msgpack.packb([b"a", None]), 2, _KINDS, bin_size_max=10) == [b"a", None]


def _peak_bytes(call: Callable[[], None]) -> int:
    """The most memory that was allocated at a time while something ran."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _batch(content: bytes, records: int) -> None:
    honest = encode_batch([b"x"], Compression.NONE)
    head = honest[: len(honest) - len(msgpack.packb([b"x"])) - 4]
    decode_batch(head + len(content).to_bytes(4, "big") + content, records)


def _keys(content: bytes, records: int) -> None:
    split_keys(len(content).to_bytes(4, "big") + content, records)


@pytest.mark.parametrize("unpack", [_batch, _keys])
@pytest.mark.parametrize("content", [_FALSE_ARRAYS, b"\xdc\xff\xff" + b"\x90" * 65_535], ids=["false", "empty"])
def test_records_and_keys_that_declare_more_than_they_hold_reserve_nothing(unpack, content: bytes) -> None:  # type: ignore[no-untyped-def]
    def refused() -> None:
        with pytest.raises(CorruptEntryError):
            unpack(content, 65_535)

    assert _peak_bytes(refused) < 2 << 20


@pytest.mark.parametrize("unpack", [unpack_bounded, EpochMetaData.decode])
def test_events_and_metadata_that_declare_more_than_they_hold_reserve_nothing(unpack) -> None:  # type: ignore[no-untyped-def]
    bomb = b"\xdc\x01\xff" * 500

    def refused() -> None:
        with pytest.raises((ValueError, msgpack.UnpackException, CorruptEntryError)):
            unpack(bomb)

    assert _peak_bytes(refused) < 1 << 20
