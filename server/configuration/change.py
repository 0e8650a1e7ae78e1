"""A change of the stored configuration, as a node makes it that is asked: judged as a whole, then stored if nobody else changed it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from epoch_store.interface import ChangeConfiguration, Operation, Result
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.stored import (
    SAID_MAX,
    ConfigurationVersion,
    StoredConfiguration,
    ToNextConfiguration,
    with_version,
)
from logdevice_py.core.ids import NodeId, ShardId, format_shard
from logdevice_py.core.some_names import name_some
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.placement.configuration_changes import departing, why_refused
from server.configuration.keeper import ConfigurationKeeper, ask_epoch_store
from server.node import Node
from server.node_settings import NodeSettings

NO_NODES = "none"
"""How a request says that the data of no node may be lost."""
_EVENT_LOG_SECONDS: Final = 5.0
"""For how long a change that takes storage out waits for what the event log says at this moment."""
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class WantedChange:
    """What somebody asks for."""

    base: int
    """The version that the text was made from; it stands in the text as well."""
    text: str
    accepted: frozenset[NodeId]
    """Nodes whose data may be lost."""


def empty_shards(node: Node) -> set[ShardId]:
    """Shards of which everything is stored elsewhere, as far as the node has heard; none before it has read the event log: in the middle of it a drain
    stands as done that was called off later."""
    if node.rebuilding is None or not node.rebuilding.replica.caught_up:
        return set()
    shards = node.rebuilding.set.shards.items()
    return {shard for shard, each in shards if each.restored >= max(each.generation, node.gossip.generation(shard))}


class ConfiguredNode(Protocol):
    """What a change needs of the node that is asked for it."""

    configuration: ConfigurationKeeper

    @property
    def config(self) -> ClusterConfig:
        """The version in force."""

    @property
    def node(self) -> Node:
        """Its root."""

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Have the root's machines do something at this moment."""

    def ask_epoch_store(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        """Run operations of the epoch store."""

    def use_stored(self, config: ClusterConfig) -> None:
        """A stored configuration came into force, which the node keeps."""


async def change_configuration(host: ConfiguredNode, given: Mapping[str, Any]) -> dict[str, Any]:
    """Action `change_configuration`."""
    wanted = WantedChange(given["base"], given["text"], _nodes(given["accept_data_loss"]))
    keeper = host.configuration
    result = await keeper.read()
    if result.status not in (Status.OK, Status.EMPTY):
        raise LogDeviceError(
            result.status,
            f"the epoch store does not answer, so nothing is changed: {result.detail or result.status.name}",
        )
    stored = keeper.in_force.stored
    _check_base(wanted.base, stored, host.config.version, host.node.gossip.config_version)
    going = await asyncio.to_thread(_going_shards, wanted, stored, host.config)
    empty = await _known_empty(host, going) if going else set()
    after, text, changed = await asyncio.to_thread(judge, wanted, stored, host.config, empty)
    if not changed or given["dry_run"]:
        return {"version": after.version if changed else wanted.base, "changed": changed, "stored": False}
    who, why = given["who"][:SAID_MAX], given["why"][:SAID_MAX]
    change = ToNextConfiguration(wanted.base, ConfigurationVersion(after.version, keeper.wall(), who, why, text))
    result = await ask_epoch_store(host.ask_epoch_store, ChangeConfiguration(change))
    found = result.value if isinstance(result.value, StoredConfiguration) else None
    if result.status is Status.STALE and found is not None:
        raise _changed_meanwhile(wanted.base, found)
    if result.status is Status.TOOBIG:
        raise LogDeviceError(
            Status.TOOBIG,
            "the configuration is too large for the epoch store: groups of logs can stand in the log tree",
        )
    if result.status is not Status.OK or found is None:
        maybe = "; it may have been made all the same: ldctl config history tells" if result.maybe_applied else ""
        raise LogDeviceError(result.status, f"the change is not answered: {result.detail or result.status.name}{maybe}")
    keeper.in_force.stored = found
    await keeper.use(after, text)
    host.use_stored(after)
    return {"version": after.version, "changed": True, "stored": True}


def _going_shards(wanted: WantedChange, stored: StoredConfiguration | None, in_force: ClusterConfig) -> list[ShardId]:
    """Shards that a change takes out and whose data may not be lost.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    gone, unlisted = departing(known_versions(stored, in_force)[-1], load_cluster(wanted.text), wanted.accepted)
    return [*gone, *unlisted]


async def _known_empty(host: ConfiguredNode, going: Sequence[ShardId]) -> set[ShardId]:
    """The shards that are empty by the event log, read to its end of this moment: an old "drained" would excuse a loss.

    Raises:
        LogDeviceError: AGAIN: its end is not known.
    """
    rebuilding = host.node.rebuilding
    if rebuilding is None:
        return set()
    read: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def done(error: BaseException | None, now: Micros) -> None:
        if not read.done():
            read.set_result(error)

    host.event(lambda now: rebuilding.replica.confirm(done, now, round(_EVENT_LOG_SECONDS * SECOND)))
    error: BaseException | None
    try:
        async with asyncio.timeout(_EVENT_LOG_SECONDS):
            error = await read
    except TimeoutError:
        error = LogDeviceError(Status.TIMEDOUT, f"it was not read to its end within {_EVENT_LOG_SECONDS:g} s")
    if error is not None:
        raise LogDeviceError(
            Status.AGAIN,
            f"whether everything of {name_some(map(format_shard, going), _NAMED)} is stored elsewhere is not known, so nothing is changed: "
            f"the event log does not tell ({error})",
        )
    return empty_shards(host.node)


def _nodes(text: str) -> frozenset[NodeId]:
    if text == NO_NODES:
        return frozenset()
    names = [name.strip() for name in text.split(",")]
    if not all(name.startswith("N") and name[1:].isdecimal() for name in names):
        raise LogDeviceError(Status.INVALID_PARAM, f"accept_data_loss: write nodes like N3,N4, or {NO_NODES}")
    return frozenset(NodeId(int(name[1:])) for name in names)


def _check_base(base: int, stored: StoredConfiguration | None, in_force: int, heard: int) -> None:
    """A change is made from the newest version that there is."""
    newest = max(0 if stored is None else stored.version, in_force, heard)
    if base == newest:
        return
    if stored is not None and stored.version > base:
        raise _changed_meanwhile(base, stored)
    if base > newest:
        raise LogDeviceError(
            Status.INVALID_PARAM,
            f"the text has version {base}, the newest is {newest}: leave the version in it as it was read; whoever stores it raises it",
        )
    raise LogDeviceError(
        Status.STALE,
        f"the text has version {base}, version {newest} is in force by now: make the change in what ldctl config show prints",
    )


def _changed_meanwhile(base: int, stored: StoredConfiguration) -> LogDeviceError:
    made = stored.current
    return LogDeviceError(
        Status.STALE,
        f"the text was made from version {base}, and {made.who} stored version {made.version} since ({made.why}): nothing is changed. "
        "Make the change in what ldctl config show prints",
    )


def judge(
    wanted: WantedChange, stored: StoredConfiguration | None, in_force: ClusterConfig, empty: set[ShardId]
) -> tuple[ClusterConfig, str, bool]:
    """What would be stored, and whether it is anything new.

    Raises:
        LogDeviceError: INVALID_CONFIG, with all reasons.
    """
    given = load_cluster(wanted.text)
    if given.version != wanted.base:
        raise LogDeviceError(
            Status.INVALID_PARAM, f"the text has version {given.version}, the request version {wanted.base}"
        )
    text = with_version(wanted.text, wanted.base + 1)
    try:
        after = load_cluster(text)
    except LogDeviceError:
        after = given
    if after != replace(given, version=wanted.base + 1):
        raise LogDeviceError(Status.INVALID_CONFIG, "version: write it at the beginning of a line: version = 7")
    earlier = known_versions(stored, in_force)
    reasons = [*why_refused(earlier, after, empty, wanted.accepted), *_settings(after)]
    if reasons:
        raise LogDeviceError(Status.INVALID_CONFIG, "\n".join(reasons))
    last = None if stored is None else stored.current
    changed = last is None or last.version != wanted.base or last.text != wanted.text
    return after, text, changed


def known_versions(stored: StoredConfiguration | None, in_force: ClusterConfig) -> list[ClusterConfig]:
    """All versions that are kept, and the one in force, the oldest first; those that this release cannot read are left out."""
    found = {in_force.version: in_force}
    for each in () if stored is None else stored.versions:
        try:
            found[each.version] = load_cluster(each.text)
        except LogDeviceError:
            continue
    return [found[version] for version in sorted(found)]


def _settings(after: ClusterConfig) -> Sequence[str]:
    try:
        NodeSettings.of(after.settings)
    except LogDeviceError as error:
        return [str(error.detail)]
    return []
