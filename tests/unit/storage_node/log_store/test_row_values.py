"""Rows of a store's metadata that a later version wrote, or that are damaged: refused by the declared error."""

from __future__ import annotations

import msgpack
import pytest

from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.contents import ContentsBuilder, decode_losses, encode_losses
from storage_node.log_store.identity import PreviousEnd
from storage_node.log_store.interface import Contents, LogMetadataKind
from storage_node.log_store.partitions import Partition
from storage_node.log_store.row_values import UnknownRowError
from tests.unit.storage_node.fakes import ShardDriver

NO_INTEGERS = [b"", b"\xc1", b"\x01\x01", b"\x93\x01", b"\x91" * 19, b"\xa1\xff", msgpack.packb("text"), b"\x80"]


@pytest.mark.parametrize("value", [*NO_INTEGERS, msgpack.packb([1, 2, 3]), msgpack.packb([1, 2, 3, 2**63])])
def test_a_partition_has_four_times(value: bytes) -> None:
    with pytest.raises(UnknownRowError, match="partition 7"):
        Partition.decode(7, value)


@pytest.mark.parametrize(
    "value", [*NO_INTEGERS[1:], msgpack.packb([[1]]), msgpack.packb([1]), msgpack.packb([[1, "2"]])]
)
def test_losses_are_pairs_of_times(value: bytes) -> None:
    with pytest.raises(UnknownRowError, match="losses"):
        decode_losses(value, None, PreviousEnd.CLEAN, Timestamp(9))
    spans = [(Timestamp(1), Timestamp(2))]
    assert decode_losses(encode_losses(spans), None, PreviousEnd.CLEAN, Timestamp(9)) == spans


@pytest.mark.parametrize("value", [*NO_INTEGERS[1:], msgpack.packb([1])])
def test_what_is_durable_is_a_time(value: bytes) -> None:
    with pytest.raises(UnknownRowError, match="durable"):
        decode_losses(None, value, PreviousEnd.MACHINE_DIED, Timestamp(9))


@pytest.mark.parametrize("key", [keys.WHOLE_FOR_KEY, keys.DRAIN_KEY, keys.directory_key(1, 2, 3), b"\x99?"])
@pytest.mark.parametrize("value", NO_INTEGERS)
def test_other_rows_of_metadata(key: bytes, value: bytes) -> None:
    builder = ContentsBuilder(Contents(None, PreviousEnd.CLEAN))  # type: ignore[arg-type]
    with pytest.raises(UnknownRowError):
        builder.add(key, value)


@pytest.mark.parametrize("kind", list(LogMetadataKind))
def test_metadata_of_logs_of_a_later_version_is_refused_in_words(kind: LogMetadataKind) -> None:
    driver = ShardDriver()
    driver.disk.rows[keys.log_metadata_key(7, kind)] = b"\x02later"
    with pytest.raises(LogDeviceError, match="N0:S0: its store holds metadata that cannot be read") as refused:
        driver.open()
    assert refused.value.status is Status.FAILED
