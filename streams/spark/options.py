"""Options of reading a stream: those of logs, and transaction ids as bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from client.spark.options import SourceOptions, refusal
from logdevice_py.core.extensions import NUMBER_MAX

SCHEME: Final = "stream:"
_PATH: Final = re.compile(r"(/[A-Za-z0-9_.-]+){2,}")
_START: Final = "startingTxid"
_END: Final = "endingTxid"


def is_stream(options: Mapping[str, Any]) -> bool:
    """Whether a stream is named, not logs."""
    given = {str(key).lower(): str(value) for key, value in options.items()}
    return any(given.get(key, "").strip().startswith(SCHEME) for key in ("path", "logs", "log"))


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which stream is read, from where to where, and how."""

    path: str
    """The namespace's path and the stream's name: ``/streams/team/orders``."""
    first_txid: int | None
    """From the first record on whose transaction id is not less; None: as `source` says."""
    last_txid: int | None
    """Up to the last record whose transaction id is not greater; None: as `source` says."""
    source: SourceOptions
    """As for logs."""

    @classmethod
    def of(cls, options: Mapping[str, Any], *, streaming: bool | None = False) -> StreamOptions:
        """From a source's options.

        Args:
            options: as given.
            streaming: whether a streaming query reads the stream; None: it is not known yet.

        Raises:
            LogDeviceError: INVALID_PARAM; the text names the option.
        """
        given = {str(key).lower(): str(value) for key, value in options.items()}
        bounds = {key: _txid(key, given.pop(key.lower(), None)) for key in (_START, _END)}
        for side, key in (("starting", _START), ("ending", _END)):
            for other in (f"{side}Lsn", f"{side}Timestamp"):
                if bounds[key] is not None and other.lower() in given:
                    raise refusal(f"{key} and {other} are both given: one of them may be")
        first, last = bounds[_START], bounds[_END]
        if first is not None and last is not None and first > last:
            raise refusal(f"endingTxid {last} is before startingTxid {first}")
        if streaming and last is not None:
            raise refusal("endingTxid is not for streaming queries, which have no end")
        source = SourceOptions.lenient(given) if streaming is None else SourceOptions.of(given, streaming=streaming)
        if source.start.by_name or source.end.by_name:
            raise refusal("a stream has one position at each end, and no JSON object by log")
        if source.include_proof or source.pushdown:
            raise refusal("includeProof and pushdown are for logs; a stream does not have them")
        path = source.logs.strip().removeprefix(SCHEME)
        if not source.logs.strip().startswith(SCHEME) or _PATH.fullmatch(path) is None:
            raise refusal(f"{source.logs!r} names no stream; write one, like stream:/streams/orders")
        return cls(path, first, last, source)


def _txid(key: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,19}", text.strip()) or not 0 < int(text) <= NUMBER_MAX:
        raise refusal(f"{key} is {text!r}; it must be a transaction id, from 1 to {NUMBER_MAX}")
    return int(text)
