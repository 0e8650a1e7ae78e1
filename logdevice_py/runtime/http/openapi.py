"""Descriptions of HTTP services as OpenAPI wants them, made of what is declared; and requests checked by the same declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from logdevice_py.core.status import TRAITS, LogDeviceError, Status
from logdevice_py.runtime.http.listener import HEALTH, READY

BEARER: Final = [{"token": list[str]()}]
"""The token is needed."""
TEXT: Final = {"type": "string"}
OBJECT: Final = {"type": "object"}
_ERROR: Final = {"$ref": "#/components/schemas/Error"}
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that a request gives."""

    name: str
    type: str
    """As JSON calls it: integer or string."""
    doc: str
    minimum: int = 0
    maximum: int = 0

    def schema(self) -> dict[str, Any]:
        """Of the value."""
        if self.type == "integer":
            return {"type": self.type, "minimum": self.minimum, "maximum": self.maximum}
        return {"type": self.type}

    def check(self, value: Any) -> None:
        """That a value is what is declared.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        if self.type == "integer":
            if not isinstance(value, int) or isinstance(value, bool):
                raise invalid(f"{self.name}: write an integer")
            if not self.minimum <= value <= self.maximum:
                raise invalid(f"{self.name}: is not within {self.minimum} to {self.maximum}")
        elif not isinstance(value, str) or not value:
            raise invalid(f"{self.name}: write a string")
        elif not _is_text(value):
            raise invalid(f"{self.name}: is no text in UTF-8")


def _is_text(value: str) -> bool:
    """Whether it can be stored and sent: JSON may hold half a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def invalid(text: str) -> LogDeviceError:
    """The error for a request that is not as declared."""
    return LogDeviceError(Status.INVALID_PARAM, text)


def unknown_parameter(name: object, known: Iterable[str]) -> LogDeviceError:
    """The error for a parameter that is not declared."""
    return invalid(f"{str(name)[:50]}: no such parameter; there are {', '.join(known) or 'none'}")


def query_values(query: Mapping[str, str], parameters: Iterable[Parameter]) -> dict[str, Any]:
    """The parameters of a query, each at most once, as they are declared; none of them is required.

    Args:
        query: a ``multidict`` of texts.
        parameters: that there are.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    known = {parameter.name: parameter for parameter in parameters}
    found: dict[str, Any] = {}
    for name, text in query.items():
        parameter = known.get(name)
        if parameter is None:
            raise unknown_parameter(name, known)
        if name in found:
            raise invalid(f"{name}: given twice")
        value: Any = text
        if parameter.type == "integer":
            value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text
        parameter.check(value)
        found[name] = value
    return found


def query_parameter(parameter: Parameter) -> dict[str, Any]:
    """Of an operation; it is not required."""
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.doc,
        "required": False,
        "schema": parameter.schema(),
    }


def answers(schema: Mapping[str, Any], media: str = _JSON) -> dict[str, Any]:
    """Of an operation: what it answers when it is done, and errors."""
    return answers_by_media({media: schema})


def answers_by_media(schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Of an operation that answers in several forms."""
    return {
        "200": {"description": "Done.", "content": {media: {"schema": schema} for media, schema in schemas.items()}},
        "default": {"description": "Refused or failed.", "content": {_JSON: {"schema": _ERROR}}},
    }


def get(
    operation: str,
    tag: str,
    summary: str,
    schema: Mapping[str, Any],
    *,
    media: str = _JSON,
    parameters: Iterable[dict[str, Any]] = (),
) -> dict[str, Any]:
    """A path that is read."""
    described = {"operationId": operation, "tags": [tag], "summary": summary}
    more = {"parameters": list(parameters)} if parameters else {}
    return {"get": {**described, **more, "responses": answers(schema, media)}}


def common_paths(tag: str, health: Mapping[str, Any]) -> dict[str, Any]:
    """What all services have.

    Args:
        tag: of these.
        health: schemas of what the health says, beside the status.
    """
    state = {"type": "object", "required": ["status"], "properties": {"status": TEXT, **health}}
    return {
        HEALTH: get("get_health", tag, "Whether the process answers.", state),
        READY: get("get_readiness", tag, "Whether requests of clients are served.", state),
        "/v1/openapi.json": get("get_description", tag, "This description.", OBJECT),
        "/metrics": get("get_metrics", tag, "For Prometheus.", TEXT, media="text/plain"),
    }


def document(title: str, tags: Mapping[str, str], paths: Mapping[str, Any], *, protected: bool) -> dict[str, Any]:
    """The description, as OpenAPI 3.1 wants it.

    Args:
        title: of the service.
        tags: what operations with each of them are.
        paths: with `common_paths` among them.
        protected: also what only reads needs the bearer token.
    """
    error = {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["status", "detail"],
                "properties": {"status": {**TEXT, "enum": [status.name for status in TRAITS]}, "detail": TEXT},
            }
        },
    }
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": "1"},
        "tags": [{"name": name, "description": doc} for name, doc in tags.items()],
        "paths": dict(paths),
        "components": {
            "schemas": {"Error": error},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    if protected:
        found["security"] = BEARER
        for path in (HEALTH, READY):
            found["paths"][path]["get"]["security"] = []
    return found
