"""What ldcat asks of the cluster before it reads."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

import pytest

import client.client
from client.cli import cat
from client.connectivity import Connectivity
from client.read.batch import RecordBatch
from client.read.items import RecordRun
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import Timestamp
from tests.unit.client.fakes import LOG, cluster


class OneRecord:
    """A reader of a log with one record, e1n3."""

    def __init__(self, start: int, until: int) -> None:
        self.log = LOG
        self.next_lsn = LSN(start)
        self.until = until

    async def __aenter__(self) -> OneRecord:
        return self

    async def close(self) -> None:
        pass

    async def read(self, max_records: int) -> RecordBatch:
        batch = RecordBatch(LOG)
        if self.next_lsn <= self.until:
            batch.add_records([b"record"], RecordRun(LSN.parse("e1n3"), Timestamp(1), 0, 1))
            self.next_lsn = LSN(self.until + 1)
        return batch


class Unsequenced:
    """A client of a cluster where nobody says where the log ends."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.config = cluster()

    async def __aenter__(self) -> Unsequenced:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def known_logs(self, *names: str, timeout: float | None = None) -> list[LogId]:
        return [LogId(int(name)) for name in names]

    def reader(self, log: LogId, start: int, until: int) -> OneRecord:
        return OneRecord(start, until)

    async def tail_lsn(self, log: LogId, *, timeout: float | None = None) -> LSN:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody answers")

    def connectivity(self) -> Connectivity:
        return Connectivity("c.toml", (NodeId(0),), (NodeId(0),), {})


def test_a_range_between_two_lsns_needs_nobody_who_says_where_the_log_ends(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(client.client, "Client", Unsequenced)
    words = ["-c", "c.toml", str(LOG)]
    assert cat.main([*words, "--from", "oldest", "--until", "e1n3"]) == 0
    assert capsysbinary.readouterr().out == b"record\n"
    assert cat.main([*words, "--from", "e1n4", "--until", "e1n3"]) == 0
    assert capsysbinary.readouterr() == (b"", b"ldcat: nothing there: e1n4 lies behind e1n3\n")
    assert cat.main([*words, "8", "--from", "e1n4", "--until", "e1n3"]) == 0
    assert capsysbinary.readouterr() == (b"", b"ldcat: all 2 logs have nothing in this range\n")
    assert cat.main([*words, "--from", "oldest", "--timeout", "200ms"]) == 4
    assert b"to say where the log ends" in capsysbinary.readouterr().err
