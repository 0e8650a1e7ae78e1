"""Streams under the faults of the simulator; each rule that is left out is noticed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import pytest

from logdevice_py import START, Client, Position, SimulationFailed
from streams.attributes import StreamAttributes
from streams.commands import AcquireStream
from streams.lease_holder import LeaseHolder
from streams.leases import Lease
from streams.namespace import Namespace
from streams.reading import StreamReader
from streams.state import NamespaceState
from streams.stream import Stream
from streams.writers import ExclusiveWriter
from tests.simulation.causes import innermost
from tests.simulation.stream_names import names
from tests.simulation.stream_owners import OWNERS, owners
from tests.simulation.stream_truncations import stream_truncations
from tests.slow import quick

SEEDS = range(3)
CLUSTER: dict[str, Any] = {"nodes": 5, "replicate": "node:3", "log_tree": True, "virtual_seconds": 3000}


def test_one_owner_at_a_time_whatever_breaks(simulate: Callable[..., Any]) -> None:
    runs = [simulate(owners, seed=seed, faults="all", **CLUSTER) for seed in SEEDS]
    outcomes: Counter[str] = sum((told.outcomes for told in runs), Counter())
    assert outcomes["OK"] > 60, outcomes
    assert outcomes["FENCED"] > 5, outcomes
    assert sum(told.late for told in runs) > 5
    assert sum(told.token for told in runs) > len(runs) * OWNERS


def _without_fence(patch: pytest.MonkeyPatch) -> None:
    """An owner does not raise the fence of the log."""

    async def nothing(self: ExclusiveWriter) -> None:
        pass

    patch.setattr(ExclusiveWriter, "_raise_fence", nothing)


def _same_token(patch: pytest.MonkeyPatch) -> None:
    """The next owner gets the token of the one before."""

    def acquire(self: NamespaceState, wanted: AcquireStream) -> bytes:
        entry = self._live(wanted.number)
        entry.last_token = 1
        entry.lease = Lease(wanted.owner, 1, wanted.lease_us)
        packed: bytes = msgpack.packb(1)
        return packed

    patch.setattr(NamespaceState, "_acquire", acquire)


def _without_token(patch: pytest.MonkeyPatch) -> None:
    """An owner shows the greatest token that anybody has, not its own."""

    def shown(self: ExclusiveWriter) -> int | None:
        entry = self._stream.namespace.state.streams.get(self._stream.number)
        return None if entry is None else entry.last_token

    patch.setattr(ExclusiveWriter, "_fence", property(shown, lambda self, value: None), raising=False)


FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("the fence is not raised", _without_fence, "rule [12]"),
    ("a token is given again", _same_token, "rule 2"),
    ("an owner shows another's token", _without_token, "rule [12]"),
]


@pytest.mark.parametrize(("put", "rule"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_each_rule_of_owners_that_is_left_out_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, put: Callable[[pytest.MonkeyPatch], None], rule: str
) -> None:
    put(monkeypatch)

    def hunt() -> None:
        for seed in range(10):
            simulate(owners, seed=seed, **CLUSTER)

    with pytest.raises((SimulationFailed, AssertionError), match=rule):
        hunt()


@pytest.mark.parametrize("seed", quick(SEEDS, 1))
def test_owners_who_wait_for_no_lease_break_no_rule(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Leases only choose who tries: an owner that lives is superseded all the time, and each of its later writes is refused."""

    async def take_at_once(self: LeaseHolder, wait_us: int | None = None) -> None:
        await self._stop()
        await self._namespace.current()
        while not await self._try(self._commands.look()):
            pass
        self.renewing = self._namespace.client.loop.create_task(self._renew())

    monkeypatch.setattr(LeaseHolder, "acquire", take_at_once)
    told = simulate(owners, seed=seed, **CLUSTER)
    assert told.late > 5
    assert told.outcomes["FENCED"] > 5, told.outcomes
    assert told.outcomes["OK"] > 5, told.outcomes


@pytest.mark.parametrize("seed", SEEDS)
def test_a_name_means_one_stream_whatever_breaks(simulate: Callable[..., Any], seed: int) -> None:
    outcomes = simulate(names, seed=seed, faults="all", **CLUSTER)
    assert outcomes["OK"] >= 6, outcomes


CLOCKS: dict[str, Any] = {
    "faults": ("wall_clock_jump", "crash_process", "crash_machine", "pause"), "fault_interval": 0.5, **CLUSTER,
}  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_truncations_are_taken_back_and_times_never_fall_whatever_clocks_say(
    simulate: Callable[..., Any], seed: int
) -> None:
    told = simulate(stream_truncations, seed=seed, **CLOCKS)
    assert len(told.acknowledged) > 30
    assert told.cuts


def _trims_what_is_truncated(patch: pytest.MonkeyPatch) -> None:
    """What is truncated is trimmed at once."""
    truncate = Stream.truncate

    async def trim(self: Stream, position: Position, **options: Any) -> None:
        await truncate(self, position, **options)
        await self.namespace.client.trim(self.log, position.lsn - 1)

    patch.setattr(Stream, "truncate", trim)


def _reads_what_is_truncated(patch: pytest.MonkeyPatch) -> None:
    """A reader begins where it is told, truncated or not."""

    async def open_anywhere(self: StreamReader, timeout: float | None) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Stream, "min_active", START)
            await opened(self, timeout)

    opened = StreamReader._open
    patch.setattr(StreamReader, "_open", open_anywhere)


def _ends_nothing(patch: pytest.MonkeyPatch) -> None:
    """Who ends a stream says so, and the log goes on."""

    async def nothing(self: Client, log: int, **options: Any) -> None:
        pass

    patch.setattr(Client, "mark_end", nothing)


TRUNCATION_FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("what is truncated is trimmed", _trims_what_is_truncated, "rule 1"),
    ("readers do not look where the stream begins", _reads_what_is_truncated, "rule 3"),
    ("the log of a stream that ended goes on", _ends_nothing, "rule 5"),
]


@pytest.mark.parametrize(
    ("put", "rule"), [fault[1:] for fault in TRUNCATION_FAULTS], ids=[fault[0] for fault in TRUNCATION_FAULTS]
)
def test_each_rule_of_truncations_that_is_left_out_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, put: Callable[[pytest.MonkeyPatch], None], rule: str
) -> None:
    put(monkeypatch)

    def hunt() -> None:
        for seed in range(5):
            simulate(stream_truncations, seed=seed, **CLUSTER)

    with pytest.raises((SimulationFailed, AssertionError)) as failed:
        hunt()
    assert re.search(rule, str(innermost(failed.value))), failed.value


def test_a_log_that_a_deleted_stream_leaves_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(self: Namespace, path: str, timeout: float | None) -> None:
        pass

    monkeypatch.setattr(Namespace, "_remove_group", nothing)

    def hunt() -> None:
        for seed in range(5):
            simulate(names, seed=seed, **CLUSTER)

    with pytest.raises(SimulationFailed, match="rule 5"):
        hunt()


def test_times_that_a_sequencer_takes_from_its_own_clock_alone_are_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = StreamAttributes.own_log_attributes
    monkeypatch.setattr(
        StreamAttributes,
        "own_log_attributes",
        lambda self: {name: value for name, value in own(self).items() if name != "ordered_time"},
    )

    def hunt() -> None:
        for seed in range(10):
            simulate(stream_truncations, seed=seed, **CLOCKS)

    with pytest.raises(SimulationFailed, match="rule 4"):
        hunt()
