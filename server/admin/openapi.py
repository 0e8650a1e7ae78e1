"""The description of the admin API, made of what is declared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from logdevice_py.core.status import TRAITS
from logdevice_py.tables.declare import ColumnKind, TableDeclaration
from server.admin.actions import ACTIONS, AdminAction, Parameter

_TYPES: Final = {
    ColumnKind.INTEGER: "integer",
    ColumnKind.REAL: "number",
    ColumnKind.TEXT: "string",
    ColumnKind.FLAG: "integer",
    ColumnKind.LOG: "integer",
    ColumnKind.LSN: "integer",
    ColumnKind.TIME: "integer",
}
_ERROR: Final = {"$ref": "#/components/schemas/Error"}
_BEARER: Final = [{"token": list[str]()}]
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
        "/v1/health": _get("Whether the process answers.", _object()),
        "/v1/ready": _get("Whether the node takes requests of clients.", _object()),
        "/v1/node": _get("The node's row of table `info`.", _object()),
        "/v1/tables": _get("The tables that are served, with their columns.", _object()),
        "/v1/openapi.json": _get("This description.", _object()),
        "/metrics": _get("For Prometheus.", {"type": "string"}, media="text/plain"),
    }
    for table in tables:
        paths[f"/v1/tables/{table.name}"] = _table(table)
    for action in ACTIONS.values():
        paths[f"/v1/actions/{action.name}"] = _action(action)
    error = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["status", "detail"],
                "properties": {
                    "status": {"type": "string", "enum": [status.name for status in TRAITS]},
                    "detail": {"type": "string"},
                },
            }
        },
    }
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Admin API of a node of logdevice_py", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {"Error": error},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    if protected:
        document["security"] = _BEARER
        for path in ("/v1/health", "/v1/ready"):
            paths[path]["get"]["security"] = []
    return document


def _object() -> dict[str, Any]:
    return {"type": "object"}


def _answers(schema: dict[str, Any], media: str = "application/json") -> dict[str, Any]:
    return {
        "200": {"description": "Done.", "content": {media: {"schema": schema}}},
        "default": {"description": "Refused or failed.", "content": {"application/json": {"schema": _ERROR}}},
    }


def _get(summary: str, schema: dict[str, Any], *, media: str = "application/json") -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": _answers(schema, media)}}


def _table(table: TableDeclaration) -> dict[str, Any]:
    columns = "; ".join(f"{each.name} ({_TYPES[each.kind]}): {each.doc}" for each in table.columns)
    schema = {
        "type": "object",
        "required": ["cluster", "node", "table", "columns", "rows", "more"],
        "properties": {
            "cluster": {"type": "string"},
            "node": {"type": "integer"},
            "table": {"const": table.name},
            "columns": {"type": "array", "items": {"type": "string"}},
            "rows": {"type": "array", "items": {"type": "array"}, "description": columns},
            "more": {"type": "boolean"},
        },
    }
    names = {column.name for column in table.columns}
    parameters = [
        {"name": name, "in": "query", "description": doc, "required": False, "schema": {"type": kind}}
        for name, kind, doc in _QUERY
        if name == "limit" or name in names or (name.startswith("lsn") and "lsn" in names) or _is_bare(name, names)
    ]
    for parameter in parameters:
        parameter["required"] = parameter["name"] in table.required and parameter["name"] != "lsn"
    return {"get": {"summary": table.doc, "parameters": parameters, "responses": _answers(schema)}}


def _is_bare(name: str, columns: set[str]) -> bool:
    return name == "bare" and "payload" in columns


def _action(action: AdminAction) -> dict[str, Any]:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": [parameter.name for parameter in action.parameters],
        "properties": {parameter.name: _property(parameter) for parameter in action.parameters},
    }
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    described = {"summary": action.doc, "security": _BEARER, "requestBody": body, "responses": _answers(_object())}
    return {"post": described}


def _property(parameter: Parameter) -> dict[str, Any]:
    described: dict[str, Any] = {"type": parameter.type, "description": parameter.doc}
    if parameter.type == "integer":
        described |= {"minimum": parameter.minimum, "maximum": parameter.maximum}
    return described
