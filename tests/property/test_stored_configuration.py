"""Stored configurations: what is stored reads back, bytes of others do no worse than being refused, and versions never go back."""

from __future__ import annotations

import contextlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from logdevice_py.config.stored import (
    ENCODED_MAX,
    TEXT_MAX,
    VERSIONS_MAX,
    ConfigurationVersion,
    StoredConfiguration,
    ToNextConfiguration,
    followed_by,
)
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Timestamp

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@st.composite
def configurations(draw: st.DrawFn) -> StoredConfiguration:
    numbers = sorted(draw(st.sets(st.integers(1, 2**63 - 1), min_size=1, max_size=VERSIONS_MAX)))
    return StoredConfiguration(
        tuple(
            ConfigurationVersion(number, Timestamp(draw(st.integers(0, 2**53))), draw(TEXT), draw(TEXT), draw(TEXT))
            for number in numbers
        )
    )


@given(configurations())
def test_what_is_stored_reads_back(configuration: StoredConfiguration) -> None:
    assert StoredConfiguration.decode(configuration.encode()) == configuration


@settings(max_examples=50)
@given(configurations(), st.data())
def test_damaged_bytes_are_refused_or_read_as_versions_that_ascend(
    configuration: StoredConfiguration, data: st.DataObject
) -> None:
    encoded = bytearray(configuration.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = StoredConfiguration.decode(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))
    except CorruptEntryError:
        return
    numbers = [each.version for each in found.versions]
    assert numbers == sorted(set(numbers))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_refused(raw: bytes) -> None:
    with contextlib.suppress(CorruptEntryError):
        StoredConfiguration.decode(raw)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_no_two_changes_of_one_version_are_both_made_and_versions_only_grow(steps: list[tuple[int, bool]]) -> None:
    """Several operators, each with what he read last; a store that is put back to an older state in between."""
    stored: StoredConfiguration | None = None
    read = [0, 0, 0, 0]
    made: list[int] = []
    in_force = 0
    for operator, reads in steps:
        newest = max(in_force, 0 if stored is None else stored.version)
        if reads:
            read[operator] = newest
            continue
        base = read[operator]
        if base != newest:  # as whoever is asked finds
            continue
        change = ConfigurationVersion(base + 1, Timestamp(0), f"{operator}", "", "")
        after = ToNextConfiguration(base, change)(stored)
        assert isinstance(after, StoredConfiguration)
        made.append(after.version)
        in_force = after.version
        before, stored = stored, after
        if operator == 3:
            stored = before  # restored from a copy
    assert made == sorted(set(made))


def test_the_oldest_versions_go_when_there_are_too_many_or_they_take_too_much() -> None:
    stored: StoredConfiguration | None = None
    for number in range(1, VERSIONS_MAX + 6):
        stored = followed_by(stored, ConfigurationVersion(number, Timestamp(0), "", "", f"version = {number}"))
        assert stored is not None
    assert [each.version for each in stored.versions] == list(range(6, VERSIONS_MAX + 6))
    rng = random.Random(1)
    for number in (100, 101, 102):
        large = rng.randbytes(200_000).hex()  # two fit
        stored = followed_by(stored, ConfigurationVersion(number, Timestamp(0), "", "", large))
        assert stored is not None
        assert len(stored.encode()) <= ENCODED_MAX
        assert stored.version == number
    assert [each.version for each in stored.versions] == [101, 102]
    assert followed_by(None, ConfigurationVersion(1, Timestamp(0), "", "", rng.randbytes(520_000).hex())) is None
    assert followed_by(None, ConfigurationVersion(1, Timestamp(0), "", "", "x" * (TEXT_MAX + 1))) is None


def test_who_read_an_older_version_is_refused() -> None:
    stored = followed_by(None, ConfigurationVersion(5, Timestamp(0), "ann", "", ""))
    change = ToNextConfiguration(4, ConfigurationVersion(5, Timestamp(0), "bob", "", ""))
    assert change(stored) is Status.STALE
    assert isinstance(
        ToNextConfiguration(9, ConfigurationVersion(10, Timestamp(0), "bob", "", ""))(stored), StoredConfiguration
    )
