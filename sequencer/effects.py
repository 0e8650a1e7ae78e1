"""What the sequencer side asks its shell to do besides sending messages.

All `EpochStoreRequest`s of one turn may be submitted to the epoch store together; each is answered by ``on_epoch_store(token, result, now)``.
One that gets no answer costs its log a retry, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from epoch_store.interface import EpochStoreRequest
from logdevice_py.core.ids import LogId

__all__ = ["EpochStoreRequest", "LogNotice"]


@dataclass(slots=True)
class LogNotice:
    """Effect: a line about a log for the node's own log. Lines of one kind count together when there are too many."""

    log: LogId
    kind: str
    text: str
