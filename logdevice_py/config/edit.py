"""Changes of a cluster file's log tree and of the locations of its nodes, as edits of its text: comments and the order of things stay, whatever the tables look like.

Every edit is checked by reading the new text: it must say what was wanted and nothing else. So a file whose edit goes wrong is refused,
never damaged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Comment, InlineTable, Item, Key, Null, Table, Whitespace

from logdevice_py.config.attributes import ATTRIBUTES, attribute_key, parse_attribute, render_attribute
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogTree
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.table import invalid
from logdevice_py.config.validate import validate_cluster
from logdevice_py.core.declare import written_value
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import suggestion

_Body = list[tuple[Key | None, Item]]


def parse_assignment(text: str) -> tuple[str, Any]:
    """Field name and value of an attribute, from ``replicate=node:3``: as in the cluster file, without quotes.

    Raises:
        ValueError: there is no such attribute, or the value is none for it.
    """
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"{text!r}: write NAME=VALUE, like replicate=node:3")
    key = attribute(key.strip())
    return parse_attribute(key, written_value(ATTRIBUTES[key], value.strip()))


def attribute(name: str) -> str:
    """The key of an attribute that a person names.

    Raises:
        ValueError: no attribute of logs is called so.
    """
    key = attribute_key(name)
    if key is None:
        raise ValueError(
            f"{name}: no such attribute{suggestion(name, [key.removesuffix('_us') for key in ATTRIBUTES])}"
        )
    return key


def with_locations(text: str, locations: Mapping[NodeId, Location]) -> str:
    """The text of the next version of a cluster file, in which nodes stand elsewhere.

    Raises:
        LogDeviceError: INVALID_CONFIG: it would be no valid file, or the file is written in a way that is not edited here.
    """
    config = load_cluster(text)
    nodes = {
        node: replace(member, location=locations.get(node, member.location)) for node, member in config.nodes.items()
    }
    wanted = replace(config, version=config.version + 1, nodes=nodes)
    validate_cluster(wanted)
    document = tomlkit.parse(text)
    document["version"] = wanted.version
    for node, location in locations.items():
        table: Any = document["nodes"]
        table[f"N{node}"]["location"] = str(location)
    edited = document.as_string()
    if load_cluster(edited) != wanted:
        raise _not_understood("the nodes")
    return edited


NODE_KEYS: Final = {
    "host": str,
    "port": int,
    "roles": list,
    "location": str,
    "shards": int,
    "sequencer_weight": float,
    "storage_capacity": float,
    "state": str,
    "data_dir": str,
    "admin_port": int,
}
"""What a node's table may say, and as what."""


def parse_node_assignment(text: str) -> tuple[str, Any]:
    """Key and value of a node's table, from ``port=4440`` or ``roles=sequencer,storage``: as in the cluster file, without quotes. No value: the default holds,
    and the value is None.

    Raises:
        ValueError: there is no such key, or the value is none for it.
    """
    key, sign, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not sign:
        raise ValueError(f"{text!r}: write KEY=VALUE, like port=4440")
    if key not in NODE_KEYS:
        raise ValueError(f"{key}: a node has no such key{suggestion(key, NODE_KEYS)}")
    if not value:
        return key, None
    kind = NODE_KEYS[key]
    if kind is list:
        return key, [each.strip() for each in value.split(",")]
    try:
        return key, kind(value)
    except ValueError:
        raise ValueError(f"{key}: found {value!r}, write a number") from None


def with_node(text: str, node: NodeId, values: Mapping[str, Any]) -> str:
    """The text with a node that is new or says other things. Its version stays, and it is not checked as a whole.

    Args:
        values: by key; None: the default holds again.

    Raises:
        LogDeviceError: INVALID_CONFIG: it cannot be read then.
    """
    before, document = load_cluster(text), _document(text)
    nodes: Any = document["nodes"]
    name = f"N{node}"
    if name not in nodes:
        nodes[name] = tomlkit.inline_table() if isinstance(nodes, InlineTable) else tomlkit.table()
    for key, value in values.items():
        if value is not None:
            nodes[name][key] = value
        elif key in nodes[name]:
            del nodes[name][key]
    if node not in before.nodes and not isinstance(nodes, InlineTable):
        nodes[name].add(tomlkit.nl())
    return _only_nodes_changed(before, document.as_string(), {node})


def without_node(text: str, node: NodeId) -> str:
    """The text without a node, in [metadata_log] nodeset as well. Its version stays, and it is not checked as a whole.

    Raises:
        LogDeviceError: NOTINCONFIG: there is no such node; INVALID_CONFIG: it cannot be read then.
    """
    before, document = load_cluster(text), _document(text)
    if node not in before.nodes:
        known = ", ".join(f"N{each}" for each in before.nodes)
        raise LogDeviceError(Status.NOTINCONFIG, f"there is no N{node}; there are {known}")
    nodes: Any = document["nodes"]
    del nodes[f"N{node}"]
    metadata: Any = document.get("metadata_log", {})
    if "nodeset" in metadata:
        metadata["nodeset"] = [int(each) for each in metadata["nodeset"] if int(each) != node]
    return _only_nodes_changed(before, document.as_string(), {node})


def with_disabled_regions(text: str, regions: Collection[str]) -> str:
    """The text with other regions out of use. Its version stays, and it is not checked as a whole.

    Raises:
        LogDeviceError: INVALID_CONFIG: it is written in a way that is not edited here.
    """
    before, document = load_cluster(text), _document(text)
    told = ", ".join(sorted(regions))
    placement = {key: value for key, value in before.settings.get("placement", {}).items() if key != "disabled_regions"}
    if told:
        placement["disabled_regions"] = told
    settings: Any = document.setdefault("settings", tomlkit.table(is_super_table=True))
    section = settings.setdefault("placement", tomlkit.table())
    if told:
        section["disabled_regions"] = told
    else:
        section.pop("disabled_regions", None)
    edited = document.as_string()
    after = load_cluster(edited)
    wanted = replace(before, settings={**before.settings, "placement": placement})
    if after != wanted:
        raise _not_understood("settings.placement")
    return edited


def _document(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError):
        raise _not_understood("the file") from None


def _only_nodes_changed(before: ClusterConfig, text: str, changed: set[NodeId]) -> str:
    after = load_cluster(text)
    others = [{node: each for node, each in config.nodes.items() if node not in changed} for config in (before, after)]
    if others[0] != others[1] or replace(after, nodes=before.nodes, metadata_log=before.metadata_log) != before:
        raise _not_understood("the nodes")
    return text


class LogTreeEdit:
    """One version of a cluster file on its way to the next one. Nothing is written: `finish` gives the text."""

    def __init__(self, text: str) -> None:
        """
        Raises:
            LogDeviceError: INVALID_CONFIG.
        """
        self.config = load_cluster(text)
        """What the file says so far."""
        try:
            self._document = tomlkit.parse(text)
        except (TOMLKitError, ValueError, RecursionError):
            raise _not_understood("the file") from None
        tree = self.config.logs
        self._directories: dict[str, dict[str, Any]] = {path: dict(sets) for path, sets in tree.directories.items()}
        self._groups: dict[str, tuple[int, int, dict[str, Any]]] = {
            group.path: (int(group.lo), int(group.hi), dict(group.overrides)) for group in tree.groups
        }

    def create(self, path: str, ids: tuple[int, int] | None, attributes: Mapping[str, Any]) -> None:
        """Add a group of logs; without ids a directory.

        Raises:
            LogDeviceError: INVALID_PARAM: the path is taken.
        """
        if path in self._groups or path in self._directories:
            raise LogDeviceError(Status.INVALID_PARAM, f"{path}: is in the file already; logs update changes it")
        rows = dict(render_attribute(name, value) for name, value in attributes.items())
        if ids is None:
            self._directories[path] = dict(attributes)
        else:
            self._groups[path] = (*ids, dict(attributes))
            rows = {"ids": _ids(ids), **rows}
        places = self._places()
        if places and isinstance(places[-1], InlineTable):
            table: Table | InlineTable = tomlkit.inline_table()
            table.update(rows)
            places[-1][path] = table
            return
        if not places:
            self._document["logs"] = tomlkit.table(is_super_table=True)
            places = self._places()
        table = tomlkit.table()
        table.update(rows)
        before = places[-1].value.body
        last = before[-1][1] if before else None
        tail = _take_tail(last.value.body if isinstance(last, Table) else before)
        places[-1][path] = table
        table.value.body.extend(tail)
        if table.trivia.indent == "":
            table.trivia.indent = "\n"

    def update(
        self, path: str, ids: tuple[int, int] | None, attributes: Mapping[str, Any], unset: tuple[str, ...]
    ) -> None:
        """Change what a group or directory sets itself.

        Args:
            path: which.
            ids: other ids for a group; None: they stay.
            attributes: by field name.
            unset: keys that are not set there any more, so that those of the directories above hold.

        Raises:
            LogDeviceError: NOTFOUND, INVALID_PARAM.
        """
        self._must_exist(path)
        rows = dict(render_attribute(name, value) for name, value in attributes.items())
        if path in self._groups:
            lo, hi, overrides = self._groups[path]
            if ids is not None:
                lo, hi = ids
                rows = {"ids": _ids(ids), **rows}
            self._groups[path] = lo, hi, overrides
        else:
            overrides = self._directories[path]
            if ids is not None:
                raise LogDeviceError(Status.INVALID_PARAM, f"{path}: is a directory, only groups have ids")
        overrides.update(attributes)
        for key in unset:
            name = ATTRIBUTES[key].name
            if name not in overrides:
                raise LogDeviceError(Status.INVALID_PARAM, f"{path}: does not set {key} itself")
            del overrides[name]
        table = next(place[path] for place in self._places() if path in place)
        try:
            for key in unset:
                del table[_key_in(table, key)]
            tail = _take_tail(table.value.body) if type(table) is Table else []
            for key, value in rows.items():
                table[_key_in(table, key)] = value
            if tail:
                table.value.body.extend(tail)
        except TOMLKitError:
            raise _not_understood(path) from None

    def delete(self, path: str) -> None:
        """Take a group or directory out.

        Raises:
            LogDeviceError: NOTFOUND.
        """
        self._must_exist(path)
        self._groups.pop(path, None)
        self._directories.pop(path, None)
        for place in self._places():
            if path not in place:
                continue
            body = place.value.body
            tails = {
                at: _take_tail(item.value.body)
                for at, (key, item) in enumerate(body)
                if key is not None and key.key == path and isinstance(item, Table)
            }
            del place[path]
            for at, tail in tails.items():
                # what stands above the next table stays, below what stands above this one; an empty line between them goes
                text = "".join(item.as_string() for _, item in tail)
                above = body[at - 1][1].as_string().splitlines() if at else []
                if not above or not above[-1] or above[-1].startswith("#"):
                    text = text.removeprefix("\n")
                body[at] = (None, tomlkit.ws(text))

    def finish(self) -> str:
        """The text of the next version.

        Raises:
            LogDeviceError: INVALID_CONFIG: what was wanted is no valid file, or the file is written in a way that is not edited here.
        """
        version = self.config.version + 1
        try:
            tree = LogTree.build(
                defaults=self.config.logs.defaults,
                directories=self._directories,
                groups=[(path, *group) for path, group in self._groups.items()],
            )
        except ValueError as error:
            raise invalid("logs", str(error)) from None
        wanted = replace(self.config, version=version, logs=tree)
        validate_cluster(wanted)
        self._document["version"] = version
        text = self._document.as_string()
        try:
            found = load_cluster(text)
        except LogDeviceError:
            found = None
        if found != wanted:
            raise _not_understood("the log tree")
        return text

    def _must_exist(self, path: str) -> None:
        if path not in self._groups and path not in self._directories:
            known = [*self._groups, *self._directories]
            raise LogDeviceError(Status.NOTFOUND, f"{path}: no such group or directory{suggestion(path, known)}")

    def _places(self) -> list[Table | InlineTable]:
        """Where the file has parts of the log tree: one table, unless others stand in between."""
        return [
            item
            for key, item in self._document.body
            if key is not None and key.key == "logs" and isinstance(item, Table | InlineTable)
        ]


def _take_tail(body: _Body) -> _Body:
    """Take off the comments and empty lines at the end of a table, which belong to what follows it."""
    end = len(body)
    while end and body[end - 1][0] is None and isinstance(body[end - 1][1], Comment | Whitespace | Null):
        end -= 1
    tail = body[end:]
    del body[end:]
    return tail


def _key_in(table: Mapping[str, Any], key: str) -> str:
    """As the table names the attribute: with or without its unit."""
    short = key.removesuffix("_us")
    return short if short in table else key


def _ids(ids: tuple[int, int]) -> int | str:
    return ids[0] if ids[0] == ids[1] else f"{ids[0]}..{ids[1]}"


def _not_understood(what: str) -> LogDeviceError:
    return LogDeviceError(
        Status.INVALID_CONFIG,
        f'{what} is written in a way that is not edited here: give each part of the log tree a table like [logs."/team/clicks"], or edit the file '
        "by hand and raise its version",
    )
