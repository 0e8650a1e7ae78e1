"""A reader across cold copies and the cluster goes on where it failed, or was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from client.read.items import DataLoss, Gap, GapKind
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from streams.cold.copies import ColdCopy, ColdManifest
from streams.cold.errors import ColdCopyError
from streams.cold.seam_reader import SeamReader
from streams.cold.store import ColdStore, forget_memory_store
from tests.unit.streams.cold_samples import CLUSTER, built, entry

BRIDGE = Gap(GapKind.BRIDGE, LSN(10), LSN(10))
PAYLOADS = [b"r%d" % at for at in range(1, 10)]


class Live:
    """A reader of a log of which LSNs 1 to 9 are gone."""

    log = 7

    def __init__(self, gap: Gap) -> None:
        self._items = [gap, BRIDGE]

    async def read_entries(self, entries: int, timeout: float | None = None) -> list[Gap]:
        items, self._items = self._items, []
        return items


class Flaky:
    """Copies of LSNs 1 to 9, two files of which the second, or the question for them, fails the first time."""

    def __init__(self, store: ColdStore) -> None:
        self.store = store
        files = [
            built([[entry(at, PAYLOADS[at - 1]) for at in part]], first=part[0]) for part in (range(1, 6), range(6, 10))
        ]
        manifest = ColdManifest(CLUSTER, 7, "a1", "orders", tuple(file.described for file in files))
        self.copy = manifest.copy()
        for file in files:
            store.put(f"{self.copy.folder}/{file.described.name}", file.data)
        store.put(self.copy.manifest_name, manifest.encode())
        self.second = files[1].described.name
        self.asked = 0

    async def copies(self) -> Sequence[ColdCopy]:
        self.asked += 1
        return [self.copy]

    def reader(self, kind: GapKind, copies: Callable[[], Awaitable[Sequence[ColdCopy]]] | None = None) -> SeamReader:
        live = Live(Gap(kind, LSN(1), LSN(9), DataLoss(True, ()) if kind is GapKind.DATALOSS else None))
        client: Any = SimpleNamespace(reader=lambda *_, **__: live, config=SimpleNamespace(group=lambda log: None))
        return SeamReader(client, self.store, 7, copies or self.copies, 1, 10)


@pytest.fixture
def flaky() -> Iterator[Flaky]:
    yield Flaky(ColdStore("memory://seam"))
    forget_memory_store("seam")


async def the_rest(reader: SeamReader) -> tuple[list[bytes | None], list[Gap]]:
    payloads: list[bytes | None] = []
    gaps: list[Gap] = []
    while batch := await reader.read():
        payloads += batch.payloads
        gaps += batch.gaps
    return payloads, gaps


KINDS = pytest.mark.parametrize("kind", [GapKind.TRIM, GapKind.DATALOSS])


@KINDS
async def test_a_copy_that_could_not_be_read_is_read_by_the_next_call(
    flaky: Flaky, kind: GapKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    get, failing = flaky.store.get, [True]

    def get_later(name: str, size: int) -> bytes:
        if name.endswith(flaky.second) and failing:
            failing.pop()
            raise ColdCopyError(Status.CONNFAILED, "503 slow down", maybe_applied=False)
        return get(name, size)

    monkeypatch.setattr(flaky.store, "get", get_later)
    reader = flaky.reader(kind)
    assert (await reader.read()).payloads == PAYLOADS[:5]
    with pytest.raises(ColdCopyError, match="slow down"):
        await reader.read()
    assert await the_rest(reader) == (PAYLOADS[5:], [BRIDGE])
    assert flaky.asked == 2


@KINDS
async def test_copies_that_were_not_told_are_asked_for_again(flaky: Flaky, kind: GapKind) -> None:
    async def copies() -> Sequence[ColdCopy]:
        if not await flaky.copies() or flaky.asked == 1:
            raise LogDeviceError(Status.TIMEDOUT, "the namespace is not current in time", maybe_applied=False)
        return [flaky.copy]

    reader = flaky.reader(kind, copies)
    with pytest.raises(LogDeviceError, match="not current"):
        await reader.read()
    assert await the_rest(reader) == (PAYLOADS, [BRIDGE])


@KINDS
async def test_a_read_that_is_cancelled_loses_nothing(
    flaky: Flaky, kind: GapKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = flaky.reader(kind)
    assert (await reader.read()).payloads == PAYLOADS[:5]
    under_way = asyncio.Event()

    async def never(*arguments: object) -> None:
        under_way.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "to_thread", never)
        reading = asyncio.create_task(reader.read())
        await under_way.wait()
        reading.cancel()
        assert isinstance((await asyncio.gather(reading, return_exceptions=True))[0], asyncio.CancelledError)
    assert await the_rest(reader) == (PAYLOADS[5:], [BRIDGE])


async def test_a_gap_that_is_damaged_in_a_copy_stays_in_the_way(flaky: Flaky, monkeypatch: pytest.MonkeyPatch) -> None:
    flaky.store.delete(f"{flaky.copy.folder}/{flaky.second}")
    reader = flaky.reader(GapKind.TRIM)
    assert (await reader.read()).payloads == PAYLOADS[:5]
    for _ in range(2):
        with pytest.raises(ColdCopyError) as raised:
            await reader.read()
        assert raised.value.status is Status.NOTFOUND
