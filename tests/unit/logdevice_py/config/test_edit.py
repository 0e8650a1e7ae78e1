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
        ["version = 2", 'backlog_us = "30d"                              # for ever'],
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
    with pytest.raises(ValueError, match=r"did you mean backlog\?"):
        attribute("backlogs")
    for text in ("backlog_us", "backlog_us=soon", "backlog_us=5", "durability=maybe", "ids=3"):
        with pytest.raises(ValueError, match=r".+"):
            parse_assignment(text)


def test_durations_are_named_with_or_without_their_unit() -> None:
    assert parse_assignment("backlog=2d") == parse_assignment("backlog_us=2d")
    text = EXAMPLE.replace('backlog_us = "7d"', 'backlog = "7d"')
    assert load_cluster(text) == load_cluster(EXAMPLE)
    edit = LogTreeEdit(text)
    edit.update("/team", None, attributes("backlog=8d"), ())
    assert 'backlog = "8d"' in edit.finish()
    edit = LogTreeEdit(text)
    edit.update("/team", None, {}, ("backlog_us",))
    assert load_cluster(edit.finish()).logs.directories["/team"] == {}
    with pytest.raises(LogDeviceError, match="is there twice, also as backlog_us"):
        load_cluster(EXAMPLE.replace('backlog_us = "7d"', 'backlog_us = "7d"\nbacklog = "7d"'))


HEAD, _, TREE = EXAMPLE.partition("# A directory: its")
TREE = f"# A directory: its{TREE}"
AFTER = '\n# after\n[settings.sequencer]\ngraylist_us = "3s"  # three\n'
STYLES = {
    "a table each": TREE + AFTER,
    "inline tables": """[logs] # all
"/team" = { backlog_us = "7d" } # a directory
# the clicks
"/team/clicks" = { ids = "1..8" }  # eight
"/team/audit" = { ids = 100, backlog_us = "0us", batching_compression = "zstd" }
"""
    + AFTER,
    "dotted keys": """[logs]
"/team".backlog_us = "7d"
"/team/clicks".ids = "1..8"
"/team/audit".ids = 100
"/team/audit".backlog_us = "0us" # for ever
"/team/audit".batching_compression = "zstd"
"""
    + AFTER,
    "between others": f"""[logs.'/team']
backlog_us = "7d"
{AFTER}
[logs."/team/clicks"]
  "ids" = "1..8"
[settings.recovery]
[ logs . "/team/audit" ] # a table
ids = [
  100,
  100,
]
backlog_us = "0us"
batching_compression = "zstd\"""",
}


@pytest.fixture(params=STYLES)
def styled(request: pytest.FixtureRequest) -> str:
    """The example, whose log tree is written in one of many ways."""
    text = HEAD + STYLES[request.param]
    assert load_cluster(text).logs == load_cluster(EXAMPLE).logs
    return text


def comments(text: str) -> list[str]:
    return [line[line.index("#") :] for line in text.splitlines() if "#" in line]


def test_every_change_is_possible_in_every_style_and_keeps_all_comments(styled: str) -> None:
    edit = LogTreeEdit(styled)
    edit.create("/team/orders", (200, 207), attributes("replicate=node:2"))
    edit.create("/other", None, attributes("backlog_us=1d"))
    edit.update("/team/audit", None, attributes("backlog_us=30d", "nodeset_size=4"), ("batching_compression",))
    edit.update("/team/clicks", (1, 16), attributes("nodeset_size=5"), ())
    text = edit.finish()
    assert comments(text) == comments(styled)
    assert "# after\n[settings.sequencer]" in text
    logs = load_cluster(text).logs
    assert [(group.path, group.lo, group.hi, dict(group.overrides)) for group in logs.groups] == [
        ("/team/clicks", 1, 16, {"nodeset_size": 5}),
        ("/team/audit", 100, 100, attributes("backlog_us=30d", "nodeset_size=4")),
        ("/team/orders", 200, 207, attributes("replicate=node:2")),
    ]
    edit = LogTreeEdit(text)
    for path in ("/team/clicks", "/team/orders", "/team", "/other"):
        edit.delete(path)
    text = edit.finish()
    assert "# after\n[settings.sequencer]" in text
    assert [group.path for group in load_cluster(text).logs.groups] == ["/team/audit"]


def test_what_stands_between_two_tables_belongs_to_the_second() -> None:
    text = HEAD + TREE + AFTER
    edit = LogTreeEdit(text)
    edit.delete("/team")
    edit.delete("/team/clicks")
    after = edit.finish()
    assert comments(after) == comments(text)
    assert '/team/clicks/3 is the third log of the group.\n[logs."/team/audit"]' in after
    edit = LogTreeEdit(text)
    edit.create("/z", (300, 300), {})
    assert edit.finish() == text.replace("version = 1", "version = 2").replace(
        AFTER, '\n[logs."/z"]\nids = 300\n' + AFTER
    )


def test_the_last_group_can_go_and_another_one_come() -> None:
    edit = LogTreeEdit(HEAD)
    edit.create("/a", (1, 1), {})
    edit.delete("/a")
    edit.create("/b", (2, 2), {})
    assert [group.path for group in load_cluster(edit.finish()).logs.groups] == ["/b"]


def test_a_file_that_is_written_in_a_way_that_is_not_understood_is_refused() -> None:
    text = HEAD.replace("version = 1\n", 'version = 1\nlogs."/team/audit".ids = 100\n')
    assert load_cluster(text).logs.groups[-1].path == "/team/audit"
    edit = LogTreeEdit(text)
    edit.create("/z", (300, 300), {})
    with pytest.raises(LogDeviceError, match="not edited here") as refused:
        edit.finish()
    assert refused.value.status is Status.INVALID_CONFIG
