"""What a process looks up in the log tree: what is known, what is absent, what is neither, and what holds for a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from client.log_tree.commands import MakeDirectory, MakeLogGroup, Remove, Rename, Retired, SetAttributes
from client.log_tree.view import LogTreeView
from logdevice_py.config.attributes import Durability
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import LOG_TREE_DELTAS, TREE_LOG_ID_MIN, LogId
from logdevice_py.core.status import LogDeviceError, Status
from tests.unit.client.log_tree.trees import Commands
from tests.unit.storage_node.fakes import THREE_COPIES, make_config

FIRST = TREE_LOG_ID_MIN
HOUR = 3_600_000_000


class Looking:
    """A tree, and a process that looks things up in it."""

    def __init__(self) -> None:
        self.tree = Commands()
        self.view = LogTreeView()
        self.config: ClusterConfig = replace(
            make_config(), settings={"log_tree": {"enabled": True}}, run_time_logs=self.view
        )
        self.take()

    def take(self) -> None:
        """The replica has applied what there is."""
        self.view.take(self.tree.state, is_known=True)

    def log(self, number: int) -> LogId:
        return LogId(FIRST + number)


@pytest.fixture
def looking() -> Looking:
    return Looking()


def error(looking: Looking, name: str | int) -> tuple[Status, str]:
    with pytest.raises(LogDeviceError) as raised:
        looking.config.find_log(name)
    return raised.value.status, raised.value.detail


def test_what_may_have_been_made_since_is_not_absent(looking: Looking) -> None:
    config, log = looking.config, looking.log
    assert config.log(log(0)) is None
    assert not config.is_absent(log(0))
    text = f"whether there is a log {FIRST} is not known yet"
    assert error(looking, FIRST) == (Status.AGAIN, text)
    unknown = config.unknown(FIRST)
    assert (unknown.status, unknown.detail, unknown.retriable) == (Status.AGAIN, text, True)
    looking.tree.make(MakeLogGroup("/a", 2))
    assert [config.is_absent(log(n)) for n in range(3)] == [False, False, False]
    assert [config.log(log(n)) is None for n in range(3)] == [False, False, True]
    # ids of the file, and of nobody
    assert not config.is_absent(LogId(1))
    assert config.is_absent(LogId(999))
    assert not config.is_absent(LOG_TREE_DELTAS)
    assert replace(config, settings={}).is_absent(log(0))


def test_who_keeps_no_replica_knows_of_no_log_that_it_is_absent() -> None:
    """A node that was not started again since the tree was enabled, for one."""
    without = make_config()
    assert without.all_logs_known
    assert without.is_absent(FIRST)
    enabled = replace(without, settings={"log_tree": {"enabled": True}})
    assert not enabled.all_logs_known
    assert not enabled.is_absent(FIRST)
    assert enabled.is_absent(LogId(999))
    assert enabled.unknown(FIRST).status is Status.AGAIN
    assert enabled.unknown(LogId(999)).status is Status.NOTFOUND


def test_what_is_removed_is_absent_when_nobody_can_write_to_it(looking: Looking) -> None:
    looking.tree.make(MakeLogGroup("/a"))
    looking.tree.apply(Remove("/a"))
    assert looking.config.log(FIRST) is None
    assert not looking.config.is_absent(FIRST)
    assert looking.config.unknown(FIRST).status is Status.NOTFOUND
    assert list(looking.view.ids()) == [FIRST]
    assert looking.config.group_at("/a") is None
    looking.tree.apply(Retired(FIRST))
    assert looking.config.is_absent(FIRST)
    assert error(looking, FIRST)[0] is Status.NOTFOUND


def test_a_path_is_not_known_before_the_tree_is_read(looking: Looking) -> None:
    looking.view.is_known = False
    assert error(looking, "/a") == (
        Status.AGAIN,
        "whether there is a log /a is not known: the log tree is not read yet",
    )
    with pytest.raises(LogDeviceError) as raised:
        looking.config.matching_logs("/a*")
    assert raised.value.status is Status.AGAIN
    looking.view.is_known = True
    assert error(looking, "/a")[0] is Status.NOTFOUND


def test_logs_have_names(looking: Looking) -> None:
    looking.tree.make(MakeLogGroup("/team/one", parents=True))
    looking.tree.make(MakeLogGroup("/team/two", 2))
    config, log = looking.config, looking.log
    assert config.find_log("/team/one") == config.find_log(str(FIRST)) == config.find_log(FIRST) == FIRST
    assert config.find_log("/team/two/2") == log(2)
    assert [config.log_name(log(n)) for n in range(4)] == ["/team/one", "/team/two/1", "/team/two/2", str(log(3))]
    assert error(looking, "/team/two")[0] is Status.INVALID_PARAM
    assert error(looking, "/team/two/3") == (Status.NOTFOUND, "/team/two has the logs /team/two/1 to /team/two/2")
    assert config.matching_logs("/team/*") == [log(0), log(1), log(2)]
    assert config.matching_logs("/sync/1?")[:2] == [10, 11]
    assert list(config.log_ids())[-4:] == [200, log(0), log(1), log(2)]


def test_the_file_wins_where_both_have_a_path(looking: Looking) -> None:
    looking.tree.make(MakeLogGroup("/sync"))
    found = looking.config.group_at("/sync")
    assert found is not None
    assert found.lo == 1
    assert looking.config.log(FIRST) is not None


def test_attributes_come_from_above(looking: Looking) -> None:
    config = looking.config
    logs = LogTree.build(
        defaults={"replication": THREE_COPIES, "nodeset_size": 4},
        directories={"/team": {"backlog_us": HOUR, "nodeset_size": 5}},
    )
    config = replace(config, logs=logs)
    apply = looking.tree.apply
    apply(SetAttributes("/", {"durability": "async"}))
    apply(MakeDirectory("/team", {"backlog_us": "2h"}))
    looking.tree.make(MakeLogGroup("/team/a", attributes={"replicate": "node:2"}))
    looking.take()
    found = config.log(FIRST)
    assert found is not None
    assert (found.path, found.replication, found.nodeset_size, found.backlog_us, found.durability) == (
        "/team/a",
        ReplicationProperty.parse("node:2"),
        5,
        2 * HOUR,
        Durability.ASYNC,
    )
    apply(Rename("/team/a", "/a"))
    looking.take()
    moved = config.log(FIRST)
    assert moved is not None
    assert (moved.path, moved.nodeset_size, moved.backlog_us) == ("/a", 4, 0)


def test_where_nobody_says_how_to_replicate_metadata_logs_do(looking: Looking) -> None:
    config = replace(looking.config, logs=LogTree())
    looking.tree.make(MakeLogGroup("/a"))
    found = config.log(FIRST)
    assert found is not None
    assert found.replication == config.metadata_log.replication


def test_what_is_not_understood_does_not_hold(looking: Looking) -> None:
    strange: dict[str, str | int] = {"colour": "red", "backlog_us": "soon", "nodeset_size": 999, "window_bytes": "1KiB"}
    looking.tree.make(MakeLogGroup("/a", attributes={**strange, "replicate": "node:5"}))
    looking.tree.make(MakeLogGroup("/b", attributes={"replicate": "node:4", "nodeset_size": 2}))
    first, second = looking.config.log(FIRST), looking.config.log(looking.log(1))
    assert first is not None
    assert second is not None
    assert (first.backlog_us, first.nodeset_size) == (0, 0)
    assert first.window_bytes == first.max_payload_bytes
    assert second.nodeset_size == 4


def test_attributes_are_the_same_object_until_they_change(looking: Looking) -> None:
    config, tree = looking.config, looking.tree
    tree.make(MakeLogGroup("/d/a", parents=True))
    tree.make(MakeLogGroup("/d/b"))
    looking.take()
    first, other = config.log(FIRST), config.log(looking.log(1))
    assert config.log(FIRST) is first
    tree.apply(SetAttributes("/d/b", {"backlog_us": "1h"}))
    change = looking.view.take(tree.state, is_known=True)
    assert (change.everything, change.logs) == (False, (range(looking.log(1), looking.log(2)),))
    assert config.log(FIRST) is first
    assert config.log(looking.log(1)) is not other
    tree.apply(SetAttributes("/d", {"durability": "sync"}))
    assert looking.view.take(tree.state, is_known=True).everything
    assert config.log(FIRST) is first, "nothing changed for it"
    tree.apply(SetAttributes("/d", {"backlog_us": "1h"}))
    looking.take()
    changed = config.log(FIRST)
    assert changed is not None
    assert changed.backlog_us == HOUR


def test_values_in_use_are_those_of_file_and_tree(looking: Looking) -> None:
    looking.tree.make(MakeLogGroup("/a", attributes={"backlog_us": "1h", "replicate": "node:2"}))
    looking.tree.apply(MakeDirectory("/d", {"backlog_us": "2h"}))
    looking.tree.make(MakeLogGroup("/b", attributes={"backlog_us": "soon"}))
    looking.take()
    assert looking.config.values_in_use("backlog_us") == {0, HOUR, 2 * HOUR}
    assert looking.config.values_in_use("replicate") == {THREE_COPIES, ReplicationProperty.parse("node:2")}
