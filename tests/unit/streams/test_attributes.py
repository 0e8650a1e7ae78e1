"""Attributes of streams: what people write, what is kept, and what other versions wrote."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import Flush, Roll, StreamAttributes, StreamWriters, TransactionIds


def test_attributes_are_kept_and_shown_as_they_were_given() -> None:
    given = StreamAttributes.of(
        txid="writer",
        writers="exclusive",
        ttl="3d",
        truncated_retention=timedelta(days=1),
        roll=Roll(every=7200, bytes="256MiB"),
        cold="file:///cold",
        cold_ttl="365d",
    )
    assert StreamAttributes.from_mapping(given.mapping()) == given
    assert given.shown() == {
        "txid": "writer",
        "writers": "exclusive",
        "ttl": "3d",
        "truncated_retention": "1d",
        "roll_every": "2h",
        "roll_bytes": "256MiB",
        "cold": "file:///cold",
        "cold_ttl": "365d",
    }
    assert StreamAttributes.of().mapping() == {}


def test_what_this_version_does_not_understand_does_not_hold() -> None:
    found = StreamAttributes.from_mapping(
        {"txid": "of another kind", "ttl_us": "x", "cold": 3, "colour": "red", "roll_bytes": 7}
    )
    assert found == StreamAttributes(txid=TransactionIds.TIME, writers=StreamWriters.SHARED, roll_bytes=7)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"txid": "writers"}, "txid is 'writers'; it must be one of 'writer', 'time'; did you mean 'writer'?"),
        ({"writers": 3}, "writers is 3"),
        ({"ttl": "3 days"}, "ttl: '3 days' is no duration"),
        ({"ttl": 0}, "ttl is 0; it must be above 0"),
        ({"ttl": True}, "ttl is True"),
        ({"ttl": float("nan")}, "ttl is nan"),
        ({"roll": "2h"}, "roll is '2h'; it must be a Roll"),
        ({"roll": Roll(bytes=0)}, "roll.bytes is 0"),
        ({"cold": "/cold"}, "cold is '/cold'; it must be a URL"),
        ({"cold": "s3://[oops/cold"}, "this is no URL of a store for cold copies: write file:///directory or s3://"),
        (
            {"cold": "s3://bucket:abc/cold"},
            "this is no URL of a store for cold copies: write file:///directory or s3://",
        ),
        (
            {"cold": "file://tmp/cold"},
            "file://tmp/cold names no directory of this machine: write file:///tmp/cold",
        ),
        ({"cold": "file://"}, "file:// names no directory of this machine: write file:///directory"),
        ({"cold": "s3:///folder"}, "s3:///folder names no bucket: write file:///directory or s3://bucket/folder"),
        ({"cold": "ftp://user:secret@host/x"}, "ftp://host/x is no store for cold copies: write file:///directory or"),
        ({"cold_ttl": "1d"}, "cold_ttl is given without cold"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, Any], text: str) -> None:
    with pytest.raises(LogDeviceError) as raised:
        StreamAttributes.of(**options)
    assert raised.value.status is Status.INVALID_PARAM
    assert text in str(raised.value)


def test_flushing_is_what_buffered_writers_call_triggers() -> None:
    assert Flush().options() == {}
    assert Flush(bytes="64KiB", every="10ms").options() == {"size_trigger_bytes": 65536, "time_trigger_us": 10_000}
    with pytest.raises(LogDeviceError):
        Flush(bytes="64").options()
