"""Seeds and the committed corpus go through every decoder without a finding, and the check notices what it is there for."""

from __future__ import annotations

import pytest

from logdevice_py.core.status import CorruptEntryError
from tests.fuzz.checking import RoundTripError, Target, check
from tests.fuzz.corpus import committed
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_what_fuzzing_kept_is_taken_or_refused_as_declared(name: str) -> None:
    target = TARGETS[name]
    inputs = [*target.seeds(), *committed(name)]
    assert inputs
    for data in inputs:
        finding = check(target, data, slack=4.0)
        assert finding is None, f"{finding.where} of {data!r:.200}\n{finding.text}"


@pytest.mark.parametrize("name", [name for name in TARGETS if TARGETS[name].declared])
def test_most_seeds_are_valid(name: str) -> None:
    """A seed that is refused at once would lead the fuzzer nowhere."""
    target = TARGETS[name]
    taken = 0
    for data in target.seeds():
        try:
            target.run(data)
        except target.declared:
            continue
        taken += 1
    assert taken * 2 >= len(target.seeds())


def _refuse(data: bytes) -> None:
    raise CorruptEntryError("as declared")


def _fail(data: bytes) -> None:
    [][0]


def _differ(data: bytes) -> None:
    raise RoundTripError("not equal")


def _take_memory(data: bytes) -> None:
    bytearray(100 << 20)


def _take_time(data: bytes) -> None:
    sum(range(9_000_000))


@pytest.mark.parametrize(
    ("run", "kind", "where"),
    [
        (_refuse, None, ""),
        (_fail, "exception", "IndexError at tests/fuzz/test_corpus.py"),
        (_differ, "exception", "RoundTripError at"),
        (_take_memory, "memory", "MemoryError at"),
        (_take_time, "slow", "ms for 1 bytes"),
    ],
)
def test_the_check_finds_what_is_not_declared(run: object, kind: str | None, where: str) -> None:
    target = Target("test", run, list, (CorruptEntryError,))  # type: ignore[arg-type]
    finding = check(target, b"x")
    assert (finding and finding.kind) == kind
    assert finding is None or where in finding.where
