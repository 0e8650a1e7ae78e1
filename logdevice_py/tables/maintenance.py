"""Tables of maintenances."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _TIME = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.TIME


@table("maintenances", TableSource.MAINTENANCES)
@dataclass(slots=True)
class MaintenancesRow:
    """A maintenance that waits, is granted or ends. Those that were over last come first. Empty where no log of them is kept."""

    number: int = column(_INTEGER, "Its number.")
    who: str = column(_TEXT, "What it concerns: nodes like N3, and shards like N3:S0.")
    kind: str = column(_TEXT, "may disappear, or drain.")
    phase: str = column(
        _TEXT,
        "waiting: it is not safe yet; granted: they may disappear; draining; drained: empty, they may disappear; ending: they are to be used again; over.",
    )
    cause: str | None = column(_TEXT, "Why it is over, or ends: done, expired, left the cluster file, or cancelled.")
    applied_time: int = column(_TIME, "When it was asked for.")
    since_time: int = column(
        _TIME, "Since when it is in its phase; drained: since when it is drained or being drained, where it has a time."
    )
    for_us: int | None = column(_INTEGER, "For how long, in microseconds; NULL: as long as it takes.")
    expires_time: int | None = column(_TIME, "When its time is over; NULL: never.")
    requested_by: str = column(_TEXT, "Who asked for it.")
    reason: str = column(_TEXT, "Why.")
    restart: int | None = column(_INTEGER, "The rolling restart that it is a part of.")
