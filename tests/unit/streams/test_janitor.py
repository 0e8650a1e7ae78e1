"""A janitor and a log that notices at once when it is trimmed before that was committed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from client.guards import Position
from client.look_up.segments import LogSegment, SegmentState
from client.read.items import Gap, GapKind
from client.replica.commands import NOTHING, CommandOutcome, CommandRefused, StateVersion, refusal
from logdevice_py.core.ids import TREE_LOG_ID_MIN, LogId
from logdevice_py.core.lsn import LSN, Lsn, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp, utc_datetime
from streams.attributes import StreamAttributes
from streams.cold.copies import ColdCopy, ColdManifest
from streams.cold.errors import ColdCopyError
from streams.cold.file_format import FileIdentity
from streams.cold.restoring import sweep, verify_copies
from streams.cold.store import ColdStore, forget_memory_store
from streams.commands import CreateStream, NamespaceCommand, StreamCreated, TruncateStream, UntruncateStream, encode
from streams.state import NamespaceState, StreamEntry
from streams.upkeep.commands import AcquireUpkeep, ReleaseUpkeep, TrimCause
from streams.upkeep.janitor import Janitor
from streams.upkeep.state import StreamUpkeep
from streams.upkeep.verbs import unattended
from tests.unit.streams.cold_samples import CLUSTER, built

LOG = LogId(TREE_LOG_ID_MIN)


def lsn(epoch: int, esn: int) -> LSN:
    return LSN(compose_lsn(epoch, esn))


class ThreeSegments:
    """A client of a cluster with one log of three segments."""

    def __init__(self, state: NamespaceState) -> None:
        self._state = state
        self.trimmed = LSN(0)
        self.trimmed_early: list[LSN] = []
        """Up to where it was trimmed before that was committed."""
        self.completed = [1, 2]
        """Segments besides the third, which is in progress."""
        self.config = SimpleNamespace(uuid=UUID(CLUSTER).bytes)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def now(self) -> int:
        return time.monotonic_ns() // 1000

    async def segments(self, log: int) -> list[LogSegment]:
        def made(epoch: int, state: SegmentState, completed: int | None) -> LogSegment:
            known = (9, 9, 90, Timestamp(1), Timestamp(2))
            ends = None if completed is None else Timestamp(completed)
            return LogSegment(epoch, state, lsn(epoch, 1), lsn(epoch, 9), *known, ends, None, None, 0, True, LSN(0))

        completed = [made(epoch, SegmentState.COMPLETED, epoch * 10) for epoch in self.completed]
        return [*completed, made(3, SegmentState.IN_PROGRESS, None)]

    async def trim(self, log: int, to: int) -> None:
        if to > max(stream.upkeep.trimming_to for stream in self._state.streams.values() if stream.log == log):
            self.trimmed_early.append(LSN(to))
        self.trimmed = LSN(max(self.trimmed, to))


class NamespaceAtHand:
    """A namespace with one stream whose state is at hand."""

    path = "/streams"

    def __init__(self, **attributes: Any) -> None:
        self.state = NamespaceState()
        self.client = ThreeSegments(self.state)
        self.at = 0
        self.apply(CreateStream("a", attributes))
        self.apply(StreamCreated(1, LOG))

    def apply(self, command: NamespaceCommand) -> bytes:
        self.at += 1
        return self.state.apply(encode(command), StateVersion(Lsn(self.at), 0), Timestamp(1000))

    async def propose(self, command: NamespaceCommand, timeout: float | None = None) -> CommandOutcome:
        await asyncio.sleep(0)
        try:
            result = self.apply(command)
        except CommandRefused as error:
            raise LogDeviceError(*refusal(str(error)), retriable=False, maybe_applied=False) from None
        return CommandOutcome(NOTHING, True, result, "")

    async def current(self) -> None:
        pass

    async def wait_for_change(self, timeout: float | None) -> None:
        await asyncio.sleep(0)


async def kept(namespace: NamespaceAtHand) -> Janitor:
    janitor = Janitor(namespace, owner="one")  # type: ignore[arg-type]
    async with janitor:
        await janitor.round()
    assert namespace.client.trimmed_early == [], "trimmed before it was committed"
    return janitor


async def test_what_is_old_is_committed_and_then_trimmed() -> None:
    namespace = NamespaceAtHand(ttl_us=10)
    await kept(namespace)
    assert namespace.client.trimmed == namespace.state.streams[1].upkeep.trimming_to == lsn(2, 9)
    assert namespace.state.role.lease is None
    # another one trims again what the first may have left
    namespace.client.trimmed = LSN(0)
    await kept(namespace)
    assert namespace.client.trimmed == lsn(2, 9)


async def test_trimming_before_it_is_committed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Janitor._begin_trim

    async def eager(self: Janitor, entry: StreamEntry, to: LSN, cause: TrimCause) -> None:
        await self._client.trim(entry.log, to)
        await begin(self, entry, to, cause)

    monkeypatch.setattr(Janitor, "_begin_trim", eager)
    with pytest.raises(AssertionError, match="trimmed before it was committed"):
        await kept(NamespaceAtHand(ttl_us=10))


async def test_a_plan_that_forgets_copies_trims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Janitor, entry: StreamEntry, segments: object) -> int:
        return 0

    monkeypatch.setattr(Janitor, "_copy_all", nothing)
    monkeypatch.setattr("streams.upkeep.janitor.next_trim", lambda *_: (lsn(2, 9), TrimCause.EXPIRED))
    namespace = NamespaceAtHand(ttl_us=10, cold="file:///nowhere")
    await kept(namespace)
    assert namespace.client.trimmed == 0 == namespace.state.streams[1].upkeep.trimming_to


async def test_a_truncation_that_is_taken_back_meanwhile_is_not_trimmed() -> None:
    namespace = NamespaceAtHand(truncated_retention_us=1)
    namespace.apply(TruncateStream(1, Position(lsn(2, 5), 0)))
    begin = Janitor._begin_trim

    class Slow(Janitor):
        async def _begin_trim(self, entry: StreamEntry, to: LSN, cause: TrimCause) -> None:
            namespace.apply(UntruncateStream(1))
            await begin(self, entry, to, cause)

    janitor = Slow(namespace, owner="one")  # type: ignore[arg-type]
    async with janitor:
        await janitor.round()
    assert janitor.failures == {}
    assert namespace.client.trimmed == 0


async def test_whoever_lost_the_role_changes_nothing_more() -> None:
    namespace = NamespaceAtHand(ttl_us=10)
    janitor = Janitor(namespace, owner="one")  # type: ignore[arg-type]
    async with janitor:
        namespace.apply(
            AcquireUpkeep("two", 10_000_000, 1, namespace.state.role.lease.beats if namespace.state.role.lease else 0)
        )
        with pytest.raises(LogDeviceError) as raised:
            await janitor.round()
        assert raised.value.status is Status.FENCED
    assert namespace.client.trimmed == 0
    assert namespace.state.role.lease is not None
    assert namespace.state.role.lease.owner == "two"
    assert not await Janitor(namespace, owner="three", lease="1s").acquire(wait=False)  # type: ignore[arg-type]


async def test_what_nobody_expects_of_one_stream_leaves_the_others_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = NamespaceAtHand(ttl_us=10)
    # of an earlier version, which took any URL
    namespace.apply(CreateStream("b", {"cold": "s3://[oops/cold"}))
    namespace.apply(StreamCreated(2, LogId(LOG + 1)))
    namespace.apply(CreateStream("c", {"ttl_us": 10}))
    namespace.apply(StreamCreated(3, LogId(LOG + 2)))
    segments = namespace.client.segments

    async def broken(log: int) -> list[LogSegment]:
        if log == LOG:
            raise ZeroDivisionError("of one stream")
        return await segments(log)

    monkeypatch.setattr(namespace.client, "segments", broken)
    janitor = await kept(namespace)
    assert {name: error.status for name, error in janitor.failures.items()} == {
        "a": Status.INTERNAL,
        "b": Status.INVALID_PARAM,
    }
    assert "ZeroDivisionError: of one stream" in str(janitor.failures["a"])
    assert namespace.state.streams[3].upkeep.trimming_to == lsn(2, 9)


async def test_who_gets_the_role_again_shows_life_once_at_a_time() -> None:
    namespace = NamespaceAtHand(ttl_us=10)
    janitor = Janitor(namespace, owner="one")  # type: ignore[arg-type]
    await janitor.acquire()
    former = janitor.token
    namespace.apply(ReleaseUpkeep(former))
    await janitor.acquire()
    assert janitor.token > former
    assert [task.get_name() for task in asyncio.all_tasks()].count("janitor of /streams") == 1
    await janitor.release()
    assert janitor.token == 0
    assert namespace.state.role.lease is None


# Sweeps


async def copy_of_a_hole(
    client: object, store: ColdStore, log: LogId, first: LSN, last: LSN, *, token: str, **_: Any
) -> ColdCopy:
    """In place of `copy_range`: there is no cluster to read from."""
    file = built([[Gap(GapKind.HOLE, first, last)]], FileIdentity(CLUSTER, log, "a"), first)
    manifest = ColdManifest(CLUSTER, log, token, "a", (file.described,))
    copy = manifest.copy()
    store.put(f"{copy.folder}/{file.described.name}", file.data)
    store.put(copy.manifest_name, manifest.encode())
    return copy


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ColdStore]:
    monkeypatch.setattr("streams.upkeep.janitor.copy_range", copy_of_a_hole)
    yield ColdStore("memory://janitor")
    forget_memory_store("janitor")


def role_is_lost(namespace: NamespaceAtHand, janitor: Janitor, round_: asyncio.Task[int]) -> None:
    """It shows no life, and another one may take over; it does not know."""
    namespace.apply(ReleaseUpkeep(janitor.token))


def round_is_cancelled(namespace: NamespaceAtHand, janitor: Janitor, round_: asyncio.Task[int]) -> None:
    """As when its process ends in order, or the namespace is closed."""
    round_.cancel()


Trouble = Callable[[NamespaceAtHand, Janitor, "asyncio.Task[int]"], None]


async def damage_of_a_late_sweep(store: ColdStore, trouble: Trouble, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong with committed copies after one was committed while the thread of an earlier holder was about to sweep."""
    namespace = NamespaceAtHand(cold="memory://janitor", ttl_us=10)
    namespace.client.completed = [1]
    await kept(namespace)
    began, goes_on, ended = threading.Event(), threading.Event(), threading.Event()

    def held_up(*arguments: Any, **options: Any) -> list[str]:
        began.set()
        goes_on.wait()
        try:
            return sweep(*arguments, **options)
        finally:
            ended.set()

    one = Janitor(namespace, owner="one")  # type: ignore[arg-type]
    await one.acquire()
    with monkeypatch.context() as patch:
        patch.setattr("streams.upkeep.janitor.sweep", held_up)
        round_ = asyncio.create_task(one.round())
        assert await asyncio.to_thread(began.wait, 30)
    trouble(namespace, one, round_)
    if round_.cancelling():
        await asyncio.gather(round_, return_exceptions=True)
        await one.release()
    namespace.client.completed = [1, 2]
    try:
        await kept(namespace)
        copies = [each.copy for each in namespace.state.streams[1].upkeep.copies]
        assert [copy.token for copy in copies] == ["a1", "a2"]
        assert namespace.client.trimmed == lsn(2, 9)
    finally:
        goes_on.set()
        await asyncio.to_thread(ended.wait)
        await asyncio.gather(round_, return_exceptions=True)
        await one.release()
    return await verify_copies(store, copies)


@pytest.mark.parametrize("trouble", [role_is_lost, round_is_cancelled], ids=lambda each: each.__name__)
async def test_a_late_sweep_leaves_what_another_holder_committed(
    store: ColdStore, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await damage_of_a_late_sweep(store, trouble, monkeypatch) == []


async def test_a_late_sweep_of_all_that_it_does_not_know_is_noticed(
    store: ColdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamUpkeep, "over", None)
    (wrong,) = await damage_of_a_late_sweep(store, role_is_lost, monkeypatch)
    assert "a2" in wrong


async def test_a_sweep_takes_what_an_attempt_left_that_is_over(
    store: ColdStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*arguments: Any, **options: Any) -> ColdCopy:
        await copy_of_a_hole(*arguments, **options)
        raise ColdCopyError(Status.BADPAYLOAD, "it reads back as another one")

    namespace = NamespaceAtHand(cold="memory://janitor")
    with monkeypatch.context() as patch:
        patch.setattr("streams.upkeep.janitor.copy_range", fails)
        janitor = await kept(namespace)
    assert [*janitor.failures] == ["a"]
    assert len(store.objects()) == 2
    await kept(namespace)
    copies = [each.copy for each in namespace.state.streams[1].upkeep.copies]
    assert {each.name.rpartition("/")[0] for each in store.objects()} == {copy.folder for copy in copies}
    assert [copy.token for copy in copies] == ["a2", "a3"]


async def test_a_store_that_cannot_be_written_to_is_told(tmp_path: Path, store: ColdStore) -> None:
    del store  # copies are made without a cluster
    (tmp_path / "disk").symlink_to(tmp_path / "not mounted")
    namespace = NamespaceAtHand(cold=f"file://{tmp_path}/disk/cold")
    janitor = await kept(namespace)
    error = janitor.failures["a"]
    assert (error.status, error.retriable) == (Status.CONNFAILED, True)
    assert namespace.state.role.did.startswith(f"a: failed: CONNFAILED: file://{tmp_path}/disk/cold/")


async def test_a_file_of_a_copy_that_is_gone_is_told(store: ColdStore, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*arguments: Any, **options: Any) -> ColdCopy:
        raise ColdCopyError(Status.NOTFOUND, "memory://janitor/x is not there")

    del store
    monkeypatch.setattr("streams.upkeep.janitor.copy_range", fails)
    namespace = NamespaceAtHand(cold="memory://janitor")
    janitor = await kept(namespace)
    assert [*janitor.failures] == ["a"]
    assert namespace.state.role.did == "a: failed: NOTFOUND: memory://janitor/x is not there"


async def test_people_are_told_of_a_janitor_that_died() -> None:
    namespace = NamespaceAtHand(ttl_us=10)
    janitor = Janitor(namespace, owner="one", lease="5s")  # type: ignore[arg-type]
    stream: Any = SimpleNamespace(attributes=StreamAttributes(ttl_us=10))

    def told(after_us: int) -> str | None:
        now = utc_datetime(Timestamp(namespace.state.role.at + after_us))
        return unattended(namespace, stream, now)  # type: ignore[arg-type]

    assert told(0) == "no janitor runs for /streams, so nothing is done for ttl: start ldstream janitor"
    async with janitor:
        assert told(14_000_000) is None
        assert told(16_000_000) == (
            "the janitor of /streams, one, has shown no life since 1970-01-01T00:00:00Z, so nothing is done for ttl: start ldstream janitor"
        )
        stream.attributes = StreamAttributes()
        assert told(16_000_000) is None
