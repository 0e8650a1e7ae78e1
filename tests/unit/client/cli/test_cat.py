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
from client.read.items import Gap, GapKind, RecordRun
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

    def reader(self, log: LogId, start: int, until: int, encryption: object = None) -> OneRecord:
        return OneRecord(start, until)

    async def tail_lsn(self, log: LogId, *, timeout: float | None = None) -> LSN:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody answers")

    def connectivity(self) -> Connectivity:
        return Connectivity("c.toml", (NodeId(0),), (NodeId(0),), {})


class LossyReader(OneRecord):
    """A reader of a log of ten entries with ten records each, which comes in whole entries with a gap before each."""

    async def read(self, max_records: int) -> RecordBatch:
        batch = RecordBatch(LOG)
        esn = self.next_lsn.esn
        if esn <= 20:
            batch.add_gap(Gap(GapKind.DATALOSS, self.next_lsn, self.next_lsn))
            payloads: list[bytes | None] = [b"%d" % (esn * 10 + offset) for offset in range(10)]
            batch.add_records(payloads, RecordRun(LSN(self.next_lsn + 1), Timestamp(1), 0, 10, [b"k"] * 10))
            self.next_lsn = LSN(self.next_lsn + 2)
        return batch


class Sequenced(Unsequenced):
    """A client of a cluster that says where the log ends."""

    def reader(self, log: LogId, start: int, until: int, encryption: object = None) -> LossyReader:
        return LossyReader(LSN.parse("e1n1"), until)

    async def tail_lsn(self, log: LogId, *, timeout: float | None = None) -> LSN:
        return LSN.parse("e1n20")


@pytest.mark.parametrize(("count", "losses"), [(1, 1), (10, 1), (13, 2), (20, 2)])
def test_it_stops_after_a_count_of_records(
    count: int, losses: int, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(client.client, "Client", Sequenced)
    assert cat.main(["-c", "c.toml", str(LOG), "--count", str(count)]) == 3
    out, err = capsysbinary.readouterr()
    first, second = [b"%d" % (10 + offset) for offset in range(10)], [b"%d" % (30 + offset) for offset in range(10)]
    assert out.splitlines() == (first + second)[:count]
    assert len(err.splitlines()) == losses, "what lies behind the last record is not told"


def test_a_count_that_is_more_than_there_is_prints_everything(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(client.client, "Client", Sequenced)
    assert cat.main(["-c", "c.toml", str(LOG), "--count", "1000"]) == 3
    assert len(capsysbinary.readouterr().out.splitlines()) == 100


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--count", "0"], "'0' is no number of records, which is 1 at least"),
        (["--count", "x"], "'x' is no number of records"),
        (["--count", "1", "--proof"], "not allowed with"),
    ],
)
def test_a_count_that_cannot_be_is_refused(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cat.main(["-c", "c.toml", str(LOG), *words])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ((), None),
        (("--location", "us.d.c.r.p"), "us.d.c.r.p"),
        (("--from-region", "us"), "us...."),
    ],
)
def test_the_client_stands_where_the_options_say(
    options: tuple[str, ...],
    place: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    places: list[str | None] = []

    class Placed(Sequenced):
        def __init__(self, *_: Any, location: Any, **__: Any) -> None:
            super().__init__()
            places.append(None if location is None else str(location))

    monkeypatch.setattr(client.client, "Client", Placed)
    cat.main(["-c", "c.toml", str(LOG), "--count", "1", *options])
    assert places == [place]


def test_a_place_is_said_in_one_way(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(SystemExit):
        cat.parser().parse_args(["-c", "c.toml", "1", "--location", "us....", "--from-region", "us"])
    assert b"not allowed with" in capsysbinary.readouterr().err
