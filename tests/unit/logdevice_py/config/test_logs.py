from __future__ import annotations

import pytest

from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId
from logdevice_py.core.status import LogDeviceError, Status

NODE_3 = {"replication": ReplicationProperty.parse("node:3")}
NODE_2 = {"replication": ReplicationProperty.parse("node:2")}


def tree(*groups: tuple[str, int, int]) -> LogTree:
    return LogTree.build(defaults=NODE_3, groups=[(*group, {}) for group in groups])


class TestInheritance:
    def test_the_nearest_setting_holds(self) -> None:
        logs = LogTree.build(
            defaults={**NODE_3, "backlog_us": 1, "nodeset_size": 9},
            directories={"/a": {**NODE_2, "backlog_us": 2}, "/a/b": {"backlog_us": 3}},
            groups=[("/a/b/c", 1, 1, {"nodeset_size": 5}), ("/a/d", 2, 2, {}), ("/e", 3, 3, {})],
        )
        found = {log: logs.get(LogId(log)) for log in (1, 2, 3)}
        assert [(a.replication.copies, a.backlog_us, a.nodeset_size) for a in found.values() if a is not None] == [
            (2, 3, 5),
            (2, 2, 9),
            (3, 1, 9),
        ]

    def test_a_name_that_begins_like_a_directory_is_not_in_it(self) -> None:
        logs = LogTree.build(defaults=NODE_3, directories={"/a": {"backlog_us": 2}}, groups=[("/ab", 1, 1, {})])
        attributes = logs.get(LogId(1))
        assert attributes is not None
        assert attributes.backlog_us == 0

    def test_a_log_without_a_replication_property_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"/a: no replicate: set it here"):
            LogTree.build(groups=[("/a", 1, 1, {})])


class TestIds:
    def test_logs_are_found_at_both_ends_of_their_range_and_not_beyond(self) -> None:
        logs = tree(("/a", 10, 20), ("/b", 21, 21), ("/c", 30, 100_030))
        assert [
            None if (group := logs.group(LogId(log))) is None else group.path
            for log in (9, 10, 20, 21, 22, 29, 30, 100_030, 100_031)
        ] == [None, "/a", "/a", "/b", None, None, "/c", "/c", None]
        assert len(logs) == 11 + 1 + 100_001
        assert sum(1 for _ in logs.ids()) == len(logs)

    def test_all_logs_of_a_group_share_one_object(self) -> None:
        logs = tree(("/a", 1, 100_000))
        assert logs.get(LogId(1)) is logs.get(LogId(100_000))

    @pytest.mark.parametrize(("lo", "hi", "both"), [(5, 5, "5"), (1, 9, "5..8"), (8, 12, "8"), (6, 7, "6..7")])
    def test_a_log_in_two_groups_is_refused_with_the_names_of_both(self, lo: int, hi: int, both: str) -> None:
        with pytest.raises(ValueError, match=rf"(/a and /b|/b and /a) both have the log ids {both}:"):
            tree(("/a", 5, 8), ("/b", lo, hi))

    @pytest.mark.parametrize(("lo", "hi"), [(0, 1), (2, 1), (1, USER_LOG_ID_MAX + 1)])
    def test_ids_out_of_range_are_refused(self, lo: int, hi: int) -> None:
        with pytest.raises(ValueError, match=r"/a: ids .* are not within 1\.\."):
            tree(("/a", lo, hi))


class TestPaths:
    @pytest.mark.parametrize("path", ["a", "/", "/a/", "//a", "/a b", "/a/3", "/ä"])
    def test_malformed_paths_are_refused(self, path: str) -> None:
        with pytest.raises(ValueError, match=r".+"):
            tree((path, 1, 1))

    def test_a_group_lies_in_no_group(self) -> None:
        with pytest.raises(ValueError, match=r"/a/b: lies in /a, which is a group"):
            tree(("/a", 1, 1), ("/a/b", 2, 2))

    def test_a_path_is_a_group_or_a_directory(self) -> None:
        with pytest.raises(ValueError, match=r"/a: is a group and a directory"):
            LogTree.build(defaults=NODE_3, directories={"/a": {}}, groups=[("/a", 1, 1, {})])

    def test_a_group_is_there_once(self) -> None:
        with pytest.raises(ValueError, match=r"/a: the group is there twice"):
            tree(("/a", 1, 1), ("/a", 2, 2))


class TestFind:
    LOGS = tree(("/team/clicks", 101, 108), ("/team/audit", 7, 7))

    @pytest.mark.parametrize(
        ("name", "log"),
        [
            (101, 101),
            ("101", 101),
            ("/team/audit", 7),
            ("/team/audit/1", 7),
            ("/team/clicks/3", 103),
            ("/team/clicks/8", 108),
        ],
    )
    def test_a_log_is_named_by_id_or_path_or_place(self, name: str | int, log: int) -> None:
        assert self.LOGS.find(name) == log

    @pytest.mark.parametrize(
        ("name", "status", "text"),
        [
            (9, Status.NOTFOUND, "there is no log 9"),
            ("9" * 30, Status.INVALID_PARAM, "neither"),
            ("clicks", Status.INVALID_PARAM, "'clicks' is neither a log id nor a path"),
            (
                "/team/clicks",
                Status.INVALID_PARAM,
                r"group of 8 logs \(101..108\): name one by its id, or by its place from 1, like /team/clicks/1 for log 101",
            ),
            ("/team/clicks/0", Status.NOTFOUND, "has the logs /team/clicks/1 to /team/clicks/8"),
            ("/team/clicks/9", Status.NOTFOUND, "has the logs /team/clicks/1 to /team/clicks/8"),
            ("/team/clcks", Status.NOTFOUND, r"did you mean /team/clicks\?"),
            ("/team", Status.NOTFOUND, "that is a directory, with /team/audit, /team/clicks"),
            ("/other/thing", Status.NOTFOUND, "there is no log group /other/thing$"),
            ("/team/*", Status.INVALID_PARAM, r"/team/\* is a pattern; one log is named by its id or its path$"),
        ],
    )
    def test_anything_else_says_how_to_name_one(self, name: str | int, status: Status, text: str) -> None:
        with pytest.raises(LogDeviceError, match=text) as caught:
            self.LOGS.find(name)
        assert caught.value.status is status

    @pytest.mark.parametrize(("log", "name"), [(7, "/team/audit"), (103, "/team/clicks/3"), (9, "9")])
    def test_the_name_of_a_log_finds_it(self, log: int, name: str) -> None:
        assert self.LOGS.name(LogId(log)) == name


def test_a_payload_larger_than_the_window_is_refused() -> None:
    with pytest.raises(ValueError, match=r"/a: max_payload_bytes is above window_bytes"):
        LogTree.build(defaults={**NODE_3, "window_bytes": 10}, groups=[("/a", 1, 1, {})])


class TestPatterns:
    LOGS = tree(("/team/clicks", 1, 3), ("/team/audit", 10, 10), ("/team/deep/one", 20, 20), ("/teams", 30, 30))

    @pytest.mark.parametrize(
        ("pattern", "logs"),
        [
            ("/team/*", [1, 2, 3, 10]),
            ("/team/**", [1, 2, 3, 10, 20]),
            ("/**", [1, 2, 3, 10, 20, 30]),
            ("/team/clicks/*", [1, 2, 3]),
            ("/*/clicks/?", [1, 2, 3]),
            ("/team/audi?", [10]),
            ("/tea*s", [30]),
            ("/team/audit", [10]),
            ("/team/clicks/2", [2]),
            ("3", [3]),
        ],
    )
    def test_stars_stay_within_a_part_of_a_path_unless_there_are_two(self, pattern: str, logs: list[int]) -> None:
        assert self.LOGS.matching(pattern) == logs

    @pytest.mark.parametrize("pattern", ["/nowhere/*", "*", "/team/[a-z]*", "/team/clicks/4?"])
    def test_a_pattern_that_fits_nothing_is_no_empty_list(self, pattern: str) -> None:
        with pytest.raises(LogDeviceError, match="that") as caught:
            self.LOGS.matching(pattern)
        assert caught.value.status is Status.NOTFOUND

    def test_a_pattern_that_fits_too_many_is_refused(self) -> None:
        assert len(tree(("/a", 1, 1000)).matching("/*")) == 1000
        with pytest.raises(LogDeviceError, match="more than 1000 logs") as caught:
            tree(("/a", 1, 1 << 40)).matching("/*")
        assert caught.value.status is Status.INVALID_PARAM
