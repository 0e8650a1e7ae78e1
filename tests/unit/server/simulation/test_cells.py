"""The cells of the simulated epoch store."""

from __future__ import annotations

from epoch_store.cells import Cell, ConditionalWrite, WriteId, WriterIdentity, decide, decode_last_clean_epoch
from epoch_store.interface import SetLastCleanEpoch
from logdevice_py.core.extensions import TailState
from logdevice_py.core.ids import InstanceId, LogId, NodeId
from logdevice_py.core.lsn import Epoch, Esn, compose_lsn
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import TailRecord
from server.simulation.epoch_store import SimCells


def test_a_cell_that_somebody_else_writes_as_it_is_says_what_it_said() -> None:
    cells, key = SimCells(), "logs/3/lce"
    tail = TailRecord(compose_lsn(Epoch(9), Esn(1)), Timestamp(5), 1, TailState(transaction=7, fence=15))
    write = WriteId(WriterIdentity(NodeId(1), InstanceId(1)), 1)
    change = decide(SetLastCleanEpoch(LogId(3), Epoch(9), tail), None, write)
    assert isinstance(change, ConditionalWrite)
    cells.put(key, Cell(1, change.content))
    cells.touch(key)
    assert cells.cells[key].version == 2
    assert decode_last_clean_epoch(cells.cells[key].content).tail == tail
