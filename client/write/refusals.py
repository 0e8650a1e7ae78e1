"""What answers other than OK mean for a frame of a write stream."""

from __future__ import annotations

from typing import Final

from client.guards import GUARD_REFUSALS
from logdevice_py.core.lsn import esn_of
from logdevice_py.core.status import TRAITS, Status
from logdevice_py.protocol.messages import Appended, AppendedFlags

_NOT_REPLICATED: Final = int(AppendedFlags.NOT_REPLICATED)

FATAL = frozenset(
    {
        Status.ACCESS,
        Status.TOOBIG,
        Status.BADPAYLOAD,
        Status.NOTFOUND,
        Status.INVALID_PARAM,
        Status.INVALID_CLUSTER,
        Status.NOTSUPPORTED,
        Status.NOTINCONFIG,
        Status.PROTO,
    }
    | GUARD_REFUSALS
)
"""Refusals that another try would not change: the frame fails."""
HERE = frozenset({Status.SEQNOBUFS, Status.OVERLOADED, Status.NOSPC, Status.UNROUTABLE, Status.DISABLED, Status.AGAIN})
"""Refusals by a sequencer that goes on in its epoch."""


def is_certain(answer: Appended) -> bool:
    """The frame certainly is stored nowhere. False: it may have got the position that the answer names, or any."""
    if answer.flags & _NOT_REPLICATED:
        return True
    # STALE and WRITE_STREAM_UNKNOWN name the epoch of the sequencer, with ESN 0.
    return not TRAITS[answer.status].maybe_applied and esn_of(answer.lsn) == 0
