"""The URL of a store for cold copies: checked where somebody writes one, and read where it is used."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

from logdevice_py.core.status import Status
from streams.cold.errors import ColdCopyError

_WANTED: Final = "file:///directory or s3://bucket/folder"


def store_url(url: str) -> SplitResult:
    """The parts of the URL of a store.

    Raises:
        ColdCopyError: INVALID_PARAM: no store can have it.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - which is looked at when it is asked for
    except ValueError:
        # which says what is wrong with the text, where keys may be
        text = f"this is no URL of a store for cold copies: write {_WANTED}"
        raise ColdCopyError(Status.INVALID_PARAM, text) from None
    if parts.scheme not in ("file", "s3", "memory"):
        shown = shown_store_url(parts) if parts.scheme else repr(url)
        raise ColdCopyError(Status.INVALID_PARAM, f"{shown} is no store for cold copies: write {_WANTED}")
    if parts.scheme == "file" and (parts.netloc or not parts.path):
        meant = f"file:///{parts.hostname or ''}{parts.path}" if parts.netloc else "file:///directory"
        text = f"{shown_store_url(parts)} names no directory of this machine: write {meant}"
        raise ColdCopyError(Status.INVALID_PARAM, text)
    if parts.scheme == "s3" and not parts.hostname:
        raise ColdCopyError(Status.INVALID_PARAM, f"{shown_store_url(parts)} names no bucket: write {_WANTED}")
    return parts


def shown_store_url(parts: SplitResult) -> str:
    """The URL without keys, for people."""
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
