"""Lines that begin with their transaction id, as ``ldstream write --txids`` takes them."""

from __future__ import annotations

import pytest

from client.cli.record_lines import LineError
from streams.cli import numbered_lines


def test_ids_are_the_keys_of_lines() -> None:
    assert numbered_lines(b":")([b"7:a", b"7:b:c", b"09:"]) == ([b"a", b"b:c", b""], [b"7", b"7", b"09"])
    assert numbered_lines(b":")([b"%d:a" % (2**63 - 1)])[0] == [b"a"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"late", "does not begin with a transaction id"),
        (b"x:late", "does not begin with a transaction id"),
        (b"-1:late", "does not begin with a transaction id"),
        (b"0:late", "its transaction id is 0; ids are"),
        (b"%d:late" % 2**63, "its transaction id is 9223372036854775808; ids are"),
        (b"9" * 5000 + b":late", "ids are"),
        (b"6:late", "its transaction id 6 is below 7, that of the line before"),
    ],
)
def test_a_line_without_an_id_that_can_be_is_named(line: bytes, reason: str) -> None:
    with pytest.raises(LineError, match=reason) as raised:
        numbered_lines(b":")([b"7:a", line])
    assert raised.value.index == 1
