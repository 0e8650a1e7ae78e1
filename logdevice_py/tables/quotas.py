"""Quotas, as nodes count them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from logdevice_py.tables.declare import ColumnKind, TableSource, column, table

_INTEGER, _TEXT, _LOG = ColumnKind.INTEGER, ColumnKind.TEXT, ColumnKind.LOG


class QuotaOperation(enum.Enum):
    """What a quota counts; the value says what that is."""

    APPEND = "Appends: of a log at its sequencer, of a principal at each node that sequences."
    READ = "What a node sends to readers: of a log, or to a principal."
    LOOK_UP = "Look-ups that a node begins for a principal; they are told as records."


@table("quotas", TableSource.EVERY_NODE)
@dataclass(slots=True)
class QuotasRow:
    """A quota of a log or of a principal, at a node that counts it. Those that nobody used there yet are not listed."""

    operation: str = column(_TEXT, "What is counted.", words=QuotaOperation)
    log_id: int | None = column(_LOG, "The log; NULL: it is the quota of a principal.")
    principal: str | None = column(_TEXT, "The principal; NULL: it is the quota of a log.")
    bytes_per_s: int = column(_INTEGER, "How many bytes a second; 0: no limit.")
    records_per_s: int = column(_INTEGER, "How many records a second; 0: no limit.")
    bytes_available: int | None = column(
        _INTEGER, "Bytes that may be used at once; below 0: they are owed. NULL: not counted."
    )
    records_available: int | None = column(_INTEGER, "The same of records.")
    throttled: int = column(_INTEGER, "How often something was refused, or had to wait, because of it.")
