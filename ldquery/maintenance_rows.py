"""Rows of the table of maintenances, as the log of them says."""

from __future__ import annotations

from collections.abc import Iterator

from client.maintenance.state import Maintenance, MaintenancesState
from ldquery.maintenance.manager import MaintenanceLog, is_used, kind_named
from ldquery.own_client import OwnClient
from logdevice_py.tables.maintenance import MaintenancesRow


class MaintenanceRows:
    """Asks as the session's client. Everything on one event loop."""

    def __init__(self, client: OwnClient) -> None:
        self._client = client
        self._log: MaintenanceLog | None = None

    async def close(self) -> None:
        """Stop reading; before the client is closed."""
        if self._log is not None:
            await self._log.__aexit__(None, None, None)

    async def rows(self, seconds: float) -> list[MaintenancesRow]:
        """All rows, as they are at this moment.

        Raises:
            LogDeviceError: TIMEDOUT, which says what is waited for; ACCESS.
        """
        if self._log is None:
            client = await self._client.opened()
            if not await is_used(client, seconds):
                return []
            log = MaintenanceLog(client, snapshot_every=0)
            await log.__aenter__()
            self._log = log
        self._log.timeout = seconds
        return list(maintenances_rows(await self._log.current()))


def maintenances_rows(state: MaintenancesState) -> Iterator[MaintenancesRow]:
    """Table `maintenances`: those that are over come first."""
    return (_row(each) for each in (*state.ended, *state.live.values()))


def _row(each: Maintenance) -> MaintenancesRow:
    wanted = each.wanted
    return MaintenancesRow(
        number=each.number,
        who=each.names,
        kind=kind_named(wanted.kind),
        phase=each.phase.name.lower(),
        cause=None if each.cause is None else each.cause.name.lower(),
        applied_time=each.applied,
        since_time=each.since,
        for_us=wanted.for_us or None,
        expires_time=each.expires,
        requested_by=wanted.by,
        reason=wanted.reason,
        restart=wanted.restart or None,
    )
