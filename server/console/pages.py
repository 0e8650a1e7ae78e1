"""The files of the console. They hold no data, need nothing from elsewhere, and may run nothing but themselves."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from logdevice_py.runtime.http.listener import Handler

DIRECTORY: Final = Path(__file__).parent / "static"
PREFIX: Final = "/console/"
_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    "Cache-Control": "no-cache",  # a node that is upgraded has other files
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def pages() -> dict[str, Handler]:
    """What answers for each file, by its path: `/` is the page itself."""
    found: dict[str, Handler] = {}
    for file in sorted(DIRECTORY.iterdir()):
        if file.suffix in _TYPES:
            path = "/" if file.name == "index.html" else f"{PREFIX}{file.name}"
            found[path] = partial(_send, file)
    return found


async def _send(file: Path, request: web.BaseRequest) -> web.StreamResponse:
    """Some kilobytes from the page cache of the system: read for each request, so that a node keeps none of them in memory."""
    return web.Response(body=file.read_bytes(), content_type=_TYPES[file.suffix], charset="utf-8", headers=HEADERS)
