"""The log tree as the parts of a process look things up in it: `RunTimeLogs` of a state, with what the cluster file adds."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from client.log_tree.state import LogTreeState, TreeDirectory, TreeGroup
from client.replica.commands import CommandRefused
from logdevice_py.config.attributes import ATTRIBUTES, LogAttributes, parse_attribute
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.logs import LogGroup, LogTree
from logdevice_py.core.ids import TREE_LOG_ID_MIN, LogId


@dataclass(frozen=True, slots=True)
class TreeChange:
    """What changed since the last look."""

    everything: bool
    """Any log may have been made, changed or removed."""
    logs: tuple[range, ...] = ()
    """The logs of groups that were made, changed or removed, as far as they may be known here."""


@dataclass(slots=True)
class _Effective:
    """What holds for a group, and what that was worked out from."""

    generation: int
    tree: LogTree
    attributes: LogAttributes


class LogTreeView:
    """What one process knows of the log tree at this moment."""

    def __init__(self) -> None:
        self.state = LogTreeState()
        """Of the replica; not to be changed here."""
        self.is_known = False
        """The tree was read: everything that was in it when this process began is in `state`."""
        self.confirmed_at = -1
        """When the end of the commands was asked for, all of which are applied; -1: never."""
        self._generation = 0
        """Of what groups take over from directories."""
        self._effective: dict[LogId, _Effective] = {}
        """By first log; those that somebody asked for."""
        self._values: dict[str, frozenset[str | int | bool]] = {}

    def take(self, state: LogTreeState, *, is_known: bool) -> TreeChange:
        """The replica has another version, or another state."""
        newly_known = is_known and not self.is_known
        everything = state is not self.state or newly_known or state.changed_directories
        if everything:
            self._generation += 1
        changed = []
        for lo in state.changed_groups:
            known = self._effective.pop(lo, None)
            group = state.group(lo)
            if group is not None:
                changed.append(range(lo, group.hi + 1))
            elif known is not None:
                changed.append(range(lo, lo + 1))
        state.changed_groups.clear()
        state.changed_directories = False
        self.state, self.is_known = state, is_known
        self._values.clear()
        return TreeChange(everything, tuple(changed))

    # RunTimeLogs

    def attributes(self, log: LogId, config: ClusterConfig) -> LogAttributes | None:
        group = self.state.group(log)
        return None if group is None or group.removing else self.attributes_of(group, config)

    def is_absent(self, log: LogId) -> bool:
        return TREE_LOG_ID_MIN <= log < self.state.next_id and self.state.group(log) is None

    def is_ending(self, log: LogId) -> bool:
        group = self.state.group(log)
        return group is not None and group.removing

    def group(self, log: LogId, config: ClusterConfig) -> LogGroup | None:
        group = self.state.group(log)
        return None if group is None or group.removing else self._group(group, config)

    def group_at(self, path: str, config: ClusterConfig) -> LogGroup | None:
        try:
            found = self.state.find(path)
        except CommandRefused:
            return None
        return self._group(found, config) if isinstance(found, TreeGroup) and not found.removing else None

    def groups(self, config: ClusterConfig) -> Iterator[LogGroup]:
        return (self._group(group, config) for group in list(self.state.groups()) if not group.removing)

    def ids(self) -> Iterator[LogId]:
        for first, end in [(group.lo, group.lo + group.count) for group in self.state.groups()]:
            yield from map(LogId, range(first, end))

    def raw_values(self, key: str) -> Set[str | int | bool]:
        found = self._values.get(key)
        if found is None:
            mappings = {id(group.attributes): group.attributes for group in self.state.groups()}
            waiting = [self.state.root]
            while waiting:
                directory = waiting.pop()
                mappings[id(directory.attributes)] = directory.attributes
                waiting += [child for child in directory.children.values() if isinstance(child, TreeDirectory)]
            found = self._values[key] = frozenset(each[key] for each in mappings.values() if key in each)
        return found

    def confirmed_since(self) -> int:
        return self.confirmed_at

    # What holds for a group

    def attributes_of(self, group: TreeGroup, config: ClusterConfig) -> LogAttributes:
        """What holds for a group, whether it takes appends or not."""
        known = self._effective.get(group.lo)
        if known is not None and known.generation == self._generation and known.tree is config.logs:
            return known.attributes
        attributes = effective_attributes(group, config)
        if known is not None and known.attributes == attributes:
            attributes = known.attributes  # whoever compares by identity sees that nothing changed
        self._effective[group.lo] = _Effective(self._generation, config.logs, attributes)
        return attributes

    def _group(self, group: TreeGroup, config: ClusterConfig) -> LogGroup:
        overrides = _parsed(group.attributes)
        return LogGroup(group.path, group.lo, group.hi, overrides, self.attributes_of(group, config))


def _parsed(raw: object) -> dict[str, object]:
    """Attributes by field name; what this version does not understand is left out, as its proposer may be a later one."""
    assert isinstance(raw, dict)
    found: dict[str, object] = {}
    for key, value in raw.items():
        if key in ATTRIBUTES:
            try:
                name, parsed = parse_attribute(key, value)
            except (ValueError, OverflowError):
                continue
            found[name] = parsed
    return found


def effective_attributes(group: TreeGroup, config: ClusterConfig) -> LogAttributes:
    """`[defaults]`, then for each directory from the root what the file and what the tree sets, then the group's own; where nobody says how to
    replicate, as metadata logs are."""
    above: list[TreeDirectory] = []
    parent: TreeDirectory | None = group.parent
    while parent is not None:
        above.append(parent)
        parent = parent.parent
    merged: dict[str, object] = {"replication": config.metadata_log.replication, **config.logs.defaults}
    path = ""
    for directory in reversed(above):
        if directory.name:
            path += f"/{directory.name}"
            merged.update(config.logs.directories.get(path, {}))
        merged.update(_parsed(directory.attributes))
    merged.update(_parsed(group.attributes))
    attributes = LogAttributes(path=f"{path}/{group.name}", **merged)  # type: ignore[arg-type]
    return _sound(attributes)


def _sound(attributes: LogAttributes) -> LogAttributes:
    """Attributes that do not fit each other any more, since the file or a directory changed, hold as far as they can."""
    if attributes.max_payload_bytes > attributes.window_bytes:
        attributes = replace(attributes, window_bytes=attributes.max_payload_bytes)
    copies = attributes.replication.copies
    if 0 < attributes.nodeset_size < copies:
        attributes = replace(attributes, nodeset_size=copies)
    return attributes
