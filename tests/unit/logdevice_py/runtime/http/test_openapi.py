"""Values of requests, as they are declared."""

from __future__ import annotations

from typing import Any

import pytest

from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.http.openapi import Parameter

WHY = Parameter("why", "string", "What for.")
BASE = Parameter("base", "integer", "The version.", 1, 9)


@pytest.mark.parametrize(("parameter", "value"), [(WHY, "für uns 𝄞"), (BASE, 1), (BASE, 9)])
def test_what_is_declared_is_taken(parameter: Parameter, value: Any) -> None:
    parameter.check(value)


@pytest.mark.parametrize(
    ("parameter", "value", "why"),
    [
        (WHY, "", "why: write a string"),
        (WHY, 7, "why: write a string"),
        (WHY, b"f\xfcr uns".decode("utf-8", "surrogateescape"), "why: is no text in UTF-8"),
        (BASE, True, "base: write an integer"),
        (BASE, 10, "base: is not within 1 to 9"),
    ],
)
def test_what_is_not_is_refused(parameter: Parameter, value: Any, why: str) -> None:
    with pytest.raises(LogDeviceError, match=why) as refused:
        parameter.check(value)
    assert refused.value.status is Status.INVALID_PARAM
