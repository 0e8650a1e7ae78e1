"""What the service of an index log answers, declared once: requests are checked by it, and the description is made of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from logdevice_py.runtime.http.openapi import (
    TEXT,
    Parameter,
    answers_by_media,
    common_paths,
    document,
    query_parameter,
)

if TYPE_CHECKING:
    from indexlog.serving.service import IndexService

ARROW: Final = "application/vnd.apache.arrow.stream"
JSON: Final = "application/json"
WAIT_MS_MAX: Final = 30_000
LIMIT_MAX: Final = 10_000
TOKEN_BYTES_MAX: Final = 100_000
_INTEGER: Final = {"type": "integer"}
_NULLABLE: Final = {"type": ["string", "null"]}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _array(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map_of(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


@dataclass(frozen=True, slots=True)
class IndexOperation:
    """Something that can be read."""

    name: str
    path: str
    """With ``{index}`` where an index code stands."""
    doc: str
    parameters: tuple[Parameter, ...]
    """Of the query; none is required."""
    schema: Mapping[str, Any]
    """Of the answer in JSON."""
    run: Callable[[IndexService, web.BaseRequest, str, Mapping[str, Any]], Awaitable[web.StreamResponse]]
    """Is given the index code, empty where the path has none, and the parameters that are given."""
    is_arrow: bool = False
    """Whoever accepts Arrow gets it."""

    def described(self) -> dict[str, Any]:
        """As OpenAPI has it."""
        of_path = {"name": "index", "in": "path", "required": True, "description": "The index code.", "schema": TEXT}
        parameters = [of_path] if "{index}" in self.path else []
        parameters += [query_parameter(each) for each in self.parameters]
        schemas = {JSON: self.schema, **({ARROW: {**TEXT, "format": "binary"}} if self.is_arrow else {})}
        operation = {
            "operationId": self.name,
            "tags": ["index log"],
            "summary": self.doc,
            "parameters": parameters,
            "responses": answers_by_media(schemas),
        }
        return {"get": operation}


_DOCUMENT: Final = _object(
    docid=TEXT,
    deleted={"type": "boolean", "description": "What is older is gone."},
    timestamp={"type": "integer", "description": "Milliseconds since 1970, by the writer's clock."},
    fields={"type": ["object", "null"], "additionalProperties": TEXT, "description": "All fields; null: they stay."},
    variables=_map_of({"type": "number"}),
    categories=_map_of(TEXT),
)
PAGE: Final = _object(
    source={"type": "string", "description": "The file, `unsorted`, or the raw log; empty: nothing was left."},
    next_token={**_NULLABLE, "description": "For the next page; null: this was the last one of its moment."},
    tail_token={**_NULLABLE, "description": "With the last page: for what is written later."},
    rows=_array(_DOCUMENT),
)
STATUS: Final = _object(
    store=TEXT,
    state={"type": "integer", "description": "Changes of files so far."},
    indexes=_INTEGER,
    parts=_INTEGER,
    records=_INTEGER,
    bytes=_INTEGER,
    retired_parts=_INTEGER,
    forgotten={"type": "integer", "description": "Tokens of earlier states have expired."},
    unreadable=_INTEGER,
    undealt=_object(
        records=_INTEGER, bytes=_INTEGER, seconds={"type": "number", "description": "Since the oldest was written."}
    ),
    raw_logs=_array(_object(log=_INTEGER, generation=_INTEGER, dealt=TEXT, tail=TEXT)),
    jobs=_array(_object(token=_INTEGER, began=TEXT)),
)
INDEXES: Final = _object(
    indexes=_array(_object(index=TEXT, parts=_INTEGER, records=_INTEGER, bytes=_INTEGER)), more={"type": "boolean"}
)
FILES: Final = _object(
    files=_array(_object(name=TEXT, path=TEXT, place=_INTEGER, kind=TEXT, records=_INTEGER, bytes=_INTEGER))
)
WAIT: Final = Parameter(
    "wait_ms", "integer", "Where nothing is left: wait so long for something to be written.", 0, WAIT_MS_MAX
)
TOKEN: Final = Parameter("token", "string", "Of the page before; none: from the beginning.")
AFTER: Final = Parameter("after", "string", "Indexes behind this one.")
LIMIT: Final = Parameter("limit", "integer", "At most so many; `more` says whether there are others.", 1, LIMIT_MAX)


def describe(operations: Mapping[str, IndexOperation], *, protected: bool) -> dict[str, Any]:
    """The description, as OpenAPI wants it."""
    paths = common_paths("service", {"path": TEXT})
    for each in operations.values():
        paths[each.path] = each.described()
    tags = {
        "service": "What the process says of itself.",
        "index log": "What there is in the index log, and pages of an index.",
    }
    return document("Index log of logdevice_py", tags, paths, protected=protected)
