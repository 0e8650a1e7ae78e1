"""The manifest refuses what would lose, double or reorder modifications, and a refused command changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from client.replica.commands import CommandRefused, StateVersion
from indexlog.manifest.commands import (
    AddGeneration,
    BeginJob,
    Deal,
    DropIndex,
    EndGeneration,
    EndJob,
    Forget,
    Initialize,
    ManifestCommand,
    OutputFile,
    Replace,
    ReplacedRun,
    ReplaceRuns,
    SliceEntry,
    decode_manifest_command,
    encode_manifest_command,
)
from indexlog.manifest.parts import IndexFloor, JobKind, Part, PartKind
from indexlog.manifest.state import JOBS_MAX, PASSED_MAX, ManifestState
from tests.golden.index_log import COMMANDS, manifest_of

SLICES = [SliceEntry("books", 2, 300, 5)]


def apply(state: ManifestState, *commands: ManifestCommand) -> ManifestState:
    for command in commands:
        state.apply(encode_manifest_command(command), StateVersion(1, 0), 7)
    return state


def dealt(count: int = 3) -> ManifestState:
    """Slices of one index from log 1, by job 1; log 2 is empty."""
    deals = [Deal(1, 1, number, number, 0, 0, f"1/{number}", SLICES) for number in range(1, count + 1)]
    return apply(ManifestState(), Initialize("memory", [1, 2]), BeginJob(), *deals)


def check_refused(state: ManifestState, command: ManifestCommand, text: str) -> None:
    before = state.encode()
    with pytest.raises(CommandRefused, match=text):
        apply(state, command)
    assert state.encode() == before


def keys(*numbers: int) -> list[tuple[str, int]]:
    return [(f"1/{number}", 0) for number in numbers]


SORTED = OutputFile("1/s", PartKind.SORTED, 2, 100, 5)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (Initialize("memory", [3]), "EXISTS"),
        (EndJob(2), "PREEMPTED: job 2 has ended"),
        (Deal(2, 1, 4, 4, 0, 0, "2/x", SLICES), "PREEMPTED"),
        (Deal(1, 1, 3, 4, 0, 0, "1/x", SLICES), "STALE: log 1 is dealt up to 3, not up to 2"),
        (Deal(1, 1, 5, 5, 0, 0, "1/x", SLICES), "STALE: log 1 is dealt up to 3, not up to 4"),
        (Deal(1, 7, 1, 1, 0, 0, "1/x", SLICES), "STALE: log 7"),
        (Deal(1, 1, 4, 3, 0, 0, "1/x", SLICES), "INVALID_PARAM: log 1: 3 is not"),
        (Deal(1, 1, 4, 4, 1, 0, "1/x", SLICES), "AGAIN: an index was dropped"),
        (Deal(1, 1, 4, 4, 0, 0, "1/x", []), "without slices"),
        (Deal(1, 1, 4, 4, 0, 0, "", SLICES), "without slices"),
        (Deal(1, 1, 4, 4, 0, 0, "1/x", [*SLICES, *SLICES]), "an index twice"),
        (Deal(1, 1, 4, 4, 0, 0, "2/x", SLICES), "was not written by job 1"),
        (Deal(1, 1, 4, 4, 0, 0, "../x", SLICES), "path of a file"),
        (Replace(2, "books", keys(1), True, [SORTED]), "PREEMPTED"),
        (Replace(1, "books", keys(4), False, [SORTED]), "STALE: index books: the first input"),
        (Replace(1, "songs", keys(1), False, [SORTED]), "STALE: index songs: the first input"),
        (Replace(1, "books", keys(1, 3), False, [SORTED]), "STALE: index books: the inputs are not live, or not side"),
        (Replace(1, "books", keys(3, 4), False, [SORTED]), "STALE: index books: the inputs are not live, or not side"),
        (Replace(1, "books", keys(2, 1), False, [SORTED]), "STALE: index books: the inputs are not live, or not side"),
        (Replace(1, "books", [], False, [SORTED]), "STALE"),
        (Replace(1, "books", keys(2, 3), True, [SORTED]), "deletes cannot go, there are older parts"),
        (Replace(1, "books", keys(1), False, []), "nothing replaces parts"),
        (Replace(1, "books", keys(1), True, [SORTED._replace(path="2/s")]), "was not written by job 1"),
        (Forget(4), "not reached yet"),
        (DropIndex("books", [(1, 9)]), "STALE: the raw logs are other ones"),
        (AddGeneration([2, 3]), "one generation only"),
        (EndGeneration(0, [9, 9]), "the last generation cannot end"),
        (EndGeneration(1, [9, 9]), "STALE: generation 1 has ended"),
    ],
)
def test_what_would_do_harm_is_refused(command: ManifestCommand, text: str) -> None:
    check_refused(dealt(), command, text)


def test_before_there_is_an_index_log_nothing_else_is_applied() -> None:
    check_refused(ManifestState(), BeginJob(), "NOTFOUND")


def test_other_bytes_are_no_command() -> None:
    for data in (b"", b"\xc1", b"\x90", b"\x92\x01\x02", b"\x92\x02\x63", b"\x93\x02\x02\x05"):
        with pytest.raises(CommandRefused):
            dealt().apply(data, StateVersion(1, 0), 7)


def test_a_snapshot_is_what_it_was_made_of_and_other_bytes_are_none() -> None:
    for count in range(len(COMMANDS) + 1):
        state = manifest_of(COMMANDS[:count])
        assert vars(ManifestState.decode(state.encode())) == vars(state)
    for data in (b"", b"\x90", b"\x9d" + 13 * b"\x01"):
        with pytest.raises(ValueError):  # noqa: PT011 - of any kind
            ManifestState.decode(data)


def test_parts_as_of_an_earlier_state_are_those_of_that_state() -> None:
    state = dealt(4)
    seen: dict[int, list[Part]] = {state.serial: state.parts("books")}
    for command in (
        Replace(1, "books", keys(2, 3), False, [SORTED._replace(path="1/a")]),
        Deal(1, 1, 5, 5, 0, 0, "1/5", SLICES),
        Replace(1, "books", [*keys(1), ("1/a", -1)], True, [SORTED._replace(path="1/b")]),
        DropIndex("books", [(1, 5), (2, 0)]),
        Deal(1, 1, 6, 6, 1, 0, "1/6", SLICES),
    ):
        apply(state, command)
        seen[state.serial] = state.parts("books")
    assert [len(parts) for parts in seen.values()] == [4, 3, 4, 3, 0, 1]
    for serial, parts in seen.items():
        assert state.parts("books", serial) == parts
    apply(state, Forget(5))
    assert state.forgotten == 5
    for serial, parts in seen.items():
        assert (state.parts("books", serial) == parts) == (serial >= 5)


def test_the_next_generation_is_written_to_when_the_one_before_has_ended_and_dealt_behind_it() -> None:
    state = apply(dealt(), AddGeneration([3]))
    assert state.writable() is None
    check_refused(state, AddGeneration([4]), "AGAIN")
    check_refused(state, Deal(1, 3, 1, 1, 0, 0, "1/x", SLICES), "STALE: log 3 is not one of those")
    check_refused(state, EndGeneration(0, [2, 0]), "AGAIN: log 1 is dealt up to 3 already")
    check_refused(state, EndGeneration(0, [4]), "INVALID_PARAM: generation 0: the end of each log")
    apply(state, EndGeneration(0, [4, 2]))
    assert state.writable() is not None
    assert state.undealt_logs() == [(1, 4), (2, 2), (3, None)]
    check_refused(state, Deal(1, 1, 4, 5, 0, 0, "1/x", SLICES), "AGAIN: log 1 ended at 4 meanwhile")
    apply(state, Deal(1, 1, 4, 4, 0, 0, "1/4", SLICES))
    check_refused(state, Deal(1, 3, 1, 1, 0, 0, "1/x", SLICES), "STALE: log 3 is not one of those")
    apply(state, Deal(1, 2, 1, 2, 0, 0, "", []), Deal(1, 3, 1, 1, 0, 0, "1/x", SLICES))
    assert [each.number for each in state.generations] == [1]
    assert state.dealt == {3: 1}


def test_the_end_of_a_raw_log_is_told_until_its_generation_is_dealt_whole() -> None:
    state = apply(dealt(), AddGeneration([3]))
    assert [state.end_of(log) for log in (1, 2, 3, 4)] == [None] * 4
    apply(state, EndGeneration(0, [4, 2]))
    assert [state.end_of(log) for log in (1, 2, 3, 4)] == [4, 2, None, None]
    apply(state, Deal(1, 1, 4, 4, 0, 0, "1/4", SLICES), Deal(1, 2, 1, 2, 0, 0, "", []))
    assert [state.end_of(log) for log in (1, 2, 3, 4)] == [None] * 4


def test_a_drop_that_found_earlier_tails_brings_nothing_back() -> None:
    state = apply(dealt(), DropIndex("books", [(1, 9), (2, 5)]), DropIndex("books", [(1, 8), (2, 6)]))
    assert state.floors["books"] == IndexFloor(0, {1: 9, 2: 6}, 2)


def test_a_dropped_index_begins_anew_behind_all_that_it_had() -> None:
    state = apply(dealt(), DropIndex("books", [(1, 2), (2, 5)]))
    assert state.floors == {"books": IndexFloor(0, {1: 3, 2: 5}, 1)}
    apply(state, Deal(1, 1, 4, 6, 1, 0, "1/6", SLICES))
    assert [part.path for part in state.parts("books")] == ["1/6"]
    apply(state, DropIndex("books", [(1, 8), (2, 5)]))
    assert state.floors == {"books": IndexFloor(0, {1: 8, 2: 5}, 2)}
    assert state.parts("books") == []


def test_tokens_are_never_given_again() -> None:
    state = apply(dealt(0), EndJob(1), BeginJob(), EndJob(2), BeginJob())
    assert list(state.jobs) == [3]


def test_runs_of_several_indexes_are_judged_each_by_itself() -> None:
    state = apply(dealt(0), Deal(1, 1, 1, 1, 0, 0, "1/1", [SliceEntry(index, 2, 9, 5) for index in ("books", "songs")]))

    def run(index: str, place: int, output: OutputFile | None) -> ReplacedRun:
        return ReplacedRun(index, [("1/1", place)], True, output)

    wanted = ReplaceRuns(1, [run("books", 0, SORTED._replace(place=3)), run("films", 0, SORTED), run("songs", 2, None)])
    assert decode_manifest_command(encode_manifest_command(wanted)) == wanted
    before = state.serial
    assert state.apply(encode_manifest_command(wanted), StateVersion(1, 0), 7) == b"\x01"  # one was refused
    assert state.serial == before + 2
    assert [part.key for part in state.parts("books")] == [(SORTED.path, 3)]
    assert state.parts("songs") == []
    assert [(each.index, each.part.key) for each in state.retired] == [("books", ("1/1", 0)), ("songs", ("1/1", 2))]
    state.apply(encode_manifest_command(wanted), StateVersion(1, 0), 7)
    assert state.serial == before + 2, "again nothing is replaced"
    check_refused(state, replace(wanted, token=2), "PREEMPTED")
    of_another_job = [run("books", 0, SORTED._replace(path="2/s"))]
    check_refused(state, ReplaceRuns(1, of_another_job), "2/s was not written by job 1")
    with pytest.raises(CommandRefused, match="one of each"):
        state.apply(encode_manifest_command(ReplaceRuns(1, of_another_job * 2)), StateVersion(1, 0), 7)


def test_files_of_a_large_run_keep_their_order_in_every_state() -> None:
    def pieces(*names: str) -> list[OutputFile]:
        return [SORTED._replace(path=f"1/{name}") for name in names]

    state = dealt(4)
    seen: dict[int, list[Part]] = {state.serial: state.parts("books")}
    for command in (
        Replace(1, "books", keys(1, 2), True, pieces("s-0", "s-1", "s-2")),
        Replace(1, "books", [("1/s-1", -1), ("1/s-2", -1)], False, pieces("a")),
        Replace(1, "books", [("1/s-0", -1), *keys(3)], False, pieces("b", "c")),
        Deal(1, 1, 5, 5, 0, 0, "1/5", SLICES),
        Replace(1, "books", [("1/c", -1), *keys(4)], False, pieces("0")),
    ):
        apply(state, command)
        seen[state.serial] = state.parts("books")
    assert [[part.path[2:] for part in parts] for parts in seen.values()][1:] == [
        ["s-0", "s-1", "s-2", "3", "4"],
        ["a", "s-0", "3", "4"],
        ["a", "b", "c", "4"],
        ["a", "b", "c", "4", "5"],
        ["a", "b", "0", "5"],
    ]
    for serial, parts in seen.items():
        assert state.parts("books", serial) == parts
        assert vars(ManifestState.decode(state.encode())) == vars(state)
    check_refused(state, Replace(1, "books", keys(5), False, pieces("y", "x")), "in the order of their paths")
    check_refused(state, Replace(1, "books", keys(5), False, pieces("x", "x")), "in the order of their paths")


def after_jobs(state: ManifestState, kind: JobKind, count: int) -> list[int]:
    """Jobs that have not ended after some that did."""
    for _ in range(count):
        token = state.next_token
        apply(state, BeginJob(kind), EndJob(token))
    return sorted(state.jobs)


def test_a_job_that_nobody_does_any_more_ends_when_many_of_its_kind_have_passed_it() -> None:
    state = apply(dealt(0), BeginJob(JobKind.DEAL), BeginJob(JobKind.MERGE))
    assert after_jobs(state, JobKind.OTHER, PASSED_MAX) == [1, 2, 3], "those of other kinds do not count"
    assert after_jobs(state, JobKind.DEAL, PASSED_MAX - 1) == [1, 2, 3]
    assert vars(ManifestState.decode(state.encode())) == vars(state)
    assert after_jobs(state, JobKind.DEAL, 1) == [1, 3]
    check_refused(state, EndJob(2), "PREEMPTED: job 2 has ended")
    assert after_jobs(state, JobKind.MERGE, PASSED_MAX) == [1], "nothing is known of what a job of no kind does"


def test_a_job_that_commits_lives() -> None:
    state = apply(dealt(2), BeginJob(JobKind.MERGE), BeginJob(JobKind.DEAL))
    assert after_jobs(state, JobKind.MERGE, PASSED_MAX - 1) == [1, 2, 3]
    apply(state, Replace(2, "books", keys(1), True, [SORTED._replace(path="2/s")]))
    assert after_jobs(state, JobKind.MERGE, PASSED_MAX - 1) == [1, 2, 3]
    assert after_jobs(state, JobKind.DEAL, PASSED_MAX - 1) == [1, 2, 3]
    apply(state, Deal(3, 1, 3, 3, 0, 0, "3/3", SLICES))
    assert after_jobs(state, JobKind.DEAL, PASSED_MAX - 1) == [1, 2, 3]
    assert after_jobs(state, JobKind.MERGE, 1) == [1, 3]
    assert after_jobs(state, JobKind.DEAL, 1) == [1]


def test_jobs_of_one_kind_that_are_killed_again_and_again_make_room() -> None:
    """No one of them ends, so none passes another."""
    state = dealt(0)
    for _ in range(2 * JOBS_MAX):
        apply(state, BeginJob(JobKind.MERGE), BeginJob(JobKind.DEAL))
        apply(state, EndJob(state.next_token - 1))
    assert len(state.jobs) == JOBS_MAX - 1
    newest = state.next_token - 2
    assert state.jobs.keys() == {1, *range(newest - 2 * (JOBS_MAX - 3), newest + 1, 2)}
    check_refused(state, EndJob(2), "PREEMPTED: job 2 has ended")
    assert vars(ManifestState.decode(state.encode())) == vars(state)


def test_of_jobs_that_make_room_the_one_goes_that_others_have_passed() -> None:
    state = apply(dealt(2), BeginJob(JobKind.MERGE), BeginJob(JobKind.MERGE))
    after_jobs(state, JobKind.MERGE, PASSED_MAX - 1)
    apply(state, Replace(2, "books", keys(1), True, [SORTED._replace(path="2/s")]))
    apply(state, *[BeginJob(JobKind.MERGE)] * (JOBS_MAX - 2))
    assert {1, 2} <= state.jobs.keys()
    assert 3 not in state.jobs


def test_jobs_of_which_nothing_is_known_make_no_room() -> None:
    state = apply(dealt(0), *[BeginJob()] * (JOBS_MAX - PASSED_MAX - 1), *[BeginJob(JobKind.DEAL)] * PASSED_MAX)
    assert len(state.jobs) == JOBS_MAX
    check_refused(state, BeginJob(JobKind.DEAL), f"NOBUFS: {JOBS_MAX} jobs have begun and not ended")
    apply(state, EndJob(1), BeginJob(JobKind.DEAL), BeginJob(JobKind.DEAL))
    assert len(state.jobs) == JOBS_MAX
