"""The log tree as a state: what commands do, what they refuse, and that a snapshot is the state."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.log_tree import state as state_module
from client.log_tree.commands import (
    DEPTH_MAX,
    MakeDirectory,
    MakeLogGroup,
    Remove,
    Rename,
    Retired,
    SetAttributes,
    encode,
)
from client.log_tree.state import LogTreeState, TreeDirectory, TreeGroup
from client.replica.commands import CommandRefused, StateVersion, refusal
from logdevice_py.core.ids import TREE_LOG_ID_MAX, TREE_LOG_ID_MIN
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from tests.unit.client.log_tree.trees import Commands


@pytest.fixture
def tree() -> Commands:
    return Commands()


def group(tree: Commands, path: str) -> TreeGroup:
    found = tree.state.find(path)
    assert isinstance(found, TreeGroup)
    return found


# Making


def test_groups_get_ids_one_behind_the_other(tree: Commands) -> None:
    first = tree.make(MakeLogGroup("/clicks", 3))
    second = tree.make(MakeLogGroup("/views"))
    assert first == range(TREE_LOG_ID_MIN, TREE_LOG_ID_MIN + 3)
    assert second == range(TREE_LOG_ID_MIN + 3, TREE_LOG_ID_MIN + 4)
    assert [group.path for group in tree.state.groups()] == ["/clicks", "/views"]
    found = tree.state.group(first[2])
    assert found is group(tree, "/clicks")
    assert tree.state.group(second[0] + 1) is None
    assert tree.state.group(first[0] - 1) is None


def test_a_refused_group_takes_no_ids(tree: Commands) -> None:
    tree.make(MakeLogGroup("/a"))
    assert tree.refused(MakeLogGroup("/a", 100)) == (
        Status.EXISTS,
        f"/a is a group of logs (log {TREE_LOG_ID_MIN})",
    )
    assert tree.make(MakeLogGroup("/b")) == range(TREE_LOG_ID_MIN + 1, TREE_LOG_ID_MIN + 2)


def test_parents_are_made_only_when_asked_for(tree: Commands) -> None:
    status, text = tree.refused(MakeLogGroup("/team/web/clicks"))
    assert (status, text) == (
        Status.NOTFOUND,
        "there is no directory /team: make it first, or ask for parents (--parents, parents=True)",
    )
    tree.make(MakeLogGroup("/team/web/clicks", parents=True))
    assert isinstance(tree.state.find("/team/web"), TreeDirectory)
    tree.apply(MakeDirectory("/team/app"))
    assert tree.refused(MakeDirectory("/team/app")) == (Status.EXISTS, "/team/app is a directory")
    tree.apply(MakeDirectory("/x/y/z", {"backlog_us": "1h"}, parents=True))
    found = tree.state.find("/x/y/z")
    assert found is not None
    assert found.attributes == {"backlog_us": "1h"}


def test_nothing_lies_in_a_group(tree: Commands) -> None:
    tree.make(MakeLogGroup("/a"))
    assert tree.refused(MakeLogGroup("/a/b", parents=True))[0] is Status.INVALID_PARAM
    assert tree.refused(MakeDirectory("/a/b/c", parents=True))[0] is Status.INVALID_PARAM
    assert tree.state.find("/a/b") is None


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a b", "/7", "/é", "/" + "x" * 256, 5, None, b"/a", ["/a"]])
def test_what_is_no_path_is_refused(tree: Commands, path: Any) -> None:
    assert tree.refused(MakeLogGroup(path))[0] is Status.INVALID_PARAM


def test_paths_are_not_too_deep(tree: Commands) -> None:
    deepest = "/a" * DEPTH_MAX
    tree.apply(MakeDirectory(deepest, parents=True))
    assert tree.refused(MakeDirectory(f"{deepest}/a"))[0] is Status.TOOBIG
    tree.apply(MakeDirectory("/b"))
    assert tree.refused(Rename("/a", "/b/a"))[0] is Status.TOOBIG
    tree.apply(Rename("/a", "/c"))


def test_ids_end(tree: Commands) -> None:
    tree.state.next_id = TREE_LOG_ID_MAX  # type: ignore[assignment]
    assert tree.refused(MakeLogGroup("/a", 2))[0] is Status.NOSPC
    tree.make(MakeLogGroup("/a"))
    assert tree.refused(MakeLogGroup("/b"))[0] is Status.NOSPC


def test_a_tree_that_no_snapshot_can_hold_is_refused(tree: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SIZE_MAX", 140)
    for path in ("/g0", "/g1", "/g2"):
        tree.make(MakeLogGroup(path))
    assert tree.refused(MakeLogGroup("/g3"))[0] is Status.NOSPC
    assert tree.refused(SetAttributes("/g0", {"backlog_us": "x" * 100}))[0] is Status.NOSPC
    again = LogTreeState.decode(tree.state.encode())
    assert again._size == tree.state._size
    tree.apply(Remove("/g0"))
    tree.apply(Retired(TREE_LOG_ID_MIN))
    tree.make(MakeLogGroup("/g99"))


# Changing


def test_attributes_are_set_and_unset(tree: Commands) -> None:
    tree.make(MakeLogGroup("/a", attributes={"replicate": "node:3", "backlog_us": "1h"}))
    tree.apply(SetAttributes("/a", {"backlog_us": "2h", "nodeset_size": 5}, ["replicate"]))
    assert group(tree, "/a").attributes == {"backlog_us": "2h", "nodeset_size": 5}
    assert tree.refused(SetAttributes("/a", {}, ["replicate"])) == (Status.NOTFOUND, "/a does not set replicate")
    assert tree.refused(SetAttributes("/a", {"backlog_us": "1h"}, ["backlog_us"]))[0] is Status.INVALID_PARAM
    tree.apply(SetAttributes("/", {"backlog_us": "3h"}))
    assert tree.state.root.attributes == {"backlog_us": "3h"}


def test_groups_with_equal_attributes_share_them_and_change_alone(tree: Commands) -> None:
    for path in ("/a", "/b"):
        tree.make(MakeLogGroup(path, attributes={"backlog_us": "1h"}))
    assert group(tree, "/a").attributes is group(tree, "/b").attributes
    tree.apply(SetAttributes("/a", {"backlog_us": "2h"}))
    assert group(tree, "/b").attributes == {"backlog_us": "1h"}


def test_a_change_may_expect_a_version(tree: Commands) -> None:
    tree.make(MakeLogGroup("/a"))
    made = tree.version
    tree.apply(SetAttributes("/a", {"backlog_us": "1h"}, expect=made))
    for command in (SetAttributes("/a", {}, expect=made), Rename("/a", "/b", made), Remove("/a", made)):
        assert tree.refused(command) == (
            Status.VERSION_MISMATCH,
            f"/a has version {StateVersion(Lsn(2), 0)}, not {made}",
        )
    tree.apply(Rename("/a", "/b", StateVersion(Lsn(2), 0)))
    assert group(tree, "/b").version == tree.version


def test_a_directory_moves_with_what_it_holds(tree: Commands) -> None:
    ids = tree.make(MakeLogGroup("/a/b/clicks", parents=True))
    tree.apply(MakeDirectory("/z"))
    tree.apply(Rename("/a/b", "/z/c"))
    assert group(tree, "/z/c/clicks").lo == ids[0]
    assert tree.state.find("/a/b") is None
    assert tree.state.changed_directories
    assert tree.refused(Rename("/z/c", "/z")) == (Status.EXISTS, "/z is a directory")
    assert tree.refused(Rename("/gone", "/x"))[0] is Status.NOTFOUND
    assert tree.refused(Rename("/", "/x"))[0] is Status.INVALID_PARAM


def test_nothing_moves_into_itself(tree: Commands) -> None:
    tree.apply(MakeDirectory("/a/b", parents=True))
    tree.apply(MakeDirectory("/c"))
    assert tree.refused(Rename("/a", "/a/b/a")) == (
        Status.INVALID_PARAM,
        "/a cannot be moved into itself, to /a/b/a",
    )
    # two moves that race: the second finds itself below its target
    tree.apply(Rename("/a", "/c/a"))
    assert tree.refused(Rename("/c", "/c/a/b/c"))[0] is Status.INVALID_PARAM


# Removing


def test_a_group_goes_in_two_steps_and_its_ids_never_come_back(tree: Commands) -> None:
    ids = tree.make(MakeLogGroup("/a", 2))
    tree.apply(Remove("/a"))
    assert list(tree.state.removing) == [ids[0]]
    assert tree.refused(MakeLogGroup("/a")) == (
        Status.EXISTS,
        f"/a is a group of logs that is being removed (log {ids[0]})",
    )
    for command in (Remove("/a"), Rename("/a", "/b"), SetAttributes("/a", {"backlog_us": "1h"})):
        assert tree.refused(command) == (Status.NOTFOUND, "/a is being removed")
    tree.apply(Retired(ids[0]))
    assert tree.state.group(ids[0]) is None
    assert tree.state.find("/a") is None
    assert tree.refused(Retired(ids[0]))[0] is Status.NOTFOUND
    assert tree.make(MakeLogGroup("/a")) == range(ids[-1] + 1, ids[-1] + 2)


def test_only_what_is_being_removed_retires(tree: Commands) -> None:
    ids = tree.make(MakeLogGroup("/a", 2))
    assert tree.refused(Retired(ids[0]))[0] is Status.NOTFOUND
    tree.apply(Remove("/a"))
    assert tree.refused(Retired(ids[1]))[0] is Status.NOTFOUND


def test_a_directory_that_holds_something_stays(tree: Commands) -> None:
    tree.make(MakeLogGroup("/d/a", parents=True))
    assert tree.refused(Remove("/d")) == (Status.NOTEMPTY, "/d holds 1 thing: remove these first")
    tree.apply(Remove("/d/a"))
    assert tree.refused(Remove("/d"))[0] is Status.NOTEMPTY
    tree.apply(Retired(TREE_LOG_ID_MIN))
    tree.apply(Remove("/d"))
    assert tree.refused(Remove("/"))[0] is Status.INVALID_PARAM
    assert tree.state.find("/d") is None


# Whatever others append


@pytest.mark.parametrize(
    "command",
    [
        b"",
        b"\xc1",
        b"\x91",
        msgpack.packb(7),
        msgpack.packb([2, 1, "/a", {}, False]),
        msgpack.packb([1, 99]),
        msgpack.packb([1, 1, "/a"]),
        msgpack.packb([1, 1, "/a", {}, 1]),
        msgpack.packb([1, 2, "/a", 0, {}, False]),
        msgpack.packb([1, 2, "/a", 10_001, {}, False]),
        msgpack.packb([1, 2, "/a", True, {}, False]),
        msgpack.packb([1, 2, "/a", 1, {"a": [1]}, False]),
        msgpack.packb([1, 2, "/a", 1, {"a": 1.5}, False]),
        msgpack.packb([1, 2, "/a", 1, {b"a": 1}, False]),
        msgpack.packb([1, 2, "/a", 1, {"a": "x" * 5000}, False]),
        msgpack.packb([1, 2, "/a", 1, {str(n): 1 for n in range(100)}, False]),
        msgpack.packb([1, 3, "/a", {}, [1], None]),
        msgpack.packb([1, 3, "/a", {}, [], "ab"]),
        msgpack.packb([1, 4, "/a", "/b", [1]]),
        msgpack.packb([1, 6, 5]),
        msgpack.packb([1, 6, "x"]),
    ],
)
def test_what_is_no_command_is_refused(command: bytes) -> None:
    state = LogTreeState()
    before = state.encode()
    with pytest.raises(CommandRefused) as refused:
        state.apply(command, StateVersion(Lsn(1), 0), Timestamp(0))
    assert refusal(str(refused.value))[1]
    assert state.encode() == before


@given(st.binary(max_size=60) | st.recursive(st.none() | st.integers() | st.text(max_size=9), st.lists, max_leaves=9))
def test_arbitrary_bytes_are_refused_or_applied(raw: Any) -> None:
    state = LogTreeState()
    data = raw if isinstance(raw, bytes) else msgpack.packb(raw) if _fits(raw) else b""
    try:
        state.apply(data, StateVersion(Lsn(1), 0), Timestamp(0))
    except CommandRefused:
        assert state.encode() == LogTreeState().encode()


def _fits(raw: Any) -> bool:
    if isinstance(raw, list):
        return all(map(_fits, raw))
    return not isinstance(raw, int) or -(1 << 63) <= raw < 1 << 64


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.pop(),
        lambda raw: raw.__setitem__(0, 2),
        lambda raw: raw.__setitem__(1, 5),
        lambda raw: raw.__setitem__(1, TREE_LOG_ID_MIN),  # groups beyond it
        lambda raw: raw.__setitem__(3, []),
        lambda raw: raw[3][1].__setitem__(0, 7),
        lambda raw: raw[3][1].__setitem__(1, "a/b"),
        lambda raw: raw[3].append(raw[3][1]),
        lambda raw: raw[4].pop(),
        lambda raw: raw[4][0].pop(),
        lambda raw: raw[4][1].reverse() or raw[4][5].reverse(),
        lambda raw: raw[4][0].__setitem__(0, 7),
        lambda raw: raw[4][1].__setitem__(1, "a"),
        lambda raw: raw[4][1].__setitem__(1, "7"),
        lambda raw: raw[4][2].__setitem__(0, 9),
        lambda raw: raw[4][3].__setitem__(0, 0),
        lambda raw: raw[4][4].__setitem__(0, -1),
        lambda raw: raw[4][5].__setitem__(1, TREE_LOG_ID_MIN + 1),
        lambda raw: raw[4][6].__setitem__(0, 0),
        lambda raw: raw[4][6].__setitem__(0, True),
        lambda raw: raw[5].append(5),
        lambda raw: raw[5].extend([TREE_LOG_ID_MIN, TREE_LOG_ID_MIN]),
        lambda raw: raw[5].append(TREE_LOG_ID_MIN + 1),
    ],
)
def test_what_is_no_snapshot_is_refused(tree: Commands, change: Any) -> None:
    tree.make(MakeLogGroup("/d/a", 2, parents=True))
    tree.make(MakeLogGroup("/d/b"))
    raw = msgpack.unpackb(tree.state.encode())
    change(raw)
    with pytest.raises((ValueError, msgpack.UnpackException)):
        LogTreeState.decode(msgpack.packb(raw))


# A model

_PATHS = [f"/{a}" for a in "abc"] + [f"/{a}/{b}" for a in "abc" for b in "abc"] + ["/a/b/c", "/b/a/a"]
_PATH = st.sampled_from(_PATHS)
_ATTRIBUTES = st.dictionaries(st.sampled_from(["backlog_us", "nodeset_size"]), st.integers(0, 2), max_size=2)
_COMMANDS = st.one_of(
    st.builds(MakeDirectory, _PATH, _ATTRIBUTES, st.booleans()),
    st.builds(MakeLogGroup, _PATH, st.integers(1, 3), _ATTRIBUTES, st.booleans()),
    st.builds(SetAttributes, _PATH, _ATTRIBUTES),
    st.builds(Rename, _PATH, _PATH),
    st.builds(Remove, _PATH),
    st.builds(Retired, st.integers(TREE_LOG_ID_MIN, TREE_LOG_ID_MIN + 9)),
)


class Model:
    """The same by whole paths: what a directory or group is, without sharing anything."""

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {}
        self.given = 0

    def below(self, path: str) -> list[str]:
        return [each for each in self.nodes if each.startswith(f"{path}/")]

    def place(self, path: str, parents: bool) -> list[str] | None:
        """The directories to be made; None: refused."""
        if path in self.nodes:
            return None
        above = ["/" + "/".join(path[1:].split("/")[:n]) for n in range(1, path.count("/"))]
        if any(self.nodes.get(each, ("directory",))[0] == "group" for each in above):
            return None
        missing = [each for each in above if each not in self.nodes]
        return None if missing and not parents else missing

    def apply(self, command: Any) -> bool:
        """Whether it is applied."""
        nodes = self.nodes
        match command:
            case MakeDirectory(path, attributes, parents) | MakeLogGroup(path, _, attributes, parents):
                missing = self.place(path, parents)
                if missing is None:
                    return False
                nodes.update((each, ("directory", {})) for each in missing)
                nodes[path] = ("directory", attributes)
                if isinstance(command, MakeLogGroup):
                    nodes[path] = ("group", attributes, TREE_LOG_ID_MIN + self.given, command.count, False)
                    self.given += command.count
                return True
            case Retired(lo):
                found = [path for path, node in nodes.items() if node[0] == "group" and node[2] == lo and node[4]]
                for path in found:
                    del nodes[path]
                return bool(found)
        path = command.path
        node = nodes.get(path)
        if node is None or (node[0] == "group" and node[4]):
            return False
        if isinstance(command, SetAttributes):
            nodes[path] = (node[0], {**node[1], **command.attributes}, *node[2:])
            return True
        if isinstance(command, Remove):
            if node[0] == "group":
                nodes[path] = (*node[:4], True)
                return True
            if self.below(path):
                return False
            del nodes[path]
            return True
        if self.place(command.to, False) is None or command.to.startswith(f"{path}/"):
            return False
        for each in [path, *self.below(path)]:
            nodes[command.to + each[len(path) :]] = nodes.pop(each)
        return True

    def rows(self) -> set[Any]:
        return {(path, node[0], tuple(sorted(node[1].items())), *node[2:]) for path, node in self.nodes.items()}


def rows(state: LogTreeState) -> set[Any]:
    found: set[Any] = set()
    waiting = [state.root]
    while waiting:
        for child in waiting.pop().children.values():
            own = tuple(sorted(child.attributes.items()))
            if isinstance(child, TreeDirectory):
                found.add((child.path, "directory", own))
                waiting.append(child)
            else:
                found.add((child.path, "group", own, child.lo, child.count, child.removing))
                assert state.group(child.lo) is child
                assert state.group(child.hi) is child
    return found


@given(st.lists(_COMMANDS, max_size=40))
def test_the_tree_is_its_model_and_its_snapshot(commands: list[Any]) -> None:
    """Equal versions are equal states: a replica that goes on from a snapshot refuses and applies what the first one does, to the same bytes."""
    tree, model, follower = Commands(), Model(), LogTreeState()
    given_ids: set[int] = set()
    for command in commands:
        follower = LogTreeState.decode(follower.encode())
        before = tree.state.next_id
        try:
            tree.apply(command)
            applied = True
        except CommandRefused:
            applied = False
        try:
            follower.apply(encode(command), tree.version, Timestamp(0))
            assert applied
        except CommandRefused:
            assert not applied
        assert model.apply(command) is applied, command
        new = set(range(before, tree.state.next_id))
        assert not new & given_ids
        given_ids |= new
        assert rows(tree.state) == model.rows()
        assert follower.encode() == tree.state.encode()
        assert follower._size == tree.state._size
