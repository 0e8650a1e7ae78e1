"""Names of streams: what streams may be called, and what those of earlier versions are called."""

from __future__ import annotations

import pytest

from client.replica.commands import CommandRefused, refusal
from logdevice_py.core.status import Status
from streams.names import checked_name, checked_new_name


@pytest.mark.parametrize("name", ["orders", "team/orders", "...", ".hidden", "a..b/c.", "x" * 255])
def test_a_stream_may_be_called_so(name: str) -> None:
    assert checked_new_name(name) == checked_name(name) == name


@pytest.mark.parametrize("name", [".", "..", "a/../b", "./a", "a/."])
def test_no_new_name_looks_like_a_way_through_directories(name: str) -> None:
    assert checked_name(name) == name  # an earlier version may have given it
    with pytest.raises(CommandRefused) as raised:
        checked_new_name(name)
    assert refusal(str(raised.value))[0] is Status.INVALID_PARAM


@pytest.mark.parametrize("name", ["x" * 256, "x/" * 600 + "x", "", "/a", "a/", "a b", None])
def test_what_is_no_name_is_refused_with_both_limits(name: object) -> None:
    with pytest.raises(CommandRefused) as raised:
        checked_name(name)
    status, text = refusal(str(raised.value))
    assert (status, "1 to 255 letters" in text, "1024 in all" in text) == (Status.INVALID_PARAM, True, True)
