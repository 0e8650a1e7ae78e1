"""What ``ldctl`` shows of one log."""

from __future__ import annotations

import argparse

import pytest

from ldquery.ctl.logs import shown_trim_point
from logdevice_py.core.lsn import ESN_MAX, compose_lsn


@pytest.mark.parametrize(
    ("epoch", "esn", "plain", "as_json"),
    [
        (3, 17, "e3n17", "e3n17"),
        (4, ESN_MAX, "e4n4294967295 (all of epoch 4)", "e4n4294967295"),
        (0, 0, None, None),
        (0, ESN_MAX, None, None),
    ],
)
def test_the_end_of_an_epoch_is_told_as_such(epoch: int, esn: int, plain: str | None, as_json: str | None) -> None:
    point = compose_lsn(epoch, esn)
    assert shown_trim_point(argparse.Namespace(json=False), point) == plain
    assert shown_trim_point(argparse.Namespace(json=True), point) == as_json
