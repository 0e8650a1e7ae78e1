"""How ldctl prints results."""

from __future__ import annotations

import argparse

import pytest

from ldquery.ctl.verb import show, show_rows


def test_what_holds_or_does_not_is_written_as_in_the_cluster_file(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    rows = [{"setting": "graylist", "value": "true", "live": True}, {"setting": "x", "value": "1", "live": False}]
    plain = argparse.Namespace(json=False)
    show_rows(plain, rows)
    assert capsysbinary.readouterr().out == b"SETTING   VALUE  LIVE\ngraylist  true   true\nx         1      false\n"
    show(plain, {"live": False})
    assert capsysbinary.readouterr().out == b"live  false\n"
    show_rows(argparse.Namespace(json=True), rows[1:])
    assert capsysbinary.readouterr().out == b'{"setting":"x","value":"1","live":false}\n'


def test_what_others_wrote_does_not_drive_the_terminal(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    plain = argparse.Namespace(json=False)
    show(plain, {}, plain="waits (anna: disks\x1b[2J)\n\tnothing else")
    assert capsysbinary.readouterr().out == b"waits (anna: disks\\x1b[2J)\n\tnothing else\n"
    show(plain, {"reason": "\x1b[2J"})
    assert capsysbinary.readouterr().out == b"reason  \\x1b[2J\n"
