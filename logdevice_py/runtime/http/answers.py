"""Answers of HTTP services: JSON, and errors with the names of statuses."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from logdevice_py.core.status import TRAITS, LogDeviceError, Status

_HTTP: Final[dict[Status, int]] = {
    Status.INVALID_PARAM: 400,
    Status.ACCESS: 403,
    Status.NOTFOUND: 404,
    Status.REDIRECTED: 409,
    Status.PREEMPTED: 409,
    Status.NOTSUPPORTED: 405,
    Status.TOOBIG: 413,
    Status.OVERLOADED: 429,
    Status.INTERNAL: 500,
    Status.TIMEDOUT: 504,
}
"""HTTP's codes for our statuses; for all others 503."""


def answer(content: Any, *, code: int = 200) -> web.Response:
    """A JSON document."""
    return web.json_response(content, status=code, headers={"Cache-Control": "no-store"})


def refusal(status: Status, detail: str = "", *, code: int | None = None) -> web.Response:
    """An error."""
    body = {"error": {"status": status.name, "detail": detail or TRAITS[status].meaning}}
    response = answer(body, code=_HTTP.get(status, 503) if code is None else code)
    if code == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def explain_failure(error: LogDeviceError) -> web.Response:
    """What is answered when a request could not be served."""
    return refusal(error.status, error.detail)
