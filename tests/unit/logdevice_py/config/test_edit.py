"""Changes of the log tree keep everything else of a cluster file as it is, comments included, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdevice_py.config.edit import LogTreeEdit, attribute, parse_assignment
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.status import LogDeviceError, Status

EXAMPLE = (Path(__file__).parents[4] / "conf" / "cluster.toml").read_text()


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that went and those that came."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def attributes(*texts: str) -> dict[str, object]:
    return dict(map(parse_assignment, texts))


def test_a_group_is_added_at_the_end_and_the_version_grows() -> None:
    edit = LogTreeEdit(EXAMPLE)
    edit.create("/team/orders", (200, 207), attributes("replicate=node:2", "backlog_us=2d", "sticky_copysets=false"))
    text = edit.finish()
    assert changed(EXAMPLE, text) == (
        ["version = 1"],
        [
            "version = 2",
            '[logs."/team/orders"]',
            'ids = "200..207"',
            'replicate = "node:2"',
            'backlog_us = "2d"',
            "sticky_copysets = false",
        ],
    )
    group = load_cluster(text).logs.groups[-1]
    assert (group.path, group.lo, group.hi) == ("/team/orders", 200, 207)
    assert group.attributes.backlog_us == 2 * 86_400 * 1_000_000


def test_an_attribute_is_changed_where_it_stands_and_keeps_its_comment() -> None:
    edit = LogTreeEdit(EXAMPLE)
    edit.update("/team/audit", None, attributes("backlog_us=30d"), ("batching_compression",))
    assert changed(EXAMPLE, edit.finish()) == (
        ["version = 1", 'backlog_us = "0us"                              # for ever', 'batching_compression = "zstd"'],
        ["version = 2", 'backlog_us = "30d"  # for ever'],
    )


def test_an_attribute_is_added_to_its_table_and_not_to_the_next() -> None:
    edit = LogTreeEdit(EXAMPLE)
    edit.update("/team", None, attributes("max_payload_bytes=2MiB"), ())
    edit.update("/team/clicks", (1, 16), attributes("nodeset_size=5"), ())
    config = load_cluster(edit.finish())
    clicks = config.logs.groups[0]
    assert dict(config.logs.directories["/team"]) == attributes("backlog_us=7d", "max_payload_bytes=2MiB")
    assert (clicks.hi, clicks.overrides) == (16, {"nodeset_size": 5})


def test_what_was_created_can_be_taken_out_without_a_trace() -> None:
    edit = LogTreeEdit(EXAMPLE)
    edit.create("/other", None, attributes("backlog_us=1d"))
    edit.create("/other/one", (300, 300), {})
    edit = LogTreeEdit(edit.finish())
    edit.delete("/other/one")
    edit.delete("/other")
    assert edit.finish().rstrip("\n") == EXAMPLE.replace("version = 1", "version = 3").rstrip("\n")


@pytest.mark.parametrize(
    ("path", "ids", "words"),
    [
        ("/team/clicks", (300, 300), "is in the file already"),
        ("/more", (4, 9), "both have the log ids"),
        ("/team/clicks/deep", (300, 300), "is a group of logs and no directory"),
        ("more", (300, 300), "begins with /"),
    ],
)
def test_what_would_be_no_valid_file_is_refused(path: str, ids: tuple[int, int], words: str) -> None:
    edit = LogTreeEdit(EXAMPLE)

    def create() -> None:
        edit.create(path, ids, {})
        edit.finish()

    with pytest.raises(LogDeviceError, match=words):
        create()


def test_replication_that_the_nodes_cannot_give_is_refused() -> None:
    edit = LogTreeEdit(EXAMPLE)
    edit.update("/team/clicks", None, attributes("replicate=rack:4"), ())
    with pytest.raises(LogDeviceError, match="needs storage in 4 different racks"):
        edit.finish()


def test_a_name_that_was_probably_meant_is_suggested() -> None:
    with pytest.raises(LogDeviceError, match="did you mean /team/clicks") as refused:
        LogTreeEdit(EXAMPLE).delete("/team/click")
    assert refused.value.status is Status.NOTFOUND
    with pytest.raises(ValueError, match="did you mean backlog_us"):
        attribute("backlog")
    for text in ("backlog_us", "backlog_us=soon", "backlog_us=5", "durability=maybe", "ids=3"):
        with pytest.raises(ValueError, match=r".+"):
            parse_assignment(text)


AUDIT = '[logs."/team/audit"]\nids = 100\n'
START = EXAMPLE.split('backlog_us = "0us"')[0]


def with_more_logs(text: str) -> str:
    edit = LogTreeEdit(text)
    edit.update("/team/audit", (100, 103), {}, ())
    return edit.finish()


@pytest.mark.parametrize("written", ['[logs]\n"/team/audit".ids = 100\n', f"{AUDIT[:-4]}[\n100,\n100]\n"])
def test_a_file_that_is_written_in_a_way_that_is_not_understood_is_refused(written: str) -> None:
    text = START.replace(AUDIT, written)
    assert load_cluster(text).logs.groups[-1].path == "/team/audit"
    with pytest.raises(LogDeviceError) as refused:
        with_more_logs(text)
    assert refused.value.status is Status.INVALID_CONFIG


def test_spaces_quotes_and_what_only_looks_like_a_table_do_not_matter() -> None:
    text = START.replace('name = "example"', 'name = "example"\n# [logs."/team/audit"]')
    text = text.replace(AUDIT, '[ logs . "/team/audit" ] # a table\n"ids" = 100 # one\n')
    after = load_cluster(with_more_logs(text))
    assert (after.version, after.logs.groups[-1].hi) == (2, 103)
