"""Packages that notebooks use and the client does without."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def notebook_package(name: str, method: str) -> Any:
    """A package that is imported when something of it is used for the first time, as the method of that name does.

    Raises:
        ImportError: it is not installed; the text says how to install it.
    """
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # another one is missing, which is not for us to explain
    text = f"{method} needs {package}, which is not installed: pip install 'logdevice-py[notebook]'"
    raise ModuleNotFoundError(text, name=package)
