"""Has records of metadata logs stored again that cannot be read, or that too few shards are authoritative for.

The sequencer of the log can do that: the epoch store tells it what the record says. It is only asked; readers see what came of it when they read
the metadata log the next time.
"""

from __future__ import annotations

from typing import Final

from client.append.seq_state_request import SeqStateRequests
from client.settings import ClientSettings
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import SeqStateFlags

_STORE_METADATA: Final = int(SeqStateFlags.STORE_METADATA)


class MetadataRepair:
    """Asks now and then, for each log that somebody of this client wants to read."""

    __slots__ = ("_ask_at", "_empty", "_questions", "_settings")

    def __init__(self, questions: SeqStateRequests, settings: ClientSettings) -> None:
        self._questions = questions
        self._settings = settings
        self._ask_at: dict[LogId, Micros] = {}
        self._empty: set[LogId] = set()

    def note(self, log: LogId, *, found: bool) -> None:
        """A metadata log was read; `found`: it holds something."""
        if found:
            self._empty.discard(log)
        else:
            self._empty.add(log)

    def flags(self, log: LogId) -> int:
        """For whoever asks the log's sequencer because a reader stalls: a metadata log that seems to be empty may have lost its copies
        with the nodes that were taken out."""
        return _STORE_METADATA if log in self._empty else 0

    def wanted(self, log: LogId, epoch: Epoch, now: Micros) -> None:
        """The metadata log of a data log, which was in `epoch` or an earlier one when last heard of, could not be read for certain."""
        if now < self._ask_at.get(log, 0):
            return
        hit("client_asks_for_metadata")
        settings = self._settings
        self._ask_at[log] = Micros(now + settings.metadata_repair_us)
        self._questions.ask(
            log,
            now,
            lambda answer, at: None,
            flags=_STORE_METADATA,
            min_epoch=epoch,
            deadline=now + settings.request_timeout_us,
        )
