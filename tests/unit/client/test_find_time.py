"""`find_time` on logs whose sequencers' clocks agree, and on those whose clocks do not."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

import client.reader
from client.reader import find_time
from logdevice_py.core.lsn import LSN

Entries = dict[int, int]
"""Timestamp by LSN."""


def lsn(epoch: int, esn: int) -> int:
    return epoch << 32 | esn


class ReaderOfEntries:
    """Reads a dictionary."""

    def __init__(self, log: Any, _: Any, start: int, until: int) -> None:
        self._found = [(at, stamp) for at, stamp in sorted(log.entries.items()) if start <= at <= until]

    async def __aenter__(self) -> ReaderOfEntries:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def read(self, max_records: int) -> Any:
        taken, self._found = self._found[:max_records], self._found[max_records:]
        return SimpleNamespace(runs=[SimpleNamespace(lsn=at, timestamp=stamp) for at, stamp in taken]) if taken else ()


class LogOfEntries:
    def __init__(self, entries: Entries, tail: int) -> None:
        self.entries = entries
        self._tail = tail

    async def tail_lsn(self, log: int) -> LSN:
        return LSN(self._tail)


@pytest.fixture(autouse=True)
def _read_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.reader, "Reader", ReaderOfEntries)


def find(entries: Entries, when: int, tail: int | None = None) -> int:
    log = LogOfEntries(entries, max(entries, default=0) if tail is None else tail)
    return asyncio.run(find_time(log, 1, when))  # type: ignore[arg-type]


def drawn(rng: random.Random, *, clocks_agree: bool) -> Entries:
    entries, stamp = {}, 1000
    for epoch in sorted(rng.sample(range(1, 12), rng.randrange(1, 6))):
        if not clocks_agree:
            stamp = rng.randrange(2000)
        for esn in sorted(rng.sample(range(1, 40), rng.randrange(12))):
            stamp += rng.choice([0, 1, 10])
            entries[lsn(epoch, esn)] = stamp
    return entries


def test_an_empty_log_has_everything_behind_its_tail() -> None:
    assert find({}, 5) == 1
    assert find({}, 5, tail=lsn(3, 0)) == lsn(3, 1)


@pytest.mark.parametrize("seed", range(40))
def test_the_answer_is_the_first_entry_not_older_when_clocks_agree(seed: int) -> None:
    rng = random.Random(seed)
    entries = drawn(rng, clocks_agree=True)
    tail = max(entries, default=0)
    for when in {stamp + more for stamp in entries.values() for more in (-1, 0, 1)}:
        expected = min((at for at, stamp in entries.items() if stamp >= when), default=tail + 1)
        assert find(entries, when) == expected


@pytest.mark.parametrize("seed", range(40))
def test_the_entry_before_the_answer_is_older_also_when_clocks_went_back(seed: int) -> None:
    rng = random.Random(seed)
    entries = drawn(rng, clocks_agree=False)
    at = sorted(entries)
    for when in {stamp + more for stamp in entries.values() for more in (-1, 0, 1)}:
        found = find(entries, when)
        if found in entries:
            assert entries[found] >= when
        else:
            assert found == at[-1] + 1
        before = [each for each in at if each < found]
        assert not before or entries[before[-1]] < when
