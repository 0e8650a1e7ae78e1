"""The history of one log: what clients asked for, when they called, when they were told, and what."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from client.guards import Position

_EMPTY = 14695981039346656037
_MASK = (1 << 64) - 1


def digest(payloads: Iterable[bytes]) -> str:
    """Of records in their order, as the checker makes it: FNV-1a over the payloads, each with a newline."""
    total = _EMPTY
    for payload in payloads:
        for byte in payload + b"\n":
            total = (total ^ byte) * 1099511628211 & _MASK
    return f"{total:016x}"


@dataclass
class History:
    """Operations of all clients on one log. Payloads are different."""

    operations: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[dict[str, Any]] = field(default_factory=list)
    """Appends of which nobody knows yet whether they are in the log."""
    refused: set[bytes] = field(default_factory=set)
    """Payloads that are certainly not in the log."""

    def append(self, client: int, payload: bytes, expect: Position | None) -> dict[str, Any]:
        """An append is called."""
        operation = self._called(client, "append") | {"payload": payload.decode()}
        if expect is not None:
            operation["expect"] = _place(expect)
        return operation

    def look(self, client: int, kind: str) -> dict[str, Any]:
        """A ``tail`` or ``read`` is called."""
        return self._called(client, kind)

    @staticmethod
    def _called(client: int, kind: str) -> dict[str, Any]:
        return {"client": client, "kind": kind, "call": time.monotonic_ns()}

    def told(self, operation: dict[str, Any], **answer: Any) -> None:
        """Its client knows the outcome."""
        self.operations.append(operation | {"return": time.monotonic_ns()} | answer)

    def end(self, records: dict[bytes, Position]) -> None:
        """What the log holds when all is over tells what became of appends of unknown outcome. One that is not there took effect after everything, if ever."""
        for operation in self.unknown:
            position = records.get(operation["payload"].encode())
            if position is not None:
                self.operations.append(operation | {"return": 0, "position": _place(position)})
        self.unknown.clear()
        applied = self.refused.intersection(records)
        assert not applied, f"{applied} were refused, and are there"

    def write(self, path: Path) -> None:
        """For the checker."""
        path.write_text(json.dumps(sorted(self.operations, key=lambda operation: operation["call"])))


def _place(position: Position) -> list[int]:
    return [int(position.lsn), position.batch_offset]
