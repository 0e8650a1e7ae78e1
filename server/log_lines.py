"""Lines of a node's log: text for people, or a JSON object each for programs that collect them."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from logdevice_py.core.ids import NodeId
from logdevice_py.runtime.diagnostics import FIELDS

TEXT: Final = "text"
JSON: Final = "json"


class JsonLines(logging.Formatter):
    """A JSON object a line: `time` (UTC, RFC 3339), `level`, `node`, `logger`, `message`; where they are known `kind` (lines of one kind are limited together),
    `shard` and `log`; `exception` is the traceback of a bug."""

    def __init__(self, node: NodeId) -> None:
        super().__init__()
        self._node = f"N{node}"

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end; ASCII, whatever the message is made of."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname,
            "node": self._node,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def formatter_of(lines: str, node: NodeId) -> logging.Formatter:
    """What formats lines of a node.

    Args:
        lines: TEXT or JSON.
    """
    return JsonLines(node) if lines == JSON else logging.Formatter(f"%(asctime)s N{node} %(levelname)s %(message)s")
