"""The description of the admin API, made of what is declared."""

from __future__ import annotations

from collections.abc import Iterable
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from logdevice_py.runtime.http.openapi import BEARER, OBJECT, TEXT, answers, common_paths, document, get
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.declare import ColumnKind, TableDeclaration
from server.admin.actions import ACTIONS, AdminAction

_TYPES: Final = {
    ColumnKind.INTEGER: "integer",
    ColumnKind.REAL: "number",
    ColumnKind.TEXT: "string",
    ColumnKind.FLAG: "integer",
    ColumnKind.LOG: "integer",
    ColumnKind.LSN: "integer",
    ColumnKind.TIME: "integer",
}
_TAGS: Final = {
    "node": "What a node says of itself.",
    "tables": "Debug tables, each row as an array of cells in the order of the columns.",
    "actions": "What an operator can have a node do.",
}
_TABLE_LIST: Final = {
    "type": "object",
    "required": ["tables"],
    "properties": {
        "tables": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "rows", "source", "required", "columns"],
                "properties": {
                    "name": TEXT,
                    "rows": {"type": "string", "description": "What a row is."},
                    "source": TEXT,
                    "required": {"type": "array", "items": TEXT},
                    "columns": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["name", "type", "doc"],
                            "properties": {"name": TEXT, "type": TEXT, "doc": TEXT},
                        },
                    },
                },
            },
        }
    },
}
_QUERY: Final = (
    ("log_id", "integer", "Rows of this log."),
    ("shard", "integer", "Rows of the shard of this index."),
    ("lsn", "string", "Rows at this LSN, like e3n17; stands for lsn_min and lsn_max."),
    ("lsn_min", "string", "Rows at this LSN and above."),
    ("lsn_max", "string", "Rows at this LSN and below."),
    ("bare", "integer", "1: payloads are left out."),
    ("limit", "integer", "At most so many rows; `more` says whether there are others."),
)


def describe(tables: Iterable[TableDeclaration], *, protected: bool) -> dict[str, Any]:
    """As OpenAPI 3.1 wants it. `protected`: also what only reads needs the bearer token."""
    paths: dict[str, Any] = {
        **common_paths("node", {"node": {"type": "integer"}}),
        "/v1/node": get("get_node", "node", "The node's row of table `info`.", _info()),
        "/v1/tables": get("list_tables", "node", "The tables that are served, with their columns.", _TABLE_LIST),
    }
    for table in tables:
        paths[f"/v1/tables/{table.name}"] = _table(table)
    for action in ACTIONS.values():
        paths[f"/v1/actions/{action.name}"] = _action(action)
    return document("Admin API of a node of logdevice_py", _TAGS, paths, protected=protected)


def _cells(table: TableDeclaration) -> dict[str, dict[str, Any]]:
    """What stands in the columns of a row."""
    hints = get_type_hints(table.row)
    found: dict[str, dict[str, Any]] = {}
    for column in table.columns:
        kind: Any = _TYPES[column.kind]
        if NoneType in get_args(hints.get(column.name)):
            kind = [kind, "null"]
        found[column.name] = {"title": column.name, "type": kind, "description": column.doc}
    return found


def _info() -> dict[str, Any]:
    cells = _cells(TABLES["info"])
    return {"type": "object", "required": list(cells), "properties": cells}


def _table(table: TableDeclaration) -> dict[str, Any]:
    cells = _cells(table)
    row = {"type": "array", "prefixItems": list(cells.values()), "minItems": len(cells), "maxItems": len(cells)}
    schema = {
        "type": "object",
        "required": ["cluster", "uuid", "node", "config_version", "table", "columns", "rows", "more"],
        "properties": {
            "cluster": {"type": "string"},
            "uuid": {"type": "string"},
            "node": {"type": "integer"},
            "config_version": {"type": "integer"},
            "table": {"const": table.name},
            "columns": {"type": "array", "items": {"type": "string"}},
            "rows": {"type": "array", "items": row},
            "more": {"type": "boolean"},
        },
    }
    names = {column.name for column in table.columns}
    parameters = [
        {"name": name, "in": "query", "description": doc, "required": False, "schema": {"type": kind}}
        for name, kind, doc in _QUERY
        if name == "limit"
        or name in names
        or (name.startswith("lsn") and "lsn" in names)
        or (name == "bare" and table.has_payloads)
    ]
    for parameter in parameters:
        parameter["required"] = parameter["name"] in table.required and parameter["name"] != "lsn"
    return get(f"get_table_{table.name}", "tables", table.doc, schema, parameters=parameters)


def _action(action: AdminAction) -> dict[str, Any]:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": [parameter.name for parameter in action.parameters],
        "properties": {
            parameter.name: {**parameter.schema(), "description": parameter.doc} for parameter in action.parameters
        },
    }
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    described = {"operationId": action.name, "tags": ["actions"], "summary": action.doc, "security": BEARER}
    return {"post": {**described, "requestBody": body, "responses": answers(OBJECT)}}
