"""The look-ups of one client that are under way."""

from __future__ import annotations

from client.look_up.epochs_request import EpochsRequest, KnownEpochs
from client.look_up.find_request import FindRequest, FindTarget, FoundPlace
from client.look_up.release_request import ReleaseRequest, ReleaseSource
from client.look_up.size_request import SizeRequest
from client.look_up.survey import LogParts, SurveyContext
from client.promise import Promise, break_, keep
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp

AnyRequest = EpochsRequest | FindRequest | ReleaseRequest | SizeRequest


class LookUps:
    """Begins look-ups."""

    __slots__ = ("_context",)

    def __init__(self, context: SurveyContext) -> None:
        self._context = context

    def find(
        self,
        log: LogId,
        parts: LogParts,
        target: FindTarget,
        first: Lsn,
        last: Lsn,
        promise: Promise,
        now: Micros,
        timeout_us: int,
    ) -> FindRequest:
        """Look for a target in [first, last]; the promise gets a `FoundPlace`, or PARTIAL when too few shards answered."""

        def done(found: FoundPlace | list[ShardId], at: Micros) -> None:
            _tell(promise, found, request, at)

        request = FindRequest(self._context, log, parts, target, last, now + timeout_us, done, first)
        request.start(now)
        return request

    def epochs(
        self, log: LogId, parts: LogParts, first: Epoch, last: Epoch, promise: Promise, now: Micros, timeout_us: int
    ) -> EpochsRequest:
        """What recovered epochs hold; the promise gets `KnownEpochs`, or PARTIAL when too few shards answered."""

        def done(found: KnownEpochs | list[ShardId], at: Micros) -> None:
            _tell(promise, found, request, at)

        request = EpochsRequest(self._context, log, parts, first, last, now + timeout_us, done)
        request.start(now)
        return request

    def size(
        self,
        log: LogId,
        parts: LogParts,
        first: Timestamp,
        last: Timestamp,
        promise: Promise,
        now: Micros,
        timeout_us: int,
    ) -> SizeRequest:
        """Estimate the bytes of a log; the promise gets them, or PARTIAL when too few shards answered."""

        def done(found: int | list[ShardId], at: Micros) -> None:
            _tell(promise, found, request, at)

        request = SizeRequest(self._context, log, parts, first, last, now + timeout_us, done)
        request.start(now)
        return request

    def release(
        self, log: LogId, parts: LogParts, source: ReleaseSource, promise: Promise, now: Micros, timeout_us: int
    ) -> ReleaseRequest:
        """How far shards know that a log can be read; the promise gets the LSN, or PARTIAL when too few shards answered."""

        def done(found: Lsn | list[ShardId], at: Micros) -> None:
            _tell(promise, found, request, at)

        request = ReleaseRequest(self._context, log, parts, source, now + timeout_us, done)
        request.start(now)
        return request

    def cancel(self, request: AnyRequest) -> None:
        """Nobody waits for it; harmless when it was answered."""
        request.cancel()


def _tell(
    promise: Promise, found: FoundPlace | KnownEpochs | int | list[ShardId], request: AnyRequest, now: Micros
) -> None:
    if isinstance(found, list):
        if request.is_refused:
            text = f"the principal of this client has no permission read: {request.explain(now)}"
            break_(promise, LogDeviceError(Status.ACCESS, text))
            return
        text = f"too few shards answered: {request.explain(now)}"
        break_(promise, LogDeviceError(Status.PARTIAL, text, retriable=True, maybe_applied=False))
    else:
        keep(promise, found)
