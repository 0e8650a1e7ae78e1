"""Appends as frames, for tests that speak to a transport."""

from __future__ import annotations

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_INVALID, Epoch
from logdevice_py.protocol.messages import Append


def an_append(payload: bytes, request_id: int = 1) -> Append:
    """One record for log 1."""
    return Append(
        request_id=request_id,
        log=LogId(1),
        flags=0,
        records=1,
        crc=0,
        seen_epoch=Epoch(0),
        previous_lsn=LSN_INVALID,
        writer=b"",
        sequence=0,
        stream_epoch=Epoch(0),
        payload=payload,
    )
