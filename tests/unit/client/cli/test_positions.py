from __future__ import annotations

import argparse

import pytest

from client.cli.positions import (
    Anchor,
    NamedPosition,
    parse_guard_number,
    parse_position,
    parse_record_position,
    resolve_end,
)
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("e3n17", NamedPosition(Anchor.LSN, 3 << 32 | 17)),
        ("12884901905", NamedPosition(Anchor.LSN, 3 << 32 | 17)),
        ("oldest", NamedPosition(Anchor.LSN, 1)),
        ("Tail", NamedPosition(Anchor.TAIL)),
        ("1970-01-01T00:00:01Z", NamedPosition(Anchor.TIME, 1_000_000)),
        ("1970-01-01T02:00:00.5+02:00", NamedPosition(Anchor.TIME, 500_000)),
        ("1969-12-31T23:59:59+00:00", NamedPosition(Anchor.TIME, -1_000_000)),
    ],
)
def test_a_position_is_an_lsn_a_word_or_a_time(text: str, position: NamedPosition) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize(
    ("text", "advice"), [("2026-01-31T12:00:00", "2026-01-31T12:00:00Z"), ("2026-01-31", "2026-01-31T00:00:00Z")]
)
def test_a_time_without_zone_is_refused_and_told_how_to_write_it(text: str, advice: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"write {advice} for UTC"):
        parse_position(text)
    assert parse_position(advice).anchor is Anchor.TIME


@pytest.mark.parametrize("text", ["", "e3", "now", "-5", "e99999999999n1", "e3n4294967296", str(1 << 64)])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_position(text)


def test_what_is_no_position_of_a_record_is_refused_as_such() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="'rubbish' is no position: write it like"):
        parse_record_position("rubbish")


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.0", str(1 << 63)])
def test_transaction_ids_and_tokens_begin_with_1(text: str) -> None:
    assert parse_guard_number(str((1 << 63) - 1)) == (1 << 63) - 1
    with pytest.raises(argparse.ArgumentTypeError, match="is no integer from 1 to"):
        parse_guard_number(text)


class Times:
    """A client whose log has an entry at each second, from e1n1 at 1 s on to e1n5."""

    async def find_time(self, log: int, timestamp: int) -> LSN:
        return LSN(1 << 32 | min(6, max(1, -(-timestamp // 1_000_000))))


@pytest.mark.parametrize(("seconds", "last"), [(3.5, "e1n3"), (4, "e1n3"), (60, "e1n5"), (0.5, "e1n0")])
async def test_a_range_that_ends_with_a_time_has_what_is_older(seconds: float, last: str) -> None:
    end = NamedPosition(Anchor.TIME, int(seconds * 1_000_000))
    tail = LSN.parse("e1n5")
    assert str(await resolve_end(Times(), LogId(1), end, tail)) == last  # type: ignore[arg-type]
    assert await resolve_end(Times(), LogId(1), NamedPosition(Anchor.TAIL), tail) == tail  # type: ignore[arg-type]
