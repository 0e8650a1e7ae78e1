from __future__ import annotations

import pytest

from logdevice_py.protocol.declare import CODECS
from logdevice_py.protocol.messages import PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN
from logdevice_py.protocol.versions import Versions, later_messages


@pytest.mark.parametrize(
    ("ours", "offered", "agreed"),
    [
        ((1, 1), (1, 1), 1),
        ((1, 2), (1, 1), 1),
        ((1, 2), (2, 3), 2),
        ((1, 3), (1, 2), 2),
        ((1, 1), (2, 2), None),
        ((1, 2), (3, 9), None),
        ((1, 2), (2, 1), None),
        ((1, 1), (0, 0), None),
    ],
)
def test_the_greatest_that_both_speak(ours: tuple[int, int], offered: tuple[int, int], agreed: int | None) -> None:
    assert Versions(*ours).agree(Versions(*offered)) == agreed
    assert Versions(*offered).agree(Versions(*ours)) == agreed


def test_a_process_speaks_what_is_declared() -> None:
    assert Versions() == Versions(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION_MAX)
    assert (str(Versions(1, 1)), str(Versions(1, 2))) == ("1", "1 to 2")


def test_no_message_comes_with_a_version_that_this_process_does_not_speak() -> None:
    assert all(1 <= codec.since <= PROTOCOL_VERSION_MAX for codec in CODECS.values())
    assert later_messages(PROTOCOL_VERSION_MAX) == frozenset()
    assert later_messages(0) == frozenset(CODECS)
