"""Rows of table `quotas`."""

from __future__ import annotations

from collections.abc import Iterator

from logdevice_py.core.ids import LogId
from logdevice_py.core.token_bucket import Meter
from logdevice_py.core.units import Micros
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.quotas import QuotaOperation, QuotasRow
from server.node import Node


def quotas_rows(node: Node, constraints: Constraints, now: Micros) -> Iterator[QuotasRow]:
    """Table `quotas`."""
    wanted = constraints.log_id
    if node.sequencer is not None:
        sequencers = node.sequencer.sequencers
        for log in list(sequencers) if wanted is None else [wanted]:
            sequencer = sequencers.get(log)
            if sequencer is not None and sequencer.meter is not None:
                yield _row(QuotaOperation.APPEND, sequencer.meter, now, log=log)
    if node.storage is not None:
        for log, meter in node.storage.read_quotas.meters():
            if wanted in (None, log):
                yield _row(QuotaOperation.READ, meter, now, log=log)
    if wanted is None:
        for principal, meter in node.quotas.append_meters():
            yield _row(QuotaOperation.APPEND, meter, now, principal=principal)
        for principal, meter in node.quotas.read_meters():
            yield _row(QuotaOperation.READ, meter, now, principal=principal)
        for principal, meter in node.quotas.look_up_meters():
            yield _row(QuotaOperation.LOOK_UP, meter, now, principal=principal)


def _row(
    operation: QuotaOperation, meter: Meter, now: Micros, *, log: LogId | None = None, principal: str | None = None
) -> QuotasRow:
    return QuotasRow(
        operation=operation.name,
        log_id=log,
        principal=principal,
        bytes_per_s=meter.rates.bytes_per_s,
        records_per_s=meter.rates.records_per_s,
        bytes_available=meter.bytes_available(now),
        records_available=meter.records_available(now),
        throttled=meter.throttled,
    )
