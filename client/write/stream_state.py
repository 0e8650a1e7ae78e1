"""Where a write stream stands, and what that means for who waits for its records."""

from __future__ import annotations

import enum
from typing import Final

from logdevice_py.core.states import MachineState, transitions
from logdevice_py.core.status import Status


class WriteStreamState(MachineState):
    """Of a write stream. Frames are in flight in STREAMING and DRAINING only."""

    LOCATING = enum.auto()  # asks which epoch the log is in, and where
    STREAMING = enum.auto()  # sends in `epoch`
    DRAINING = enum.auto()  # a frame was refused or lost: sends nothing, waits for the answers to the others
    PAUSED = enum.auto()  # waits before it tries again
    MOVING = (
        enum.auto()
    )  # frames have an unknown outcome in `epoch`: makes the log leave it, waits until it is recovered
    READING = enum.auto()  # reads its own frames of `epoch`
    BROKEN = enum.auto()  # somebody else sends under its writer id: everything fails
    CLOSED = enum.auto()  # its writer was closed


_S = WriteStreamState
WRITE_STREAM_TRANSITIONS: Final = transitions(
    {
        _S.LOCATING: (_S.LOCATING, _S.STREAMING, _S.READING, _S.CLOSED),
        _S.STREAMING: (_S.DRAINING, _S.CLOSED),
        _S.DRAINING: (_S.DRAINING, _S.STREAMING, _S.PAUSED, _S.MOVING, _S.LOCATING, _S.BROKEN, _S.CLOSED),
        _S.PAUSED: (_S.STREAMING, _S.LOCATING, _S.CLOSED),
        _S.MOVING: (_S.STREAMING, _S.READING, _S.LOCATING, _S.BROKEN, _S.CLOSED),
        _S.READING: (_S.STREAMING, _S.LOCATING, _S.BROKEN, _S.CLOSED),
        _S.BROKEN: (_S.BROKEN, _S.CLOSED),
        _S.CLOSED: (),
    }
)

_TEXTS: Final = {
    WriteStreamState.LOCATING: "the sequencer of the log to answer",
    WriteStreamState.STREAMING: "the sequencer to acknowledge",
    WriteStreamState.DRAINING: "the sequencer to answer to what it was sent",
    WriteStreamState.PAUSED: "the next try",
    WriteStreamState.MOVING: "the recovery of epoch {epoch}, in which the outcome of records is not known",
    WriteStreamState.READING: "records of epoch {epoch} to be read whose outcome is not known",
    WriteStreamState.BROKEN: "nothing: somebody else sends under the writer id of this stream",
    WriteStreamState.CLOSED: "nothing: the writer is closed",
}


def explain_wait(state: WriteStreamState, epoch: int, refusal: Status, more: str) -> str:
    """What records wait for, for people.

    Args:
        refusal: the latest one since anything was acknowledged; OK: none.
        more: what that itself waits for, if it is known.
    """
    text = _TEXTS[state].format(epoch=epoch)
    if more:
        text += f": {more}"
    return text if refusal is Status.OK else f"{text} (last refusal: {refusal.name})"
