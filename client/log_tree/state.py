"""The log tree as a replicated state: directories, and groups of logs that are made at run time.

Rules that `docs/decisions/0011-log-tree.md` gives reasons for and that hold here:

1. Ids from the log: `next_id` only grows.
2. Apply reads nothing else: neither the cluster file nor what attributes mean.
"""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgpack

from client.log_tree.commands import (
    DEPTH_MAX,
    LOGS_PER_GROUP_MAX,
    NAME,
    NAME_BYTES_MAX,
    Attributes,
    MakeDirectory,
    MakeLogGroup,
    Remove,
    Rename,
    Retired,
    SetAttributes,
    checked_attributes,
    decode,
    pack_attributes,
    split_path,
)
from client.replica.applied_state import StateKind
from client.replica.commands import (
    NOTHING,
    OFFSET_MAX,
    StateVersion,
    decode_snapshot,
    number_field,
    refuse,
    version_field,
)
from logdevice_py.core.ids import TREE_LOG_ID_MAX, TREE_LOG_ID_MIN, LogId
from logdevice_py.core.lsn import LSN_MAX
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp

KIND_NAME: Final = "log tree"
SIZE_MAX: Final = 48 << 20
"""Bytes of a snapshot at most, about: more is refused. A state that has no snapshot could never be trimmed."""
_NODE_SIZE: Final = 40
"""Bytes of a directory or group in a snapshot besides its name and attributes, at most."""
_FORMAT: Final = 1
_INTERNED_MAX: Final = 4096
_GROUP_FIELDS: Final = (int, str, int, int, int, int, int)


class TreeDirectory:
    """A directory. Its name stands with the parent that holds it, so moving it costs nothing for what is in it."""

    __slots__ = ("attributes", "children", "name", "parent", "version")

    def __init__(self, name: str, parent: TreeDirectory | None, attributes: Attributes, version: StateVersion) -> None:
        self.name = name
        self.parent = parent
        """None: it is the root."""
        self.attributes = attributes
        """What it sets itself. Shared with others that set the same: never changed in place."""
        self.version = version
        """Of the command that changed it last; what is done to things in it does not count."""
        self.children: dict[str, TreeDirectory | TreeGroup] = {}

    @property
    def path(self) -> str:
        """``/`` for the root."""
        return path_of(self)


class TreeGroup:
    """The logs `lo` to `hi`, which share all attributes."""

    __slots__ = ("_lsn", "_offset", "attributes", "count", "lo", "name", "parent", "removing")

    def __init__(
        self, name: str, parent: TreeDirectory, attributes: Attributes, version: StateVersion, lo: LogId, count: int
    ) -> None:
        self.name = name
        self.parent = parent
        self.attributes = attributes
        """What it sets itself. Shared with others that set the same: never changed in place."""
        self.version = version
        self.lo = lo
        self.count = count
        self.removing = False
        """Its logs take nothing any more; it goes when nobody can write to them."""

    @property
    def version(self) -> StateVersion:
        """Of the command that changed it last."""
        return StateVersion(self._lsn, self._offset)

    @version.setter
    def version(self, version: StateVersion) -> None:
        self._lsn, self._offset = version  # there are many groups, and a tuple takes as much as the rest

    @property
    def path(self) -> str:
        """Where it is at present."""
        return path_of(self)

    @property
    def hi(self) -> LogId:
        """The last log."""
        return LogId(self.lo + self.count - 1)


Node: TypeAlias = TreeDirectory | TreeGroup


def path_of(node: Node) -> str:
    """The path of a directory or group."""
    names = []
    at: Node | None = node
    while at is not None:
        names.append(at.name)
        at = at.parent
    return "/".join(reversed(names)) or "/"


class LogTreeState:
    """What the commands to the log tree amount to."""

    def __init__(self) -> None:
        self.root = TreeDirectory("", None, {}, NOTHING)
        self.next_id = TREE_LOG_ID_MIN
        """The first id that was never given."""
        self.removing: dict[LogId, TreeGroup] = {}
        """Groups that are being removed, by their first log, in the order in which that began."""
        self.changed_groups: dict[LogId, None] = {}
        """The first logs of groups that were made, changed or removed since somebody cleared this. Not part of the state."""
        self.changed_directories = False
        """What groups take over from directories may have changed since somebody cleared this. Not part of the state."""
        self._starts: list[LogId] = []
        self._groups: list[TreeGroup] = []
        """In order of their ids."""
        self._size = len(pack_attributes({}))
        """Of what a snapshot holds, about. Follows from the state, as what is refused depends on it."""
        self._interned: dict[bytes, Attributes] = {}

    # Looking

    def find(self, path: str) -> Node | None:
        """What a path names.

        Raises:
            CommandRefused: it is no path.
        """
        return self._at(split_path(path))

    def group(self, log: LogId) -> TreeGroup | None:
        """The group of a log."""
        index = bisect_right(self._starts, log) - 1
        if index < 0:
            return None
        group = self._groups[index]
        return group if log <= group.hi else None

    def groups(self) -> Iterator[TreeGroup]:
        """All of them, in order of their ids. The state must not change meanwhile."""
        return iter(self._groups)

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self._groups)

    def _at(self, names: list[str]) -> Node | None:
        node: Node = self.root
        for name in names:
            if type(node) is not TreeDirectory:
                return None
            found = node.children.get(name)
            if found is None:
                return None
            node = found
        return node

    # Commands

    def apply(self, command: bytes, at: StateVersion, time: Timestamp) -> bytes:
        """Change the tree: as `StateMachine.apply`. The result of `MakeLogGroup` is the first and the last id."""
        wanted = decode(command)
        match wanted:
            case MakeDirectory():
                self._make_directory(wanted, at)
            case MakeLogGroup():
                return self._make_group(wanted, at)
            case SetAttributes():
                self._set_attributes(wanted, at)
            case Rename():
                self._rename(wanted, at)
            case Remove():
                self._remove(wanted, at)
            case Retired():
                self._retire(wanted)
        return b""

    def _make_directory(self, wanted: MakeDirectory, at: StateVersion) -> None:
        parent, missing, name = self._place(wanted.path, parents=wanted.parents)
        attributes = self._interned_attributes(wanted.attributes)
        self._take_size([*missing, name], attributes)
        for each in missing:
            parent = self._add_directory(parent, each, {}, at)
        self._add_directory(parent, name, attributes, at)

    def _make_group(self, wanted: MakeLogGroup, at: StateVersion) -> bytes:
        parent, missing, name = self._place(wanted.path, parents=wanted.parents)
        if self.next_id + wanted.count - 1 > TREE_LOG_ID_MAX:
            raise refuse(Status.NOSPC, "the ids of the log tree are used up")
        attributes = self._interned_attributes(wanted.attributes)
        self._take_size([*missing, name], attributes)
        for each in missing:
            parent = self._add_directory(parent, each, {}, at)
        group = TreeGroup(name, parent, attributes, at, self.next_id, wanted.count)
        self.next_id = LogId(self.next_id + wanted.count)
        parent.children[name] = group
        self._groups.append(group)
        self._starts.append(group.lo)
        self.changed_groups[group.lo] = None
        result: bytes = msgpack.packb([group.lo, group.hi])
        return result

    def _set_attributes(self, wanted: SetAttributes, at: StateVersion) -> None:
        node = self._existing(wanted.path, wanted.expect)
        self._refuse_removing(node)
        merged = {**node.attributes, **wanted.attributes}
        for key in wanted.unset:
            if key not in node.attributes:
                raise refuse(Status.NOTFOUND, f"{wanted.path} does not set {key}")
            if key in wanted.attributes:
                raise refuse(Status.INVALID_PARAM, f"{key} is to be set and unset")
            del merged[key]
        attributes = self._interned_attributes(checked_attributes(merged))
        grown = len(pack_attributes(attributes)) - len(pack_attributes(node.attributes))
        self._check_size(grown)
        self._size += grown
        node.attributes, node.version = attributes, at
        self._note(node)

    def _rename(self, wanted: Rename, at: StateVersion) -> None:
        node = self._existing(wanted.path, wanted.expect)
        self._refuse_removing(node)
        if node is self.root:
            raise refuse(Status.INVALID_PARAM, "the root cannot be renamed")
        parent, _, name = self._place(wanted.to, parents=False)
        above: TreeDirectory | None = parent
        while above is not None:
            if above is node:
                raise refuse(Status.INVALID_PARAM, f"{wanted.path} cannot be moved into itself, to {wanted.to}")
            above = above.parent
        if type(node) is TreeDirectory and _depth(parent) + 1 + _height(node) > DEPTH_MAX:
            raise refuse(Status.TOOBIG, f"paths below {wanted.to} would have more than {DEPTH_MAX} names")
        grown = len(name) - len(node.name)
        self._check_size(grown)
        self._size += grown
        assert node.parent is not None
        del node.parent.children[node.name]
        node.name, node.parent, node.version = name, parent, at
        parent.children[name] = node
        self._note(node)

    def _remove(self, wanted: Remove, at: StateVersion) -> None:
        node = self._existing(wanted.path, wanted.expect)
        if type(node) is TreeGroup:
            self._refuse_removing(node)
            node.removing, node.version = True, at
            self.removing[node.lo] = node
            self._note(node)
            return
        if node is self.root:
            raise refuse(Status.INVALID_PARAM, "the root cannot be removed")
        assert type(node) is TreeDirectory
        if node.children:
            held = len(node.children)
            raise refuse(
                Status.NOTEMPTY, f"{wanted.path} holds {held} {'thing' if held == 1 else 'things'}: remove these first"
            )
        self._delete(node)

    def _retire(self, wanted: Retired) -> None:
        group = self.removing.pop(wanted.lo, None)
        if group is None:
            raise refuse(Status.NOTFOUND, f"no group that begins with log {wanted.lo} is being removed")
        self._delete(group)
        index = bisect_left(self._starts, group.lo)
        del self._starts[index], self._groups[index]
        self._note(group)

    def _delete(self, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[node.name]
        self._size -= _NODE_SIZE + len(node.name) + len(pack_attributes(node.attributes))

    # What commands share

    def _place(self, path: str, *, parents: bool) -> tuple[TreeDirectory, list[str], str]:
        """Where something new goes: the directory that is there, names of those to be made below it, and its own name."""
        names = split_path(path)
        if not names:
            raise refuse(Status.EXISTS, "/ is the root")
        parent: TreeDirectory = self.root
        for index, name in enumerate(names):
            found = parent.children.get(name)
            if found is None:
                missing = names[index:-1]
                if missing and not parents:
                    above = "/" + "/".join(names[: index + 1])
                    raise refuse(
                        Status.NOTFOUND,
                        f"there is no directory {above}: make it first, or ask for parents (--parents, parents=True)",
                    )
                return parent, missing, names[-1]
            if index < len(names) - 1:
                if type(found) is not TreeDirectory:
                    raise refuse(Status.INVALID_PARAM, f"{path_of(found)} is a group of logs and no directory")
                parent = found
                continue
            if type(found) is TreeGroup:
                state = "is a group of logs that is being removed" if found.removing else "is a group of logs"
                raise refuse(Status.EXISTS, f"{path} {state} (log {found.lo})")
            raise refuse(Status.EXISTS, f"{path} is a directory")
        raise AssertionError("a path has a last name")

    def _existing(self, path: str, expect: StateVersion | None) -> Node:
        node = self._at(split_path(path))
        if node is None:
            raise refuse(Status.NOTFOUND, f"there is nothing at {path}")
        if expect is not None and node.version != expect:
            raise refuse(Status.VERSION_MISMATCH, f"{path} has version {node.version}, not {expect}")
        return node

    @staticmethod
    def _refuse_removing(node: Node) -> None:
        if type(node) is TreeGroup and node.removing:
            raise refuse(Status.NOTFOUND, f"{node.path} is being removed")

    def _add_directory(
        self, parent: TreeDirectory, name: str, attributes: Attributes, at: StateVersion
    ) -> TreeDirectory:
        made = parent.children[name] = TreeDirectory(name, parent, attributes, at)
        return made

    def _take_size(self, names: list[str], attributes: Attributes) -> None:
        """Of new things of these names, the last of which has the attributes."""
        grown = sum(_NODE_SIZE + len(name) + 1 for name in names[:-1])
        grown += _NODE_SIZE + len(names[-1]) + len(pack_attributes(attributes))
        self._check_size(grown)
        self._size += grown

    def _check_size(self, grown: int) -> None:
        if grown > 0 and self._size + grown > SIZE_MAX:
            raise refuse(Status.NOSPC, f"the log tree would take more than {SIZE_MAX} bytes: remove what is not needed")

    def _interned_attributes(self, attributes: Attributes) -> Attributes:
        """The same, shared with others that are equal."""
        if len(self._interned) >= _INTERNED_MAX:
            self._interned.clear()
        packed = pack_attributes(attributes)
        found = self._interned.get(packed)
        if found is None:
            found = self._interned[packed] = {key: attributes[key] for key in sorted(attributes)}
        return found

    def _note(self, node: Node) -> None:
        if type(node) is TreeGroup:
            self.changed_groups[node.lo] = None
        else:
            self.changed_directories = True

    # Snapshots

    def encode(self) -> bytes:
        """Directories, each behind the one that holds it, and groups in order of their ids."""
        numbers: dict[int, int] = {id(self.root): 0}
        attributes: dict[int, int] = {}
        mappings: list[Attributes] = []

        def number_of(each: Attributes) -> int:
            # equal attributes need not be the same object, and the bytes must not tell
            known = attributes.get(id(each))
            if known is None:
                packed = pack_attributes(each)
                known = by_bytes.get(packed)
                if known is None:
                    known = by_bytes[packed] = len(mappings)
                    mappings.append(each)
                attributes[id(each)] = known
            return known

        by_bytes: dict[bytes, int] = {}
        directories = [[0, "", number_of(self.root.attributes), *self.root.version]]
        waiting = [self.root]
        while waiting:
            parent = waiting.pop()
            for child in parent.children.values():
                if type(child) is TreeDirectory:
                    numbers[id(child)] = len(directories)
                    row = [numbers[id(parent)], child.name, number_of(child.attributes), *child.version]
                    directories.append(row)
                    waiting.append(child)
        held = self._groups
        # column by column: a hundred thousand rows would be as many lists, here and where they are read
        groups = [
            [numbers[id(group.parent)] for group in held],
            [group.name for group in held],
            [number_of(group.attributes) for group in held],
            [group._lsn for group in held],
            [group._offset for group in held],
            self._starts,
            [group.count for group in held],
        ]
        packed: bytes = msgpack.packb(
            [_FORMAT, self.next_id, [dict(each) for each in mappings], directories, groups, list(self.removing)]
        )
        return packed

    @classmethod
    def decode(cls, data: bytes) -> LogTreeState:
        """From `encode`; ValueError for anything else."""
        # A hundred thousand objects that all stay: looking for garbage among them again and again takes as long as making them.
        collects = gc.isenabled()
        gc.disable()
        try:
            return decode_snapshot(data, "log tree", cls._decoded)
        finally:
            if collects:
                gc.enable()

    @classmethod
    def _decoded(cls, raw: Any) -> LogTreeState:
        if type(raw) is not list or len(raw) != 6 or raw[0] != _FORMAT:
            raise ValueError(f"a log tree of format {_FORMAT} expected")
        _, next_id, mappings, directories, groups, removing = raw
        made = cls()
        made.next_id = LogId(number_field(next_id, TREE_LOG_ID_MIN, TREE_LOG_ID_MAX + 1))
        if not all(type(rows) is list for rows in (mappings, directories, groups, removing)):
            raise ValueError("arrays expected")
        known = [made._interned_attributes(checked_attributes(each)) for each in mappings]
        made._decode_groups(groups, made._decode_directories(directories, known), known)
        for lo in removing:
            group = made.group(number_field(lo, TREE_LOG_ID_MIN, TREE_LOG_ID_MAX))  # type: ignore[arg-type]
            if group is None or group.lo != lo or group.removing:
                raise ValueError("groups that are being removed expected")
            group.removing = True
            made.removing[group.lo] = group
        return made

    def _decode_directories(self, rows: list[Any], known: list[Attributes]) -> list[TreeDirectory]:
        made: list[TreeDirectory] = []
        for row in rows:
            if type(row) is not list:
                raise ValueError("a directory expected")
            parent_number, name, attributes, lsn, offset = row
            own = known[number_field(attributes, 0, len(known) - 1)]
            version = version_field(lsn, offset)
            if not made:
                self.root.attributes, self.root.version = own, version
                self._size = len(pack_attributes(own))
                made.append(self.root)
                continue
            parent = made[number_field(parent_number, 0, len(made) - 1)]
            self._check_child(parent, name)
            made.append(self._add_directory(parent, name, own, version))
            self._size += _NODE_SIZE + len(name) + len(pack_attributes(own))
        if not made:
            raise ValueError("a root expected")
        return made

    def _decode_groups(self, columns: list[Any], directories: list[TreeDirectory], known: list[Attributes]) -> None:
        end = TREE_LOG_ID_MIN
        sizes = [len(pack_attributes(each)) for each in known]
        matches, size, next_id = NAME.fullmatch, self._size, self.next_id
        directories_max, known_max = len(directories), len(known)
        if len(columns) != len(_GROUP_FIELDS):
            raise ValueError("groups column by column expected")
        for column, kind in zip(columns, _GROUP_FIELDS, strict=True):
            if type(column) is not list or set(map(type, column)) - {kind}:
                raise ValueError("a column of one type expected")
        # nothing is called for each that need not be
        for parent_number, name, number, lsn, offset, lo, count in zip(*columns, strict=True):
            if not (0 <= parent_number < directories_max and 0 <= number < known_max):
                raise ValueError("a group in a directory expected")
            if not (0 < lsn < LSN_MAX and 0 <= offset <= OFFSET_MAX and 0 < count <= LOGS_PER_GROUP_MAX):
                raise ValueError("numbers within their bounds expected")
            if not end <= lo <= next_id - count:
                raise ValueError("groups in order of their ids expected")
            parent = directories[parent_number]
            children = parent.children
            if matches(name) is None or name.isdigit() or len(name) > NAME_BYTES_MAX or name in children:
                raise ValueError("a name that is free expected")
            end = LogId(lo + count)
            group = children[name] = TreeGroup(name, parent, known[number], StateVersion(lsn, offset), lo, count)
            self._groups.append(group)
            size += _NODE_SIZE + len(name) + sizes[number]
        self._starts = [group.lo for group in self._groups]
        self._size = size

    @staticmethod
    def _check_child(parent: TreeDirectory, name: Any) -> None:
        if type(name) is not str or len(split_path(f"/{name}")) != 1 or name in parent.children:
            raise ValueError("a name that is free expected")


def _depth(directory: TreeDirectory) -> int:
    depth = 0
    at = directory
    while at.parent is not None:
        depth, at = depth + 1, at.parent
    return depth


def _height(directory: TreeDirectory) -> int:
    """How many names the longest path below it has."""
    height, level = 0, [directory]
    while level:
        below = [child for each in level for child in each.children.values()]
        if not below:
            return height
        height += 1
        level = [child for child in below if type(child) is TreeDirectory]
    return height


LOG_TREE: Final = StateKind(KIND_NAME, LogTreeState, LogTreeState.decode)
