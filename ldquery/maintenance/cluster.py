"""A real cluster, for managers: what its nodes and its event log say, and shards that are emptied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from client.client import Client
from client.node_tables import NodeAsker
from ldquery.ctl.event_log import call_off_drain, read_rebuilding_set, start_rebuilding
from ldquery.ctl.health import all_of, ask_tables
from ldquery.ctl.impact import Survey, keep_event_log, know_all_logs, survey
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import ShardId, format_shard
from logdevice_py.core.some_names import name_some
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.event_log.rebuilding_set import RebuildingSet

_NAMED: Final = 5


def rows_of_set(state: RebuildingSet) -> list[dict[str, Any]]:
    """What a survey needs of a rebuilding set, as rows of table `shard_rebuildings`."""
    return [
        {
            "rebuilding_shard": format_shard(shard),
            "generation": entry.generation,
            "mode": entry.mode.name,
            "status": entry.status,
            "recoverable": int(entry.recoverable),
            "version": state.version,
        }
        for shard, entry in sorted(state.shards.items())
    ]


class ClusterDrains:
    """Says in the event log what is to be emptied."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def begin(self, shard: ShardId) -> None:
        """As `Drains.begin`."""
        await start_rebuilding(self._client, shard, RebuildMode.RELOCATE, "maintenance")

    async def progress(self, shards: Iterable[ShardId]) -> dict[ShardId, str | None]:
        """As `Drains.progress`."""
        state = await read_rebuilding_set(self._client)
        known, awaited = state.shards, [donor for donor in state.donors if state.awaits(donor)]
        found: dict[ShardId, str | None] = {}
        for shard in shards:
            entry = known.get(shard)
            if entry is None or not (entry.mode is RebuildMode.RELOCATE or entry.drained):
                found[shard] = None
            else:
                status = entry.status
                if status == "rebuilding" and awaited:
                    status += f", waits for {name_some(map(format_shard, awaited), _NAMED)}"
                found[shard] = status if entry.mode is RebuildMode.RELOCATE else f"lost, {status}"
        return found

    async def call_off(self, shard: ShardId) -> str | None:
        """As `Drains.call_off`. The rebuilding of one that is lost goes on: only its drain is not wanted."""
        entry = await call_off_drain(self._client, shard)
        if entry is None or (entry.mode is RebuildMode.RESTORE and not entry.drained):
            return None
        return f"{format_shard(shard)} was lost while it was drained ({entry.status}); it is used again when it is back"


class ClusterSurvey:
    """Asks nodes, and reads the event log and the log tree before: what nodes say of these may be late."""

    def __init__(self, client: Client, asker: NodeAsker, seconds: float) -> None:
        """
        Args:
            seconds: for each round of questions.
        """
        self._client = client
        self._asker = asker
        self._seconds = seconds

    async def __call__(self) -> Survey:
        config = self._client.config
        known, own = self._client.session.view.config_version, config.version
        if known > own:
            raise LogDeviceError(
                Status.AGAIN,
                f"nodes have version {known} of the cluster file, this is version {own}",
                maybe_applied=False,
            )
        rows: list[dict[str, Any]] | None = []
        if config.rebuilding_enabled:
            rows = rows_of_set(await read_rebuilding_set(self._client)) if await self._is_kept(config) else None
        await know_all_logs(self._client, self._seconds)
        return await survey(config, self._asker, self._seconds, rebuildings=rows)

    async def _is_kept(self, config: ClusterConfig) -> bool:
        if not config.rebuilding_by_default:
            return True
        infos, _ = await ask_tables(self._asker, list(config.nodes), ("info",), self._seconds)
        return keep_event_log(config, all_of(infos, "info"))
