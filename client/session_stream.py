"""A read stream that takes part in a session."""

from __future__ import annotations

from collections.abc import Callable

from client.history_request import HistoryRequest
from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.read.read_stream import ReadStream
from client.read.settings import ReadSettings
from client.session import ClientSession
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval


class SessionStream:
    """Gives a stream its messages, and the nodesets of its log whenever it asks for them."""

    __slots__ = ("_history", "_session", "stream")

    def __init__(
        self,
        session: ClientSession,
        request: ReadRequest,
        *,
        settings: ReadSettings,
        metrics: ReadMetrics,
        on_ready: Callable[[], None],
    ) -> None:
        """
        Args:
            request: what to read; its stream id comes from the session's `ids`.
            on_ready: as for `ReadStream`.
        """
        self.stream = ReadStream(
            request,
            config=session.config,
            settings=settings,
            outbox=session.links,
            timers=session.timers,
            rng=session.rng,
            metrics=metrics,
            request_history=self._request_history,
            on_ready=on_ready,
            request_turn_end=lambda: session.streams.request_turn_end(request.stream),
            explain_history=self._explain_history,
            at=session.location,
            hedges=session.hedges,
        )
        self._session = session
        self._history: HistoryRequest | None = None

    def start(self, now: Micros) -> None:
        """Begin to read. Call once."""
        self._session.streams.add(self.stream.request.stream, self.stream, now)
        self.stream.start(now)

    def stop(self) -> None:
        """Stop the stream. Harmless when called again."""
        self.stream.stop()
        self.leave()

    def leave(self) -> None:
        """It has finished, or was stopped, and needs nothing more of the session."""
        self._session.streams.remove(self.stream.request.stream)
        if self._history is not None:
            self._history.cancel()
            self._history = None

    def _request_history(self, now: Micros) -> None:
        if self._history is not None:
            self._history.cancel()
        self._history = self._session.histories.read(self.stream.log, now, self._on_history)

    def _on_history(self, history: tuple[EpochInterval, ...], now: Micros, certain: Epoch) -> None:
        is_whole = self._history is not None and self._history.is_whole
        self.stream.on_history(history, now, certain, is_whole=is_whole)

    def _explain_history(self) -> str:
        return "the metadata log" if self._history is None else self._history.waiting_for()
