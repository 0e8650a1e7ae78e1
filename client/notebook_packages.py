"""Packages that notebooks and cold copies use and everything else does without."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def notebook_package(name: str, method: str, *, extra: str = "notebook") -> Any:
    """A package that is imported when something of it is used for the first time, as the method of that name does.

    Args:
        extra: which optional dependencies bring it.

    Raises:
        ImportError: it is not installed; the text says how to install it.
    """
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise  # another one is missing, which is not for us to explain
    text = f"{method} needs {package}, which is not installed: pip install 'logdevice-py[{extra}]'"
    raise ModuleNotFoundError(text, name=package)


def data_frame(to_arrow: Callable[[], Any]) -> pd.DataFrame:
    """An Arrow table as a data frame of pandas. Where a column of integers may lack one, integers are of a type that can: pandas' own would make
    them floats, which do not hold an LSN.

    Raises:
        ImportError: pandas is not installed, or what `to_arrow` raises.
    """
    pandas = notebook_package("pandas", "to_pandas")  # Arrow's own error does not say how to install it
    table = to_arrow()
    nullable = {str(each.type) for each in table.schema if each.nullable}
    types = {"int32": pandas.Int32Dtype(), "int64": pandas.Int64Dtype()}
    return table.to_pandas(types_mapper=lambda kind: types.get(str(kind)) if str(kind) in nullable else None)
