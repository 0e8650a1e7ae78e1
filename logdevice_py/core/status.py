"""Status codes: what an operation came to, and what the caller may do next.

A status exists only if some caller reacts differently to it. Names are LogDevice's. Inside machines a status travels as a value in a
message; the client raises `LogDeviceError` from it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Status(enum.IntEnum):
    """Wire numbers; a number that was removed is never used again. `TRAITS` says what each means for a caller."""

    OK = 0
    NOTFOUND = 1
    TIMEDOUT = 2
    NOSEQUENCER = 3
    CONNFAILED = 4
    TOOBIG = 6
    PREEMPTED = 8
    INTERNAL = 11
    ACCESS = 15
    DISABLED = 21
    EXISTS = 22
    SHUTDOWN = 23
    PROTO = 26
    PEER_CLOSED = 27
    SEQNOBUFS = 28
    ABORTED = 30
    NOTSTORAGE = 33
    AGAIN = 34
    PARTIAL = 35
    STALE = 38
    NOSPC = 39
    OVERLOADED = 40
    FAILED = 43
    REBUILDING = 45
    REDIRECTED = 46
    BADPAYLOAD = 48
    NOTREADY = 50
    NOTSUPPORTED = 53
    NOTINCONFIG = 54
    ISOLATED = 55
    UNROUTABLE = 56
    NOBUFS = 57
    DATALOSS = 61
    EMPTY = 62
    INVALID_PARAM = 100
    INVALID_CLUSTER = 101
    INVALID_CONFIG = 102
    NOTEMPTY = 112
    VERSION_MISMATCH = 500
    WRITE_STREAM_UNKNOWN = 700
    WRITE_STREAM_BROKEN = 701
    CONFLICT = 710
    FENCED = 711
    ENDED = 712
    TRANSACTION_ID_TOO_LOW = 713
    THROTTLED = 714
    NOKEY = 715
    MISPLACED = 716


@dataclass(frozen=True, slots=True)
class Traits:
    """What a status means: `retriable` (the same call may succeed later), `maybe_applied` (the operation may have taken effect)."""

    retriable: bool
    maybe_applied: bool
    meaning: str


_T = Traits
TRAITS: Final[dict[Status, Traits]] = {
    Status.OK: _T(False, False, "done"),
    Status.NOTFOUND: _T(False, False, "no such log, or no such thing in it"),
    Status.TIMEDOUT: _T(True, True, "no answer in time; the operation may have taken effect"),
    Status.NOSEQUENCER: _T(True, False, "no node sequences the log at present"),
    Status.CONNFAILED: _T(True, False, "no node could be reached; nothing was sent"),
    Status.TOOBIG: _T(False, False, "larger than the limit that the message names"),
    Status.PREEMPTED: _T(True, False, "another sequencer or recovery took over"),
    Status.INTERNAL: _T(False, True, "a server met a condition that should not occur; see its log"),
    Status.DISABLED: _T(True, False, "the shard or log does not take writes"),
    Status.EXISTS: _T(False, False, "there is something of that name already"),
    Status.SHUTDOWN: _T(True, False, "the node or client is shutting down"),
    Status.PROTO: _T(False, False, "the peer broke the protocol"),
    Status.PEER_CLOSED: _T(
        True, True, "the connection broke before the answer came; the operation may have taken effect"
    ),
    Status.SEQNOBUFS: _T(True, False, "the sequencer's window or hold buffer is full"),
    Status.ABORTED: _T(True, True, "the append was aborted in the middle; it may have taken effect"),
    Status.NOTSTORAGE: _T(False, False, "the node has no such shard"),
    Status.AGAIN: _T(True, False, "not known yet; ask again"),
    Status.PARTIAL: _T(True, True, "some shards did not answer"),
    Status.ACCESS: _T(False, False, "the sender may not do this"),
    Status.STALE: _T(True, False, "the sender's epoch or version is out of date"),
    Status.NOSPC: _T(True, False, "too many shards of the nodeset are out of disk space"),
    Status.OVERLOADED: _T(True, False, "too many shards of the nodeset are overloaded"),
    Status.FAILED: _T(False, False, "the shard's disk failed; it refuses work until it is reopened and verified"),
    Status.REBUILDING: _T(True, False, "the shard lost what the epoch asked for and is not authoritative for it"),
    Status.REDIRECTED: _T(True, False, "another node sequences the log"),
    Status.BADPAYLOAD: _T(False, False, "the payload does not match its checksum or its record count"),
    Status.NOTREADY: _T(True, False, "the node is starting"),
    Status.NOTSUPPORTED: _T(False, False, "the peer does not know the request"),
    Status.NOTINCONFIG: _T(False, False, "the node or shard is not in the cluster file"),
    Status.ISOLATED: _T(True, False, "the node cannot see most of the cluster"),
    Status.UNROUTABLE: _T(True, False, "too many shards of the nodeset cannot be reached"),
    Status.NOBUFS: _T(True, False, "a local buffer is full; wait for earlier operations"),
    Status.DATALOSS: _T(False, False, "records that should exist are gone from more shards than the log tolerates"),
    Status.EMPTY: _T(False, False, "nothing there yet"),
    Status.INVALID_PARAM: _T(False, False, "an argument is out of range"),
    Status.INVALID_CLUSTER: _T(False, False, "the peer belongs to another cluster"),
    Status.INVALID_CONFIG: _T(False, False, "the cluster file is not valid"),
    Status.NOTEMPTY: _T(False, False, "the directory holds something"),
    Status.VERSION_MISMATCH: _T(True, True, "the stored version is another than expected"),
    Status.WRITE_STREAM_UNKNOWN: _T(True, False, "the sequencer does not know this write stream in this epoch"),
    Status.WRITE_STREAM_BROKEN: _T(
        True, False, "a number of the write stream before this one is missing, or somebody else used this one"
    ),
    Status.CONFLICT: _T(False, False, "the log does not end with the record that the append expects"),
    Status.FENCED: _T(False, False, "the log has a fence, and the append no token that is high enough"),
    Status.ENDED: _T(False, False, "the log was ended: nothing follows"),
    Status.TRANSACTION_ID_TOO_LOW: _T(False, False, "the log holds a greater transaction id"),
    Status.NOKEY: _T(False, False, "records are encrypted, and the reader does not have the key"),
    Status.MISPLACED: _T(
        False, False, "encrypted records are not where their writer put them: somebody repeated or moved them"
    ),
    Status.THROTTLED: _T(
        True, False, "the log or the sender is over its quota; wait for the time that the error names, if it names one"
    ),
}


class LogDeviceError(Exception):
    """An operation failed; `status` says how, `retriable` and `maybe_applied` what the caller may do."""

    def __init__(
        self,
        status: Status,
        detail: str = "",
        *,
        retriable: bool | None = None,
        maybe_applied: bool | None = None,
        retry_after_us: int = 0,
    ) -> None:
        traits = TRAITS[status]
        super().__init__(f"{status.name}: {detail or traits.meaning}")
        self.status = status
        self.detail = detail
        self.retriable = traits.retriable if retriable is None else retriable
        """The same call may succeed later."""
        self.maybe_applied = traits.maybe_applied if maybe_applied is None else maybe_applied
        """The operation may have taken effect although it failed."""
        self.retry_after_us = retry_after_us
        """THROTTLED: in how many microseconds the same call may succeed. 0: nobody said."""


class ProtocolError(Exception):
    """Bytes from the network that are no message of ours: the connection is closed, nobody else notices."""


class CorruptEntryError(Exception):
    """Bytes of an entry that do not match their checksum or their declared lengths."""
