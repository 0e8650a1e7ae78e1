"""Table `quotas`: what each quota has left, and how often it throttled."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from logdevice_py.config.quotas import PrincipalQuota
from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.units import SECOND
from logdevice_py.shell.principal_quotas import PrincipalQuotas
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.quotas import QuotasRow
from server.admin.quota_tables import quotas_rows
from tests.unit.sequencer.fakes import LOG, World, active, make_config
from tests.unit.storage_node.fakes import SYNC_LOG
from tests.unit.storage_node.reading.test_read_quotas import SIZE, filled, read


def test_rows_tell_what_is_left_and_how_often_somebody_was_held_back() -> None:
    world: World = active(config=make_config(append_bytes_per_s=1000))
    world.run(60 * SECOND)
    for _ in range(3):
        world.append(b"x" * 600)
        world.run()
    storing = filled(read_bytes_per_s=SIZE)
    read(storing, 1)
    quotas = PrincipalQuotas(
        replace(make_config(), quotas={"*": PrincipalQuota(append_records_per_s=9, look_ups_per_s=7)})
    )
    quotas.appends(PeerId(-1))
    quotas.look_ups(PeerId(-1))
    node: Any = SimpleNamespace(sequencer=world.node, storage=storing.node, quotas=quotas)
    throttled = world.sequencer.meter.throttled  # type: ignore[union-attr]
    assert throttled >= 2
    rows = list(quotas_rows(node, Constraints(), world.now))
    assert rows == [
        QuotasRow("APPEND", LOG, None, 1000, 0, 400, None, throttled),
        QuotasRow("READ", SYNC_LOG, None, SIZE, 0, rows[1].bytes_available, None, 1),
        QuotasRow("APPEND", None, "anonymous", 0, 9, None, 0, 0),
        QuotasRow("LOOK_UP", None, "anonymous", 0, 7, None, 0, 0),
    ]
    assert [row.log_id for row in quotas_rows(node, Constraints(log_id=LogId(LOG)), world.now)] == [LOG]
