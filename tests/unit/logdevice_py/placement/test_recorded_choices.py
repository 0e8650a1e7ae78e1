from __future__ import annotations

from tests.unit.logdevice_py.placement.choices import RECORDED, choices


def test_the_same_seeds_choose_what_they_did() -> None:
    """A choice that changes gives logs new epochs, and their data another place: re-record only when that is meant."""
    recorded, found = RECORDED.read_text().splitlines(), list(choices())
    assert len(found) > 400
    assert found == recorded
