"""Warnings about hostile peers are few."""

from __future__ import annotations

import logging

import pytest

from logdevice_py.core.units import SECOND, Micros
from logdevice_py.runtime.diagnostics import LINES_MAX, Diagnostics


def test_one_kind_is_limited_counted_and_does_not_silence_another(caplog: pytest.LogCaptureFixture) -> None:
    diagnostics = Diagnostics(logging.getLogger("test"))
    for number in range(LINES_MAX + 7):
        diagnostics.warn("no introduction", f"peer {number}", Micros(number))
    diagnostics.warn("does not read", "peer x does not read", Micros(100))
    assert len(caplog.messages) == LINES_MAX + 1
    assert caplog.messages[-1] == "peer x does not read"
    diagnostics.warn("no introduction", "peer y", Micros(11 * SECOND))
    assert caplog.messages[-2:] == ["7 further times: no introduction", "peer y"]


def test_what_was_left_out_is_said_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    diagnostics = Diagnostics(logging.getLogger("test"))
    for _ in range(LINES_MAX + 1):
        diagnostics.warn("noise", "a peer makes noise", Micros(0))
    diagnostics.flush_all()
    assert caplog.messages[-1] == "1 further times: noise"
    diagnostics.flush_all()
    assert len(caplog.messages) == LINES_MAX + 1
