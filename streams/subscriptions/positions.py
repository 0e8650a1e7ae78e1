"""Positions in what readers deliver: where a batch ends, and what of it lies behind a position."""

from __future__ import annotations

from client.guards import START, Position
from client.read.batch import RecordBatch
from client.read.items import Gap, RecordRun
from client.replica.commands import OFFSET_MAX
from logdevice_py.core.lsn import LSN


def last_position(batch: RecordBatch) -> Position:
    """Of its last record, or the end of the gap behind that; `START` for an empty batch."""
    last = START
    if batch.runs:
        run = batch.runs[-1]
        last = Position(LSN(run.lsn), run.batch_offset + run.count - 1)
    if gaps := batch.gaps:
        last = max(last, Position(gaps[-1].hi, 0))
    return last


def before(position: Position) -> Position:
    """What is handled when everything before a position is; `START` before the first one."""
    if position.batch_offset:
        return Position(position.lsn, position.batch_offset - 1)
    return Position(LSN(position.lsn - 1), OFFSET_MAX) if position.lsn else START


def behind(batch: RecordBatch, position: Position) -> RecordBatch:
    """What of it lies behind a position: the same batch if all does."""
    if (not batch.runs or batch.runs[0].lsn > position.lsn) and all(gap.lo > position.lsn for gap in batch.gaps):
        return batch
    kept = RecordBatch(batch.log)
    kept.log_group = batch.log_group
    for part in batch.runs_and_gaps():
        if isinstance(part, Gap):
            if part.hi > position.lsn:
                kept.add_gap(Gap(part.kind, max(part.lo, LSN(position.lsn + 1)), part.hi, part.loss))
            continue
        payloads, run = part
        done = 0
        if run.lsn <= position.lsn:
            done = position.batch_offset + 1 - run.batch_offset if run.lsn == position.lsn else run.count
            done = max(0, min(done, run.count))
        if done < run.count:
            keys = None if run.keys is None else run.keys[done:]
            rest = RecordRun(run.lsn, run.timestamp, run.batch_offset + done, run.count - done, keys)
            kept.add_records(payloads[done:], rest)
    return kept
