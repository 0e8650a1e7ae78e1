"""The read streams of a client that are open."""

from __future__ import annotations

from typing import Any

from client.read.open_streams import OpenStreams
from client.read.settings import ReadSettings
from client.turn_end import TurnEnd
from logdevice_py.core.ids import LogId
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.units import Micros
from tests.unit.client.read.fakes import Harness, lsn


class OtherStream:
    """Gets messages as a read stream does, and is none."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def test_read_streams_are_listed_in_the_order_in_which_they_were_opened() -> None:
    woken: list[LogId] = []
    streams = OpenStreams(lambda log, now: woken.append(log), TimerQueue(), ReadSettings(), TurnEnd())
    first, second, third = (Harness(first=lsn(1, 1)).stream for _ in range(3))
    for stream_id, stream in ((9, first), (2, OtherStream()), (5, second), (1, third)):
        streams.add(stream_id, stream, Micros(0))
    assert streams.read_streams() == [first, second, third]
    streams.remove(5)
    assert streams.read_streams() == [first, third]
    assert woken == []
