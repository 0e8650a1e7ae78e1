"""The instants of all processes put together: spans, clocks that differ, and appends that cannot be followed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from benchmarks.ldbench.append_waterfall import (
    CLIENT,
    ProcessInstant,
    TracedAppend,
    as_svg,
    as_text,
    clock_offsets,
    waterfall,
)

US = 1000


def instants_of_append(lsn: int, called: int, *, waves: int = 1) -> list[ProcessInstant]:
    """An append at N0, which keeps a copy, with others at N1 and N2 (the slower), read from N1. Moments in microseconds since the call."""
    found: list[ProcessInstant] = []

    def note(process: str, at: int, event: str, **more: object) -> None:
        found.append(ProcessInstant(process, (called + at) * US, event, log=1, lsn=lsn, **more))  # type: ignore[arg-type]

    found.append(ProcessInstant(CLIENT, (called + 5) * US, "APPEND_SENT", log=1, peer="N0", request_id=lsn))
    found.append(ProcessInstant("N0", (called + 15) * US, "APPEND_RECEIVED", log=1, peer="C1", request_id=lsn))
    for wave in range(1, waves + 1):
        for node in (1, 2):
            note("N0", 20, "STORE_SENT", peer=f"N{node}", shard=f"N{node}:S0", wave=wave)
    note("N0", 30, "WRITTEN", shard="N0:S0", took_ns=4 * US)
    found.append(ProcessInstant("N0", (called + 60) * US, "SYNCED", shard="N0:S0", took_ns=20 * US))
    note("N0", 70, "DURABLE", shard="N0:S0")
    for node, late in ((1, 0), (2, 100)):
        shard = f"N{node}:S0"
        note(f"N{node}", 40 + late, "STORE_RECEIVED", peer="N0", shard=shard, wave=1)
        note(f"N{node}", 55 + late, "WRITTEN", shard=shard, took_ns=5 * US)
        found.append(ProcessInstant(f"N{node}", (called + 85 + late) * US, "SYNCED", shard=shard, took_ns=20 * US))
        note(f"N{node}", 95 + late, "DURABLE", shard=shard)
        note(f"N{node}", 100 + late, "STORED_SENT", peer="N0", shard=shard, wave=1)
        note("N0", 112 + late, "STORED_RECEIVED", peer=f"N{node}", shard=shard, wave=1)
    note("N0", 220, "APPENDED_SENT", peer="C1", request_id=lsn, batch_offset=0)
    note(CLIENT, 233, "APPENDED_RECEIVED", peer="N0", request_id=lsn, batch_offset=0)
    note("N0", 221, "RELEASE_SENT", peer="N1", shard="N1:S0")
    note("N1", 232, "RELEASE_RECEIVED", peer="N0", shard="N1:S0")
    note("N1", 240, "RECORDS_SENT", peer="C1", shard="N1:S0")
    note(CLIENT, 255, "RECORDS_RECEIVED", peer="N1", shard="N1:S0")
    return found


def seen(lsn: int, called: int) -> TracedAppend:
    """What the application saw of it."""
    return TracedAppend(lsn, 0, called * US, (called + 240) * US, (called + 260) * US)


def apart(instants: list[ProcessInstant], ahead: Mapping[str, int]) -> list[ProcessInstant]:
    """The same by clocks that are so many microseconds ahead."""
    return [dataclasses.replace(each, at_ns=each.at_ns + ahead.get(each.process, 0) * US) for each in instants]


def instants_of_appends(count: int) -> tuple[list[ProcessInstant], list[TracedAppend]]:
    """One after the other."""
    instants = [each for number in range(count) for each in instants_of_append(100 + number, number * 1000)]
    return instants, [seen(100 + number, number * 1000) for number in range(count)]


def took(instants: list[ProcessInstant], appends: list[TracedAppend]) -> dict[tuple[str, str], tuple[float, float]]:
    return {(each.lane, each.label): (each.begin_us, each.took_us) for each in waterfall(instants, appends).spans}


def test_every_hop_has_its_place() -> None:
    instants, appends = instants_of_appends(3)
    assert took(instants, appends) == {
        ("client", "append() until it is sent"): (0, 5),
        ("client", "answer until append() returns"): (233, 7),
        ("to the sequencer", "APPEND"): (5, 10),
        ("sequencer", "turn: checks, position, image"): (15, 5),
        ("sequencer", "last copy until APPENDED leaves"): (212, 8),
        ("the sequencer's own copy", "turn: STOREs leave first"): (15, 11),
        ("the sequencer's own copy", "written to the store's log"): (26, 4),
        ("the sequencer's own copy", "until a sync begins"): (30, 10),
        ("the sequencer's own copy", "sync"): (40, 20),
        ("the sequencer's own copy", "back to the loop"): (60, 10),
        ("first other copy to answer", "STORE"): (20, 20),
        ("first other copy to answer", "turn: checks"): (40, 10),
        ("first other copy to answer", "written to the store's log"): (50, 5),
        ("first other copy to answer", "until a sync begins"): (55, 10),
        ("first other copy to answer", "sync"): (65, 20),
        ("first other copy to answer", "back to the loop"): (85, 10),
        ("first other copy to answer", "STORED is made"): (95, 5),
        ("first other copy to answer", "STORED"): (100, 12),
        ("second other copy to answer", "STORE"): (20, 120),
        ("second other copy to answer", "turn: checks"): (140, 10),
        ("second other copy to answer", "written to the store's log"): (150, 5),
        ("second other copy to answer", "until a sync begins"): (155, 10),
        ("second other copy to answer", "sync"): (165, 20),
        ("second other copy to answer", "back to the loop"): (185, 10),
        ("second other copy to answer", "STORED is made"): (195, 5),
        ("second other copy to answer", "STORED"): (200, 12),
        ("to the client", "APPENDED"): (220, 13),
        ("to the reader", "last copy until RELEASE leaves"): (212, 9),
        ("to the reader", "RELEASE"): (221, 11),
        ("to the reader", "read and sent"): (232, 8),
        ("to the reader", "RECORDS"): (240, 15),
        ("to the reader", "decoded until the reader's caller has it"): (255, 5),
    }
    found = waterfall(instants, appends)
    assert found.totals_us == {"acknowledged": (240, 240), "delivered": (260, 260)}
    assert found.last_copies == {"second other copy to answer": 3}
    assert not found.clocks


def test_clocks_that_are_far_apart_are_found_and_differences_below_a_round_trip_are_not_made_up() -> None:
    instants, appends = instants_of_appends(3)
    ahead = {"N0": 5_000_000, "N2": -70_000}
    offsets = clock_offsets(apart(instants, ahead))
    for process, expected in {CLIENT: 0, "N0": 5_000_000, "N1": 0, "N2": -70_000}.items():
        offset, error = offsets[process]
        assert abs(offset - expected * US) <= error, process
    assert {name for name, (offset, _) in offsets.items() if not offset} == {CLIENT}, "N1 is known by way of N0 alone"
    spans = took(apart(instants, ahead), appends)
    assert spans
    assert all(each >= 0 for _, each in spans.values()), "no message arrives before it was sent"
    assert clock_offsets(apart(instants, {"N0": 9})) == dict.fromkeys((CLIENT, "N0", "N1", "N2"), (0, 0))


def test_a_clock_of_which_nothing_is_known_is_told() -> None:
    instants, appends = instants_of_appends(1)
    instants.append(ProcessInstant("N9", 1, "WRITTEN", 1, 7, shard="N9:S0", took_ns=0))
    assert waterfall(instants, appends).clocks == {"N9": "not known: no messages both ways"}


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("APPEND_RECEIVED", "its way to the sequencer"),
        ("APPENDED_RECEIVED", "shared its frame"),
        ("WRITTEN", "its copies"),
    ],
)
def test_an_append_without_its_instants_is_counted_and_not_guessed(missing: str, why: str) -> None:
    instants, appends = instants_of_appends(2)
    kept = [each for each in instants if each.event != missing or (each.lsn != 101 and each.request_id != 101)]
    found = waterfall(kept, appends)
    assert found.appends == 1
    ((reason, count),) = found.lost.items()
    assert why in reason
    assert count == 1


def test_an_append_of_several_waves_is_left_out() -> None:
    found = waterfall(instants_of_append(100, 0, waves=2), [seen(100, 0)])
    assert found.lost == {"it took several waves": 1}
    assert found.spans == []


def test_a_sync_that_began_before_the_write_is_not_the_one_it_waited_for() -> None:
    instants, appends = instants_of_appends(1)
    instants.append(ProcessInstant("N0", 45 * US, "SYNCED", shard="N0:S0", took_ns=30 * US))
    instants.append(ProcessInstant("N0", 95 * US, "SYNCED", shard="N0:S0", took_ns=5 * US))  # after it was told
    assert took(instants, appends)["the sequencer's own copy", "sync"] == (40, 20)


def test_text_and_picture_have_every_span() -> None:
    instants, appends = instants_of_appends(2)
    found = waterfall(instants, appends)
    text, picture = as_text(found, "a <title>"), as_svg(found, "a <title>")
    for each in found.spans:
        assert each.label in text
        assert each.label in picture
    assert "a &lt;title&gt;" in picture
    assert picture.count("<rect") == len(found.spans) + 6  # the legend and the background
    assert as_text(waterfall([], []), "none").startswith("none\n")
